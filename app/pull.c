/* fletch pull: a model from a server with Hugging Face's layout, into the user's data folder. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fetch.h"
#include "models.h"

enum { MAX_LIST_BYTES = 1 << 24 };

static const struct opt pull_opts[] = {
    {0, "endpoint", OPT_TEXT, "URL", "https://huggingface.co", "the server to ask",
     OPT_FIELD(endpoint), 0, 0},
};
static const struct opt_group pull_group = {NULL, OPT_TABLE(pull_opts)};

struct pull {
    const struct args *a;
    struct model_name name;
    struct fetch *fetch;
    json_t *files;  /* [{path, size, lfs: {oid}}] of the repository */
    json_t *chosen; /* those to get, borrowed from files */
    char *folder;
    uint64_t bytes;
    size_t n_new;
};

/* ---- what there is ---- */

static const char *path_of(const json_t *file)
{
    return json_string_value(json_object_get(file, "path"));
}

/* One address of the repository; free. */
static char *address(const struct pull *p, const char *before, const char *after, const char *path)
{
    const char *base = p->a->endpoint;
    size_t n = strlen(base);
    char *url = need(malloc(n + strlen(before) + strlen(after) + sizeof p->name.repo +
                            3 * strlen(path) + 1)),
         *to = url;
    while (n && base[n - 1] == '/') n--;
    to += sprintf(to, "%.*s%s%s%s", (int)n, base, before, p->name.repo, after);
    for (; *path; path++) {
        bool plain = strchr("/-_.~", *path) || (*path >= '0' && *path <= '9') ||
                     (*path >= 'a' && *path <= 'z') || (*path >= 'A' && *path <= 'Z');
        to += sprintf(to, plain ? "%c" : "%%%02X", (unsigned char)*path);
    }
    return url;
}

static int list_files(struct pull *p)
{
    char *url = address(p, "/api/models/", "/tree/main?recursive=true", "");
    struct text text = {0};
    bool more = false;
    int code = fetch_text(p->fetch, url, MAX_LIST_BYTES, &text, &more);
    free(url);
    if (!code) p->files = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
    free(text.p);
    if (code) return code;
    if (!json_is_array(p->files))
        return say_error("the server's list of files is not one; is %s a mirror?",
                         QUOTE(p->a->endpoint));
    if (more) return say_error("%s has too many files to choose from", QUOTE(p->name.repo));
    return EXIT_OK;
}

/* ---- what to get ---- */

/* Parts of one set are one model. */
static bool same_model(const char *a, const char *b)
{
    size_t n = 0, m = 0;
    if (model_set_part(a, &n) && model_set_part(b, &m)) return n == m && strncmp(a, b, n) == 0;
    return strcmp(a, b) == 0;
}

static void choose_model(struct pull *p, const char *path)
{
    size_t i;
    json_t *file;
    json_array_foreach(p->files, i, file)
    {
        if (path_of(file) && same_model(path_of(file), path)) json_array_append(p->chosen, file);
    }
}

/* What reading a model's directory needs; config.json last: a directory without it is no model. */
static void choose_directory(struct pull *p)
{
    static const char *const kinds[] = {".safetensors", ".json", ".jinja", ".txt", ".model"};
    size_t i;
    json_t *file, *config = NULL;
    bool weights = false;
    json_array_foreach(p->files, i, file)
    {
        const char *path = path_of(file), *dot = path ? strrchr(path, '.') : NULL;
        bool wanted = false;
        for (size_t k = 0; dot && k < sizeof kinds / sizeof *kinds; k++)
            wanted |= strcmp(dot, kinds[k]) == 0;
        if (!wanted || strchr(path, '/')) continue;
        weights |= strcmp(dot, kinds[0]) == 0;
        if (strcmp(path, "config.json") == 0)
            config = file;
        else
            json_array_append(p->chosen, file);
    }
    if (config && weights)
        json_array_append(p->chosen, config);
    else
        json_array_clear(p->chosen);
}

static int choose(struct pull *p)
{
    const char *wanted = p->name.file, *found = NULL;
    struct text names = {0};
    size_t i, n = 0;
    json_t *file;
    p->chosen = need(json_array());
    json_array_foreach(p->files, i, file)
    {
        const char *path = path_of(file);
        size_t n_name;
        if (!path || !model_is_gguf(path) || model_set_part(path, &n_name) > 1) continue;
        bool exact = strcmp(path, wanted) == 0;
        if (!exact && (strstr(path, "mmproj") || !model_path_matches(path, wanted))) continue;
        found = path;
        n = exact ? 1 : n + 1;
        names.p = need(realloc(names.p, names.n + strlen(path) + 4));
        names.n += (size_t)sprintf(names.p + names.n, "  %s\n", path);
        if (exact) break;
    }
    int code = EXIT_OK;
    if (n == 1) {
        choose_model(p, found);
    } else if (n) {
        say_error("%s has several models; say which after a colon (a part of the name will do):",
                  QUOTE(p->name.repo));
        say_text(stderr, names.p, names.n);
        code = EXIT_USAGE;
    } else if (!*wanted) {
        choose_directory(p);
    }
    free(names.p);
    if (!code && !json_array_size(p->chosen))
        code = say_error("%s has no %s", QUOTE(p->name.repo),
                         *wanted ? "GGUF file of that name" : "GGUF file and no safetensors");
    return code;
}

/* ---- getting it ---- */

static int get_file(struct pull *p, const json_t *file)
{
    const char *path = path_of(file);
    const json_t *lfs = json_object_get(file, "lfs");
    const json_t *size = json_object_get(lfs ? lfs : file, "size");
    const char *sum = json_string_value(json_object_get(lfs, "oid"));
    struct progress progress;
    struct stat st;
    char to[4096], what[128];
    if (!model_path_is_safe(path))
        return say_error("the server's list holds a name that is not safe: %s", QUOTE(path));
    if (!json_is_integer(size) || json_integer_value(size) < 0 || (lfs && !sum))
        return say_error("the server's list has no size or checksum of %s", QUOTE(path));
    if (snprintf(to, sizeof to, "%s/%s", p->folder, path) >= (int)sizeof to)
        return say_error("%s: too long a path", QUOTE(path));
    int code = make_folders(to, 0755) ? EXIT_OK : say_error("%s: %s", QUOTE(to), strerror(errno));
    if (code) return code;
    uint64_t bytes = (uint64_t)json_integer_value(size);
    p->bytes += bytes;
    if (stat(to, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == bytes)
        return EXIT_OK; /* names of whole files appear only when they were checked */
    char *url = address(p, "/", "/resolve/main/", path);
    snprintf(what, sizeof what, "%.100s, %s", path, human_bytes(bytes).text);
    progress_begin(&progress, what, p->a);
    code = fetch_to_file(p->fetch, &(struct fetch_file){url, to, bytes, sum, &progress});
    progress_end(&progress);
    free(url);
    p->n_new += !code;
    return code;
}

static int pull_steps(struct pull *p)
{
    size_t i;
    json_t *file;
    const char *scheme = p->a->endpoint;
    if (strncmp(scheme, "http://", 7) != 0 && strncmp(scheme, "https://", 8) != 0)
        return opts_wrong("pull", "--endpoint wants an http:// or https:// address");
    if (!(p->folder = models_folder(p->name.repo))) return EXIT_FAIL;
    int code = fetch_open(&p->fetch);
    if (!code) code = list_files(p);
    if (!code) code = choose(p);
    if (code) return code;
    interrupt_catch(SA_RESTART);
    json_array_foreach(p->chosen, i, file)
    {
        if (!code) code = get_file(p, file);
    }
    if (code) return code;
    const char *first = path_of(json_array_get(p->chosen, 0));
    bool gguf = model_is_gguf(first);
    if (!p->a->quiet)
        fprintf(stderr, "%s, %s\n", p->n_new ? "complete" : "it was there already",
                human_bytes(p->bytes).text);
    printf("%s%s%s\n", p->name.repo, gguf ? ":" : "", gguf ? first : "");
    return EXIT_OK;
}

static int pull(const struct args *a)
{
    struct pull p = {.a = a};
    if (!model_name_parse(&p.name, a->operands.p[0]))
        return opts_wrong("pull", "%s is no OWNER/REPO[:FILE]", QUOTE(a->operands.p[0]));
    int code = pull_steps(&p);
    fetch_close(p.fetch);
    json_decref(p.chosen);
    json_decref(p.files);
    free(p.folder);
    return code;
}

const struct command cmd_pull = {
    .name = "pull",
    .operands = "OWNER/REPO[:FILE]",
    .summary = "download a model from Hugging Face",
    .about =
        "Downloads a model from Hugging Face or a mirror into the user's data folder "
        "($XDG_DATA_HOME/fletch/models, or ~/.local/share/fletch/models) and prints the name it "
        "can be used by wherever a command takes a MODEL. FILE is a GGUF file of the repository, "
        "or "
        "a part of its name that only one has, such as q4_k_m; without it the repository's only "
        "GGUF file, or else its config, tokenizer and safetensors. What broke off is taken up "
        "again; sizes, and checksums of large files, are compared with what the server promised "
        "before a file appears under its name. Proxies are those of the environment (https_proxy "
        "and so on). Needs libcurl to be installed.",
    .groups = {&pull_group, &opts_common},
    .min_operands = 1,
    .max_operands = 1,
    .run = pull,
};
