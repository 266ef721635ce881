/* fletch list and fletch rm, and names in place of paths. */
#include "models.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "caches.h"
#include "table.h"

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

/* OWNER/REPO[@REVISION][:FILE] */
static bool parse_name(struct model_name *out, const char *text)
{
    size_t owner = strcspn(text, "/"), all = strcspn(text, ":");
    const char *file = text + all, *repo = text + owner + 1;
    if (owner >= all || !is_word(text, owner)) return false;
    size_t n_repo = strcspn(repo, "@:"), n_revision = 0;
    const char *revision = repo + n_repo;
    if (!is_word(repo, n_repo)) return false;
    if (*revision == '@') {
        n_revision = (size_t)(file - ++revision);
        if (!is_word(revision, n_revision)) return false;
    }
    if (*file == ':' && !*++file) return false;
    if (strlen(file) >= sizeof out->file) return false;
    bool main = n_revision == 4 && strncmp(revision, "main", 4) == 0;
    snprintf(out->repo, sizeof out->repo, "%.*s%s%.*s", (int)(owner + 1 + n_repo), text,
             n_revision && !main ? "@" : "", main ? 0 : (int)n_revision, revision);
    snprintf(out->file, sizeof out->file, "%s", file);
    return true;
}

/* What follows the name of Hugging Face's server in an address; NULL: it is none. */
static const char *after_host(const char *text)
{
    static const char *const schemes[] = {"https://", "http://", ""};
    static const char *const hosts[] = {"huggingface.co/", "www.huggingface.co/", "hf.co/"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t n = strlen(schemes[i]);
        if (strncasecmp(text, schemes[i], n) != 0) continue;
        for (size_t k = 0; k < sizeof hosts / sizeof *hosts; k++)
            if (strncasecmp(text + n, hosts[k], strlen(hosts[k])) == 0)
                return text + n + strlen(hosts[k]);
    }
    return NULL;
}

/* %20 and the like, in place; false where one is cut short or a NUL. */
static bool decode_percents(char *text)
{
    char *to = text, hex[3] = "";
    for (const char *p = text; *p; p++) {
        if (*p != '%') {
            *to++ = *p;
            continue;
        }
        if (!isxdigit((unsigned char)p[1]) || !isxdigit((unsigned char)p[2])) return false;
        memcpy(hex, p + 1, 2);
        *to = (char)strtol(hex, NULL, 16);
        if (!*to++) return false;
        p += 2;
    }
    *to = 0;
    return true;
}

/* OWNER/REPO, OWNER/REPO:FILE, OWNER/REPO/tree/REVISION or OWNER/REPO/blob/REVISION/FILE (also
 * resolve), up to a ? or #. */
static bool parse_address(struct model_name *out, const char *path)
{
    char text[800], name[820];
    size_t n = strcspn(path, "?#");
    if (n >= sizeof text) return false;
    memcpy(text, path, n);
    while (n && text[n - 1] == '/') n--;
    text[n] = 0;
    if (!decode_percents(text)) return false;
    char *part[4] = {NULL}, *rest = text; /* owner, repository, tree, revision; rest: the file */
    for (int i = 0; i < 4 && rest; i++) {
        part[i] = rest;
        rest = strchr(rest, '/');
        if (rest) *rest++ = 0;
    }
    if (!part[1]) return false;
    bool tree = part[2] && strcmp(part[2], "tree") == 0;
    bool file = part[2] && (strcmp(part[2], "blob") == 0 || strcmp(part[2], "resolve") == 0);
    if (part[2] && !(part[3] && (tree || (file && rest)))) return false;
    n = (size_t)snprintf(name, sizeof name, "%s/%s%s%s%s%s", part[0], part[1], part[2] ? "@" : "",
                         part[2] ? part[3] : "", file ? ":" : "", file ? rest : "");
    return n < sizeof name && parse_name(out, name);
}

bool model_name_parse(struct model_name *out, const char *text)
{
    const char *path = after_host(text);
    return path ? parse_address(out, path) : parse_name(out, text);
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

static char *join(const char *folder, const char *name)
{
    char *path;
    return need(asprintf(&path, "%s%s%s", folder, *folder && *name ? "/" : "", name) < 0 ? NULL
                                                                                         : path);
}

char *models_folder(const char *repo)
{
    char *root = user_folder(MODELS_FOLDER), *path = root && repo ? join(root, repo) : root;
    if (path != root) free(root);
    if (!path) say_error("no folder for models: set XDG_DATA_HOME or HOME");
    return path;
}

/* ---- what is there ---- */

struct stored {
    const char *program; /* that keeps it; NULL: fletch */
    char *repo, *file;   /* file "": the name is repo alone, as of a model that is a folder */
    char *path;
    uint64_t bytes;
    time_t modified;
    bool partial; /* what an interrupted pull left */
};

struct store {
    struct stored *p;
    size_t n;
    bool of_owner; /* models may also be REPO/FILE: the folder may be that of an owner */
    bool with_partial;
};

/* c->file is "" where it is not known by its files' names. */
static struct stored *add(struct store *s, const struct cached *c, const char *file, size_t n_path)
{
    s->p = need(realloc(s->p, (s->n + 1) * sizeof *s->p));
    struct stored *m = &s->p[s->n++];
    *m = (struct stored){.program = c->program,
                         .repo = need(strdup(c->repo)),
                         .file = need(strdup(file)),
                         .path = need(strndup(c->path, n_path)),
                         .bytes = (uint64_t)c->st.st_size,
                         .modified = c->st.st_mtime};
    return m;
}

/* Is the file one of those of the model that is this folder? */
static bool is_in(const char *folder, const char *file)
{
    size_t n = strlen(folder);
    return !n || (strncmp(folder, file, n) == 0 && file[n] == '/');
}

/* A directory is a model by its config.json; below a repository it has its path for a name. */
static void add_directory(struct store *s, const struct cached *c, size_t n_path)
{
    static const char config[] = "config.json";
    const char *slash = strrchr(c->file, '/');
    char below[400] = "";
    if (strcmp(slash ? slash + 1 : c->file, config) != 0) return;
    if (slash && !s->of_owner) return;
    if (slash) snprintf(below, sizeof below, "%.*s", (int)(slash - c->file), c->file);
    add(s, c, below, n_path - sizeof config);
}

/* The first part stands for a set; names are sorted, so it comes first. */
static void add_file(void *ctx, const struct cached *c)
{
    struct store *s = ctx;
    const char *file = c->file;
    size_t n_name = 0, n_path = strlen(c->path);
    if (ends_with(file, ".etag")) return;
    if (ends_with(file, ".part")) {
        if (s->with_partial) add(s, c, file, n_path)->partial = true;
        return;
    }
    struct stored *m = s->n ? &s->p[s->n - 1] : NULL;
    if (m && (strcmp(m->repo, c->repo) != 0 || m->partial)) m = NULL;
    bool gguf = model_is_gguf(file), later = gguf && model_set_part(file, &n_name) > 1;
    if (*file && m && (later ? strncmp(m->file, file, n_name) == 0 : !gguf && is_in(m->file, file)))
        m->bytes += (uint64_t)c->st.st_size;
    else if (gguf || !*file)
        add(s, c, file, n_path);
    else
        add_directory(s, c, n_path);
}

static int no_dots(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* A path below the folder of models: OWNER/REPO/FILE, where a model may be; or REPO/FILE. */
static void add_path(struct store *s, const char *path, const char *below, const struct stat *st)
{
    const char *slash = strchr(below, '/');
    const char *second = slash ? strchr(slash + 1, '/') : NULL;
    if (second) slash = second;
    if (!slash || (!second && !s->of_owner)) return;
    char *repo = need(strndup(below, (size_t)(slash - below)));
    add_file(s, &(struct cached){.repo = repo, .file = slash + 1, .path = path, .st = *st});
    free(repo);
}

/* Everything below a folder, in order of names; in a user's own folder files may be links. */
static void scan(struct store *s, const char *root, const char *below, unsigned depth)
{
    struct dirent **names;
    char *here = join(root, below);
    int n = scandir(here, &names, no_dots, alphasort);
    for (int i = 0; i < n; i++) {
        char *rel = join(below, names[i]->d_name), *path = join(root, rel);
        struct stat st;
        bool there = lstat(path, &st) == 0;
        if (there && S_ISLNK(st.st_mode) && s->of_owner)
            there = stat(path, &st) == 0 && S_ISREG(st.st_mode);
        if (there && S_ISDIR(st.st_mode) && depth < MAX_DEPTH) scan(s, root, rel, depth + 1);
        if (there && S_ISREG(st.st_mode)) add_path(s, path, rel, &st);
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

/* What other programs keep. */
static struct store store_of_others(void)
{
    struct store s = {0};
    caches_each(add_file, &s);
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

/* OWNER/REPO[:FILE] of a file that llama.cpp keeps as OWNER_REPO_FILE without saying where the
 * parts of its name end. */
static bool is_flat(const struct stored *m, const struct model_name *name)
{
    const char *slash = strrchr(m->path, '/'), *file = slash ? slash + 1 : m->path;
    size_t n = strlen(name->repo);
    if (strcmp(m->repo, m->path) != 0) return false;
    for (size_t i = 0; i < n; i++)
        if (file[i] != (name->repo[i] == '/' ? '_' : name->repo[i])) return false;
    return file[n] == '_' && (!name->file[0] || model_path_matches(file + n + 1, name->file));
}

/* Those that a name means. */
static size_t find(const struct store *s, const struct model_name *name, const struct stored **one)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct stored *m = &s->p[i];
        if (n && (*one)->program != m->program) break; /* the same model, kept twice */
        bool flat = m->program && is_flat(m, name);
        if (!flat && (strcmp(m->repo, name->repo) != 0 || m->partial)) continue;
        if (flat || !m->file[0]) {
            if (!flat && name->file[0]) continue;
            *one = m;
            n++;
            continue;
        }
        if (name->file[0] && strcmp(m->file, name->file) == 0) return *one = m, 1;
        if (name->file[0] && !model_path_matches(m->file, name->file)) continue;
        *one = m;
        n++;
    }
    return n;
}

static int say_several(const struct store *s, const struct model_name *name)
{
    say_error("%s matches several models; choose one:", QUOTE(name->repo));
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->p[i].repo, name->repo) == 0)
            fprintf(stderr, "  %s\n", name_of(&s->p[i]).text);
    return EXIT_USAGE;
}

/* A name of ollama's, where latest is the tag that need not be said. */
static const struct stored *find_tagged(const struct store *s, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < s->n; i++) {
        const char *repo = s->p[i].repo;
        if (s->p[i].file[0] || strncasecmp(repo, name, n) != 0) continue;
        if (!repo[n] || (strcmp(repo + n, ":latest") == 0 && !strchr(name, ':'))) return &s->p[i];
    }
    return NULL;
}

/* fletch's own models come first, then those of other programs in the order of caches_each. */
static int resolve(const char *operand, const struct store *s, char **path)
{
    struct model_name name;
    const struct stored *m = NULL;
    size_t n = model_name_parse(&name, operand) ? find(s, &name, &m) : 0;
    if (!n && (m = find_tagged(s, operand))) n = 1;
    if (n > 1) return say_several(s, &name);
    if (n) *path = need(strdup(m->path));
    return EXIT_OK;
}

int models_resolve(const char *operand, char **path)
{
    if (access(operand, F_OK) == 0 || operand[0] == '.' || operand[0] == '/') return EXIT_OK;
    char *root = getenv("HOME") || getenv("XDG_DATA_HOME") ? models_folder(NULL) : NULL;
    struct store s = root ? store_open(root, false) : (struct store){0};
    int code = resolve(operand, &s, path);
    store_close(&s);
    free(root);
    if (code || *path) return code;
    s = store_of_others();
    code = resolve(operand, &s, path);
    store_close(&s);
    return code;
}

/* Could it be OWNER/REPO rather than a file that is not there? */
static bool may_be_remote(const char *operand)
{
    struct model_name name;
    if (!model_name_parse(&name, operand)) return false;
    if (model_is_gguf(name.repo)) return false;
    char *owner = need(strndup(name.repo, strcspn(name.repo, "/")));
    bool folder = access(owner, F_OK) == 0;
    free(owner);
    return !folder;
}

static bool ask(const char *question, const char *name)
{
    char line[16] = "";
    fprintf(stderr, "%s %s [Y/n] ", QUOTE(name), question);
    fflush(stderr);
    if (!fgets(line, sizeof line, stdin)) return false;
    return line[0] == '\n' || line[0] == 'y' || line[0] == 'Y';
}

int models_get(const char *operand, char **path, const struct args *a)
{
    if (*path || access(operand, F_OK) == 0 || !may_be_remote(operand)) return EXIT_OK;
    bool asks = isatty(0) && isatty(2) && !a->quiet;
    if (!asks || !ask("is not on this machine. Download it from Hugging Face?", operand))
        return say_error("model %s is not on this machine; download it with: fletch pull %s",
                         QUOTE(operand), operand);
    int code = pull_model(operand, a);
    if (!code) code = models_resolve(operand, path);
    return code || *path
               ? code
               : say_error("%s was downloaded, but its files cannot be found", QUOTE(operand));
}

/* ---- fletch list ---- */

static const struct opt list_opts[] = {OPT_ROW_JSON};
static const struct opt_group list_group = {NULL, OPT_TABLE(list_opts)};

/* The storage type that a file's name tells: Q4_K_M, IQ4_XS, BF16 ...; "" where it tells none. */
struct type_name {
    char text[16];
};

static struct type_name type_of(const char *name)
{
    static const char *const floats[] = {"bf16", "f16", "fp16", "f32", "mxfp4"};
    struct type_name type = {""};
    for (const char *p = name; *p; p++) {
        size_t n = 0;
        if (p > name && isalnum((unsigned char)p[-1])) continue;
        while (isalnum((unsigned char)p[n]) || p[n] == '_') n++;
        bool found = false;
        for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
            found |= n == strlen(floats[i]) && strncasecmp(p, floats[i], n) == 0;
        const char *q = p + (*p == 'i' || *p == 'I');
        found |= (*q == 'q' || *q == 'Q') && isdigit((unsigned char)q[1]) && q[2] == '_';
        if (!found || n >= sizeof type.text) continue;
        for (size_t i = 0; i < n; i++) type.text[i] = (char)toupper((unsigned char)p[i]);
        type.text[n] = 0;
    }
    return type;
}

static struct type_name date_of(const struct stored *m)
{
    struct type_name date = {""};
    struct tm tm;
    if (localtime_r(&m->modified, &tm)) strftime(date.text, sizeof date.text, "%Y-%m-%d", &tm);
    return date;
}

/* Without .part, as pull takes it. */
static struct stored_name shown_name(const struct stored *m)
{
    struct stored_name name = name_of(m);
    if (m->partial) name.text[strlen(name.text) - strlen(".part")] = 0;
    return name;
}

static void put_row(struct table *t, const struct stored *m)
{
    const struct stored_name name = shown_name(m);
    table_put(t, "%s", name.text);
    table_put(t, "%s", m->file[0] ? type_of(name.text).text : "safetensors");
    table_put(t, "%s", human_bytes(m->bytes).text);
    table_put(t, "%s", date_of(m).text);
    table_put(t, "%s", m->partial ? "incomplete; fletch pull resumes it" : "");
}

static json_t *row_json(const struct stored *m)
{
    const struct stored_name name = shown_name(m);
    return need(json_pack(
        "{s:o, s:o, s:s, s:I, s:s, s:s, s:b}", "name", json_text(name.text, strlen(name.text)),
        "path", json_text(m->path, strlen(m->path)), "program", m->program ? m->program : "fletch",
        "bytes", (json_int_t)m->bytes, "type", type_of(name.text).text, "modified", date_of(m).text,
        "partial", m->partial));
}

/* Models of other programs, each with where it lies. */
static void print_others(const struct store *s)
{
    struct table t = {.columns = "llrll"};
    if (s->n) printf("\nmodels of other programs (read-only):\n");
    for (size_t i = 0; i < s->n; i++) {
        const struct stored *m = &s->p[i];
        bool named = strcmp(m->repo, m->path) != 0;
        table_put(&t, "%s", named ? name_of(m).text : m->path);
        table_put(&t, "%s", type_of(named ? name_of(m).text : m->path).text);
        table_put(&t, "%s", human_bytes(m->bytes).text);
        table_put(&t, "%s", date_of(m).text);
        table_put(&t, "%s: %s", m->program, m->path);
    }
    table_print(&t, stdout);
}

static int list(const struct args *a)
{
    char *root = models_folder(NULL);
    if (!root) return EXIT_FAIL;
    struct store own = {.with_partial = true}, others = store_of_others();
    struct table t = {.columns = "llrll"};
    json_t *all = need(json_array());
    scan(&own, root, "", 0);
    for (size_t i = 0; i < own.n; i++) {
        json_array_append_new(all, row_json(&own.p[i]));
        put_row(&t, &own.p[i]);
    }
    for (size_t i = 0; i < others.n; i++) json_array_append_new(all, row_json(&others.p[i]));
    if (a->json) {
        say_json(all);
        table_free(&t);
    } else {
        table_print(&t, stdout);
        print_others(&others);
        if (!own.n && !a->quiet)
            fprintf(stderr, "no models in %s; download one with: fletch pull OWNER/REPO\n",
                    QUOTE(root));
    }
    json_decref(all);
    store_close(&own);
    store_close(&others);
    free(root);
    return EXIT_OK;
}

const struct command cmd_list = {
    .name = "list",
    .operands = "",
    .summary = "list models on this machine",
    .about = "Lists the models that \"fletch pull\" has downloaded, including incomplete "
             "downloads, with their type, size and date. Then lists the models that Hugging Face "
             "libraries, llama.cpp and ollama have downloaded, with their paths. fletch never "
             "changes the files of other programs.\nEvery name in the list can be used as MODEL.",
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
    if (!m->file[0])
        return say_error("%s is a single model; remove it without :FILE", QUOTE(m->repo));
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

/* What is not fletch's may be another program's. */
static int say_not_ours(const struct model_name *name)
{
    struct store s = store_of_others();
    const struct stored *m = NULL;
    const char *file = name->file[0] ? ":" : "";
    int code = find(&s, name, &m) ? say_error("%s%s%s belongs to %s; remove it there", name->repo,
                                              file, name->file, m->program)
                                  : say_error("no model '%s%s%s'", name->repo, file, name->file);
    store_close(&s);
    return code;
}

static int rm(const struct args *a)
{
    struct model_name name;
    const struct stored *m = NULL;
    int code;
    if (!model_name_parse(&name, a->operands.p[0]))
        return opts_wrong("rm", "%s is not of the form OWNER/REPO[:FILE]", QUOTE(a->operands.p[0]));
    char *root = models_folder(NULL), *folder = root ? models_folder(name.repo) : NULL;
    if (!root) return EXIT_FAIL;
    struct store s = store_open(root, false);
    size_t n = find(&s, &name, &m);
    if (!name.file[0])
        code = access(folder, F_OK) ? say_not_ours(&name) : remove_folder(folder, 0);
    else if (n == 1)
        code = remove_model(m);
    else
        code = n ? say_several(&s, &name) : say_not_ours(&name);
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
    .about = "Removes a model that \"fletch pull\" has downloaded. OWNER/REPO removes all files of "
             "the model; OWNER/REPO:FILE removes one file.",
    .groups = {&opts_common},
    .min_operands = 1,
    .max_operands = 1,
    .run = rm,
};
