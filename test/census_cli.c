/* Prints the census: what every executor makes of every golden model and of a few published shapes.
 * Groups of ops, launches of steps with 1, 8 and 512 rows on fixed devices, and plan bytes. No
 * device is opened: GPU classes emit launches for descriptions of devices. test/census.sh compares
 * the output with test/census.txt, so that the commit that changes any of it shows what changed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "gpu/emit.h"
#include "gpu/gpu.h"
#include "gpu/gpu_lists.h"
#include "model/synth.h"

/* Golden models, the zoo's (whose sizes GPUs have kernels for), and published shapes by type. */
static const struct subject {
    const char *name, *type;
} subjects[] = {
    {"test/golden/models/llama", NULL},
    {"test/golden/models/llama-untied", NULL},
    {"test/golden/models/llama-gguf/model.gguf", NULL},
    {"test/golden/models/llama-shards", NULL},
    {"test/golden/models/mistral", NULL},
    {"test/golden/models/qwen2", NULL},
    {"test/golden/models/qwen3", NULL},
    {"test/golden/models/qwen3_moe", NULL},
    {"test/golden/models/qwen3_moe-fused", NULL},
    {"test/golden/models/glm4_moe_lite", NULL},
    {"test/golden/models/glm4_moe_lite-fused", NULL},
    {"test/golden/models/mixtral", NULL},
    {"test/golden/models/seed_oss", NULL},
    {"test/golden/models/smollm3", NULL},
    {"test/golden/models/phi3", NULL},
    {"test/golden/models/glm4_moe", NULL},
    {"test/golden/models/minimax_m2", NULL},
    {"test/golden/models/solar_open", NULL},
    {"test/golden/models/granite", NULL},
    {"test/golden/models/ernie4_5", NULL},
    {"test/golden/models/ernie4_5_moe", NULL},
    {"test/golden/models/hunyuan_dense", NULL},
    {"test/golden/models/hunyuan_moe", NULL},
    {"test/golden/models/deepseek_v2", NULL},
    {"test/golden/models/deepseek_v3", NULL},
    {"test/golden/models/qwen3_5", NULL},
    {"test/golden/models/qwen3_5_moe", NULL},
    {"test/golden/models/qwen3_next", NULL},
    {"test/golden/models/hy_v3", NULL},
    {"test/golden/models/kimi_linear", NULL},
    {"test/golden/models/lfm2", NULL},
    {"test/golden/models/lfm2_moe", NULL},
    {"test/golden/models/nemotron_h_moe", NULL},
    {"test/golden/models/granite_h", NULL},
    {"test/golden/models/falcon_h1", NULL},
    {"test/golden/models/gpt_oss", NULL},
    {"test/golden/models/gemma2", NULL},
    {"test/golden/models/gemma3", NULL},
    {"test/golden/models/olmo3", NULL},
    {"test/golden/models/cohere2", NULL},
    {"test/golden/models/rwkv7", NULL},
    {"test/golden/models/arwkv7-gate/model.gguf", NULL},
    {"test/golden/models/arwkv7-nogate/model.gguf", NULL},
    {"zoo/tiny/llama.gguf", NULL},
    {"zoo/tiny/qwen2.gguf", NULL},
    {"zoo/tiny/qwen3.gguf", NULL},
    {"zoo/tiny/qwen3moe.gguf", NULL},
    {"zoo/tiny/deepseek2.gguf", NULL},
    {"zoo/tiny/rwkv7.gguf", NULL},
    {"Qwen2.5-0.5B", "q8_0"},
    {"Llama-3.2-1B", "q8_0"},
    {"Llama-3.2-1B", "f16"},
    {"Llama-3.1-8B", "q4_k_m"},
    {"Qwen3-30B-A3B", "q4_k_m"},
    {"GLM-4.7-Flash", "q8_0"},
    {"RWKV-7-1.5B", "q8_0"},
    {"RWKV-7-2.9B", "q4_k"},
};

/* Devices that launches are counted for. Nothing follows from the one that runs this. */
static const struct device {
    const char *name, *class;
    struct device_caps on;
} devices[] = {
    {"h200",
     "cuda",
     {.n_units = 132,
      .native = true,
      .bulk = true,
      .clusters = true,
      .walks = true,
      .joins = true}},
    {"nvidia without clusters",
     "cuda",
     {.n_units = 84, .native = true, .walks = true, .joins = true}},
    {"apple, 10 cores", "metal", {.n_units = 10, .unstaged = true, .attn_heads = 2}},
    {"apple, 40 cores", "metal", {.n_units = 40, .unstaged = true, .attn_heads = 2}},
    {"emulator", "emu", {.n_units = 2, .walks = true, .joins = true}},
};

_Noreturn static void fail(const char *what, const struct err *err)
{
    fprintf(stderr, "%s: %s\n", what, err->text);
    exit(1);
}

static int open_subject(struct source **out, const struct subject *of, struct err *err)
{
    if (of->type) return synth_source(out, synth_find(of->name), of->type, 0, err);
    return source_open(out, of->name, err);
}

/* 32 bits of which kernels are launched, in which order, with how many groups and threads. */
static u32 digest_launches(const struct emit *e)
{
    u32 h = 2166136261u;
    for (u32 i = 0; i < e->n; i++) {
        const struct launch *l = &e->list[i];
        char text[128];
        int n = snprintf(text, sizeof text, "%s %u %u %u %u %u %d;", l->kernel, l->groups[0],
                         l->groups[1], l->groups[2], l->threads, l->tg_bytes, l->after);
        for (int j = 0; j < n; j++) h = (h ^ (u8)text[j]) * 16777619u;
    }
    return h;
}

/* Of a step of n_rows rows: decode rows where there are few, else of a prompt. */
static int count_launches(const struct program *p, const struct exec_limits *limits,
                          const struct device *on, u32 n_rows, struct err *err)
{
    struct list_kind kind = {.caps = on->on};
    struct emit e;
    u32 n = MIN(n_rows, limits->max_rows);
    kind.resident = kind.caps.bulk && n == 1;
    if (n_rows > 64 && p->net->profile.bf16)
        kind.n_p = n;
    else
        kind.n_d = n;
    int rc = emit_program(&e, p, limits, kind, err);
    if (rc) return rc;
    printf("%u %s: %u [%08x], ", n_rows, n_rows == 1 ? "row" : "rows", e.n, digest_launches(&e));
    free(e.list);
    return 0;
}

/* One layer's groups, from group `at` on; gives the next layer's first. */
static u32 name_layer(struct buf *out, const struct program *p, u32 at)
{
    int layer = p->groups[at].ops[0]->layer;
    for (; at < p->n_groups && p->groups[at].ops[0]->layer == layer; at++)
        buf_printf(out, " %s;", group_name(&p->groups[at]));
    return at;
}

/* Layers whose groups are the same are told once. */
static void name_groups(const struct program *p)
{
    for (u32 at = 0, end; at < p->n_groups; at = end) {
        struct buf first = {0};
        int from = p->groups[at].ops[0]->layer, to = from;
        end = name_layer(&first, p, at);
        while (end < p->n_groups) {
            struct buf next = {0};
            u32 after = name_layer(&next, p, end);
            bool same = from >= 0 && next.n == first.n && !memcmp(next.p, first.p, first.n);
            buf_free(&next);
            if (!same) break;
            to = p->groups[end].ops[0]->layer;
            end = after;
        }
        if (from < 0)
            printf("    -:%s\n", first.p);
        else
            printf("    %d-%d:%s\n", from, to, first.p);
        buf_free(&first);
    }
}

static void print_bytes(const struct model *m, const struct program *p,
                        const struct exec_class *class, const struct exec_limits *limits)
{
    struct plan plan;
    plan_make(&plan, m, p, class, limits, 1ull << 50);
    printf("%" PRIu64 " bytes\n", plan.total);
}

/* One class, and the devices of it. */
static void survey_class(const struct subject *of, const char *name)
{
    struct err err = {0};
    const struct exec_class *class = gpu_class(name);
    if (!class) class = backend_find(name, strcmp(name, "cpu") ? NULL : "generic", &err);
    struct fletch_model_params params = {.n_ctx = 1024};
    struct profile profile;
    struct exec_limits limits;
    struct source *s;
    struct model *m;
    struct program *p;
    if (engine_profile(&profile, class, &params, &err) || open_subject(&s, of, &err) ||
        model_open(&m, s, profile, &err) || engine_limits(&limits, m, class, &params, &err) ||
        engine_program(&p, m->trunk, class, false, &err))
        fail(of->name, &err);
    printf("  %s: ", name);
    limits.found = (struct exec_device){0};
    if (class->launches)
        printf("\n");
    else
        print_bytes(m, p, class, &limits);
    name_groups(p);
    for (size_t i = 0; i < ARRAY_LEN(devices); i++) {
        if (strcmp(devices[i].class, name) != 0) continue;
        limits.found = (struct exec_device){.known = true, .caps = devices[i].on};
        printf("    %s: ", devices[i].name);
        if (count_launches(p, &limits, &devices[i], 1, &err) ||
            count_launches(p, &limits, &devices[i], 8, &err) ||
            count_launches(p, &limits, &devices[i], 512, &err))
            printf("%s\n", err.text);
        else
            print_bytes(m, p, class, &limits);
    }
    prog_close(p);
    model_close(m);
}

int main(void)
{
    const char *const classes[] = {"ref", "cpu", "cuda", "metal", "emu"};
    for (size_t i = 0; i < ARRAY_LEN(subjects); i++) {
        const struct subject *of = &subjects[i];
        printf("%s%s%s\n", of->name, of->type ? " " : "", of->type ? of->type : "");
        for (size_t j = 0; j < ARRAY_LEN(classes); j++) survey_class(of, classes[j]);
    }
    return 0;
}
