/* Shuts the server in (sandbox.h) when its first model is loaded. What it may still read are
 * models, those that come later too: their files, folders that are models or hold them, and where
 * links lead; and what fletch tune found. What it may write is the cache folder. */
#include <dirent.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "models.h"
#include "sandbox.h"
#include "server.h"

struct paths {
    char **p;
    size_t n;
};

static void add(struct paths *paths, const char *path)
{
    paths->p = need(realloc(paths->p, (paths->n + 1) * sizeof *paths->p));
    paths->p[paths->n++] = need(strdup(path));
}

/* The other files of a split set, which lie beside the first. */
static void add_set(struct paths *paths, const char *path)
{
    size_t n_name, n_other;
    char *named = need(strdup(path)), *copy = need(strdup(path));
    const char *name = basename(named), *folder = dirname(copy);
    DIR *dir = model_set_part(name, &n_name) ? opendir(folder) : NULL;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char file[4096];
        if (!model_set_part(d->d_name, &n_other) || n_other != n_name ||
            strncmp(d->d_name, name, n_name) != 0)
            continue;
        if (snprintf(file, sizeof file, "%s/%s", folder, d->d_name) < (int)sizeof file)
            add(paths, file);
    }
    if (dir) closedir(dir);
    free(named);
    free(copy);
}

/* A file, the first of several perhaps, and nothing else that lies beside it; or a folder, whose
 * files may be links. */
static void add_model(struct paths *paths, const char *path)
{
    DIR *folder = opendir(path);
    add(paths, path);
    if (!folder) {
        add_set(paths, path);
        return;
    }
    for (struct dirent *d; (d = readdir(folder));) {
        char file[4096];
        if (d->d_type == DT_REG || d->d_type == DT_DIR) continue;
        if (snprintf(file, sizeof file, "%s/%s", path, d->d_name) < (int)sizeof file)
            add(paths, file);
    }
    closedir(folder);
}

static bool any_driver(const struct server *s)
{
    for (size_t i = 0; i < s->n_served; i++)
        if (s->served[i].has_driver) return true;
    return false;
}

void shut_in(struct server *s)
{
    struct paths paths = {0};
    char text[200];
    if (s->params.no_sandbox || s->is_shut_in) return;
    s->is_shut_in = true;
    for (size_t i = 0; i < s->params.n_models; i++)
        if (s->params.paths[i]) add_model(&paths, s->params.paths[i]);
    if (s->params.model_dir) add(&paths, s->params.model_dir);
    if (s->params.draft) add_model(&paths, s->params.draft);
    char *tuned = user_folder(TUNED_FOLDER);
    if (tuned) add(&paths, tuned);
    free(tuned);
    struct sandbox box = {.read = (const char *const *)paths.p,
                          .n_read = paths.n,
                          .write = &s->params.cache_dir,
                          .n_write = s->params.cache_dir != NULL,
                          .has_driver = any_driver(s)};
    if (sandbox_enter(&box, text, sizeof text)) server_stop(s, EXIT_FAIL);
    if (*text) log_line(s, "%s", text);
    for (size_t i = 0; i < paths.n; i++) free(paths.p[i]);
    free(paths.p);
}
