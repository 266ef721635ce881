/* generation_config.json in GGUF's words. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "format/hf_model.h"

int hf_read_sampling(struct source *s, const json_t *config, struct err *err)
{
    enum { KIND_real, KIND_count };
    static const struct {
        const char *name, *alias, *key, *metadata;
        int kind;
    } floats[] = {
#define SETTING_HF(kind, name, option, arg, min, max, off, metadata, alias, help) \
    {#name, alias, "general.sampling." metadata, metadata, KIND_##kind},
        FLETCH_SAMPLING_SETTINGS(SETTING_HF)
#undef SETTING_HF
    };
    bool greedy = json_is_false(json_object_get(config, "do_sample"));
    int rc = greedy ? source_add_f32(s, "general.sampling.temp", 0, err) : 0;
    for (size_t i = 0; i < ARRAY_LEN(floats) && rc == 0; i++) {
        bool is_temp = strcmp(floats[i].metadata, "temp") == 0;
        if (!*floats[i].metadata || floats[i].kind != KIND_real || (greedy && is_temp)) continue;
        const char *name = *floats[i].alias ? floats[i].alias : floats[i].name;
        const json_t *v = json_object_get(config, name);
        double d = json_number_value(v);
        if (!v || json_is_null(v)) continue;
        if (!json_is_number(v) || !(d >= 0 && d <= (double)FLT_MAX))
            return err_set(err, FLETCH_E_FORMAT, "generation_config.json: %s is not a number",
                           name);
        rc = source_add_f32(s, floats[i].key, (float)d, err);
    }
    const json_t *k = json_object_get(config, "top_k");
    if (rc || !k || json_is_null(k)) return rc;
    double top_k = json_number_value(k);
    if (!json_is_number(k) || !(top_k >= -1 && top_k <= INT32_MAX) || top_k != floor(top_k))
        return err_set(err, FLETCH_E_FORMAT,
                       "generation_config.json: top_k is not an integer of at least 0");
    u8 *le = arena_alloc(&s->arena, 4, 1);
    if (!le) return err_nomem(err, "metadata");
    for (int i = 0; i < 4; i++) le[i] = (u8)((u32)(i32)top_k >> 8 * i);
    struct kv kv = {STR("general.sampling.top_k"), KV_I32, KV_I32, 1, le, 4};
    return source_add_kv(s, &kv, err);
}
