/* Shuts the server in (sandbox.h) when its first model is loaded. What it may still read are
 * models, those that come later too: the folders they lie in, and where links in them lead; and
 * what fletch tune found. What it may write is the cache folder. */
#include <dirent.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
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

/* The folder that something lies in, as it is named and, through links, really. */
static void add_folder_of(struct paths *paths, const char *path)
{
    char *real = realpath(path, NULL), *named = need(strdup(path));
    add(paths, dirname(named));
    if (real) add(paths, dirname(real));
    free(named);
    free(real);
}

/* A file, the first of several perhaps, or a folder, whose files may be links. */
static void add_model(struct paths *paths, const char *path)
{
    DIR *folder = opendir(path);
    if (!folder) {
        add_folder_of(paths, path);
        return;
    }
    add(paths, path);
    for (struct dirent *d; (d = readdir(folder));) {
        char file[4096];
        if (d->d_type == DT_REG || d->d_type == DT_DIR) continue;
        if (snprintf(file, sizeof file, "%s/%s", path, d->d_name) < (int)sizeof file)
            add(paths, file);
    }
    closedir(folder);
}

void shut_in(struct server *s)
{
    struct paths paths = {0};
    char text[200];
    if (s->params.no_sandbox || s->is_shut_in) return;
    s->is_shut_in = true;
    for (size_t i = 0; i < s->params.n_models; i++)
        if (s->params.paths[i]) add_model(&paths, s->params.paths[i]);
    char *tuned = user_folder(TUNED_FOLDER);
    if (tuned) add(&paths, tuned);
    free(tuned);
    struct sandbox box = {.read = (const char *const *)paths.p,
                          .n_read = paths.n,
                          .write = &s->params.cache_dir,
                          .n_write = s->params.cache_dir != NULL};
    if (sandbox_enter(&box, text, sizeof text)) server_stop(s, EXIT_FAIL);
    if (*text) log_line(s, "%s", text);
    for (size_t i = 0; i < paths.n; i++) free(paths.p[i]);
    free(paths.p);
}
