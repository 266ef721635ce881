#include "caches.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "manifest.h"
#include "models.h"

enum {
    MAX_DEPTH = 4,           /* of folders in a repository */
    MAX_ENTRIES = 4096,      /* of a folder that are looked at */
    MAX_MANIFEST = 64 << 10, /* bytes */
};

struct walk {
    void (*each)(void *ctx, const struct cached *c);
    void *ctx;
};

/* ---- folders ---- */

static int is_shown(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

struct names {
    struct dirent **p;
    int n;
};

/* The entries of a folder, sorted; none where it can't be read. */
static struct names read_names(const char *folder)
{
    struct names names = {NULL, 0};
    names.n = scandir(folder, &names.p, is_shown, alphasort);
    for (int i = MAX_ENTRIES; i < names.n; i++) free(names.p[i]);
    if (names.n > MAX_ENTRIES) names.n = MAX_ENTRIES;
    return names;
}

static void free_names(struct names *names)
{
    for (int i = 0; i < names->n; i++) free(names->p[i]);
    if (names->n >= 0) free(names->p);
}

static char *join(const char *a, const char *b)
{
    char *path = NULL;
    if (asprintf(&path, "%s%s%s", a, *b ? "/" : "", b) < 0) path = NULL;
    return need(path);
}

/* A small file as text; false where there is none, or a large one. */
static bool read_small(char *out, size_t cap, const char *path)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(out, 1, cap, f) : 0;
    if (f) fclose(f);
    if (!n || n == cap) return false;
    out[n] = 0;
    return true;
}

/* The user's folder that the first of these variables that is set names; else `rest` below the
 * user's cache folder. */
static char *folder_of(const char *const *variables, const char *rest)
{
    for (; *variables; variables++) {
        const char *value = getenv(*variables);
        if (value && value[0] == '/') return need(strdup(value));
    }
    return user_folder("XDG_CACHE_HOME", "/.cache", rest);
}

/* ---- Hugging Face: models--OWNER--REPO/{refs/NAME, snapshots/COMMIT/FILE} ---- */

static bool has_weights(const struct names *names)
{
    for (int i = 0; i < names->n; i++) {
        const char *dot = strrchr(names->p[i]->d_name, '.');
        if (dot && strcmp(dot, ".safetensors") == 0) return true;
    }
    return false;
}

/* Files are links into a folder of blobs, which must be there; a directory that lacks its weights
 * is no model. */
static void walk_snapshot(const struct walk *w, struct cached *c, const char *root,
                          const char *below, unsigned depth)
{
    char *here = join(root, below);
    struct names names = read_names(here);
    bool whole = has_weights(&names);
    for (int i = 0; i < names.n; i++) {
        const char *name = names.p[i]->d_name;
        char *file = *below ? join(below, name) : need(strdup(name)), *path = join(here, name);
        bool folder = lstat(path, &c->st) == 0 && S_ISDIR(c->st.st_mode);
        if (folder && depth < MAX_DEPTH) walk_snapshot(w, c, root, file, depth + 1);
        if (!folder && stat(path, &c->st) == 0 && S_ISREG(c->st.st_mode) &&
            (model_is_gguf(name) || whole)) {
            c->file = file;
            c->path = path;
            w->each(w->ctx, c);
        }
        free(file);
        free(path);
    }
    free_names(&names);
    free(here);
}

static bool is_commit(const char *text)
{
    size_t n = strspn(text, "0123456789abcdef");
    return n == 40 && (!text[n] || text[n] == '\n');
}

/* A branch or tag, and the commit that it names. */
static void walk_ref(const struct walk *w, const char *folder, const char *repo, const char *ref)
{
    char commit[64], *refs = join(folder, "refs"), *path = join(refs, ref), *snapshot = NULL;
    char *named = NULL;
    struct model_name name;
    if (asprintf(&named, "%s@%s", repo, ref) < 0) named = need(NULL);
    if (read_small(commit, sizeof commit, path) && is_commit(commit) &&
        model_name_parse(&name, named)) {
        commit[40] = 0;
        if (asprintf(&snapshot, "%s/snapshots/%s", folder, commit) < 0) snapshot = need(NULL);
        struct cached c = {.program = "huggingface", .repo = name.repo};
        walk_snapshot(w, &c, snapshot, "", 0);
    }
    free(snapshot);
    free(named);
    free(path);
    free(refs);
}

static void walk_huggingface(const struct walk *w)
{
    static const char *const direct[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", NULL};
    static const char prefix[] = "models--";
    const char *home = getenv("HF_HOME");
    bool given = getenv(direct[0]) || getenv(direct[1]);
    char *root = !given && home && home[0] == '/' ? join(home, "hub")
                                                  : folder_of(direct, "/huggingface/hub");
    struct names names = root ? read_names(root) : (struct names){NULL, -1};
    for (int i = 0; i < names.n; i++) {
        const char *owner = names.p[i]->d_name + sizeof prefix - 1;
        if (strncmp(names.p[i]->d_name, prefix, sizeof prefix - 1) != 0) continue;
        const char *dashes = strstr(owner, "--");
        char repo[512], *folder = join(root, names.p[i]->d_name), *refs = join(folder, "refs");
        int n = !dashes ? -1
                        : snprintf(repo, sizeof repo, "%.*s/%s", (int)(dashes - owner), owner,
                                   dashes + 2);
        struct names ref = n < 0 ? (struct names){NULL, -1} : read_names(refs);
        for (int k = 0; k < ref.n; k++) walk_ref(w, folder, repo, ref.p[k]->d_name);
        free_names(&ref);
        free(refs);
        free(folder);
    }
    free_names(&names);
    free(root);
}

/* ---- llama.cpp: OWNER_REPO_FILE, and manifest=OWNER=REPO=TAG.json, which tells where the parts of
 * such a name end ---- */

static const char *after_repo(char *repo, size_t cap, const char *manifest, const char *file)
{
    static const char prefix[] = "manifest=";
    char flat[512];
    if (strncmp(manifest, prefix, sizeof prefix - 1) != 0) return NULL;
    const char *owner = manifest + sizeof prefix - 1, *name = strchr(owner, '=');
    const char *tag = name ? strchr(name + 1, '=') : NULL;
    if (!tag) return NULL;
    int n_owner = (int)(name - owner), n_name = (int)(tag - name - 1);
    int n = snprintf(flat, sizeof flat, "%.*s_%.*s_", n_owner, owner, n_name, name + 1);
    if (n >= (int)sizeof flat || strncmp(file, flat, (size_t)n) != 0) return NULL;
    snprintf(repo, cap, "%.*s/%.*s", n_owner, owner, n_name, name + 1);
    return file + n;
}

static void walk_llama_cpp(const struct walk *w)
{
    static const char *const direct[] = {"LLAMA_CACHE", NULL};
#ifdef __APPLE__
    char *root = getenv(direct[0]) ? folder_of(direct, "")
                                   : user_folder("", "/Library/Caches", "/llama.cpp");
#else
    char *root = folder_of(direct, "/llama.cpp");
#endif
    struct names names = root ? read_names(root) : (struct names){NULL, -1};
    for (int i = 0; i < names.n; i++) {
        const char *file = names.p[i]->d_name, *rest = NULL;
        char repo[512], *path = join(root, file);
        struct model_name parsed;
        struct cached c = {.program = "llama.cpp", .repo = path, .file = "", .path = path};
        if (model_is_gguf(file) && stat(path, &c.st) == 0 && S_ISREG(c.st.st_mode)) {
            for (int k = 0; k < names.n && !rest; k++)
                rest = after_repo(repo, sizeof repo, names.p[k]->d_name, file);
            if (rest && model_name_parse(&parsed, repo)) {
                c.repo = parsed.repo;
                c.file = rest;
            }
            w->each(w->ctx, &c);
        }
        free(path);
    }
    free_names(&names);
    free(root);
}

/* ---- ollama: manifests/HOST/OWNER/MODEL/TAG, each of which names a blob ---- */

/* Is it a part of a name, as ollama writes them? */
static bool is_part(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i])) return false;
    return n && n <= 80 && s[0] != '.';
}

static void read_manifest(const struct walk *w, const char *root, const char *path,
                          const char *const part[4])
{
    static const char home[] = "registry.ollama.ai", library[] = "library";
    char text[MAX_MANIFEST], digest[DIGEST_DIGITS + 1], name[400], blob[16 + DIGEST_DIGITS];
    bool own = strcmp(part[0], home) == 0, plain = own && strcmp(part[1], library) == 0;
    if (!read_small(text, sizeof text, path) || !manifest_read(digest, text, strlen(text))) return;
    snprintf(name, sizeof name, "%s%s%s%s%s:%s", own ? "" : part[0], own ? "" : "/",
             plain ? "" : part[1], plain ? "" : "/", part[2], part[3]);
    snprintf(blob, sizeof blob, "sha256-%s", digest);
    char *blobs = join(root, "blobs"), *where = join(blobs, blob);
    struct cached c = {.program = "ollama", .repo = name, .file = "", .path = where};
    if (stat(where, &c.st) == 0 && S_ISREG(c.st.st_mode)) w->each(w->ctx, &c);
    free(where);
    free(blobs);
}

static void walk_manifests(const struct walk *w, const char *root, const char *folder,
                           const char *part[4], unsigned depth)
{
    struct names names = read_names(folder);
    for (int i = 0; i < names.n; i++) {
        char *path = join(folder, names.p[i]->d_name);
        part[depth] = names.p[i]->d_name;
        bool good = is_part(part[depth]);
        if (good && depth < 3) walk_manifests(w, root, path, part, depth + 1);
        if (good && depth == 3) read_manifest(w, root, path, part);
        free(path);
    }
    free_names(&names);
}

static void walk_ollama(const struct walk *w)
{
    const char *given = getenv("OLLAMA_MODELS"), *part[4];
    char *roots[] = {given && given[0] == '/' ? need(strdup(given))
                                              : user_folder("", "/.ollama/models", ""),
                     need(strdup("/usr/share/ollama/.ollama/models"))};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        if (!roots[i] || (i && given)) continue;
        char *manifests = join(roots[i], "manifests");
        walk_manifests(w, roots[i], manifests, part, 0);
        free(manifests);
    }
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) free(roots[i]);
}

void caches_each(void (*each)(void *ctx, const struct cached *c), void *ctx)
{
    const struct walk w = {each, ctx};
    walk_huggingface(&w);
    walk_llama_cpp(&w);
    walk_ollama(&w);
}
