/* Opens a Hugging Face directory: its configuration and its safetensors files. File names come
 * from an index inside the directory and must stay inside it. */
#include "format/hf.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "format/hf_model.h"
#include "format/json.h"

enum {
    MAX_CONFIG = 4 << 20,
    MAX_INDEX = 32 << 20,
    MAX_SHARDS = 1024,
    MAX_ARCH = 64, /* bytes of an architecture's name */
};

#define INDEX_NAME "model.safetensors.index.json"

static char *path_in(struct source *s, const char *name)
{
    return arena_printf(&s->arena, "%s/%s", s->path, name);
}

static int open_shard(struct source *s, struct hf *h, const char *name, struct err *err)
{
    char *path = path_in(s, name);
    if (!path) return err_nomem(err, name);
    int rc = file_map_open(&s->files[s->n_files], path, err);
    if (rc) return rc;
    const struct file_map *m = &s->files[s->n_files++];
    rc = st_parse(&h->files[h->n_files], m->p, m->n, err);
    if (rc) return err_prefix(err, "%s", QUOTE(str_of(name)));
    h->n_files++;
    return 0;
}

static int reserve_shards(struct source *s, struct hf *h, size_t n, struct err *err)
{
    s->files = calloc(n, sizeof *s->files);
    h->files = calloc(n, sizeof *h->files);
    return s->files && h->files ? 0 : err_nomem(err, "the list of shards");
}

static bool shard_name_ok(struct str name)
{
    return name.n <= 255 && !memchr(name.p, '/', name.n) && !memchr(name.p, 0, name.n) &&
           str_ends(name, ".safetensors");
}

static int open_indexed(struct source *s, struct hf *h, const json_t *index, struct err *err)
{
    json_t *map = json_object_get(index, "weight_map"), *v;
    struct strmap seen = {0};
    const char *key;
    if (json_object_size(map) == 0)
        return err_set(err, FLETCH_E_FORMAT, INDEX_NAME ": missing weight_map");
    int rc = reserve_shards(s, h, MIN(json_object_size(map), (size_t)MAX_SHARDS), err);
    json_object_foreach(map, key, v)
    {
        struct str name = {json_string_value(v), json_string_length(v)};
        u32 i;
        if (rc) break;
        if (!name.p || !shard_name_ok(name))
            rc = err_set(err, FLETCH_E_FORMAT,
                         INDEX_NAME
                         ": %s is not the name of a safetensors file in the same directory",
                         name.p ? QUOTE(name) : "an entry");
        else if (!strmap_get(&seen, name, &i) && h->n_files == MAX_SHARDS)
            rc = err_set(err, FLETCH_E_LIMIT, INDEX_NAME ": more than %d files", MAX_SHARDS);
        else if (strmap_add(&seen, name, i = h->n_files))
            rc = open_shard(s, h, name.p, err);
        else if (!strmap_ok(&seen))
            rc = err_nomem(err, INDEX_NAME);
        strmap_get(&seen, name, &i);
        if (rc == 0 && !st_find(&h->files[i], str_of(key)))
            rc = err_set(err, FLETCH_E_FORMAT, INDEX_NAME ": tensor %s is not in %s",
                         QUOTE(str_of(key)), QUOTE(name));
    }
    strmap_free(&seen);
    return rc;
}

static int open_shards(struct source *s, struct hf *h, struct err *err)
{
    const char *one = "model.safetensors";
    const char *path = path_in(s, one), *index_path = path_in(s, INDEX_NAME);
    json_t *index;
    int rc;
    if (!path || !index_path) return err_nomem(err, "paths");
    if (file_exists(path)) {
        rc = reserve_shards(s, h, 1, err);
        return rc ? rc : open_shard(s, h, one, err);
    }
    if (!file_exists(index_path))
        return err_set(err, FLETCH_E_FORMAT,
                       "%s contains neither %s nor " INDEX_NAME
                       "; other weight formats are not supported",
                       QUOTE(str_of(s->path)), one);
    rc = json_read(&index, index_path, MAX_INDEX, err);
    if (rc == 0) rc = open_indexed(s, h, index, err);
    json_decref(index);
    return rc;
}

/* The directory's own name is the best there is; a path that ends in dots has none. */
static int add_name(struct source *s, struct err *err)
{
    struct str p = str_of(s->path);
    while (p.n && p.p[p.n - 1] == '/') p.n--;
    for (size_t i = p.n; i-- > 0;)
        if (p.p[i] == '/') {
            p = (struct str){p.p + i + 1, p.n - i - 1};
            break;
        }
    if (p.n == 0 || p.p[p.n - 1] == '.') return 0;
    return source_add_str(s, "general.name", p, err);
}

static int read_sampling(struct source *s, struct err *err)
{
    const char *path = path_in(s, "generation_config.json");
    json_t *config = NULL;
    if (!path) return err_nomem(err, "paths");
    if (!file_exists(path)) return 0;
    int rc = json_read(&config, path, MAX_CONFIG, err);
    if (rc == 0) rc = hf_read_sampling(s, config, err);
    json_decref(config);
    return rc;
}

static int is_gguf(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 5 && strcasecmp(e->d_name + n - 5, ".gguf") == 0;
}

/* A folder that is no model but may hold some: names the first of them. */
static int refuse_folder(const char *path, struct err *err)
{
    enum { SHOWN = 3 };
    struct dirent **files;
    char text[400] = "a model is a .gguf file or a Hugging Face directory";
    size_t at = 0;
    int n = scandir(path, &files, is_gguf, alphasort);
    for (int i = 0; i < n; i++) {
        if (i < SHOWN)
            at += (size_t)snprintf(
                text + at, sizeof text - at, "%s %s",
                i ? "," : "use one of its .gguf files:", QUOTE(str_of(files[i]->d_name)));
        free(files[i]);
    }
    if (n > SHOWN) snprintf(text + at, sizeof text - at, " and %d more", n - SHOWN);
    if (n >= 0) free(files);
    return err_set(err, FLETCH_E_FORMAT, "%s has no config.json; %s", QUOTE(str_of(path)), text);
}

int hf_read(struct source *s, struct err *err)
{
    const char *path = path_in(s, "config.json");
    json_t *config = NULL;
    struct hf *h = s->hf = calloc(1, sizeof *h);
    if (!h || !path) return err_nomem(err, s->path);
    if (!file_exists(path)) return refuse_folder(s->path, err);
    int rc = json_read(&config, path, MAX_CONFIG, err);
    if (rc == 0) rc = open_shards(s, h, err);
    h->wrapped = hf_is_wrapped(config);
    if (rc == 0) rc = hf_index_tensors(s, h, err);
    if (rc == 0) rc = hf_read_config(s, h, config, err);
    if (rc == 0 && h->fp8) rc = hf_pair_scales(h, err);
    if (rc == 0) rc = add_name(s, err);
    if (rc == 0) rc = read_sampling(s, err);
    if (rc == 0) rc = hf_read_pooling(s, err);
    if (rc == 0) rc = hf_add_tensors(s, h, err);
    json_decref(config);
    return rc;
}

int hf_read_text(struct source *s, struct err *err)
{
    const char *path = path_in(s, "config.json");
    json_t *config = NULL;
    int rc = path ? add_name(s, err) : err_nomem(err, s->path);
    s->text_only = true;
    if (rc || !file_exists(path)) return rc;
    rc = json_read(&config, path, MAX_CONFIG, err);
    const json_t *type = json_object_get(config, "model_type");
    const json_t *n_vocab = json_object_get(config, "vocab_size");
    struct str arch = {json_string_value(type), json_string_length(type)};
    json_int_t n = json_integer_value(n_vocab);
    if (rc == 0 && arch.n && arch.n <= MAX_ARCH) {
        char *key = arena_printf(&s->arena, "%.*s.vocab_size", (int)arch.n, arch.p);
        rc = source_add_str(s, "general.architecture", arch, err);
        if (rc == 0 && !key) rc = err_nomem(err, "metadata");
        if (rc == 0 && n > 0 && n <= UINT32_MAX) rc = source_add_u32(s, key, (u32)n, err);
    }
    json_decref(config);
    return rc;
}

void hf_free(struct source *s)
{
    struct hf *h = s->hf;
    if (!h) return;
    for (u32 i = 0; i < h->n_files; i++) st_free(&h->files[i]);
    free(h->files);
    strmap_free(&h->index);
    free(h);
    s->hf = NULL;
}
