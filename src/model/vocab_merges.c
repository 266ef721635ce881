/* Byte-level BPE as vocab.json and merges.txt, the form before tokenizer.json. The files don't say
 * how texts are cut before the merges; the tokenizer's class does. A tokenizer.json is made of
 * them, as transformers makes one. */
#include "model/vocab.h"

#include <string.h>

#include "text/tok_pre.h"

static const struct merges_class {
    const char *name;
    const char *pre;  /* of GGUF; NULL: ByteLevel's own regex */
    const char *norm; /* or NULL */
    bool bos;         /* <|endoftext|> is bos too, not eos alone */
} classes[] = {
    {"GPT2Tokenizer", NULL, NULL, true},       {"GPT2TokenizerFast", NULL, NULL, true},
    {"CodeGenTokenizer", NULL, NULL, true},    {"CodeGenTokenizerFast", NULL, NULL, true},
    {"Qwen2Tokenizer", "qwen2", "NFC", false}, {"Qwen2TokenizerFast", "qwen2", "NFC", false},
};

static const struct merges_class *find_class(const json_t *config)
{
    const char *name = json_string_value(json_object_get(config, "tokenizer_class"));
    for (size_t i = 0; name && i < ARRAY_LEN(classes); i++)
        if (strcmp(name, classes[i].name) == 0) return &classes[i];
    return NULL;
}

bool vocab_knows_class(const json_t *config)
{
    return find_class(config) != NULL;
}

/* One merge a line, best first; the first line may be a comment with the version. */
static json_t *read_lines(struct str text)
{
    json_t *list = json_array();
    for (size_t at = 0, end; list && at < text.n; at = end + 1) {
        const char *stop = memchr(text.p + at, '\n', text.n - at);
        end = stop ? (size_t)(stop - text.p) : text.n;
        struct str line = {text.p + at, end - at};
        while (line.n && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == ' ')) line.n--;
        if (!line.n || (at == 0 && str_starts(line, "#version"))) continue;
        json_t *merge = json_stringn(line.p, line.n); /* NULL where it is not UTF-8 */
        if (!merge || json_array_append_new(list, merge)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *make_pre_tokenizer(const struct merges_class *class, const json_t *config)
{
    int prefix = json_is_true(json_object_get(config, "add_prefix_space"));
    json_t *bytes = json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", prefix,
                              "use_regex", !class->pre);
    if (!class->pre) return bytes;
    const struct tok_pre_def *def = tok_pre_find(str_of(class->pre));
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, o]}", "type", "Sequence", "pretokenizers",
                     "type", "Split", "pattern", "Regex", def->regex[0], "behavior", "Isolated",
                     bytes);
}

/* What files says, and the tokens that the class names where no file says anything. */
static json_t *make_special_map(const struct merges_class *class, const struct tok_files *files)
{
    static const char *const keys[] = {"eos_token", "bos_token"};
    json_t *map =
        files->special_map ? json_copy((json_t *)(uintptr_t)files->special_map) : json_object();
    for (size_t i = 0; map && i < (class->bos ? ARRAY_LEN(keys) : 1); i++) {
        if (json_object_get(map, keys[i]) || json_object_get(files->config, keys[i])) continue;
        if (json_object_set_new(map, keys[i], json_string("<|endoftext|>"))) {
            json_decref(map);
            return NULL;
        }
    }
    return map;
}

int vocab_read_merges(struct tok_spec *spec, struct arena *arena, const json_t *vocab,
                      struct str merges, const struct tok_files *files, struct err *err)
{
    const struct merges_class *class = find_class(files->config);
    struct tok_files beside = *files;
    json_t *list = read_lines(merges), *map = make_special_map(class, files);
    json_t *norm = class->norm ? json_pack("{s:s}", "type", class->norm) : json_null();
    json_t *root = json_pack("{s:{s:s, s:O, s:o}, s:o, s:o}", "model", "type", "BPE", "vocab",
                             vocab, "merges", list, "normalizer", norm, "pre_tokenizer",
                             make_pre_tokenizer(class, files->config));
    int rc = 0;
    if (!list)
        rc = err_set(err, FLETCH_E_FORMAT, "merges.txt contains a line that is not UTF-8");
    else if (!root || !map)
        rc = err_nomem(err, "the vocabulary");
    if (rc == 0) rc = tok_spec_from_json(spec, arena, root, NULL, (struct str){0}, err);
    beside.special_map = map;
    if (rc == 0) rc = tok_spec_read_beside(spec, arena, &beside, err);
    json_decref(root);
    json_decref(map);
    return rc;
}
