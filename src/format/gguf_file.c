/* GGUF files: one mapping, or a split set <prefix>-00001-of-00003.gguf and so on. The names of the
 * others come from the first one's and their count alone, so a set can't lead out of its folder;
 * each must say itself which one it is. */
#include "format/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Length of the prefix when path is named as file no (from 0) of count, else 0. */
static size_t split_prefix(const char *path, u32 no, u32 count)
{
    char tail[40];
    snprintf(tail, sizeof tail, "-%05u-of-%05u.gguf", no + 1, count);
    struct str s = str_of(path);
    return str_ends(s, tail) ? s.n - strlen(tail) : 0;
}

/* Where the name begins in the first n bytes of a path. */
static const char *file_name(const char *path, size_t n)
{
    while (n && path[n - 1] != '/') n--;
    return path + n;
}

/* Maps and reads one more file of the set, and moves its tensors and its mapping into s. */
static int read_part(struct source *s, const char *path, u32 no, u32 count, struct err *err)
{
    struct source *part;
    u32 its_no = UINT32_MAX, its_count = UINT32_MAX;
    int rc = source_new(&part, path, err);
    if (rc) return rc;
    struct file_map *map = &s->files[no];
    rc = file_map_open(map, path, err);
    if (rc) goto done;
    s->n_files = no + 1;
    rc = gguf_read_image(part, map->p, map->n, err);
    if (rc == 0) rc = source_get_u32(part, "split.no", &its_no, err);
    if (rc >= 0) rc = source_get_u32(part, "split.count", &its_count, err);
    if (rc >= 0 && (its_no != no || its_count != count))
        rc = err_set(err, FLETCH_E_FORMAT,
                     "this is not file %u of a set of %u (its split.no is %d and its split.count "
                     "%d)",
                     no + 1, count, (i32)its_no, (i32)its_count);
    for (u32 i = 0; rc == 0 && i < part->n_tensors; i++)
        rc = source_add_tensor(s, &part->tensors[i], err);
    if (rc) err_prefix(err, "%s", QUOTE(str_of(path)));
done:
    source_close(part);
    return rc;
}

/* The files of the set that are not there, by name: an error, or 0. */
static int check_parts(struct source *s, size_t prefix, u32 count, struct err *err)
{
    char names[256] = "";
    u32 n = 0;
    size_t len = 0;
    const char *base = file_name(s->path, prefix);
    for (u32 i = 1; i < count; i++) {
        char *path =
            arena_printf(&s->arena, "%.*s-%05u-of-%05u.gguf", (int)prefix, s->path, i + 1, count);
        if (!path) return err_nomem(err, "split files");
        if (file_exists(path)) continue;
        if (n++ < 3)
            len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", n > 1 ? ", " : "",
                                    QUOTE(str_of(path + (base - s->path))));
        len = MIN(len, sizeof names - 1);
    }
    if (!n) return 0;
    return err_set(err, FLETCH_E_IO, "%u of the set's %u files are missing from its folder: %s%s",
                   n, count, names, n > 3 ? ", ..." : "");
}

static int read_split(struct source *s, u32 count, struct err *err)
{
    u32 no = 0, total;
    int rc = source_get_u32(s, "split.no", &no, err);
    if (rc < 0) return rc;
    if (no != 0)
        return err_set(err, FLETCH_E_ARG,
                       "this is file %u of a split set of %u; open the first one, "
                       "...-00001-of-%05u.gguf",
                       no + 1, count, count);
    rc = source_get_u32(s, "split.tensors.count", &total, err);
    if (rc < 0) return rc;
    if (rc == SOURCE_ABSENT || count > GGUF_MAX_FILES)
        return err_set(err, FLETCH_E_FORMAT,
                       "a split set of %u files %s (at most %d files are supported)", count,
                       rc ? "without split.tensors.count" : "is too large", GGUF_MAX_FILES);
    size_t prefix = split_prefix(s->path, 0, count);
    if (prefix == 0)
        return err_set(err, FLETCH_E_FORMAT,
                       "the first of %u split files must be named ...-00001-of-%05u.gguf", count,
                       count);
    if ((rc = check_parts(s, prefix, count, err))) return rc;
    struct file_map *files = realloc(s->files, count * sizeof *files);
    if (!files) return err_nomem(err, "split files");
    s->files = files;
    for (u32 i = 1; i < count; i++) {
        char *path =
            arena_printf(&s->arena, "%.*s-%05u-of-%05u.gguf", (int)prefix, s->path, i + 1, count);
        if (!path) return err_nomem(err, "split files");
        rc = read_part(s, path, i, count, err);
        if (rc) return rc;
    }
    if (s->n_tensors != total)
        return err_set(err, FLETCH_E_FORMAT,
                       "the %u split files contain %u tensors, but split.tensors.count is %u",
                       count, s->n_tensors, total);
    return 0;
}

/* A file that is no set's must not say that it is a part of one. */
static int check_alone(struct source *s, struct err *err)
{
    u32 no = 0, total = s->n_tensors;
    int rc = source_get_u32(s, "split.no", &no, err);
    if (rc >= 0) rc = source_get_u32(s, "split.tensors.count", &total, err);
    if (rc < 0) return rc;
    if (no != 0)
        return err_set(
            err, FLETCH_E_FORMAT,
            "split.no says that this is file %u of a split set, but split.count is missing",
            no + 1);
    if (total != s->n_tensors)
        return err_set(err, FLETCH_E_FORMAT,
                       "it contains %u tensors, but split.tensors.count is %u", s->n_tensors,
                       total);
    return 0;
}

int gguf_read(struct source *s, struct err *err)
{
    u32 count = 0;
    s->files = calloc(1, sizeof *s->files);
    if (!s->files) return err_nomem(err, s->path);
    int rc = file_map_open(&s->files[0], s->path, err);
    if (rc) return rc;
    s->n_files = 1;
    rc = gguf_read_image(s, s->files[0].p, s->files[0].n, err);
    if (rc == 0) rc = source_get_u32(s, "split.count", &count, err);
    if (rc >= 0) rc = count > 1 ? read_split(s, count, err) : check_alone(s, err);
    if (rc) err_prefix(err, "%s", QUOTE(str_of(s->path)));
    return rc;
}
