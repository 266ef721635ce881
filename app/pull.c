/* fletch pull: a model from a server with Hugging Face's layout, into the user's data folder. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fetch.h"
#include "models.h"

enum { MAX_LIST_BYTES = 1 << 24 };

static const struct opt pull_opts[] = {
    {0, "endpoint", OPT_TEXT, "URL", NULL,
     "server to download from (default: the value of HF_ENDPOINT, or https://huggingface.co)",
     OPT_FIELD(endpoint), 0, 0},
};
static const struct opt_group pull_group = {NULL, OPT_TABLE(pull_opts)};

struct pull {
    const struct args *a;
    struct model_name name;
    const char *endpoint;
    char *token;          /* NULL: none */
    char repo[200];       /* OWNER/REPO */
    const char *revision; /* a branch, tag or commit */
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

/* One address of the revision: ENDPOINT before OWNER/REPO kind REVISION / path; free. */
static char *address(const struct pull *p, const char *before, const char *kind, const char *path)
{
    const char *base = p->endpoint;
    size_t n = strlen(base), all = n + strlen(before) + strlen(p->repo) + strlen(kind) +
                                   strlen(p->revision) + 3 * strlen(path) + 2;
    char *url = need(malloc(all)), *to = url;
    while (n && base[n - 1] == '/') n--;
    to += sprintf(to, "%.*s%s%s%s%s", (int)n, base, before, p->repo, kind, p->revision);
    if (*path) *to++ = '/';
    *to = 0;
    for (; *path; path++) {
        bool plain = strchr("/-_.~", *path) || (*path >= '0' && *path <= '9') ||
                     (*path >= 'a' && *path <= 'z') || (*path >= 'A' && *path <= 'Z');
        to += sprintf(to, plain ? "%c" : "%%%02X", (unsigned char)*path);
    }
    return url;
}

static int list_files(struct pull *p)
{
    char *tree = address(p, "/api/models/", "/tree/", ""), *url = NULL;
    struct text text = {0};
    if (asprintf(&url, "%s?recursive=true", tree) < 0) url = need(NULL);
    free(tree);
    bool more = false;
    int code = fetch_text(p->fetch, url, MAX_LIST_BYTES, &text, &more);
    free(url);
    if (!code) p->files = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
    free(text.p);
    if (code) return code;
    if (!json_is_array(p->files))
        return say_error(
            "the server did not return a list of files; is %s a mirror of Hugging Face?",
            QUOTE(p->endpoint));
    if (more) return say_error("%s has too many files", QUOTE(p->name.repo));
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

/* The type that is taken where several are offered and none is asked for. */
#define USUAL_TYPE "Q4_K_M"

struct found {
    const char *path; /* the last that matches */
    size_t n;
    struct text names; /* of all, a line each; free */
};

/* GGUF files that `wanted` means. */
static struct found find_files(const struct pull *p, const char *wanted)
{
    struct found f = {0};
    size_t i;
    const json_t *file;
    json_array_foreach(p->files, i, file)
    {
        const char *path = path_of(file);
        size_t n_name;
        if (!path || !model_is_gguf(path) || model_set_part(path, &n_name) > 1) continue;
        bool exact = strcmp(path, wanted) == 0;
        if (!exact && (strstr(path, "mmproj") || !model_path_matches(path, wanted))) continue;
        f.path = path;
        f.n = exact ? 1 : f.n + 1;
        f.names.p = need(realloc(f.names.p, f.names.n + strlen(path) + 4));
        f.names.n += (size_t)sprintf(f.names.p + f.names.n, "  %s\n", path);
        if (exact) break;
    }
    return f;
}

static int choose(struct pull *p)
{
    const char *wanted = p->name.file;
    struct found f = find_files(p, wanted);
    int code = EXIT_OK;
    p->chosen = need(json_array());
    if (f.n > 1 && !*wanted) {
        struct found usual = find_files(p, USUAL_TYPE);
        if (usual.n == 1) {
            if (!p->a->quiet)
                fprintf(stderr,
                        "the repository has %zu GGUF files; downloading " USUAL_TYPE
                        " (for another file, use %s:PART-OF-ITS-NAME)\n",
                        f.n, p->name.repo);
            f.path = usual.path;
            f.n = 1;
        }
        free(usual.names.p);
    }
    if (f.n == 1) {
        choose_model(p, f.path);
    } else if (f.n) {
        say_error("%s has several models; add a colon and a part of the file name:",
                  QUOTE(p->name.repo));
        say_text(stderr, f.names.p, f.names.n);
        code = EXIT_USAGE;
    } else if (!*wanted) {
        choose_directory(p);
    }
    free(f.names.p);
    if (!code && !json_array_size(p->chosen))
        code = say_error("%s has no %s", QUOTE(p->name.repo),
                         *wanted ? "GGUF file of that name" : "GGUF or safetensors files");
    return code;
}

/* ---- getting it ---- */

/* What the server's list says of a file, and where it goes. */
struct wanted {
    const char *path, *sum;
    uint64_t bytes;
    char to[4096];
};

static int look_up(struct wanted *w, const struct pull *p, const json_t *file)
{
    const char *path = path_of(file);
    const json_t *lfs = json_object_get(file, "lfs");
    const json_t *size = json_object_get(lfs ? lfs : file, "size");
    const char *sum = json_string_value(json_object_get(lfs, "oid"));
    if (!model_path_is_safe(path))
        return say_error("the server returned an unsafe file name: %s", QUOTE(path));
    if (!json_is_integer(size) || json_integer_value(size) < 0 || (lfs && !sum))
        return say_error("the server did not return a size or a checksum for %s", QUOTE(path));
    *w = (struct wanted){path, sum, (uint64_t)json_integer_value(size), ""};
    if (snprintf(w->to, sizeof w->to, "%s/%s", p->folder, path) >= (int)sizeof w->to)
        return say_error("%s: path too long", QUOTE(path));
    return EXIT_OK;
}

/* Bytes of a regular file that are on the disk; 0: there is none. */
static uint64_t bytes_at(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

/* Is there room for all that is still to come? Where that can't be told, nothing is said. */
static int check_space(struct pull *p)
{
    uint64_t missing = 0;
    size_t i;
    const json_t *file;
    struct statvfs disk;
    json_array_foreach(p->chosen, i, file)
    {
        struct wanted w;
        char part[4200];
        int code = look_up(&w, p, file);
        if (code) return code;
        snprintf(part, sizeof part, "%s.part", w.to);
        uint64_t have = bytes_at(w.to) == w.bytes ? w.bytes : bytes_at(part);
        if (w.bytes > have)
            missing =
                w.bytes - have > UINT64_MAX - missing ? UINT64_MAX : missing + (w.bytes - have);
    }
    char *folder = need(strdup(p->folder)); /* or what will hold it */
    while (*folder && access(folder, F_OK))
        *(strrchr(folder, '/') ? strrchr(folder, '/') : folder) = 0;
    bool known = statvfs(*folder ? folder : "/", &disk) == 0 && disk.f_frsize;
    free(folder);
    if (!known || disk.f_bavail >= missing / disk.f_frsize) return EXIT_OK;
    return say_error("%s to download, but only %s is free in %s; set XDG_DATA_HOME to use another "
                     "folder",
                     human_bytes(missing).text,
                     human_bytes((uint64_t)disk.f_bavail * disk.f_frsize).text, QUOTE(p->folder));
}

static int get_file(struct pull *p, const json_t *file)
{
    struct progress progress;
    struct wanted w;
    char what[128];
    int code = look_up(&w, p, file);
    if (!code && !make_folders(w.to, 0755))
        code = say_error("%s: %s", QUOTE(w.to), strerror(errno));
    if (code) return code;
    p->bytes += w.bytes;
    struct stat st;
    if (stat(w.to, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == w.bytes)
        return EXIT_OK; /* names of whole files appear only when they were checked */
    char *url = address(p, "/", "/resolve/", w.path);
    const char *name = strrchr(w.path, '/');
    snprintf(what, sizeof what, "%.60s, %s", name ? name + 1 : w.path, human_bytes(w.bytes).text);
    progress_begin(&progress, what, p->a);
    progress.bytes = true;
    code = fetch_to_file(p->fetch, &(struct fetch_file){url, w.to, w.bytes, w.sum, &progress});
    progress_end(&progress);
    free(url);
    p->n_new += !code;
    return code;
}

/* ---- Hugging Face's own settings ---- */

/* A word without blanks or control characters, which a header can hold. */
static bool is_token(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] <= ' ' || (unsigned char)text[i] > '~') return false;
    return n && n <= 600;
}

/* HF_TOKEN, or what `hf auth login` left in a file. */
static int find_token(char **out)
{
    const char *token = getenv("HF_TOKEN"), *home = getenv("HF_HOME");
    const char *given = getenv("HF_TOKEN_PATH");
    char *path = NULL, text[1024] = "";
    if (token && *token) {
        if (!is_token(token)) return say_error("HF_TOKEN is not a valid token");
        *out = need(strdup(token));
        return EXIT_OK;
    }
    if (given && *given)
        path = need(strdup(given));
    else if (home && *home)
        path = need(asprintf(&path, "%s/token", home) < 0 ? NULL : path);
    else
        path = user_folder("XDG_CACHE_HOME", "/.cache", "/huggingface/token");
    FILE *f = path ? fopen(path, "re") : NULL;
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        text[strcspn(text, "\r\n")] = 0;
        fclose(f);
    }
    int code = *text && !is_token(text)
                   ? say_error("%s does not contain a valid token", QUOTE(path))
                   : EXIT_OK;
    if (*text && !code) *out = need(strdup(text));
    free(path);
    return code;
}

static int pull_steps(struct pull *p)
{
    size_t i;
    json_t *file;
    const char *scheme = p->endpoint;
    if (strncmp(scheme, "http://", 7) != 0 && strncmp(scheme, "https://", 8) != 0)
        return opts_wrong("pull", "%s takes an http:// or https:// address, not %s",
                          p->a->endpoint ? "--endpoint" : "HF_ENDPOINT", QUOTE(scheme));
    if (!(p->folder = models_folder(p->name.repo))) return EXIT_FAIL;
    int code = find_token(&p->token);
    if (!code) code = fetch_open(&p->fetch, p->token, FETCH_FROM_HUB);
    if (!code) code = list_files(p);
    if (!code) code = choose(p);
    if (!code) code = check_space(p);
    if (code) return code;
    interrupt_catch(SA_RESTART);
    json_array_foreach(p->chosen, i, file)
    {
        if (!code) code = get_file(p, file);
    }
    if (code) return code;
    if (!p->a->quiet)
        fprintf(stderr, "%s, %s\n", p->n_new ? "complete" : "already downloaded",
                human_bytes(p->bytes).text);
    return EXIT_OK;
}

/* With print, the name that it can be used by goes to stdout. */
static int pull_name(const struct args *a, const char *name, bool print)
{
    struct pull p = {.a = a, .revision = "main", .endpoint = a->endpoint};
    const char *set = getenv("HF_ENDPOINT");
    if (!model_name_parse(&p.name, name))
        return opts_wrong("pull", "%s is not of the form OWNER/REPO[@REVISION][:FILE]",
                          QUOTE(name));
    if (!p.endpoint) p.endpoint = set && *set ? set : "https://huggingface.co";
    const char *at = strchr(p.name.repo, '@');
    if (at) p.revision = at + 1;
    snprintf(p.repo, sizeof p.repo, "%.*s", (int)strcspn(p.name.repo, "@"), p.name.repo);
    int code = pull_steps(&p);
    if (!code && print) {
        const char *first = path_of(json_array_get(p.chosen, 0));
        bool gguf = model_is_gguf(first);
        printf("%s%s%s\n", p.name.repo, gguf ? ":" : "", gguf ? first : "");
    }
    fetch_close(p.fetch);
    json_decref(p.chosen);
    json_decref(p.files);
    free(p.folder);
    free(p.token);
    return code;
}

static int pull(const struct args *a)
{
    return pull_name(a, a->operands.p[0], true);
}

int pull_model(const char *name, const struct args *a)
{
    return pull_name(a, name, false);
}

const struct command cmd_pull = {
    .name = "pull",
    .operands = "OWNER/REPO[@REVISION][:FILE]",
    .summary = "download a model from Hugging Face",
    .about = "Downloads a model from Hugging Face or a mirror, and prints the name to use as MODEL "
             "in other commands. An address copied from huggingface.co or hf.co also works. "
             "Interrupted downloads resume.\nREVISION is a branch, tag or commit (default: main). "
             "FILE is a GGUF file in the repository, or a part of its name that no other GGUF file "
             "in the repository contains, such as q4_k_m. Without FILE, the command downloads the "
             "only GGUF file, or the Q4_K_M file if there are several. If the repository has no "
             "GGUF file, it downloads the config, tokenizer and safetensors files.\nModels are "
             "stored in $XDG_DATA_HOME/fletch/models (default: ~/.local/share/fletch/models). A "
             "file gets its final name only after its size and, for large files, its checksum have "
             "been verified.\nFor models that are not public, set HF_TOKEN or run \"hf auth "
             "login\". The command uses the proxies set in the environment (https_proxy, "
             "http_proxy, no_proxy). It requires libcurl.",
    .groups = {&pull_group, &opts_common},
    .min_operands = 1,
    .max_operands = 1,
    .run = pull,
};
