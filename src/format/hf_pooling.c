/* How sentence-transformers makes an embedding of a model's hidden states: modules.json lists its
 * steps, one of which pools and has a config.json of its own. */
#include <stdio.h>
#include <string.h>

#include "format/hf_model.h"
#include "format/json.h"

enum { MAX_MODULES = 1 << 20 };

#define USUAL_FOLDER "1_Pooling"

/* Leaves *out NULL when there is no such file. */
static int read_file(struct source *s, const char *name, json_t **out, struct err *err)
{
    char *path = arena_printf(&s->arena, "%s/%s", s->path, name);
    *out = NULL;
    if (!path) return err_nomem(err, name);
    return file_exists(path) ? json_read(out, path, MAX_MODULES, err) : 0;
}

/* What has no number: embeddings are refused by this name, all else works. */
static int put_other(struct source *s, const char *what, struct err *err)
{
    if (source_kv(s, "fletch.embedding_module")) return 0; /* one reason is enough */
    return source_add_str(s, "fletch.embedding_module", str_of(what), err);
}

/* GGUF's number of a way to pool, or -1. */
static int pooling_number(struct str mode)
{
    static const struct {
        const char *name;
        int number;
    } modes[] = {
        {"mean", 1},      {"mean_tokens", 1}, {"cls", 2},
        {"cls_token", 2}, {"lasttoken", 3},   {"last", 3},
    };
    for (size_t i = 0; i < ARRAY_LEN(modes); i++)
        if (str_is(mode, modes[i].name)) return modes[i].number;
    return -1;
}

/* Either "pooling_mode": "mean", or a boolean pooling_mode_NAME for each way; several of them are
 * joined. */
static int put_modes(struct source *s, const json_t *config, struct err *err)
{
    static const char prefix[] = "pooling_mode";
    const char *key;
    char what[64];
    json_t *v;
    struct str mode = {0};
    u32 n = 0;
    if (!json_is_object(config))
        return err_set(err, FLETCH_E_FORMAT, "the pooling's config.json is not an object");
    json_object_foreach((json_t *)(uintptr_t)config, key, v)
    {
        if (!str_starts(str_of(key), prefix)) continue;
        if (strcmp(key, prefix) == 0 && json_is_string(v)) {
            mode = (struct str){json_string_value(v), json_string_length(v)};
            n++;
        } else if (strcmp(key, prefix) == 0) {
            n = 2; /* a list */
        } else if (json_is_true(v)) {
            mode = str_of(key + sizeof prefix);
            n++;
        }
    }
    if (n == 0) return 0; /* the mean is the default */
    int number = n == 1 ? pooling_number(mode) : -1;
    if (n > 1) return put_other(s, "several pooling modes combined", err);
    if (number < 0) {
        snprintf(what, sizeof what, "pooling_mode %.48s", QUOTE(mode));
        return put_other(s, what, err);
    }
    struct str arch;
    int rc = source_get_str(s, "general.architecture", &arch, err);
    char *full = rc ? NULL : arena_printf(&s->arena, "%.*s.pooling_type", (int)arch.n, arch.p);
    if (rc) return rc;
    return full ? source_add_u32(s, full, (u32)number, err) : err_nomem(err, "metadata");
}

/* A folder beside modules.json, never one elsewhere. */
static bool folder_ok(struct str name)
{
    return name.n && name.n <= 64 && *name.p != '.' && !memchr(name.p, '/', name.n) &&
           !memchr(name.p, 0, name.n);
}

static int read_pooling(struct source *s, struct str folder, bool must, struct err *err)
{
    char name[96];
    json_t *config;
    if (!folder_ok(folder))
        return err_set(err, FLETCH_E_FORMAT,
                       "modules.json: path %s is not a folder in the same directory",
                       QUOTE(folder));
    snprintf(name, sizeof name, "%.*s/config.json", (int)folder.n, folder.p);
    int rc = read_file(s, name, &config, err);
    if (rc == 0 && config) rc = put_modes(s, config, err);
    if (rc == 0 && !config && must) {
        char what[64];
        snprintf(what, sizeof what, "%.40s, which is missing", name);
        rc = put_other(s, what, err);
    }
    json_decref(config);
    return rc;
}

/* Transformer is the model itself; Normalize changes no direction. */
static int read_module(struct source *s, const json_t *module, struct err *err)
{
    const json_t *path = json_object_get(module, "path");
    const char *type = json_string_value(json_object_get(module, "type")), *last;
    char what[64];
    if (!type) return err_set(err, FLETCH_E_FORMAT, "modules.json: a module has no type");
    last = strrchr(type, '.');
    last = last ? last + 1 : type;
    if (strcmp(last, "Transformer") == 0 || strcmp(last, "Normalize") == 0) return 0;
    if (strcmp(last, "Pooling") == 0)
        return read_pooling(s, (struct str){json_string_value(path), json_string_length(path)},
                            true, err);
    snprintf(what, sizeof what, "module %.48s", QUOTE(str_of(last)));
    return put_other(s, what, err);
}

int hf_read_pooling(struct source *s, struct err *err)
{
    json_t *modules;
    int rc = read_file(s, "modules.json", &modules, err);
    if (rc == 0 && !modules) rc = read_pooling(s, STR(USUAL_FOLDER), false, err);
    if (rc == 0 && modules && !json_is_array(modules))
        rc = err_set(err, FLETCH_E_FORMAT, "modules.json is not a list");
    for (size_t i = 0; i < json_array_size(modules) && rc == 0; i++)
        rc = read_module(s, json_array_get(modules, i), err);
    json_decref(modules);
    return rc;
}
