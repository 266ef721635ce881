/* fletch cache: the prefix files that servers have saved. */
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "app.h"
#include "report.h"

enum { DEFAULT_SHARE = 10 }; /* of the free space */

static const struct opt cache_command_opts[] = {
    {0, "cache-dir", OPT_TEXT, "FOLDER", NULL,
     "folder of the prefix files (default: ~/.cache/fletch/prefixes)", OPT_FIELD(cache_dir), 0, 0},
    OPT_ROW_JSON,
};
static const struct opt_group cache_command = {NULL, OPT_TABLE(cache_command_opts)};

/* Bytes that may be written to a folder, which need not be there yet; 0: not known. */
static uint64_t free_bytes(const char *folder)
{
    struct statvfs st;
    char *path = need(strdup(folder)), *slash;
    int rc;
    while ((rc = statvfs(path, &st)) != 0 && (slash = strrchr(path, '/')) && slash > path)
        *slash = 0;
    free(path);
    return rc ? 0 : (uint64_t)st.f_bavail * st.f_frsize;
}

/* Files that are there already are free space to the folder. */
uint64_t default_cache_bytes(const char *folder)
{
    const uint64_t most = 8ull << 30;
    const struct fletch_engine_params ref = {.backend = "ref"}; /* of any kind */
    struct fletch_engine *e = NULL;
    uint64_t n_files, used = 0, n_free = free_bytes(folder);
    if (!fletch_engine_open(&e, &ref)) fletch_prefix_files(e, folder, false, &n_files, &used);
    fletch_engine_close(e);
    uint64_t share = (n_free + used) / DEFAULT_SHARE;
    return share && share < most ? share : most;
}

static void print_files(const struct args *a, const char *folder, uint64_t n, uint64_t bytes,
                        bool clears)
{
    if (a->json) {
        json_t *j = json_pack("{s:s, s:I, s:I, s:b}", "folder", folder, "files", (json_int_t)n,
                              "bytes", (json_int_t)bytes, "deleted", clears);
        say_json(j);
        json_decref(j);
        return;
    }
    printf("%s%s: %llu prefix file%s, %s\n", clears ? "deleted from " : "", folder,
           (unsigned long long)n, n == 1 ? "" : "s", human_bytes(bytes).text);
}

static int cache(const struct args *a)
{
    const char *what = a->operands.n ? a->operands.p[0] : NULL;
    const struct fletch_engine_params ref = {.backend = "ref"}; /* of any kind */
    struct fletch_engine *e = NULL;
    uint64_t n, bytes;
    if (what && strcmp(what, "clear") != 0)
        return opts_wrong("cache", "unknown action; the only one is clear");
    char *own = a->cache_dir ? NULL : user_folder(PREFIX_FOLDER);
    const char *folder = a->cache_dir ? a->cache_dir : own;
    if (!folder) return say_error("no cache folder: HOME is not set; give one with --cache-dir");
    int rc = fletch_engine_open(&e, &ref);
    if (!rc) rc = fletch_prefix_files(e, folder, what, &n, &bytes);
    if (rc)
        rc = say_failure(rc, fletch_engine_error(e));
    else
        print_files(a, folder, n, bytes, what);
    fletch_engine_close(e);
    free(own);
    return rc;
}

const struct command cmd_cache = {
    .name = "cache",
    .operands = "[clear]",
    .summary = "show or delete the prefixes that \"fletch serve\" saves",
    .about =
        "\"fletch serve\" saves prefixes of prompts on disk, so that they need not be computed "
        "again after a restart. Without an argument, this command shows how many there are and "
        "how much space they take; \"clear\" deletes them, which is possible while servers "
        "run. To save none, start the server with --cache-disk 0.",
    .groups = {&cache_command, &opts_common},
    .max_operands = 1,
    .run = cache,
};
