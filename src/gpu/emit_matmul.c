/* Launches of the kernels in kernels/matmul.gpu and matvec.gpu and native/matmul_mma.cu. Everything
 * here is a product: up to three matrices that share an input, with or without a norm in front and
 * something to add behind. One row is one launch; more rows are normed and rounded by a launch of
 * its own first. */
#include <stdio.h>

#include "gpu/emit.h"
#include "gpu/native/matmul_mma.h"

static u32 n_out_of(const struct emit *e, u32 id)
{
    return e->p->net->weights[id].n_out;
}

static struct product plain(const struct op *op, struct operand x)
{
    return (struct product){.op = op, .x = x, .n_slices = 1, .n_in = x.width};
}

static void add_matrix(struct product *m, u32 w, u32 bias, struct operand y)
{
    CHECK(m->n < MATMUL_MAX);
    m->w[m->n] = w;
    m->bias[m->n] = bias;
    m->y[m->n++] = y;
}

/* Can one launch norm and round the only row by itself? */
static bool fits_one(const struct emit *e, const struct product *m, enum encoding enc)
{
    if (emit_n_rows(e, m->x) > 1 || e->kind.caps.unstaged) return false;
    if (encoding_is_int8(enc)) return m->n_in <= MATMUL_MAX_IN;
    return !m->norm || m->n_in <= MATMUL_MAX_NORM_F32;
}

/* Do matrix units multiply rows that don't fit? Only rounded ones have the same bits there. */
static bool on_matrix_units(const struct emit *e, enum encoding enc)
{
    return e->kind.caps.bulk && encoding_is_int8(enc);
}

/* How many rows are a tile there, for all matrices of m: as they lie in memory. A tile of 64 rows
 * takes 1.8 times as long as one of 32, which may fill the groups better. */
static u32 tile_of(const struct emit *e, const struct product *m)
{
    enum { H200_UNITS = 132 };
    u32 n_rows = emit_n_rows(e, m->x), tiles = 0;
    u32 units = e->kind.caps.n_units ? e->kind.caps.n_units : H200_UNITS;
    bool narrow = true;
    for (u32 i = 0; i < m->n; i++) {
        narrow &= !encoding_has_nibbles(emit_planes(e, m->w[i]).enc);
        tiles += (n_out_of(e, m->w[i]) + MMA_M - 1) / MMA_M;
    }
    if (n_rows <= MMA_FEW) return MMA_FEW;
    if (n_rows <= MMA_MANY || !narrow) return MMA_MANY;
    u32 many = tiles * ((n_rows + MMA_MANY - 1) / MMA_MANY) + units - 1;
    u32 most = tiles * ((n_rows + MMA_MOST - 1) / MMA_MOST) + units - 1;
    return 10 * (many / units) < 18 * (most / units) ? MMA_MANY : MMA_MOST;
}

static void bind_norm(struct emit *e, const struct op *norm)
{
    emit_vector(e, norm ? norm->w[0] : NO_WEIGHT, 0);
    emit_vector(e, norm ? norm->w[1] : NO_WEIGHT, 0);
}

static void bind_adds(struct emit *e, const struct product *m)
{
    for (u32 i = 0; i < 2; i++) emit_in(e, i < m->n_add ? m->add[i] : m->x);
}

/* Where more rows than one wait: rounded to int8, with scales behind them or in pieces with them;
 * or normed. */
u64 emit_waiting_bytes(const struct emit *e, const struct product *m, bool int8)
{
    u64 room = emit_room(e->limits, e->p->bufs[m->x.buf].rows);
    if (int8 && e->kind.caps.bulk)
        return (room + MMA_MOST - 1) / MMA_MOST * PIECE_BYTES((u64)MMA_MOST) * m->n_slices *
               ((m->n_in + PIECE_COLUMNS - 1) / PIECE_COLUMNS);
    return (room * m->n_in * m->n_slices * (int8 ? 1 : sizeof(float)) + 255) / 256 * 256;
}

static void bind_waiting(struct emit *e, const struct product *m, bool int8, bool write)
{
    u64 n = emit_waiting_bytes(e, m, int8);
    bool pieces = int8 && e->kind.caps.bulk;
    emit_scratch(e, 0, n, write);
    if (pieces && !write) return;
    emit_scratch(e, pieces ? 0 : n, int8 ? n / ACT_COLUMNS * sizeof(float) : 0, write);
}

static void emit_waiting(struct emit *e, const struct product *m, bool int8)
{
    struct quantise_args a = {.n = m->n_in,
                              .rows = emit_rows_of(e, m->x),
                              .x_pitch = emit_pitch(e, m->x),
                              .stride = m->x_stride,
                              .n_slices = m->n_slices,
                              .tile = int8 && e->kind.caps.bulk ? tile_of(e, m) : 0,
                              .norm = m->norm ? m->norm->p.norm.kind : NORM_KIND_NONE,
                              .has_w = m->norm && m->norm->w[0] != NO_WEIGHT,
                              .has_b = m->norm && m->norm->w[1] != NO_WEIGHT,
                              .eps = m->norm ? m->norm->p.norm.eps : 0};
    emit_launch(e, int8 ? "k_quantise" : "k_norm_rows", emit_n_rows(e, m->x), m->n_slices,
                NORM_THREADS);
    if (int8 && !m->norm) emit_depth(e, (m->n_in + QUANTISE_SHARE - 1) / QUANTISE_SHARE);
    emit_step(e, STEP_HEAD);
    bind_norm(e, m->norm);
    emit_in(e, m->x);
    bind_waiting(e, m, int8, true);
    emit_args(e, &a, sizeof a);
}

u32 emit_scale_words(enum encoding enc)
{
    return encoding_info[enc].bulk ? 1 : encoding_scale_words(enc);
}

/* A launch of matvec.gpu, or native/matvec_384.cu: n_out rows like w's in each slice. */
static void launch_matvec(struct emit *e, const char *what, u32 n_out, const struct planes *w,
                          u32 n_slices, const struct matmul_args *a)
{
    struct site site = {
        .n_out = n_out, .n_in = a->n_in, .n_slices = n_slices, .normed = a->norm != NORM_KIND_NONE};
    char name[sizeof site.kernel + 8];
    snprintf(site.kernel, sizeof site.kernel, "k_%s_%s", what, encoding_info[w->enc].name);
    struct layout l =
        emit_shape(e, e->kind.caps.native ? SHAPE_MATVEC_NATIVE : SHAPE_MATVEC, w->enc, &site, 1,
                   (u64)n_out * n_slices * (w->q_row * 16 + w->s_row));
    u32 threads = l.v[LAYOUT_THREADS];
    snprintf(name, sizeof name, "%s%s", site.kernel, threads == 384 ? "_t384" : "");
    emit_launch(e, name, (n_out * 32 + threads - 1) / threads, 1, threads);
    emit_walk_by(e, &l, QUEUE_BYTES(emit_scale_words(w->enc), threads));
    emit_pieces(e, n_slices > 1 ? 0 : n_out);
}

/* A launch of native/matmul_mma.cu. */
static void launch_mma(struct emit *e, enum encoding enc, u32 n_out, u32 n_rows, u32 n)
{
    bool nibbles = encoding_has_nibbles(enc);
    u32 cols = nibbles ? 32 : 16;
    u32 share = nibbles || encoding_scales(enc).inner_cols == 16 ? 1 : 2;
    u32 n_d = encoding_has_halves(enc) ? 4 : 2, words = encoding_scale_words(enc);
    char name[32];
    snprintf(name, sizeof name, "k_matmul_%s_mma%u", encoding_info[enc].name, n);
    emit_launch(e, name, (n_out + MMA_M - 1) / MMA_M * ((n_rows + n - 1) / n), 1, MMA_THREADS);
    emit_walk(e, 1, MMA_BYTES(cols, share, words, n_d, n));
}

/* A launch of matmul.gpu. */
static void launch_rows(struct emit *e, enum encoding enc, u32 n_out, u32 n_rows,
                        struct matmul_args *a)
{
    struct site site = {.n_out = n_out, .n_in = a->n_in, .n_slices = 1};
    char name[sizeof site.kernel + 10];
    snprintf(site.kernel, sizeof site.kernel, "k_matmul_%s_r", encoding_info[enc].name);
    struct layout l = emit_shape(e, SHAPE_ROWS, enc, &site, n_rows, 0);
    u32 at_once = l.v[LAYOUT_COLUMNS];
    a->threads = l.v[LAYOUT_THREADS];
    snprintf(name, sizeof name, "%s%u", site.kernel, at_once);
    emit_launch(e, name, (n_out * 32 + a->threads - 1) / a->threads,
                (n_rows + at_once - 1) / at_once, a->threads);
}

/* The matrices of m that are of this encoding, as one launch. */
static void emit_matrices(struct emit *e, const struct product *m, enum encoding enc)
{
    u32 pick[MATMUL_MAX], n = 0, n_out = 0, n_rows = emit_n_rows(e, m->x);
    bool int8 = encoding_is_int8(enc), one = fits_one(e, m, enc), waits = int8 || m->norm;
    for (u32 i = 0; i < m->n; i++)
        if (emit_planes(e, m->w[i]).enc == enc) pick[n++] = i;
    if (emit_is_unstaged(e, m->x)) {
        emit_unstaged(e, m, pick, n);
        return;
    }
    struct planes w = emit_planes(e, m->w[pick[0]]);
    u32 in_width = m->n_in * m->n_slices;
    struct matmul_args a = {
        .n_in = m->n_in,
        .rows = emit_rows_of(e, m->x),
        .x_pitch = !one && waits ? in_width : emit_pitch(e, m->x),
        .x_stride = !one && waits ? m->n_in : m->x_stride,
        .y_stride = m->y_stride,
        .q_row = w.q_row,
        .s_row = w.s_row,
        .norm = m->norm ? m->norm->p.norm.kind : NORM_KIND_NONE,
        .has_w = m->norm && m->norm->w[0] != NO_WEIGHT,
        .has_b = m->norm && m->norm->w[1] != NO_WEIGHT,
        .eps = m->norm ? m->norm->p.norm.eps : 0,
        .glu = m->glu,
    };
    for (u32 i = 0; i < n; i++) {
        u32 id = m->w[pick[i]], rows = n_out_of(e, id);
        a.part[i].n_out = rows;
        a.part[i].y_pitch = emit_pitch(e, m->y[m->glu ? 0 : pick[i]]);
        a.part[i].has_bias = m->bias[pick[i]] != NO_WEIGHT;
        n_out += rows;
    }
    for (u32 i = 0; i < m->n_add; i++) a.add_pitch[i] = emit_pitch(e, m->add[i]);
    if (one)
        launch_matvec(e, "matmul", n_out, &w, m->n_slices, &a);
    else if (on_matrix_units(e, enc))
        launch_mma(e, enc, n_out, n_rows, tile_of(e, m));
    else
        launch_rows(e, enc, n_out, n_rows, &a);
    emit_depth(e, m->n_slices);
    emit_step(e, STEP_HEAD);
    if (one) {
        bind_norm(e, m->norm);
        emit_in(e, m->x);
    } else if (waits) {
        bind_waiting(e, m, int8, false);
    } else {
        emit_in(e, m->x);
        emit_step(e, STEP_HEAD);
    }
    bind_adds(e, m);
    for (u32 i = 0; i < MATMUL_MAX; i++) {
        u32 j = pick[i < n ? i : 0];
        emit_weight(e, m->w[j]);
        emit_vector(e, m->bias[j], 0);
        emit_out(e, m->y[m->glu ? 0 : j]);
    }
    emit_args(e, &a, sizeof a);
}

/* With the kernels of decoding. */
int emit_product_rows(struct emit *e, const struct product *m)
{
    bool waiting[2] = {false, false}, done[ENC_COUNT] = {false};
    for (u32 i = 0; i < m->n; i++) {
        enum encoding enc = emit_planes(e, m->w[i]).enc;
        bool int8 = encoding_is_int8(enc);
        if (done[enc]) continue;
        done[enc] = true;
        if (!fits_one(e, m, enc) && !waiting[int8] && (int8 || m->norm)) {
            emit_waiting(e, m, int8);
            waiting[int8] = true;
            waiting[!int8] = false; /* they lie in the same place */
        }
        emit_matrices(e, m, enc);
    }
    return e->rc;
}

/* Rows of class P have kernels of their own, except for matrices of floats. */
static int emit_product(struct emit *e, const struct product *m)
{
    struct product same = *m, apart = *m;
    if ((m->x.col | emit_pitch(e, m->x) | m->n_in | m->x_stride) % 4)
        return emit_lacks(e, m->op, "columns that are not a multiple of 4");
    same.n = apart.n = 0;
    for (u32 i = 0; i < m->n; i++)
        add_matrix(emit_has_panels(e, m->x, m->w[i]) ? &apart : &same, m->w[i], m->bias[i],
                   m->y[i]);
    if (same.n) emit_product_rows(e, &same);
    if (!apart.n) return e->rc;
    if (e->kind.n_d) {
        emit_only_d(e);
        emit_product_rows(e, &apart);
        emit_for_all(e);
    }
    return emit_panels(e, &apart);
}

int emit_matmul(struct emit *e, const struct op *op)
{
    struct product m = plain(op, op->in[0]);
    add_matrix(&m, op->w[0], op->w[1], op->out[0]);
    return emit_product(e, &m);
}

int emit_matmul_heads(struct emit *e, const struct op *op)
{
    struct product m = {.op = op,
                        .x = op->in[0],
                        .n_slices = op->p.heads.n_heads,
                        .n_in = op->p.heads.n_in,
                        .x_stride = op->p.heads.in_stride,
                        .y_stride = op->p.heads.out_stride};
    add_matrix(&m, op->w[0], NO_WEIGHT, op->out[0]);
    return emit_product(e, &m);
}

int emit_sums(struct emit *e, const struct group *g, const struct op *mul)
{
    const struct op *add;
    struct product m = plain(mul, mul->in[0]);
    struct operand y = mul->out[0];
    for (; (add = group_reader(g, y, OP_ADD)) != NULL; y = add->out[0])
        m.add[m.n_add++] = add->in[add->in[0].buf == y.buf];
    add_matrix(&m, mul->w[0], mul->w[1], y);
    return emit_product(e, &m);
}

int emit_matmul_add(struct emit *e, const struct group *g)
{
    return emit_sums(e, g, group_op(g, OP_MATMUL, 0));
}

int emit_products(struct emit *e, const struct group *g)
{
    const struct op *mul = group_op(g, OP_MATMUL, 0), *norm = group_maker(g, mul->in[0]);
    struct product m = plain(mul, norm->in[0]);
    m.norm = norm;
    for (u32 i = 0; (mul = group_op(g, OP_MATMUL, i)) != NULL; i++)
        add_matrix(&m, mul->w[0], mul->w[1], mul->out[0]);
    return emit_product(e, &m);
}

static void launch_glu(struct emit *e, const struct product *m, const struct op *gate,
                       const struct op *up, struct operand y)
{
    const struct op *norm = m->norm;
    struct planes w = emit_planes(e, gate->w[0]);
    struct matmul_args a = {
        .n_in = m->x.width,
        .rows = emit_rows_of(e, m->x),
        .q_row = w.q_row,
        .s_row = w.s_row,
        .norm = norm ? norm->p.norm.kind : NORM_KIND_NONE,
        .has_w = norm && norm->w[0] != NO_WEIGHT,
        .has_b = norm && norm->w[1] != NO_WEIGHT,
        .eps = norm ? norm->p.norm.eps : 0,
        .part = {{.n_out = y.width, .has_bias = gate->w[1] != NO_WEIGHT},
                 {.n_out = y.width, .has_bias = up->w[1] != NO_WEIGHT}},
    };
    launch_matvec(e, "glu", y.width, &w, 2, &a);
    emit_step(e, STEP_HEAD);
    bind_norm(e, norm);
    emit_in(e, m->x);
    emit_weight(e, gate->w[0]);
    emit_vector(e, gate->w[1], 0);
    emit_weight(e, up->w[0]);
    emit_vector(e, up->w[1], 0);
    emit_out(e, y);
    emit_args(e, &a, sizeof a);
}

int emit_glu(struct emit *e, const struct group *g, const struct op *norm, const struct op *glu)
{
    const struct op *gate = group_maker(g, glu->in[0]), *up = group_maker(g, glu->in[1]);
    struct product m = plain(gate, norm ? norm->in[0] : gate->in[0]);
    struct operand y = glu->out[0];
    m.norm = norm;
    enum encoding enc = emit_planes(e, gate->w[0]).enc;
    if ((m.x.col | emit_pitch(e, m.x) | m.n_in) % 4)
        return emit_lacks(e, gate, "columns that are not a multiple of 4");
    add_matrix(&m, gate->w[0], gate->w[1], gate->out[0]);
    add_matrix(&m, up->w[0], up->w[1], up->out[0]);
    bool panels = emit_has_panels(e, m.x, m.w[0]) && emit_has_panels(e, m.x, m.w[1]);
    if (panels) {
        m.glu = true;
        m.y[0] = y;
        emit_panels(e, &m);
        m.glu = false;
        m.y[0] = gate->out[0];
        if (!e->kind.n_d) return e->rc;
        emit_only_d(e);
    }
    bool alike = emit_planes(e, up->w[0]).enc == enc;
    if (alike && fits_one(e, &m, enc)) {
        launch_glu(e, &m, gate, up, y);
    } else if (alike && (on_matrix_units(e, enc) || emit_is_unstaged(e, m.x))) {
        m.glu = true;
        m.y[0] = y;
        emit_product_rows(e, &m);
    } else {
        emit_inside(e, g);
        if (panels)
            emit_product_rows(e, &m);
        else
            emit_product(e, &m);
        emit_op(e, glu);
    }
    emit_for_all(e);
    return e->rc;
}

int emit_gate_up_glu(struct emit *e, const struct group *g)
{
    return emit_glu(e, g, group_op(g, OP_NORM, 0), group_op(g, OP_GLU, 0));
}
