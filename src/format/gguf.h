/* The GGUF container: reading (v2, v3, split sets) into a source, and writing. */
#ifndef FLETCH_GGUF_H
#define FLETCH_GGUF_H

#include "format/source.h"

enum {
    GGUF_ALIGNMENT = 32, /* of tensor data, unless general.alignment says otherwise */
    GGUF_MAX_ALIGNMENT = 1 << 20,
    GGUF_MAX_FILES = 1024, /* of a split set */
};

/* Fills a new source (source_new) from a file; follows split sets when s->path names shard 1. */
int gguf_read(struct source *s, struct err *err);
/* One image in memory, also a single file of a split set; p must outlive s. */
int gguf_read_image(struct source *s, const u8 *p, u64 n, struct err *err);
/* The alignment that the metadata of s ask for; *out is untouched when they don't. */
int gguf_alignment(const struct source *s, u64 *out, struct err *err);

/* A writer lays out the header from what is declared (copied), then takes tensor bytes in
 * declaration order. The file appears under its name only after gguf_writer_finish. */
struct gguf_writer;
int gguf_writer_open(struct gguf_writer **out, const char *path, struct err *err);
int gguf_writer_kv(struct gguf_writer *w, const struct kv *kv, struct err *err);
int gguf_writer_tensor(struct gguf_writer *w, const struct tensor *t, struct err *err);
/* After the last declaration; then exactly n_bytes of each tensor, in any number of pieces. */
int gguf_writer_data(struct gguf_writer *w, const void *p, size_t n, struct err *err);
int gguf_writer_finish(struct gguf_writer *w, struct err *err);
void gguf_writer_close(struct gguf_writer *w);

#endif
