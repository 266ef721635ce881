/* fletch list and fletch rm, and names in place of paths. */
#include "models.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 6, MAX_PATH_BYTES = 300 };

/* ---- names ---- */

static bool is_plain(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

/* A name of one folder or repository. */
static bool is_word(const char *p, size_t n)
{
    if (!n || n > 96 || p[0] == '.' || p[0] == '-') return false;
    for (size_t i = 0; i < n; i++)
        if (!is_plain(p[i])) return false;
    return true;
}

bool model_name_parse(struct model_name *out, const char *text)
{
    size_t owner = strcspn(text, "/"), repo = text[owner] ? strcspn(text + owner + 1, ":") : 0;
    const char *file = text[owner] ? text + owner + 1 + repo : "";
    if (!is_word(text, owner) || !repo || !is_word(text + owner + 1, repo)) return false;
    if (*file == ':') file++;
    if (strlen(file) >= sizeof out->file || (text[owner + 1 + repo] == ':' && !*file)) return false;
    snprintf(out->repo, sizeof out->repo, "%.*s", (int)(owner + 1 + repo), text);
    snprintf(out->file, sizeof out->file, "%s", file);
    return true;
}

bool model_path_is_safe(const char *path)
{
    size_t n = strlen(path), depth = 0;
    if (!n || n > MAX_PATH_BYTES) return false;
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f || strchr("\\:*?\"<>|", *p)) return false;
    for (const char *p = path;; p++) {
        size_t step = strcspn(p, "/");
        if (!step || p[0] == '.' || p[step - 1] == ' ' || ++depth > MAX_DEPTH - 2) return false;
        p += step;
        if (!*p) return true;
    }
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcasecmp(s + n - k, end) == 0;
}

bool model_is_gguf(const char *path)
{
    return ends_with(path, ".gguf");
}

unsigned model_set_part(const char *path, size_t *n_name)
{
    static const char shape[] = "-#####-of-#####.gguf";
    size_t n = strlen(path), k = sizeof shape - 1;
    if (n <= k) return 0;
    for (size_t i = 0; i < k; i++) {
        char c = path[n - k + i];
        if (shape[i] == '#' ? !isdigit((unsigned char)c) : c != shape[i]) return 0;
    }
    *n_name = n - k;
    return (unsigned)strtoul(path + n - k + 1, NULL, 10);
}

bool model_path_matches(const char *path, const char *wanted)
{
    if (strcmp(path, wanted) == 0) return true;
    for (const char *p = path; *p; p++)
        if (strncasecmp(p, wanted, strlen(wanted)) == 0) return true;
    return false;
}

char *models_folder(const char *repo)
{
    char rest[4096];
    snprintf(rest, sizeof rest, "/fletch/models%s%s", repo ? "/" : "", repo ? repo : "");
    char *path = user_folder("XDG_DATA_HOME", "/.local/share", rest);
    if (!path) say_error("no folder for models: neither XDG_DATA_HOME nor HOME is set");
    return path;
}

/* ---- what is there ---- */

struct stored {
    char *repo, *file; /* file "": the whole folder is the model */
    char *path;
    uint64_t bytes;
};

struct store {
    struct stored *p;
    size_t n;
    bool of_owner; /* models may also be REPO/FILE: the folder may be that of an owner */
};

static char *join(const char *folder, const char *name)
{
    char *path;
    return need(asprintf(&path, "%s%s%s", folder, *folder && *name ? "/" : "", name) < 0 ? NULL
                                                                                         : path);
}

static void add(struct store *s, const char *folder, const char *repo, const char *file,
                uint64_t bytes)
{
    s->p = need(realloc(s->p, (s->n + 1) * sizeof *s->p));
    s->p[s->n++] =
        (struct stored){need(strdup(repo)), need(strdup(file)), join(folder, file), bytes};
}

/* The first part stands for a set; names are sorted, so it comes first. */
static void add_file(struct store *s, const char *folder, const char *repo, const char *file,
                     uint64_t bytes)
{
    size_t n_name = 0;
    if (ends_with(file, ".part") || ends_with(file, ".etag")) return;
    struct stored *m = s->n && strcmp(s->p[s->n - 1].repo, repo) == 0 ? &s->p[s->n - 1] : NULL;
    bool gguf = model_is_gguf(file), later = gguf && model_set_part(file, &n_name) > 1;
    if (m && (later ? strncmp(m->file, file, n_name) == 0 : !gguf && !m->file[0]))
        m->bytes += bytes;
    else if (gguf)
        add(s, folder, repo, file, bytes);
    else if (strcmp(file, "config.json") == 0)
        add(s, folder, repo, "", bytes);
}

static int no_dots(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* A path below the folder of models: OWNER/REPO/FILE, where a model may be; or REPO/FILE. */
static void add_path(struct store *s, const char *root, const char *below, uint64_t bytes)
{
    const char *slash = strchr(below, '/');
    const char *second = slash ? strchr(slash + 1, '/') : NULL;
    if (second) slash = second;
    if (!slash || (!second && !s->of_owner)) return;
    char *repo = need(strndup(below, (size_t)(slash - below))), *folder = join(root, repo);
    add_file(s, folder, repo, slash + 1, bytes);
    free(folder);
    free(repo);
}

/* Everything below a folder, in order of names. */
static void scan(struct store *s, const char *root, const char *below, unsigned depth)
{
    struct dirent **names;
    char *here = join(root, below);
    int n = scandir(here, &names, no_dots, alphasort);
    for (int i = 0; i < n; i++) {
        char *rel = join(below, names[i]->d_name), *path = join(root, rel);
        struct stat st;
        bool there = lstat(path, &st) == 0;
        if (there && S_ISDIR(st.st_mode) && depth < MAX_DEPTH) scan(s, root, rel, depth + 1);
        if (there && S_ISREG(st.st_mode)) add_path(s, root, rel, (uint64_t)st.st_size);
        free(rel);
        free(path);
        free(names[i]);
    }
    if (n >= 0) free(names);
    free(here);
}

static struct store store_open(const char *root, bool of_owner)
{
    struct store s = {.of_owner = of_owner};
    scan(&s, root, "", 0);
    return s;
}

static void store_close(struct store *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->p[i].repo);
        free(s->p[i].file);
        free(s->p[i].path);
    }
    free(s->p);
}

struct stored_name {
    char text[800];
};

static struct stored_name name_of(const struct stored *m)
{
    struct stored_name name;
    snprintf(name.text, sizeof name.text, "%s%s%s", m->repo, m->file[0] ? ":" : "", m->file);
    return name;
}

int models_each(const char *root, int (*each)(void *ctx, const char *name, const char *path),
                void *ctx)
{
    struct store s = store_open(root, true);
    int code = EXIT_OK;
    for (size_t i = 0; i < s.n && !code; i++) code = each(ctx, name_of(&s.p[i]).text, s.p[i].path);
    store_close(&s);
    return code;
}

/* Those that a name means. */
static size_t find(const struct store *s, const struct model_name *name, const struct stored **one)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct stored *m = &s->p[i];
        if (strcmp(m->repo, name->repo) != 0) continue;
        if (name->file[0] && strcmp(m->file, name->file) == 0) return *one = m, 1;
        if (name->file[0] && !model_path_matches(m->file, name->file)) continue;
        *one = m;
        n++;
    }
    return n;
}

static int say_several(const struct store *s, const struct model_name *name)
{
    say_error("%s means several models; say which:", QUOTE(name->repo));
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->p[i].repo, name->repo) == 0)
            fprintf(stderr, "  %s\n", name_of(&s->p[i]).text);
    return EXIT_USAGE;
}

int models_resolve(const char *operand, char **path)
{
    struct model_name name;
    const struct stored *m = NULL;
    int code = EXIT_OK;
    if (access(operand, F_OK) == 0 || !model_name_parse(&name, operand)) return EXIT_OK;
    char *root = models_folder(NULL);
    if (!root) return EXIT_OK; /* then it can't be a name */
    struct store s = store_open(root, false);
    size_t n = find(&s, &name, &m);
    if (n > 1)
        code = say_several(&s, &name);
    else if (n == 1)
        *path = need(strdup(m->path));
    store_close(&s);
    free(root);
    return code;
}

/* ---- fletch list ---- */

static const struct opt list_opts[] = {OPT_ROW_JSON};
static const struct opt_group list_group = {NULL, OPT_TABLE(list_opts)};

static int list(const struct args *a)
{
    char *root = models_folder(NULL);
    if (!root) return EXIT_FAIL;
    struct store s = store_open(root, false);
    json_t *all = need(json_array());
    for (size_t i = 0; i < s.n; i++) {
        struct stored_name name = name_of(&s.p[i]);
        size_t n_name = strlen(name.text);
        json_array_append_new(all,
                              json_pack("{s:o, s:o, s:I}", "name", json_text(name.text, n_name),
                                        "path", json_text(s.p[i].path, strlen(s.p[i].path)),
                                        "bytes", (json_int_t)s.p[i].bytes));
        if (a->json) continue;
        printf("%10s  ", human_bytes(s.p[i].bytes).text);
        say_text(stdout, name.text, n_name);
        putchar('\n');
    }
    if (a->json) say_json(all);
    if (!a->json && !s.n && !a->quiet)
        fprintf(stderr, "no models in %s; fletch pull OWNER/REPO gets one\n", QUOTE(root));
    json_decref(all);
    store_close(&s);
    free(root);
    return EXIT_OK;
}

const struct command cmd_list = {
    .name = "list",
    .operands = "",
    .summary = "list downloaded models",
    .about = "Lists the models that fletch pull got, with their sizes. Each name can be used "
             "wherever a command takes a MODEL.",
    .groups = {&list_group, &opts_common},
    .run = list,
};

/* ---- fletch rm ---- */

static int remove_one(const char *path)
{
    if (unlink(path) == 0 || errno == ENOENT) return EXIT_OK;
    return say_error("%s: %s", QUOTE(path), strerror(errno));
}

/* Everything in a folder; links are removed, not followed. */
static int remove_folder(const char *folder, unsigned depth)
{
    struct dirent *e;
    DIR *dir = opendir(folder);
    int code = EXIT_OK;
    while (dir && !code && (e = readdir(dir))) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        char *path = join(folder, e->d_name);
        bool is_folder = lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
        code = is_folder && depth < MAX_DEPTH ? remove_folder(path, depth + 1) : remove_one(path);
        free(path);
    }
    if (dir) closedir(dir);
    if (!code && rmdir(folder) && errno != ENOENT)
        code = say_error("%s: %s", QUOTE(folder), strerror(errno));
    return code;
}

/* One file, or all parts of its set. */
static int remove_model(const struct stored *m)
{
    size_t n_name = 0;
    char suffix[32], *path;
    if (!m->file[0]) return say_error("give %s without a file", QUOTE(m->repo));
    if (!model_set_part(m->path, &n_name)) return remove_one(m->path);
    unsigned n = (unsigned)strtoul(m->path + strlen(m->path) - 10, NULL, 10);
    int code = EXIT_OK;
    for (unsigned i = 1; i <= n && !code; i++) {
        snprintf(suffix, sizeof suffix, "-%05u-of-%05u.gguf", i, n);
        path = need(malloc(n_name + sizeof suffix));
        memcpy(path, m->path, n_name);
        strcpy(path + n_name, suffix);
        code = remove_one(path);
        free(path);
    }
    return code;
}

static int rm(const struct args *a)
{
    struct model_name name;
    const struct stored *m = NULL;
    int code;
    if (!model_name_parse(&name, a->operands.p[0]))
        return opts_wrong("rm", "%s is no OWNER/REPO[:FILE]", QUOTE(a->operands.p[0]));
    char *root = models_folder(NULL), *folder = root ? models_folder(name.repo) : NULL;
    if (!root) return EXIT_FAIL;
    struct store s = store_open(root, false);
    size_t n = find(&s, &name, &m);
    if (!name.file[0])
        code = access(folder, F_OK) ? say_error("there is no %s", QUOTE(name.repo))
                                    : remove_folder(folder, 0);
    else if (n == 1)
        code = remove_model(m);
    else
        code = n ? say_several(&s, &name) : say_error("there is no %s", QUOTE(a->operands.p[0]));
    if (!code) { /* folders that are empty now */
        rmdir(folder);
        *strrchr(folder, '/') = 0;
        rmdir(folder);
    }
    store_close(&s);
    free(root);
    free(folder);
    return code;
}

const struct command cmd_rm = {
    .name = "rm",
    .operands = "NAME",
    .summary = "remove a downloaded model",
    .about = "Removes what fletch pull got: all of OWNER/REPO, or with :FILE one model of it.",
    .groups = {&opts_common},
    .min_operands = 1,
    .max_operands = 1,
    .run = rm,
};
