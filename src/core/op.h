/* The vocabulary of programs: one documented line per op. tools/ops_doc.c turns this table into
 * docs/ops.md; core/program.h records ops, ref/ defines what they compute.
 *
 * Conventions. An activation is f32 [rows][width]; rows are T (all rows of the step) or R (the
 * rows whose logits are wanted). t is a row, s(t) its sequence slot, p(t) its position.
 * W is a weight [out][in] in its file type; sums run over all of "in" and are rounded to f32 once.
 * silu(z) = z·σ(z), σ(z) = 1/(1+exp(-z)). */
#ifndef FLETCH_OP_H
#define FLETCH_OP_H

#include "base/base.h"

/*  X(ID, name, inputs -> outputs, weights, what it computes, rounding and order) */
#define OP_TABLE(X)                                                                                     \
    X(EMBED, "embed", "ids -> y[T][d]", "E[V][d]", "y_t = E[token(t)]", "exact: the decoded row")       \
    X(IMPORT_HIDDEN, "import_hidden", "step.hidden -> y[T][d]", "",                                     \
      "y_t = hidden_t, rows given with the step (the MTP block's second input)", "exact copy")          \
    X(NORM, "norm", "x[T][n] -> y[T][n]", "w[n or g] (opt), b[n] (opt)",                                \
      "per group of g columns: rms x/sqrt(mean(x²)+eps); layer (x-mean)/sqrt(var+eps); "               \
      "l2 x/max(|x|,eps); then ·w + b; a w of g entries repeats for every group (head norm)",           \
      "statistics in f64; the normed value, its product with w and the sum with b are rounded")         \
    X(MATMUL, "matmul", "x[T][n] -> y[T][m]", "W[m][n], b[m] (opt)", "y = x·Wᵀ + b",                    \
      "sum in f64 over ascending n, bias added, rounded once")                                          \
    X(MATMUL_HEADS, "matmul_heads", "x[T][H·s] -> y[T][H·r]", "W[H][m][n]",                             \
      "per head h: y[h·r .. +m] = x[h·s .. +n]·W[h]ᵀ (MLA's k_b and v_b)", "as matmul")                 \
    X(MATMUL_EXPERTS, "matmul_experts", "x[T][n or k·n], ids[T][k] -> y[T][k·m]", "W[E][m][n]",         \
      "y[j] = x·W[ids_j]ᵀ for the k chosen experts; x is shared, or one slice per choice",              \
      "as matmul")                                                                                      \
    X(ADD, "add", "a[T][n], b[T][n] (or w) -> y[T][n]", "w[n] (opt)", "y = a + b, or a + w",            \
      "one rounding")                                                                                   \
    X(ADD_EXPERTS, "add_experts", "x[T][k·n], ids[T][k] -> y[T][k·n]", "b[E][n]",                       \
      "y[j] = x[j] + b[ids_j], the bias of each chosen expert", "one rounding")                         \
    X(MUL, "mul", "a[T][n], b[T][m] (or w) -> y[T][n]", "w[m] (opt)",                                   \
      "y = a ⊙ b, or a ⊙ w; in heads of g columns y[h·g + i] = a[h·g + i]·b[h·s + i], or with " \
      "one factor for each head b[h·s]",                                                                \
      "one rounding")                                                                                   \
    X(LERP, "lerp", "a[T][n], b[T][n], m[T][n] (or w) -> y[T][n]", "w[rows][n] (opt)",                  \
      "y = a + (b - a) ⊙ m, or with row j of w for m", "f32, each operation rounded")                   \
    X(ACT, "act", "x[T][n] -> y[T][n]", "",                                                             \
      "tanh, sigmoid, relu² = max(x,0)², decay = exp(-e^(-1/2)·σ(x)), silu, exp, "                  \
      "softplus = log(1 + exp(x))",                                                                     \
      "f32, our own exp and log")                                                                       \
    X(GLU, "glu", "g[T][n], u[T][n] -> y[T][n]", "",                                                    \
      "silu: y = silu(g) ⊙ u; gelu: y = g·σ(√(8/π)·(g + 0.044715·g³)) ⊙ u, which is its "   \
      "form with tanh; clamped: g' = min(g, limit), u' = u within ±limit, y = g'·σ(α·g')·(u' "    \
      "+ 1); limited: y = min(silu(g), limit) ⊙ u'",                                                    \
      "f32, our own exp")                                                                               \
    X(ROPE, "rope", "x[T][H·s] -> y[T][H·r]", "",                                                       \
      "per head, the first n_rot of its columns rotated by step.cos/sin of row t, the rest "            \
      "copied; pairs (2i,2i+1) for kind norm, (i,i+n_rot/2) for kind neox; a net has several "          \
      "tables of angles, of which the op names one",                                                    \
      "cos and sin rounded from f64; a·c - b·s and a·s + b·c in f32")                                   \
    X(KV_STORE, "kv_store", "k[T][K], v[T][V] (opt) -> cache", "",                                      \
      "cache[layer][s(t)][p(t)] = (k_t, v_t); q4 keys (not latent ones) as H·round(H·k), H a "        \
      "Hadamard matrix over the root of its order, the head's width",                                   \
      "rounded to the profile's KV type")                                                               \
    X(ATTENTION, "attention", "q[T][H·hd] -> y[T][H·vd]", "sinks[H] (opt)",                             \
      "per head h, with g = h/(H/KV): y = Σ_j softmax_j(s_j)·v_j,g, s_j = scale·q·k_j,g, "          \
      "over positions j ≤ p(t) of the row's own slot, read from the cache. With a window only "       \
      "j > p(t) - window, or of its chunk j ≥ window·⌊p(t)/window⌋; with a softcap c, s_j "      \
      "is c·tanh(s_j/c); a sink is one more score, of a value of zeros",                                \
      "scores rounded to f32; max, exp and sum in ascending j")                                         \
    X(LATENT_ATTENTION, "latent_attention", "q[T][H·w] -> y[T][H·c]", "",                               \
      "as attention with one shared key row of w = c + rope columns whose first c columns are "         \
      "also the value (MLA, absorbed form)",                                                            \
      "as attention")                                                                                   \
    X(ROUTE, "route", "z[T][E] -> ids[T][k], weight[T][k]", "bias[E] (opt), s[E] (opt)",                \
      "softmax: P = softmax(z), top k; sigmoid: P = σ(z), top k of P + bias within the best "          \
      "groups; weights P_e, divided by max(ΣP, floor) if normalised, times scale, times s_e",           \
      "f32; ties go to the lower id; choices in descending order of score; a score that is NaN "        \
      "counts as -inf, so that the k choices are always distinct")                                      \
    X(COMBINE_EXPERTS, "combine_experts", "x[T][k·n], weight[T][k] -> y[T][n]", "",                     \
      "y = Σ_j weight_j·x[j]", "f32 in rank order")                                                     \
    X(TOKEN_SHIFT, "token_shift", "x[T][n], state -> y[T][n], state", "",                               \
      "y_t = x of the same slot's previous token (from the state for its first row); "                  \
      "state = x of its last row",                                                                      \
      "exact copy")                                                                                     \
    X(K_CONTROL, "k_control", "k[T][n], a[T][n] -> y[T][n]", "k_a[n]",                                  \
      "y = k ⊙ (1 + (a - 1) ⊙ k_a)", "f32, each operation rounded")                                     \
    X(CONV, "conv", "x[T][n], state -> y[T][n], state", "w[n][K], b[n] (opt)",                          \
      "causal convolution of each column: y_t = Σ_i w_i·x_{t-K+1+i} + b over the K latest rows "      \
      "of the slot (before its first row those of the state); state = its last K-1 rows",               \
      "sum in f64 over ascending i, rounded once")                                                      \
    X(RECURRENCE, "recurrence",                                                                         \
      "r[T][G·n], w[T][G·n or H], k[T][G·n], v[T][H·m], then b[T][H] (opt), or kk, a "              \
      "[T][G·n]; state -> y[T][H·m], state",                                                            \
      "",                                                                                               \
      "per head h of H, which reads key head h/(H/G), or h mod G, in time order, with S[m][n] "         \
      "and "                                                                                            \
      "w one number or one for each column: S_ij = S_ij·w_j, then by kind: plain (Mamba-2) "           \
      "S_ij += b·v_i·k_j; delta (gated delta net) S_ij += b·(v_i - Σ_j S_ij·k_j)·k_j; remove "    \
      "(RWKV-7) S_ij += v_i·k_j - s_i·kk_j·a_j with s_i = Σ_j S_ij·kk_j of S before w; "           \
      "y_i = Σ_j S_ij·r_j",                                                                             \
      "state f32; sums in f64, rounded once")                                                           \
    X(RK_BONUS, "rk_bonus", "y, r, k, v [T][C] -> out[T][C]", "r_k[C]",                                 \
      "per head: out_i = y_i + (Σ_j r_j·k_j·r_k_j)·v_i", "sum in f64, rounded once")                    \
    X(GATHER_ROWS, "gather_rows", "x[T][n] -> y[R][n]", "", "y_i = x[step.out_rows[i]]",                \
      "exact copy")                                                                                     \
    X(SAMPLE, "sample", "z[R][V], step.sample -> id[R][1], logprobs[R][1+N], top[R][N]", "",            \
      "for the row's edits: z_e += bias_e, then for recent e z_e /= repeat (below 0: times) "           \
      "and z_e -= presence + frequency·count_e; z_e = -inf where the row's mask has no bit. "          \
      "Temperature 0: id = argmax z. Else y = (z - max z)/temperature; the top_k best stay, "           \
      "of these the fewest best whose weights floor(2^40·exp(y)) add up to top_p of all, of "          \
      "these those with y ≥ log(min_p); id = argmax y_e + g_e, g = -log(-log(1-u)), u from "          \
      "a hash of (seed, choice, p(t)+1+ahead, e) (core/sample.c). -1: some z is not a number; "         \
      "-2: the mask leaves none. Where asked for, logprobs: z_e - log Σ exp(z), of the id, "           \
      "then of the likeliest tokens, whose ids are top",                                                \
      "f32, our own exp and log; sums of integers; ties go to the lower id")

enum op_kind {
#define OP_ENUM(id, name, io, weights, maths, rounding) OP_##id,
    OP_TABLE(OP_ENUM)
#undef OP_ENUM
        OP_COUNT
};

struct op_info {
    const char *name, *io, *weights, *maths, *rounding;
};
extern const struct op_info op_info[OP_COUNT];

enum norm_kind { NORM_RMS, NORM_LAYER, NORM_L2 };
enum act_kind {
    ACT_TANH,
    ACT_SIGMOID,
    ACT_RELU2,
    ACT_DECAY,
    ACT_SILU,
    ACT_EXP,
    ACT_SOFTPLUS,
};
/* How a recurrence changes its state beside the decay: see OP_RECURRENCE. */
enum recurrence_kind { RECURRENCE_REMOVE, RECURRENCE_DELTA, RECURRENCE_PLAIN };
enum glu_kind { GLU_SILU, GLU_GELU, GLU_CLAMPED, GLU_LIMITED };
enum rope_kind { ROPE_NORM, ROPE_NEOX };
enum route_kind { ROUTE_SOFTMAX, ROUTE_SIGMOID };

enum { NO_BUF = UINT32_MAX, NO_WEIGHT = UINT32_MAX };
enum { OP_MAX_IN = 8, OP_MAX_OUT = 8, OP_MAX_W = 2 };
enum { SAMPLE_MAX_TOP = 20 }; /* N of OP_SAMPLE: likeliest tokens that a row may ask for */

/* Columns [col, col + width) of a buffer, all rows. */
struct operand {
    u32 buf, col, width;
};

struct op {
    enum op_kind kind;
    u32 n_in, n_out, n_w;
    struct operand in[OP_MAX_IN], out[OP_MAX_OUT];
    u32 w[OP_MAX_W]; /* weight ids; NO_WEIGHT where an optional one is absent */
    int layer;       /* -1 outside the blocks */
    union {
        struct {
            enum norm_kind kind;
            u32 group;
            float eps;
        } norm; /* NORM */
        struct {
            u32 n_heads, n_in, n_out; /* per head */
            u32 in_stride, out_stride;
        } heads; /* MATMUL_HEADS */
        struct {
            u32 n_used, n_in, n_out;
            bool per_slot; /* the input has a slice per choice */
        } experts;         /* MATMUL_EXPERTS, ADD_EXPERTS, COMBINE_EXPERTS */
        struct {
            u32 row; /* of the weight */
        } lerp;
        struct {
            u32 group, stride; /* columns of a head in a, and from head to head in b */
            bool per_head;     /* one factor for all columns of a head */
        } mul;
        struct {
            enum act_kind kind;
        } act;
        struct {
            enum rope_kind kind;
            u32 n_heads, width, n_rot; /* width: columns moved per head */
            u32 in_stride, out_stride;
            u32 table; /* of the net's */
        } rope;
        struct {
            enum glu_kind kind;
            float alpha, limit; /* of GLU_CLAMPED; limit of GLU_LIMITED too */
        } glu;
        struct {
            u32 kv; /* index of the cache layer */
            u32 n_heads, n_kv_heads, k_width, v_width;
            float scale;
            u32 window;    /* positions that a row sees, its own included; 0: all */
            bool chunked;  /* it sees its own of the stretches of `window` positions, from 0 on */
            float softcap; /* 0: none */
        } attn;            /* KV_STORE, ATTENTION, LATENT_ATTENTION */
        struct {
            enum route_kind kind;
            u32 n_experts, n_used, n_groups, n_groups_used;
            bool normalise;
            float floor, scale;
        } route;
        struct {
            u32 state; /* index of the state layer */
            u32 head;  /* columns of a key head of RECURRENCE, of a head of RK_BONUS */
            u32 n_heads, n_key_heads, v_head; /* RECURRENCE: heads, key heads, columns of a value */
            enum recurrence_kind kind;
            bool tiled; /* key head h mod n_key_heads instead of neighbours that share one */
            u32 n_taps; /* CONV: rows that an output depends on */
        } rec;          /* TOKEN_SHIFT, CONV, RECURRENCE, RK_BONUS */
    } p;
};

/* Optional parameters of ops, one bit each. A kernel lists those that it knows, and so does each
 * role of a rule (group.h); what has another is not taken. A parameter that is added to an op
 * begins with a line here: then every executor refuses it (exec_check) until its kernel has it.
 *
 * X(ID, what messages call it, does op o have it?) */
#define FEATURE_TABLE(X)                                                                           \
    X(OP, "this op", true)                                                                         \
    X(RMS, "the norm rms", o->kind == OP_NORM && o->p.norm.kind == NORM_RMS)                       \
    X(LAYER, "the norm layer", o->kind == OP_NORM && o->p.norm.kind == NORM_LAYER)                 \
    X(L2, "the norm l2", o->kind == OP_NORM && o->p.norm.kind == NORM_L2)                          \
    X(GROUPS, "norms of groups", o->kind == OP_NORM && o->p.norm.group != o->in[0].width)          \
    X(WEIGHT, "a weight",                                                                          \
      ((o->kind == OP_NORM || o->kind == OP_MUL || o->kind == OP_LERP) && o->w[0] != NO_WEIGHT) || \
          (o->kind == OP_ADD && o->n_w))                                                           \
    X(BIAS, "a bias",                                                                              \
      ((o->kind == OP_NORM || o->kind == OP_MATMUL || o->kind == OP_CONV) &&                       \
       o->w[1] != NO_WEIGHT) ||                                                                    \
          (o->kind == OP_ROUTE && o->w[0] != NO_WEIGHT))                                           \
    X(PER_SLOT, "an input for each choice", o->kind == OP_MATMUL_EXPERTS && o->p.experts.per_slot) \
    X(TANH, "the function tanh", o->kind == OP_ACT && o->p.act.kind == ACT_TANH)                   \
    X(SIGMOID, "the function sigmoid", o->kind == OP_ACT && o->p.act.kind == ACT_SIGMOID)          \
    X(RELU2, "the function relu²", o->kind == OP_ACT && o->p.act.kind == ACT_RELU2)                \
    X(DECAY, "the function decay", o->kind == OP_ACT && o->p.act.kind == ACT_DECAY)                \
    X(SILU, "the function silu", o->kind == OP_ACT && o->p.act.kind == ACT_SILU)                   \
    X(EXP, "the function exp", o->kind == OP_ACT && o->p.act.kind == ACT_EXP)                      \
    X(SOFTPLUS, "the function softplus", o->kind == OP_ACT && o->p.act.kind == ACT_SOFTPLUS)       \
    X(HEAD_FACTORS, "factors by head",                                                             \
      o->kind == OP_MUL && (o->p.mul.per_head || o->p.mul.stride != o->p.mul.group))               \
    X(SHARED_INPUT, "heads that share an input",                                                   \
      o->kind == OP_MATMUL_HEADS && o->p.heads.in_stride == 0)                                     \
    X(DELTA, "the delta rule", o->kind == OP_RECURRENCE && o->p.rec.kind == RECURRENCE_DELTA)      \
    X(PLAIN, "recurrence without removal",                                                         \
      o->kind == OP_RECURRENCE && o->p.rec.kind == RECURRENCE_PLAIN)                               \
    X(HEAD_DECAY, "one decay for each head",                                                       \
      o->kind == OP_RECURRENCE && o->in[1].width == o->p.rec.n_heads)                              \
    X(STRENGTH, "a strength for each head",                                                        \
      o->kind == OP_RECURRENCE && o->p.rec.kind != RECURRENCE_REMOVE && o->n_in == 5)              \
    X(KEY_HEADS, "heads that share keys",                                                          \
      o->kind == OP_RECURRENCE && o->p.rec.n_key_heads != o->p.rec.n_heads)                        \
    X(TILED, "key heads in turns", o->kind == OP_RECURRENCE && o->p.rec.tiled)                     \
    X(V_HEAD, "values of another width than keys in a recurrence",                                 \
      o->kind == OP_RECURRENCE && o->p.rec.v_head != o->p.rec.head)                                \
    X(NEOX, "pairs of kind neox", o->kind == OP_ROPE && o->p.rope.kind == ROPE_NEOX)               \
    X(PARTIAL, "columns that are not rotated",                                                     \
      o->kind == OP_ROPE && o->p.rope.n_rot != o->p.rope.width)                                    \
    X(ROPE_TABLE, "a rotary table of its own", o->kind == OP_ROPE && o->p.rope.table)              \
    X(GELU, "the function gelu", o->kind == OP_GLU && o->p.glu.kind == GLU_GELU)                   \
    X(CLAMPED, "gates that are clamped", o->kind == OP_GLU && o->p.glu.kind == GLU_CLAMPED)        \
    X(LIMITED, "gates that are limited", o->kind == OP_GLU && o->p.glu.kind == GLU_LIMITED)        \
    X(NO_VALUE, "keys without values", o->kind == OP_KV_STORE && o->n_in == 1)                     \
    X(V_WIDTH, "values of another width than keys",                                                \
      o->kind == OP_ATTENTION && o->p.attn.v_width != o->p.attn.k_width)                           \
    X(WINDOW, "a window of positions", o->kind == OP_ATTENTION && o->p.attn.window)                \
    X(SOFTCAP, "a softcap of scores", o->kind == OP_ATTENTION && o->p.attn.softcap > 0)            \
    X(SINKS, "sinks of heads", o->kind == OP_ATTENTION && o->n_w)                                  \
    X(BY_SIGMOID, "the scoring function sigmoid",                                                  \
      o->kind == OP_ROUTE && o->p.route.kind == ROUTE_SIGMOID)                                     \
    X(EXPERT_GROUPS, "groups of experts", o->kind == OP_ROUTE && o->p.route.n_groups > 1)          \
    X(NORMALISED, "weights that are normalised", o->kind == OP_ROUTE && o->p.route.normalise)      \
    X(SCALE, "scaled weights",                                                                     \
      o->kind == OP_ROUTE && !(o->p.route.scale >= 1 && o->p.route.scale <= 1))                    \
    X(EXPERT_SCALES, "a scale for each expert", o->kind == OP_ROUTE && o->w[1] != NO_WEIGHT)

enum feature {
#define FEATURE_ENUM(id, what, test) FEATURE_##id,
    FEATURE_TABLE(FEATURE_ENUM)
#undef FEATURE_ENUM
        FEATURE_COUNT
};
_Static_assert(FEATURE_COUNT <= 64, "a feature is a bit of u64");
#define HAS(id) (1ull << FEATURE_##id)
#define HAS_ANY_NORM \
    (HAS(OP) | HAS(RMS) | HAS(LAYER) | HAS(L2) | HAS(GROUPS) | HAS(WEIGHT) | HAS(BIAS))
#define HAS_ANY_ACT                                                                        \
    (HAS(OP) | HAS(TANH) | HAS(SIGMOID) | HAS(RELU2) | HAS(DECAY) | HAS(SILU) | HAS(EXP) | \
     HAS(SOFTPLUS))
#define HAS_ANY_RECURRENCE                                                                  \
    (HAS(OP) | HAS(DELTA) | HAS(PLAIN) | HAS(HEAD_DECAY) | HAS(STRENGTH) | HAS(KEY_HEADS) | \
     HAS(TILED) | HAS(V_HEAD))
#define HAS_ANY_GLU       (HAS(OP) | HAS(GELU) | HAS(CLAMPED) | HAS(LIMITED))
#define HAS_ANY_ATTENTION (HAS(OP) | HAS(V_WIDTH) | HAS(WINDOW) | HAS(SOFTCAP) | HAS(SINKS))
#define HAS_ANY_ROUTE \
    (HAS(OP) | HAS(BY_SIGMOID) | HAS(BIAS) | HAS(EXPERT_GROUPS) | HAS(NORMALISED) | HAS(SCALE))

/* The first position that a row at pos sees in an attention of that window. */
static inline u32 op_first_seen(const struct op *attention, u32 pos)
{
    u32 w = attention->p.attn.window;
    if (!w || pos < w) return 0;
    return attention->p.attn.chunked ? pos / w * w : pos + 1 - w;
}

/* The features of a recorded op. */
u64 op_features(const struct op *op);
const char *feature_name(enum feature f);

/* Does op write this column of its output? Ops on heads may leave gaps between them. */
bool op_writes(const struct op *op, u32 col);

#endif
