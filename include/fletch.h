/* fletch: run language models on your own machine. The public interface of libfletch. */
#ifndef FLETCH_H
#define FLETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FLETCH_VERSION "0.1.0"
#define FLETCH_API     __attribute__((visibility("default")))

/* Every function returns 0 or one of these; the text of the last failure is kept by the handle. */
#define FLETCH_ERRORS(X)                                                                           \
    X(NOMEM, -1, "out of memory")                                                                  \
    X(IO, -2, "file can't be read or written")                                                     \
    X(FORMAT, -3, "bad model file")                                                                \
    X(UNSUPPORTED, -4, "not supported")                                                            \
    X(ARG, -5, "bad argument")                                                                     \
    X(LIMIT, -6, "over a limit")                                                                   \
    X(FIT, -7, "does not fit in memory")                                                           \
    X(CONTEXT, -8, "context full")                                                                 \
    X(CANCELLED, -9, "cancelled")                                                                  \
    X(VOCAB, -10, "the model has no vocabulary")                                                   \
    X(TEMPLATE, -11, "chat template failed")                                                       \
    X(BACKEND, -12, "backend failed or is not there")                                              \
    X(INTERNAL, -13, "internal error")

enum fletch_error_code {
    FLETCH_OK = 0,
#define FLETCH_ERROR_ENUM(name, code, text) FLETCH_E_##name = code,
    FLETCH_ERRORS(FLETCH_ERROR_ENUM)
#undef FLETCH_ERROR_ENUM
};

#ifdef __cplusplus
}
#endif
#endif
