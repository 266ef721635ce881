#include "model/convert.h"

#include "format/gguf.h"
#include "format/hf_testdir.h"

#include <math.h>

/* Which type */

static enum qtype choose(const char *type, const struct convert_model *m, const char *name,
                         u64 n_row)
{
    struct tensor t = {str_of(name), QT_BF16, 2, {n_row, 8, 1, 1}, 8 * n_row, 0, NULL, NULL};
    return convert_choose(convert_type_by_name(type, NULL), m, &t);
}

/* Compares the blocks that get Q6_K with a list of numbers in text. */
static void check_more(const char *part, u32 n, const char *want)
{
    struct convert_model m = {.n_blocks = n, .n_attn_v = n};
    struct buf got = {0};
    for (u32 i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s", i, part);
        enum qtype q = choose("q4_k_m", &m, name, 256);
        if (q == QT_Q6_K)
            buf_printf(&got, "%u ", i);
        else
            assert_int_equal(q, QT_Q4_K);
    }
    assert_string_equal(buf_str(&got).p, want);
    buf_free(&got);
}

static void q4_k_m_gives_more_bits_to_these_layers(void **state)
{
    (void)state;
    static const char *const parts[] = {"attn_v.weight",        "attn_qkv.weight",
                                        "attn_kv_b.weight",     "ffn_down.weight",
                                        "ffn_down_exps.weight", "ffn_down_shexp.weight"};
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        check_more(parts[i], 16, "0 1 4 7 10 13 14 15 ");
        check_more(parts[i], 32, "0 1 2 3 6 9 12 15 18 21 24 27 28 29 30 31 ");
        check_more(parts[i], 47, "0 1 2 3 4 7 10 13 16 19 22 25 28 31 34 37 40 41 42 43 44 45 46 ");
    }
}

static void types_by_name(void **state)
{
    (void)state;
    static const struct convert_model untied = {.n_blocks = 32, .n_attn_v = 32};
    static const struct convert_model tied = {.n_blocks = 32, .n_attn_v = 32, .tied = true};
    static const struct convert_model eight = {.n_blocks = 32, .n_attn_v = 32, .n_experts = 8};
    static const struct convert_model big = {.n_blocks = 80, .n_attn_v = 80, .is_70b = true};
    static const struct {
        const char *type;
        const struct convert_model *m;
        const char *name;
        u64 n_row;
        enum qtype want;
    } cases[] = {
        {"f32", &untied, "blk.0.attn_norm.weight", 64, QT_F32},
        {"f16", &untied, "blk.0.attn_q.weight", 64, QT_F16},
        {"bf16", &untied, "output.weight", 64, QT_BF16},
        {"q8_0", &untied, "output.weight", 256, QT_Q8_0},
        {"q8_0", &untied, "blk.0.attn_q.weight", 64, QT_Q8_0},
        {"q8_0", &untied, "blk.0.attn_q.weight", 48, QT_F16},
        {"q4_0", &untied, "blk.0.ffn_down.weight", 256, QT_Q4_0},
        {"q4_0", &untied, "output.weight", 256, QT_Q6_K},
        {"q4_0", &untied, "output.weight", 96, QT_Q8_0},
        {"q4_0", &untied, "token_embd.weight", 256, QT_Q4_0},
        {"q4_0", &tied, "token_embd.weight", 256, QT_Q6_K},
        {"q4_k", &untied, "output.weight", 256, QT_Q4_K},
        {"q4_k", &tied, "token_embd.weight", 256, QT_Q4_K},
        {"q4_k", &untied, "blk.0.attn_v.weight", 256, QT_Q4_K},
        {"q4_k", &untied, "blk.0.attn_k_b.weight", 192, QT_Q5_0},
        {"q4_k", &untied, "output.weight", 96, QT_Q5_0},
        {"q4_k_m", &untied, "output.weight", 256, QT_Q6_K},
        {"q4_k_m", &untied, "output.weight", 896, QT_Q8_0},
        {"q4_k_m", &untied, "token_embd.weight", 256, QT_Q4_K},
        {"q4_k_m", &tied, "token_embd.weight", 256, QT_Q6_K},
        {"q4_k_m", &tied, "token_embd.weight", 576, QT_Q8_0},
        {"q4_k_m", &untied, "blk.0.attn_v.weight", 896, QT_Q8_0},
        {"q4_k_m", &untied, "blk.4.attn_v.weight", 896, QT_Q5_0},
        {"q4_k_m", &untied, "blk.0.attn_q.weight", 256, QT_Q4_K},
        {"q4_k_m", &untied, "blk.0.attn_k.weight", 256, QT_Q4_K},
        {"q4_k_m", &untied, "blk.0.attn_v_b.weight", 512, QT_Q4_K},
        {"q4_k_m", &untied, "blk.0.attn_k_b.weight", 192, QT_Q5_0},
        {"q4_k_m", &untied, "blk.0.time_mix_value.weight", 256, QT_Q4_K},
        {"q4_k_m", &eight, "blk.4.attn_v.weight", 256, QT_Q8_0},
        {"q4_k_m", &eight, "blk.4.attn_k.weight", 256, QT_Q8_0},
        {"q4_k_m", &eight, "blk.4.attn_output.weight", 256, QT_Q5_K},
        {"q4_k_m", &big, "blk.10.attn_v.weight", 256, QT_Q5_K},
        {"q4_k_m", &big, "blk.12.attn_v.weight", 256, QT_Q6_K},
        {"q5_k_m", &untied, "blk.4.attn_v.weight", 256, QT_Q5_K},
        {"q5_k_m", &untied, "blk.0.attn_v.weight", 256, QT_Q6_K},
        {"q5_k_m", &untied, "blk.4.attn_q.weight", 96, QT_Q5_1},
        {"q6_k", &untied, "blk.4.attn_q.weight", 256, QT_Q6_K},
        {"q6_k", &untied, "blk.4.attn_q.weight", 96, QT_Q8_0},
        {"q6_k", &untied, "output.weight", 256, QT_Q6_K},
        {"Q4_K_M", &untied, "blk.x.attn_v.weight", 256, QT_Q4_K}, /* in no block */
        {"q4_k_m", &untied, "blk.", 256, QT_Q4_K},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum qtype q = choose(cases[i].type, cases[i].m, cases[i].name, cases[i].n_row);
        if (q != cases[i].want)
            fail_msg("%s %s is %s", cases[i].type, cases[i].name, quant_info(q)->name);
    }
    struct err err;
    assert_null(convert_type_by_name("q3_k", &err));
    assert_string_equal(err.text,
                        "unknown type 'q3_k'; known types: f32 f16 bf16 q8_0 q4_0 q4_k q4_k_m "
                        "q5_k_m q6_k");
}

static void these_tensors_are_never_quantised(void **state)
{
    (void)state;
    static const struct convert_model m = {.n_blocks = 32, .n_attn_v = 32};
    static const char *const never[] = {
        "blk.0.attn_norm.weight",      "blk.0.attn_q_norm.weight",
        "blk.0.ffn_gate_inp.weight",   "blk.0.attn_q.bias",
        "blk.0.exp_probs_b.bias",      "blk.0.time_mix_w0.weight",
        "blk.0.time_mix_w1.weight",    "blk.0.time_mix_w2.weight",
        "blk.0.time_mix_a0.weight",    "blk.0.time_mix_a1.weight",
        "blk.0.time_mix_a2.weight",    "blk.0.time_mix_v0.weight",
        "blk.0.time_mix_v1.weight",    "blk.0.time_mix_v2.weight",
        "blk.0.time_mix_g1.weight",    "blk.0.time_mix_g2.weight",
        "blk.0.time_mix_first.weight", "blk.0.time_mix_lerp_fused.weight",
        "blk.0.ssm_conv1d.weight",
    };
    for (size_t i = 0; i < ARRAY_LEN(never); i++)
        assert_int_equal(choose("q4_k_m", &m, never[i], 256), QT_BF16); /* as in the source */
    /* Low-rank matrices are matrices to the float types. */
    assert_int_equal(choose("f16", &m, "blk.0.time_mix_a1.weight", 256), QT_F16);
    assert_int_equal(choose("f16", &m, "blk.0.time_mix_w1.weight", 256), QT_BF16);
    struct tensor vector = {STR("x"), QT_F32, 1, {256, 1, 1, 1}, 256, 0, NULL, NULL};
    assert_int_equal(convert_choose(convert_type_by_name("q8_0", NULL), &m, &vector), QT_F32);
    struct tensor experts = {
        STR("blk.0.ffn_up_exps.weight"), QT_MXFP4, 3, {256, 8, 4, 1}, 8192, 0, NULL, NULL};
    assert_int_equal(convert_choose(convert_type_by_name("q4_k_m", NULL), &m, &experts), QT_MXFP4);
    assert_int_equal(convert_choose(convert_type_by_name("f16", NULL), &m, &experts), QT_F16);
    vector.n_dims = 3;
    assert_int_equal(convert_choose(convert_type_by_name("q8_0", NULL), &m, &vector), QT_F32);
}

/* Running */

enum { ROW = 512 };

static float value(u64 i)
{
    return (float)((i * 7919 + i / 512) % 1009) / 504 - 1; /* in -1..1, exact steps */
}

static void put_tensor(struct gguf_writer *w, const char *name, u32 n_dims, u64 a, u64 b, u64 c)
{
    struct tensor t = {str_of(name), QT_F32, n_dims, {a, b, c, 1}, 0, 0, NULL, NULL};
    assert_int_equal(gguf_writer_tensor(w, &t, NULL), 0);
}

/* A made model: a matrix longer than a slice, three experts, a vector, a narrow matrix. bad takes
 * the place of one value in the experts. */
static void write_model(float bad)
{
    struct gguf_writer *w;
    struct source *meta;
    static const u64 n_elems[] = {ROW * 4200, ROW * 2 * 3, 40, 40 * 3};
    assert_int_equal(source_new(&meta, "meta", NULL), 0);
    source_add_str(meta, "general.architecture", STR("llama"), NULL);
    source_add_u32(meta, "general.file_type", 99, NULL);
    source_add_u32(meta, "general.quantization_version", 1, NULL);
    source_add_u32(meta, "split.count", 1, NULL);
    source_add_u32(meta, "llama.block_count", 16, NULL);
    source_add_str(meta, "tokenizer.ggml.model", STR("none"), NULL);
    assert_int_equal(gguf_writer_open(&w, testdir_path(&dir, "in.gguf"), NULL), 0);
    for (u32 i = 0; i < meta->n_kvs; i++)
        assert_int_equal(gguf_writer_kv(w, &meta->kvs[i], NULL), 0);
    put_tensor(w, "output.weight", 2, ROW, 4200, 1);
    put_tensor(w, "blk.0.ffn_down_exps.weight", 3, ROW, 2, 3);
    put_tensor(w, "blk.0.attn_norm.weight", 1, 40, 1, 1);
    put_tensor(w, "blk.0.attn_q.weight", 2, 40, 3, 1);
    for (size_t t = 0; t < ARRAY_LEN(n_elems); t++)
        for (u64 i = 0; i < n_elems[t]; i++) {
            float f = t == 1 && i == 1000 && bad != 0 ? bad : value(i);
            assert_int_equal(gguf_writer_data(w, &f, sizeof f, NULL), 0);
        }
    assert_int_equal(gguf_writer_finish(w, NULL), 0);
    gguf_writer_close(w);
    source_close(meta);
}

struct progress {
    u64 done, total;
};

static int see_progress(void *ctx, u64 done, u64 total)
{
    struct progress *p = ctx;
    assert_true(done > p->done && (p->total == 0 || total == p->total));
    *p = (struct progress){done, total};
    return 0;
}

static int run(const char *type, const char *out, u32 n_threads, struct err *err)
{
    char in[384], path[384];
    strcpy(in, testdir_path(&dir, "in.gguf"));
    strcpy(path, testdir_path(&dir, out));
    struct progress p = {0};
    *err = (struct err){0};
    int rc = convert_run(in, path, type, n_threads,
                         &(struct fletch_convert_params){.progress = see_progress, .ctx = &p}, err);
    if (rc == 0) assert_int_equal(p.done, p.total);
    return rc;
}

static struct source *open_made(const char *name)
{
    struct source *s;
    struct err err;
    if (source_open(&s, testdir_path(&dir, name), &err)) fail_msg("%s", err.text);
    return s;
}

static void check_values(struct source *s, const char *name, enum qtype type, double tolerance)
{
    const struct tensor *t = source_tensor(s, name);
    const struct quant_info *q = quant_info(type);
    const u8 *data;
    float f[256];
    if (!t || t->type != type) fail_msg("%s is not %s", name, q->name);
    assert_int_equal(source_data(s, t, &data, NULL), 0);
    for (u64 i = 0; i < t->n_elems; i += q->blk) {
        quant_decode(type, data + i / q->blk * q->bytes, f, q->blk);
        for (u64 k = 0; k < q->blk; k++)
            if (fabs((double)f[k] - (double)value(i + k)) > tolerance)
                fail_msg("%s %s[%d]: %g, not %g", q->name, name, (int)(i + k), (double)f[k],
                         (double)value(i + k));
    }
}

static void writes_every_type(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        u32 file_type;
        enum qtype output, experts, narrow;
        double output_tolerance, experts_tolerance, narrow_tolerance;
    } types[] = {
        {"f32", 0, QT_F32, QT_F32, QT_F32, 0, 0, 0},
        {"f16", 1, QT_F16, QT_F16, QT_F16, 5e-4, 5e-4, 5e-4},
        {"bf16", 32, QT_BF16, QT_BF16, QT_BF16, 4e-3, 4e-3, 4e-3},
        {"q8_0", 7, QT_Q8_0, QT_Q8_0, QT_F16, 6e-3, 6e-3, 5e-4},
        {"q4_0", 2, QT_Q6_K, QT_Q4_0, QT_F16, 0.04, 0.14, 5e-4},
        {"q4_k", 14, QT_Q4_K, QT_Q4_K, QT_F16, 0.12, 0.12, 5e-4},
        {"q4_k_m", 15, QT_Q6_K, QT_Q6_K, QT_F16, 0.04, 0.04, 5e-4},
        {"q5_k_m", 17, QT_Q6_K, QT_Q6_K, QT_F16, 0.04, 0.04, 5e-4},
        {"q6_k", 18, QT_Q6_K, QT_Q6_K, QT_F16, 0.04, 0.04, 5e-4},
    };
    struct err err;
    write_model(0);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        if (run(types[i].name, "out.gguf", 2, &err)) fail_msg("%s: %s", types[i].name, err.text);
        struct source *s = open_made("out.gguf");
        u32 v;
        assert_int_equal(s->n_tensors, 4);
        check_values(s, "output.weight", types[i].output, types[i].output_tolerance);
        check_values(s, "blk.0.ffn_down_exps.weight", types[i].experts, types[i].experts_tolerance);
        check_values(s, "blk.0.attn_norm.weight", QT_F32, 0);
        check_values(s, "blk.0.attn_q.weight", types[i].narrow, types[i].narrow_tolerance);
        assert_int_equal(source_get_u32(s, "general.file_type", &v, NULL), 0);
        assert_int_equal(v, types[i].file_type);
        assert_int_equal(source_get_u32(s, "general.quantization_version", &v, NULL), 0);
        assert_int_equal(v, 2);
        assert_int_equal(source_get_u32(s, "llama.block_count", &v, NULL), 0);
        assert_non_null(source_kv(s, "tokenizer.ggml.model"));
        assert_null(source_kv(s, "split.count"));
        source_close(s);
    }
}

static void threads_change_nothing(void **state)
{
    (void)state;
    struct err err;
    struct file_map a, b;
    write_model(0);
    assert_int_equal(run("q4_k", "one.gguf", 1, &err), 0);
    assert_int_equal(run("q4_k", "three.gguf", 3, &err), 0);
    assert_int_equal(file_map_open(&a, testdir_path(&dir, "one.gguf"), NULL), 0);
    assert_int_equal(file_map_open(&b, testdir_path(&dir, "three.gguf"), NULL), 0);
    assert_true(a.n == b.n && memcmp(a.p, b.p, (size_t)a.n) == 0);
    file_map_close(&a);
    file_map_close(&b);
}

static void a_quantised_file_converts_again(void **state)
{
    (void)state;
    struct err err;
    write_model(0);
    assert_int_equal(run("q8_0", "q8.gguf", 1, &err), 0);
    char in[384], out[384];
    strcpy(in, testdir_path(&dir, "q8.gguf"));
    strcpy(out, testdir_path(&dir, "f32.gguf"));
    assert_int_equal(convert_run(in, out, "f32", 1, NULL, &err), 0);
    struct source *s = open_made("f32.gguf");
    check_values(s, "output.weight", QT_F32, 6e-3);
    source_close(s);
}

static void refuses_weights_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        float bad;
        const char *type, *text; /* NULL: fits */
    } cases[] = {
        {NAN, "q8_0", "'blk.0.ffn_down_exps.weight' contains NaN or infinite"},
        {INFINITY, "q4_k_m", "'blk.0.ffn_down_exps.weight' contains NaN or infinite"},
        {-INFINITY, "f16", "'blk.0.ffn_down_exps.weight' contains NaN or infinite"},
        {70000, "f16", "outside the range of F16; convert to bf16"},
        {70000, "bf16", NULL},
        {65504, "f16", NULL},
        {70000, "q8_0", NULL},
        {1e9f, "q8_0", "outside the range of Q8_0"}, /* the scale is F16 */
        {1e9f, "q4_0", "outside the range of Q4_0"},
        {3e38f, "q6_k", "outside the range of Q6_K"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err;
        write_model(cases[i].bad);
        int rc = run(cases[i].type, "out.gguf", 2, &err);
        bool left = file_exists(testdir_path(&dir, "out.gguf"));
        if (cases[i].text ? rc == 0 || !strstr(err.text, cases[i].text) || left : rc != 0 || !left)
            fail_msg("%s %g: %d %s", cases[i].type, (double)cases[i].bad, rc, err.text);
        unlink(testdir_path(&dir, "out.gguf"));
    }
}

static void refuses_bad_arguments(void **state)
{
    (void)state;
    struct err err;
    write_model(0);
    assert_int_equal(run("q3_k_m", "out.gguf", 1, &err), FLETCH_E_ARG);
    assert_non_null(strstr(err.text, "unknown type 'q3_k_m'; known types: f32"));
    assert_int_equal(run("f16", "in.gguf", 1, &err), FLETCH_E_ARG);
    assert_non_null(strstr(err.text, "is the input"));
    assert_int_equal(run("f16", "./in.gguf", 1, &err), FLETCH_E_ARG);
    assert_int_equal(run("f16", "none/out.gguf", 1, &err), FLETCH_E_IO);
    unlink(testdir_path(&dir, "in.gguf"));
    assert_int_equal(run("f16", "out.gguf", 1, &err), FLETCH_E_IO);
}

static void refuses_types_that_can_not_be_read(void **state)
{
    (void)state;
    struct gguf_writer *w;
    struct err err;
    static const u8 block[36];
    struct tensor t = {STR("x.weight"), QT_NVFP4, 2, {64, 1, 1, 1}, 0, 0, NULL, NULL};
    assert_int_equal(gguf_writer_open(&w, testdir_path(&dir, "in.gguf"), NULL), 0);
    assert_int_equal(gguf_writer_tensor(w, &t, NULL), 0);
    assert_int_equal(gguf_writer_data(w, block, sizeof block, NULL), 0);
    assert_int_equal(gguf_writer_finish(w, NULL), 0);
    gguf_writer_close(w);
    assert_int_equal(run("q8_0", "out.gguf", 1, &err), FLETCH_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'x.weight' has type NVFP4"));
}

static void directories_bring_their_vocabulary(void **state)
{
    (void)state;
    testdir_puts(&dir, "config.json",
                 "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":8,"
                 "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"intermediate_size\":6,"
                 "\"rms_norm_eps\":1e-5,\"max_position_embeddings\":64,\"vocab_size\":9}");
    testdir_puts(&dir, "rwkv_vocab_v20230424.txt", "1 'a' 1\n2 'b' 1\n");
    TESTDIR_TENSOR(&dir, "model.layers.0.self_attn.q_proj.weight", QT_BF16, 0, 8, 8);
    testdir_tensors(&dir, "model.safetensors", false);
    char out[384];
    struct err err;
    strcpy(out, testdir_path(&dir, "out.gguf"));
    if (convert_run(dir.path, out, "f16", 1, NULL, &err)) fail_msg("%s", err.text);
    struct source *s = open_made("out.gguf");
    struct str model;
    assert_int_equal(source_get_str(s, "tokenizer.ggml.model", &model, NULL), 0);
    assert_true(str_is(model, "rwkv"));
    assert_int_equal(source_kv(s, "tokenizer.ggml.tokens")->n, 9);
    const struct tensor *t = source_tensor(s, "blk.0.attn_q.weight");
    assert_true(t && t->type == QT_F16 && t->ne[0] == 8);
    const u8 *data;
    assert_int_equal(source_data(s, t, &data, NULL), 0);
    u16 h;
    memcpy(&h, data + 8 * 2, 2);
    assert_true(half_to_float(h) == 16); /* row 1 is the head's row 2 */
    source_close(s);
}

static void rwkv7_gets_the_dummies_that_others_expect(void **state)
{
    (void)state;
    struct err err;
    char out[384];
    strcpy(out, testdir_path(&dir, "out.gguf"));
    if (convert_run("test/golden/models/rwkv7", out, "q8_0", 1, NULL, &err))
        fail_msg("%s", err.text);
    struct source *s = open_made("out.gguf");
    static const char *const pairs[][2] = {
        {"blk.0.time_mix_a0.weight", "blk.0.time_mix_v0.weight"},
        {"blk.0.time_mix_a1.weight", "blk.0.time_mix_v1.weight"},
        {"blk.0.time_mix_a2.weight", "blk.0.time_mix_v2.weight"},
    };
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        const struct tensor *a = source_tensor(s, pairs[i][0]), *v = source_tensor(s, pairs[i][1]);
        assert_true(a && v && a->type == v->type && a->n_bytes == v->n_bytes);
        assert_memory_equal(a->data, v->data, (size_t)a->n_bytes);
    }
    const struct tensor *a1 = source_tensor(s, "blk.1.time_mix_a1.weight");
    const struct tensor *v1 = source_tensor(s, "blk.1.time_mix_v1.weight");
    assert_true(a1 && v1 && a1->ne[1] != v1->ne[1]);
    source_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(q4_k_m_gives_more_bits_to_these_layers),
        cmocka_unit_test(types_by_name),
        cmocka_unit_test(these_tensors_are_never_quantised),
        TESTDIR_TEST(writes_every_type),
        TESTDIR_TEST(threads_change_nothing),
        TESTDIR_TEST(a_quantised_file_converts_again),
        TESTDIR_TEST(refuses_weights_that_do_not_fit),
        TESTDIR_TEST(refuses_bad_arguments),
        TESTDIR_TEST(refuses_types_that_can_not_be_read),
        TESTDIR_TEST(directories_bring_their_vocabulary),
        TESTDIR_TEST(rwkv7_gets_the_dummies_that_others_expect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
