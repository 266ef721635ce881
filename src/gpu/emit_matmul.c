/* Launches of the kernels in kernels/matmul.gpu and matvec.gpu and native/matmul_mma.cu. Everything
 * here is a product: up to three matrices that share an input, with or without a norm in front and
 * something to add behind. One row is one launch; more rows are normed and rounded by a launch of
 * its own first. */
#include <stdio.h>

#include "gpu/native/matmul_mma.h"
#include "gpu/rules.h"

static u32 n_out_of(const struct emit *e, u32 id)
{
    return e->p->net->weights[id].n_out;
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
        narrow &= !encoding_has_nibbles(emit_planes(e, m->m[i].w).enc);
        tiles += (n_out_of(e, m->m[i].w) + MMA_M - 1) / MMA_M;
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
                              .tile = int8 && e->kind.caps.bulk ? m->tile : 0,
                              NORM_ARGS(m->norm)};
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

/* m, all of one encoding, as one launch. */
static void emit_matrices(struct emit *e, const struct product *m)
{
    struct planes w = emit_planes(e, m->m[0].w);
    u32 n_out = 0, n_rows = emit_n_rows(e, m->x);
    bool int8 = encoding_is_int8(w.enc), one = fits_one(e, m, w.enc), pair = one && m->m[0].glu;
    bool waits = !one && (int8 || m->norm);
    struct matmul_args a = {
        .n_in = m->n_in,
        .rows = emit_rows_of(e, m->x),
        .x_pitch = waits ? m->n_in * m->n_slices : emit_pitch(e, m->x),
        .x_stride = waits ? m->n_in : m->x_stride,
        .y_stride = m->y_stride,
        .q_row = w.q_row,
        .s_row = w.s_row,
        NORM_ARGS(m->norm),
        .glu = m->m[0].glu != NULL,
    };
    for (u32 i = 0; i < m->n; i++) {
        n_out += a.part[i].n_out = n_out_of(e, m->m[i].w);
        a.part[i].y_pitch = emit_pitch(e, m->m[i].y);
        a.part[i].has_bias = m->m[i].bias != NO_WEIGHT;
    }
    for (u32 i = 0; i < m->n_add; i++) a.add_pitch[i] = emit_pitch(e, m->add[i]);
    if (pair)
        launch_matvec(e, "glu", a.part[0].n_out, &w, 2, &a);
    else if (one)
        launch_matvec(e, "matmul", n_out, &w, m->n_slices, &a);
    else if (on_matrix_units(e, w.enc))
        launch_mma(e, w.enc, n_out, n_rows, m->tile);
    else
        launch_rows(e, w.enc, n_out, n_rows, &a);
    emit_depth(e, m->n_slices);
    emit_step(e, STEP_HEAD);
    if (waits) {
        bind_waiting(e, m, int8, false);
    } else {
        if (one) bind_norm(e, m->norm);
        emit_in(e, m->x);
        if (!one) emit_in(e, no_operand);
    }
    if (!pair) bind_adds(e, m);
    for (u32 i = 0; i < (pair ? 2 : MATMUL_MAX); i++) {
        const struct matrix *part = &m->m[i < m->n ? i : 0];
        emit_weight(e, part->w);
        emit_vector(e, part->bias, 0);
        if (!pair || i) emit_out(e, part->y);
    }
    emit_args(e, &a, sizeof a);
}

/* With the kernels of decoding. */
int emit_product_rows(struct emit *e, const struct product *m)
{
    bool waiting[2] = {false, false}, done[ENC_COUNT] = {false};
    u32 tile = tile_of(e, m);
    for (u32 i = 0; i < m->n; i++) {
        enum encoding enc = emit_planes(e, m->m[i].w).enc;
        bool int8 = encoding_is_int8(enc);
        u32 pick[MIX_MAX], n = 0;
        if (done[enc]) continue;
        done[enc] = true;
        for (u32 k = i; k < m->n; k++)
            if (emit_planes(e, m->m[k].w).enc == enc) pick[n++] = k;
        struct product part = product_part(m, pick, n);
        part.tile = tile;
        if (!fits_one(e, m, enc) && !waiting[int8] && (int8 || m->norm)) {
            emit_waiting(e, &part, int8);
            waiting[int8] = true;
            waiting[!int8] = false; /* they lie in the same place */
        }
        if (emit_is_unstaged(e, m->x))
            emit_unstaged(e, &part);
        else
            emit_matrices(e, &part);
    }
    return e->rc;
}

static bool is_odd(const struct emit *e, const struct product *m)
{
    return (m->x.col | emit_pitch(e, m->x) | m->n_in | m->x_stride) % 4;
}

/* Rows of class P have kernels of their own, except for matrices of floats. */
int emit_product(struct emit *e, const struct product *m)
{
    u32 pick[2][MIX_MAX], n[2] = {0, 0};
    if (is_odd(e, m)) return emit_lacks(e, m->op, "columns that are not a multiple of 4");
    for (u32 i = 0; i < m->n; i++) {
        bool apart = emit_has_panels(e, m->x, m->m[i].w);
        pick[apart][n[apart]++] = i;
    }
    struct product same = product_part(m, pick[0], n[0]), apart = product_part(m, pick[1], n[1]);
    if (same.n) emit_product_rows(e, &same);
    if (!apart.n) return e->rc;
    if (e->kind.n_d) {
        emit_only_d(e);
        emit_product_rows(e, &apart);
        emit_for_all(e);
    }
    return emit_panels(e, &apart);
}

int emit_product_op(struct emit *e, const struct op *op)
{
    struct product m = product_alone(op);
    return emit_product(e, &m);
}

int emit_products(struct emit *e, const struct group *g)
{
    struct product m = product_of(g, NULL);
    return emit_product(e, &m);
}

int emit_glu(struct emit *e, const struct group *g, struct product m)
{
    const struct op *glu = m.m[0].glu;
    enum encoding enc = emit_planes(e, m.m[0].w).enc;
    if (is_odd(e, &m)) return emit_lacks(e, m.op, "columns that are not a multiple of 4");
    if (emit_panels_are_all(e, &m)) return e->rc;
    bool panels = e->count == ROWS_D;
    if (emit_planes(e, m.m[1].w).enc == enc &&
        (fits_one(e, &m, enc) || on_matrix_units(e, enc) || emit_is_unstaged(e, m.x))) {
        emit_product_rows(e, &m);
    } else {
        emit_inside(e, g);
        m.m[0].glu = NULL;
        for (u32 i = 0; i < 2; i++) m.m[i].y = glu->in[i];
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
    return emit_glu(e, g, product_of(g, NULL));
}
