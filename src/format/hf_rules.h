/* Which tensor of a Hugging Face checkpoint becomes which of GGUF, and how its values are laid out.
 */
#ifndef FLETCH_HF_RULES_H
#define FLETCH_HF_RULES_H

#include "format/hf_model.h"

enum how {
    AS_IS, /* vectors become F32 */
    AS_F32,
    FLAT,   /* one dimension, F32 */
    ROPE_Q, /* llama: GGUF rotates neighbours, the checkpoint rotates halves */
    ROPE_K,
    STACK,     /* one tensor from every expert's; %u in the name is the expert */
    GATE_ROWS, /* [E][2f][d]: the first f rows of each expert */
    UP_ROWS,   /* and the others */
    TURNED,    /* [E][d][2f], [E][f][d]: each expert transposed; otherwise not taken */
    NOT_TURNED,
    EVEN, /* gpt-oss: of each expert's rows those of the gate, */
    ODD,  /* or of up, which lie in turns */
    WHOLE,
    GATE_COLUMNS, /* [E][d][2f]: the first f columns of each expert, transposed, */
    UP_COLUMNS,   /* and the others */
    MLA_K,        /* kv_b_proj [heads][k rows, v rows][rank]: k, transposed per head */
    MLA_V,
    LERP,      /* %c in the name is each of r w k v a g; {C,1,1,6} */
    OUTPUT,    /* AS_IS, unless tied to the embedding */
    VALUE_MIX, /* AS_IS; block 0 has none, or dummies that are dropped */
    PLUS_ONE,  /* norms stored less 1; F32 */
    MINUS_EXP, /* of a number for each value head of a delta net; F32 */
    HEADS,     /* such numbers or rows as they are */
    HEADS_F32,
    VALUES,      /* rows of all value heads */
    MIXED,       /* rows of all keys of queries, of keys, then of all value heads */
    TAPS,        /* the same of a convolution; F32 */
    COLUMNS,     /* columns of all value heads */
    CONV,        /* [n][1][taps] without the middle one; F32 */
    CONV3,       /* with it, also where the checkpoint leaves it out */
    COLUMN,      /* a number for each head of Mamba as rows of one; F32 */
    COLUMN_EXP,  /* minus its exponential */
    BY_GROUP,    /* a vector as a row for each group of Mamba; F32 */
    SCALED,      /* AS_IS, times the multiplier that goes with the name */
    SCALED_ROWS, /* Mamba's, times one for each part of the rows */
    QKV_ROWS,    /* rows of q, k and v, without z, which key head by key head lie together */
    Z_ROWS,
    DROP,
};

struct rule {
    u64 archs;
    const char *hf, *gguf;
    enum how how;
};

enum {
    L = HF_LLAMA,
    Q2 = HF_QWEN2,
    QM = HF_QWEN3_MOE,
    G = HF_GLM4_LITE | HF_DEEPSEEK | HF_MISTRAL4,
    R = HF_RWKV7,
    MX = HF_MIXTRAL,
    GM = HF_GLM4_MOE | HF_SOLAR,
    SO = HF_SEED_OSS,
    S3 = HF_SMOLLM3,
    P3 = HF_PHI3,
    MM = HF_MINIMAX_M2,
    ER = HF_ERNIE,
    EM = HF_ERNIE_MOE,
    GR = HF_GRANITE,
    HY = HF_HUNYUAN,
    HM = HF_HUNYUAN_MOE,
    N = HF_QWEN3_NEXT,
    D5 = HF_QWEN35 | HF_QWEN35_MOE,
    D = HF_DELTA,
    DM = N | HF_QWEN35_MOE,
    GO = HF_GPT_OSS,
    GE = HF_GEMMA2 | HF_GEMMA3, /* norms are stored minus one */
    M3 = HF_MISTRAL3,
    O2 = HF_OLMO2,
    E4 = HF_EXAONE4,
    C2 = HF_COHERE2,
    G4 = HF_GLM4,
    F2 = HF_LFM2 | HF_LFM2_MOE,
    FM = HF_LFM2_MOE,
    NH = HF_NEMOTRON_H,
    GH = HF_GRANITE_H | HF_GRANITE_HD,
    GX = HF_GRANITE_H,
    GD = HF_GRANITE_HD,
    FH = HF_FALCON_H1,
    HV = HF_HY_V3,
    BL = HF_BAILING2,
    KL = HF_KIMI_LINEAR,
    GM4 = HF_GEMMA4,
    CM = HF_COHERE2_MOE,
    AF = HF_AFMOE,
    LA = HF_LAGUNA,
    M2 = HF_MIMO2,
    L4 = HF_LLAMA4,
    XM = HF_EXAONE_MOE,
    MU = HF_MUSE,
    ST = HF_STEP35,
    POST = O2 | E4, /* norms behind the halves of a block alone */
    HAS_BIAS = HF_LLAMA | HF_QWEN2 | SO | S3 | GM | ER | EM | GR | HY | HM | GO | G4 | C2 |
               GE,                                                          /* of q, k and v */
    FULL_BIAS = HF_LLAMA | SO | S3 | ER | EM | GR | HY | HM | GO | C2 | GE, /* of the others */
    QN = HF_QWEN3 | HF_QWEN3_MOE | GM | MM | HF_GEMMA3 | O2 | E4 | HV | GM4 | AF | LA |
         XM, /* with norms on q and k */
    DENSE = L | Q2 | HF_QWEN3 | SO | S3 | GM | ER | EM | GR | HY | HF_QWEN35 | GE | M3 | O2 | E4 |
            C2 | HV | BL | GM4 | CM | AF | LA | M2 | L4 | XM | MU | ST,
    SPLIT = DENSE | DM | QM | MX | MM | HM | GO | G4 | F2 | GH, /* q, k and v are three tensors */
    ATTN = SPLIT | P3,
    MOE = QM | G | GM | MX | MM | EM | HM | DM | HV | BL | CM | AF | LA | M2 | XM,
    SIGMOID =
        G | GM | EM | HV | BL | CM | AF | LA | M2 | XM, /* with shared experts under these names */
    PERMUTED = L | MX | S3 | GR | M3 | GH |
               MU, /* GGUF rotates neighbours, the checkpoint rotates halves */
    ALL = ATTN | G | R | NH | FH | KL,
};

/* Tables, each ended by a row without a name. */
extern const struct rule hf_model_rules[];
extern const struct rule hf_block_rules[];
extern const struct rule hf_mtp_rules[];
extern const struct rule hf_mtp_apart_rules[];

#endif
