/* Runs a template's tree: scopes, control flow, macros, output. Scopes are lexical as in Jinja2: a
 * loop's turn, a macro's call and a block set have their own names on top of those around their
 * text; `if` has not. Every step costs fuel, every level of nesting depth, every byte budget. */
#include <stdlib.h>
#include <string.h>

#include "text/tmpl_internal.h"

enum {
    DEFAULT_FUEL = 20000000,
    DEFAULT_DEPTH = 1000,
    DEFAULT_BYTES = 256 << 20,
};

struct binding {
    u32 id;
    struct tmpl_value value;
    struct binding *next;
};

struct tmpl_frame {
    struct tmpl_frame *parent; /* NULL: the globals come next */
    struct binding *first;
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static struct tmpl_value eval(struct tmpl_rt *rt, const struct tmpl_node *node);
static enum flow exec(struct tmpl_rt *rt, const struct tmpl_node *node);

/* ---- limits ---- */

void rt_spend(struct tmpl_rt *rt, u64 work)
{
    if (work > rt->fuel) {
        tmpl_fail(&rt->fault, FLETCH_E_LIMIT, "the template takes too many steps");
    }
    rt->fuel -= work;
}

void rt_enter(struct tmpl_rt *rt)
{
    if (!rt->depth) tmpl_fail(&rt->fault, FLETCH_E_LIMIT, "nested too deeply");
    rt->depth--;
}

void rt_leave(struct tmpl_rt *rt)
{
    rt->depth++;
}

void *rt_alloc(struct tmpl_rt *rt, size_t n, size_t size)
{
    return tmpl_alloc(&rt->fault, n, size);
}

/* ---- names ---- */

static struct tmpl_value lookup(struct tmpl_rt *rt, u32 id)
{
    for (struct tmpl_frame *f = rt->frame; f; f = f->parent) {
        for (struct binding *b = f->first; b; b = b->next) {
            rt_spend(rt, 1);
            if (b->id == id) return b->value;
        }
    }
    return rt->globals[id];
}

static void bind(struct tmpl_rt *rt, u32 id, struct tmpl_value value)
{
    if (!rt->frame) {
        rt->globals[id] = value;
        return;
    }
    struct binding *b = rt->frame->first;
    while (b && b->id != id) b = b->next;
    if (!b) {
        b = rt_alloc(rt, 1, sizeof *b);
        b->id = id;
        b->next = rt->frame->first;
        rt->frame->first = b;
    }
    b->value = value;
}

static void push_frame(struct tmpl_rt *rt, struct tmpl_frame *parent)
{
    struct tmpl_frame *f = rt_alloc(rt, 1, sizeof *f);
    f->parent = parent;
    rt->frame = f;
}

static void assign(struct tmpl_rt *rt, const struct tmpl_node *target, struct tmpl_value value)
{
    rt->fault.line = target->line;
    if (target->kind == N_NAME) {
        bind(rt, target->id, value);
    } else if (target->kind == N_NSREF) {
        struct tmpl_value space = lookup(rt, target->id);
        if (space.kind != V_SPACE) {
            RT_FAIL(rt, "%s is not a namespace; only namespaces accept new attributes",
                    QUOTE(rt->t->names[target->id]));
        }
        dict_set(rt, space.dict, (struct tmpl_value){V_STR, .s = target->name}, value);
    } else {
        const struct tmpl_seq *items = val_items(rt, value);
        if (items->n != target->n) {
            RT_FAIL(rt, "%u names for %zu values", target->n, items->n);
        }
        for (u32 i = 0; i < target->n; i++) assign(rt, target->kid[i], items->v[i]);
    }
}

/* ---- calls ---- */

/* Where a block's output went while it is caught, and what was caught. */
static struct tmpl_value capture(struct tmpl_rt *rt, const struct tmpl_node *body, enum flow *flow)
{
    struct tmpl_sbuf sb = {.rt = rt}, *out = rt->out;
    rt->out = &sb;
    *flow = exec(rt, body);
    rt->out = out;
    return sbuf_value(&sb);
}

static void bind_name(struct tmpl_rt *rt, const char *name, struct tmpl_value v)
{
    u32 id;
    if (strmap_get(&rt->t->name_ids, str_of(name), &id)) bind(rt, id, v);
}

/* What a macro takes beyond its parameters, where its text asks for it: more positional arguments
 * as varargs, more named ones as kwargs, and caller. used[k]: named argument k is a parameter. */
static void bind_special(struct tmpl_rt *rt, const struct tmpl_node *def,
                         const struct tmpl_args *args, bool *used)
{
    u32 n_params = def->n - 1;
    struct tmpl_value caller = val_undef(NULL);
    struct tmpl_dict *rest = def->op & USE_KWARGS ? dict_new(rt, args->n_kw) : NULL;
    for (u32 k = 0; k < args->n_kw; k++) {
        if (used[k]) continue;
        if ((def->op & USE_CALLER) && str_is(args->kw[k], "caller")) {
            caller = args->v[args->n + k];
            continue;
        }
        if (!rest) {
            RT_FAIL(rt, "macro %s got an unknown or repeated named argument",
                    QUOTE(rt->t->names[def->id]));
        }
        struct tmpl_str name = {.p = args->kw[k].p, .n = args->kw[k].n};
        dict_set(rt, rest, val_str(rt, name), args->v[args->n + k]);
    }
    if (args->n > n_params && !(def->op & USE_VARARGS)) {
        RT_FAIL(rt, "macro %s takes %u arguments, got %u", QUOTE(rt->t->names[def->id]), n_params,
                args->n);
    }
    if (def->op & USE_CALLER) bind_name(rt, "caller", caller);
    if (rest) bind_name(rt, "kwargs", (struct tmpl_value){V_DICT, .dict = rest});
    if (!(def->op & USE_VARARGS)) return;
    u32 n = args->n > n_params ? args->n - n_params : 0;
    struct tmpl_seq *more = seq_new(rt, SEQ_TUPLE, n);
    for (u32 i = 0; i < n; i++) more->v[i] = args->v[n_params + i];
    bind_name(rt, "varargs", val_seq(more));
}

static struct tmpl_value call_macro(struct tmpl_rt *rt, const struct tmpl_macro *m,
                                    const struct tmpl_args *args)
{
    const struct tmpl_node *def = m->node;
    struct tmpl_frame *caller = rt->frame;
    u32 n_params = def->n - 1;
    bool *used = args->n_kw ? rt_alloc(rt, args->n_kw, sizeof *used) : NULL, has_caller = false;
    enum flow flow;
    push_frame(rt, m->frame);
    for (u32 i = 0; i < n_params; i++) {
        struct str name = rt->t->names[def->ids[i]];
        u32 kw = 0;
        rt_spend(rt, 1 + args->n_kw / 8);
        while (kw < args->n_kw && !str_eq(args->kw[kw], name)) kw++;
        bool named = kw < args->n_kw && i >= args->n;
        if (named) used[kw] = true;
        has_caller = has_caller || str_is(name, "caller");
        if (i < args->n || named) {
            bind(rt, def->ids[i], i < args->n ? args->v[i] : args->v[args->n + kw]);
        } else {
            bind(rt, def->ids[i], def->kid[i + 1] ? eval(rt, def->kid[i + 1]) : val_undef(NULL));
        }
    }
    struct tmpl_node own = *def; /* a parameter that is called caller is not the special one */
    if (has_caller) own.op &= ~(u32)USE_CALLER;
    bind_special(rt, &own, args, used);
    struct tmpl_value text = capture(rt, def->kid[0], &flow);
    rt->frame = caller;
    return text;
}

/* The arguments of a call, those of *a and **b unpacked, and a caller where there is one. v has
 * room for those that are written out. */
static struct tmpl_args eval_args(struct tmpl_rt *rt, const struct tmpl_node *node,
                                  const struct tmpl_value *caller, struct tmpl_value *v)
{
    u32 n_unpack = (node->op & UNPACK_SEQ ? 1 : 0) + (node->op & UNPACK_DICT ? 1 : 0);
    u32 n = node->n - 1 - n_unpack, n_pos = node->n_pos, n_kw = n - n_pos;
    for (u32 i = 0; i < n; i++) v[i] = eval(rt, node->kid[i + 1]);
    struct tmpl_args args = {n_pos, n_kw, v, node->kw};
    if (!n_unpack && !caller) return args;
    const struct tmpl_seq *more = NULL;
    const struct tmpl_dict *named = NULL;
    if (node->op & UNPACK_SEQ) more = val_items(rt, eval(rt, node->kid[n + 1]));
    if (node->op & UNPACK_DICT) {
        struct tmpl_value d = eval(rt, node->kid[node->n - 1]);
        if (d.kind != V_DICT) RT_FAIL(rt, "** needs a mapping, not a %s", val_type(d));
        named = d.dict;
    }
    size_t n_more = more ? more->n : 0, n_named = (named ? named->n : 0) + (caller ? 1 : 0);
    if (n_more + n_named > TMPL_MAX_RANGE) RT_FAIL(rt, "too many arguments");
    struct tmpl_value *all = rt_alloc(rt, n + n_more + n_named, sizeof *all);
    struct str *kw = rt_alloc(rt, n_kw + n_named, sizeof *kw);
    if (n_pos) memcpy(all, v, n_pos * sizeof *v);
    if (n_more) memcpy(all + n_pos, more->v, n_more * sizeof *v);
    args = (struct tmpl_args){n_pos + (u32)n_more, n_kw, all, kw};
    struct tmpl_value *to = all + args.n;
    if (n_kw) memcpy(to, v + n_pos, n_kw * sizeof *v);
    if (n_kw) memcpy(kw, node->kw, n_kw * sizeof *kw);
    if (caller) {
        kw[args.n_kw] = STR("caller");
        to[args.n_kw++] = *caller;
    }
    for (size_t i = 0; named && i < named->n; i++) {
        kw[args.n_kw] = str_bytes(arg_str(rt, named->e[i].key));
        for (u32 k = 0; k < n_kw + (caller != NULL); k++) {
            if (str_eq(kw[k], kw[args.n_kw])) RT_FAIL(rt, "%s is given twice", QUOTE(kw[k]));
        }
        to[args.n_kw++] = named->e[i].value;
    }
    return args;
}

static struct tmpl_value call_loop(struct tmpl_rt *rt, struct tmpl_loop *loop,
                                   const struct tmpl_args *args);

static struct tmpl_value call_value(struct tmpl_rt *rt, const struct tmpl_node *node,
                                    const struct tmpl_value *caller)
{
    struct tmpl_value v[TMPL_MAX_ARGS], callee = eval(rt, node->kid[0]);
    struct tmpl_args args = eval_args(rt, node, caller, v);
    rt->fault.line = node->line;
    if (node->kind != N_CALL) return tmpl_call_builtin(rt, node->fn, callee, &args);
    if (callee.kind == V_MACRO) return call_macro(rt, callee.macro, &args);
    if (callee.kind == V_LOOP) return call_loop(rt, callee.loop, &args);
    if (callee.kind == V_FUNC) return tmpl_call_builtin(rt, callee.func, val_none(), &args);
    if (callee.kind == V_METHOD) {
        return tmpl_call_builtin(rt, callee.method->fn, callee.method->self, &args);
    }
    if (callee.kind == V_JOINER) return tmpl_call_joiner(rt, callee.seq, &args);
    const struct tmpl_node *what = node->kid[0];
    if (callee.kind == V_UNDEF && (what->kind == N_NAME || what->kind == N_ATTR)) {
        RT_FAIL(rt, "unknown function %s", QUOTE(str_bytes(what->name)));
    }
    RT_FAIL(rt, "cannot call a %s", val_type(callee));
}

/* ---- expressions ---- */

static struct tmpl_value eval_item(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    struct tmpl_value of = eval(rt, node->kid[0]), part[3];
    const struct tmpl_node *index = node->kid[1];
    if (index->kind != N_SLICE) {
        struct tmpl_value i = eval(rt, index);
        rt->fault.line = node->line;
        return val_item(rt, of, i);
    }
    for (int k = 0; k < 3; k++) part[k] = index->kid[k] ? eval(rt, index->kid[k]) : val_none();
    rt->fault.line = node->line;
    return val_slice(rt, of, part);
}

static struct tmpl_value eval_compare(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    struct tmpl_value left = eval(rt, node->kid[0]);
    for (u32 i = 1; i < node->n; i++) {
        struct tmpl_value right = eval(rt, node->kid[i]);
        rt->fault.line = node->line;
        if (!val_compare(rt, (enum tmpl_cmp)node->ids[i - 1], left, right)) return val_bool(false);
        left = right;
    }
    return val_bool(true);
}

static struct tmpl_value eval_items(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    if (node->kind == N_DICT) {
        struct tmpl_dict *d = dict_new(rt, node->n / 2);
        for (u32 i = 0; i < node->n; i += 2) {
            struct tmpl_value key = eval(rt, node->kid[i]);
            dict_set(rt, d, key, eval(rt, node->kid[i + 1]));
        }
        return (struct tmpl_value){V_DICT, .dict = d};
    }
    struct tmpl_seq *seq = seq_new(rt, node->kind == N_LIST ? SEQ_LIST : SEQ_TUPLE, node->n);
    for (u32 i = 0; i < node->n; i++) seq->v[i] = eval(rt, node->kid[i]);
    return val_seq(seq);
}

static struct tmpl_value eval_binary(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    struct tmpl_value a = eval(rt, node->kid[0]), b = eval(rt, node->kid[1]);
    rt->fault.line = node->line;
    return val_binary(rt, (enum tmpl_op)node->op, a, b);
}

static struct tmpl_value eval_concat(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    struct tmpl_sbuf sb = {.rt = rt};
    for (u32 i = 0; i < node->n; i++) print_str(&sb, eval(rt, node->kid[i]));
    return sbuf_value(&sb);
}

static struct tmpl_value eval_node(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    struct tmpl_value v;
    switch (node->kind) {
    case N_LIT: return node->v;
    case N_NAME:
        v = lookup(rt, node->id);
        return v.kind == V_UNDEF && !v.s ? val_undef(node->name) : v;
    case N_ATTR:
        v = eval(rt, node->kid[0]);
        rt->fault.line = node->line;
        return val_attr(rt, v, node->name);
    case N_ITEM: return eval_item(rt, node);
    case N_CALL:
    case N_FILTER:
    case N_TEST: return call_value(rt, node, NULL);
    case N_NOT: return val_bool(!val_truth(eval(rt, node->kid[0])));
    case N_SIGN: return val_sign(rt, node->op, eval(rt, node->kid[0]));
    case N_BINARY: return eval_binary(rt, node);
    case N_AND:
    case N_OR:
        v = eval(rt, node->kid[0]);
        return val_truth(v) == (node->kind == N_OR) ? v : eval(rt, node->kid[1]);
    case N_CONCAT: return eval_concat(rt, node);
    case N_COMPARE: return eval_compare(rt, node);
    case N_COND:
        if (val_truth(eval(rt, node->kid[1]))) return eval(rt, node->kid[0]);
        return node->kid[2] ? eval(rt, node->kid[2]) : val_undef(NULL);
    case N_LIST:
    case N_TUPLE:
    case N_DICT: return eval_items(rt, node);
    default: CHECK(node->kind == N_CAPTURED); return rt->captured;
    }
}

static struct tmpl_value eval(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    rt->fault.line = node->line;
    rt_spend(rt, 1);
    rt_enter(rt);
    struct tmpl_value v = eval_node(rt, node);
    rt_leave(rt);
    return v;
}

/* ---- loops ---- */

/* The next item that passes the loop's condition. Items are looked at no earlier than Jinja2 does,
 * because the condition may depend on what the body changes. */
static bool loop_pull(struct tmpl_rt *rt, struct tmpl_loop *loop, struct tmpl_value *item)
{
    while (loop->next < loop->items->n) {
        *item = loop->items->v[loop->next++];
        if (!loop->condition) return true;
        struct tmpl_frame *frame = rt->frame;
        push_frame(rt, loop->frame);
        assign(rt, loop->node->kid[0], *item);
        bool pass = val_truth(eval(rt, loop->condition));
        rt->frame = frame;
        if (pass) return true;
    }
    return false;
}

bool loop_peek(struct tmpl_rt *rt, struct tmpl_loop *loop)
{
    if (!loop->has_after) loop->has_after = loop_pull(rt, loop, &loop->after);
    return loop->has_after;
}

i64 loop_length(struct tmpl_rt *rt, struct tmpl_loop *loop)
{
    if (loop->length >= 0) return loop->length;
    bool has_after = loop->has_after;
    struct tmpl_seq *rest = seq_new(rt, SEQ_LIST, loop->items->n - loop->next);
    rest->n = 0;
    for (struct tmpl_value item; loop_pull(rt, loop, &item);) rest->v[rest->n++] = item;
    loop->length = (i64)rest->n + loop->index0 + 1 + has_after;
    loop->items = rest;
    loop->next = 0;
    loop->condition = NULL; /* they have all passed */
    return loop->length;
}

static bool loop_next(struct tmpl_rt *rt, struct tmpl_loop *loop)
{
    if (!loop_peek(rt, loop)) return false;
    loop->before = loop->current;
    loop->current = loop->after;
    loop->has_after = false;
    loop->index0++;
    return true;
}

/* Goes through items with the body of the loop node, in a frame of its own for each turn. */
static enum flow run_loop(struct tmpl_rt *rt, const struct tmpl_node *node, struct tmpl_value items,
                          u32 depth)
{
    struct tmpl_frame *frame = rt->frame;
    struct tmpl_loop *loop = rt_alloc(rt, 1, sizeof *loop);
    *loop =
        (struct tmpl_loop){.node = node, .condition = node->kid[2], .frame = frame, .depth = depth};
    loop->index0 = loop->length = -1;
    loop->items = val_items(rt, items);
    bool completed = false; /* a turn that ran to its end; only that keeps `else` away */
    while (loop_next(rt, loop)) {
        push_frame(rt, frame);
        bind_name(rt, "loop", (struct tmpl_value){V_LOOP, .loop = loop});
        assign(rt, node->kid[0], loop->current);
        enum flow flow = exec(rt, node->kid[3]);
        rt->frame = frame;
        if (flow == FLOW_BREAK) break;
        completed = completed || flow == FLOW_ON;
    }
    return !completed && node->kid[4] ? exec(rt, node->kid[4]) : FLOW_ON;
}

static enum flow exec_for(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    return run_loop(rt, node, eval(rt, node->kid[1]), 1);
}

/* loop(items) in a loop that is recursive: the text of the same loop over other items. */
static struct tmpl_value call_loop(struct tmpl_rt *rt, struct tmpl_loop *loop,
                                   const struct tmpl_args *args)
{
    struct tmpl_sbuf sb = {.rt = rt}, *out = rt->out;
    struct tmpl_frame *frame = rt->frame;
    if (!loop->node->op) RT_FAIL(rt, "loop() requires a loop marked 'recursive'");
    if (args->n != 1 || args->n_kw) RT_FAIL(rt, "loop() takes one argument");
    rt->out = &sb;
    rt->frame = loop->frame;
    run_loop(rt, loop->node, args->v[0], loop->depth + 1);
    rt->out = out;
    rt->frame = frame;
    return sbuf_value(&sb);
}

/* ---- statements ---- */

static enum flow exec_body(struct tmpl_rt *rt, const struct tmpl_node *body)
{
    enum flow flow = FLOW_ON;
    for (u32 i = 0; i < body->n && flow == FLOW_ON; i++) flow = exec(rt, body->kid[i]);
    return flow;
}

static enum flow exec_if(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    for (u32 i = 0; i + 1 < node->n; i += 2) {
        if (val_truth(eval(rt, node->kid[i]))) return exec(rt, node->kid[i + 1]);
    }
    return node->n % 2 ? exec(rt, node->kid[node->n - 1]) : FLOW_ON;
}

static enum flow exec_set_block(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    struct tmpl_frame *frame = rt->frame;
    enum flow flow;
    push_frame(rt, frame);
    struct tmpl_value text = capture(rt, node->kid[1], &flow);
    rt->frame = frame;
    if (flow != FLOW_ON) return flow;
    rt->captured = text;
    assign(rt, node->kid[0], node->kid[2] ? eval(rt, node->kid[2]) : text);
    return FLOW_ON;
}

/* The text of a filter tag, through its filters. */
static enum flow exec_filtered(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    struct tmpl_frame *frame = rt->frame;
    enum flow flow;
    push_frame(rt, frame);
    struct tmpl_value text = capture(rt, node->kid[0], &flow);
    rt->frame = frame;
    if (flow != FLOW_ON) return flow;
    rt->captured = text;
    struct tmpl_value v = eval(rt, node->kid[1]);
    rt->fault.line = node->line;
    if (v.kind != V_STR) RT_FAIL(rt, "a filter tag produced a %s instead of a string", val_type(v));
    sbuf_put_str(rt->out, v.s);
    return FLOW_ON;
}

/* All values are found before the first name gets one. */
static enum flow exec_with(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    struct tmpl_frame *frame = rt->frame;
    struct tmpl_value *v = rt_alloc(rt, node->n / 2, sizeof *v);
    for (u32 i = 0; i < node->n / 2; i++) v[i] = eval(rt, node->kid[2 * i + 2]);
    push_frame(rt, frame);
    for (u32 i = 0; i < node->n / 2; i++) assign(rt, node->kid[2 * i + 1], v[i]);
    enum flow flow = exec(rt, node->kid[0]);
    rt->frame = frame;
    return flow;
}

static struct tmpl_value new_macro(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    struct tmpl_macro *macro = rt_alloc(rt, 1, sizeof *macro);
    *macro = (struct tmpl_macro){node, rt->frame};
    return (struct tmpl_value){V_MACRO, .macro = macro};
}

static enum flow exec_scope(struct tmpl_rt *rt, const struct tmpl_node *body,
                            struct tmpl_frame *around)
{
    struct tmpl_frame *frame = rt->frame;
    push_frame(rt, around);
    enum flow flow = exec(rt, body);
    rt->frame = frame;
    return flow;
}

static enum flow exec_node(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    struct tmpl_value v;
    switch (node->kind) {
    case N_BODY: return exec_body(rt, node);
    case N_DATA: sbuf_put_str(rt->out, node->v.s); return FLOW_ON;
    case N_PRINT: print_str(rt->out, eval(rt, node->kid[0])); return FLOW_ON;
    case N_IF: return exec_if(rt, node);
    case N_FOR: return exec_for(rt, node);
    case N_SET: assign(rt, node->kid[0], eval(rt, node->kid[1])); return FLOW_ON;
    case N_SETBLOCK: return exec_set_block(rt, node);
    case N_MACRO: bind(rt, node->id, new_macro(rt, node)); return FLOW_ON;
    case N_CALLER:
        v = new_macro(rt, node->kid[1]);
        print_str(rt->out, call_value(rt, node->kid[0], &v));
        return FLOW_ON;
    case N_FILTERED: return exec_filtered(rt, node);
    case N_WITH: return exec_with(rt, node);
    case N_SCOPE: return exec_scope(rt, node->kid[0], rt->frame);
    case N_BLOCK: return exec_scope(rt, node->kid[0], NULL);
    case N_ESCAPED:
        if (val_truth(eval(rt, node->kid[0]))) {
            tmpl_fail(&rt->fault, FLETCH_E_UNSUPPORTED, "automatic escaping is not supported");
        }
        return exec_scope(rt, node->kid[1], rt->frame);
    case N_REFUSED:
        tmpl_fail(&rt->fault, FLETCH_E_UNSUPPORTED,
                  "tag %s is not supported: a chat template "
                  "is one file",
                  QUOTE(str_bytes(node->v.s)));
    case N_BREAK: return FLOW_BREAK;
    default: CHECK(node->kind == N_CONTINUE); return FLOW_CONTINUE;
    }
}

static enum flow exec(struct tmpl_rt *rt, const struct tmpl_node *node)
{
    rt->fault.line = node->line;
    rt_spend(rt, 1);
    rt_enter(rt);
    enum flow flow = exec_node(rt, node);
    rt_leave(rt);
    return flow;
}

/* ---- rendering ---- */

/* Gives every name of the template its value from the caller, or from our functions. */
static void bind_globals(struct tmpl_rt *rt, const json_t *vars, const json_t *trusted)
{
    rt->globals = rt_alloc(rt, rt->t->n_names, sizeof *rt->globals);
    for (u32 i = 0; i < rt->t->n_names; i++) {
        struct str name = rt->t->names[i];
        char *key = rt_alloc(rt, name.n + 1, 1);
        memcpy(key, name.p, name.n);
        const json_t *own = trusted ? json_object_get(trusted, key) : NULL;
        const json_t *given = vars ? json_object_get(vars, key) : NULL;
        const struct tmpl_builtin *fn = tmpl_find_function(name);
        rt->globals[i] = given ? val_from_json(rt, given, true)
                         : own ? val_from_json(rt, own, false)
                         : fn  ? (struct tmpl_value){V_FUNC, .func = fn}
                               : val_undef(NULL);
    }
}

static int copy_out(const struct tmpl_sbuf *sb, struct tmpl_out *out, struct err *err)
{
    out->text = malloc(sb->n + 1);
    out->from_user = malloc(sb->n + 1);
    if (!out->text || !out->from_user) {
        tmpl_out_free(out);
        return err_nomem(err, "a rendered template");
    }
    if (sb->n) memcpy(out->text, sb->p, sb->n);
    if (sb->n && sb->mask) memcpy(out->from_user, sb->mask, sb->n);
    if (!sb->mask) memset(out->from_user, sb->user, sb->n);
    out->text[sb->n] = 0;
    out->n = sb->n;
    return 0;
}

/* Apart from tmpl_render, so that nothing it sets lives across the setjmp. */
static int render(struct tmpl_rt *rt, const json_t *vars, const json_t *trusted,
                  struct tmpl_out *out)
{
    if (setjmp(rt->fault.out)) return rt->fault.code;
    struct tmpl_sbuf sb = {.rt = rt};
    bind_globals(rt, vars, trusted);
    rt->out = &sb;
    exec(rt, rt->t->root);
    return copy_out(&sb, out, rt->fault.err);
}

int tmpl_render(const struct tmpl *t, const json_t *vars, const json_t *trusted, time_t now,
                const struct tmpl_limits *limits, struct tmpl_out *out, struct err *err)
{
    struct tmpl_limits l = limits ? *limits : (struct tmpl_limits){0};
    *out = (struct tmpl_out){0};
    struct tmpl_rt *rt = calloc(1, sizeof *rt);
    if (!rt) return err_nomem(err, "a template");
    rt->t = t;
    rt->now = now;
    rt->fuel = l.fuel ? l.fuel : DEFAULT_FUEL;
    rt->depth = l.depth ? l.depth : DEFAULT_DEPTH;
    rt->fault.n_left = l.n_bytes ? l.n_bytes : DEFAULT_BYTES;
    rt->fault.arena = &rt->arena;
    rt->fault.err = err;
    rt->fault.line = 1;
    int code = render(rt, vars, trusted, out);
    json_decref(rt->json);
    arena_free(&rt->arena);
    free(rt);
    return code;
}

void tmpl_out_free(struct tmpl_out *out)
{
    free(out->text);
    free(out->from_user);
    *out = (struct tmpl_out){0};
}
