/* Commands and their options. Each command has tables of options; the same tables parse a command
 * line, print --help and make the man page, so the three can't disagree. */
#ifndef APP_OPTS_H
#define APP_OPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "fletch.h"

enum opt_kind {
    OPT_FLAG,   /* bool */
    OPT_TEXT,   /* const char * */
    OPT_TEXTS,  /* struct opt_texts; may be given again and again, never empty */
    OPT_CHOICE, /* const char *; `arg` lists the words: "f32|f16" */
    OPT_COUNT,  /* struct opt_count */
    OPT_REAL,   /* struct opt_real */
    OPT_SIZE,   /* struct opt_count; bytes, with K, M, G or T */
};

struct opt_texts {
    size_t n;
    const char **p;
};
struct opt_count {
    bool set; /* on the command line; the value may also be the table's default */
    uint64_t v;
};
struct opt_real {
    bool set;
    double v;
};

/* What a command line can say, over all commands. Texts are borrowed from argv. */
struct args {
    struct opt_texts operands;
    const char *model; /* -m; also operand 0 then */
    const char *prompt, *file, *system, *template_file, *grammar, *json_schema;
    const char *template_text; /* no option: that file as it was read */
    struct opt_texts stops, template_args, logit_biases;
    struct opt_count n_tokens, n_ctx, n_threads, device, max_memory, chunk, seed, n_layers;
    struct opt_count cache_disk, n_reps, parallel, cache_tokens, port, workers, spec_tokens;
    struct opt_count keep_alive;
#define SETTING_OPT(kind, name, ...) struct opt_##kind name;
    struct {
        FLETCH_SAMPLING_SETTINGS(SETTING_OPT)
    } sampling;
#undef SETTING_OPT
    const char *backend, *isa, *machine, *capture, *against, *kv_type, *act_type, *ahead, *spec,
        *type, *out, *tokens, *logits, *recorded;
    const char *draft, *spec_accept, *session, *cache_dir;
    const char *mode, *prompts, *gens, *depths, *batches, *kernel, *shape, *html, *dir;
    struct opt_texts allow_hosts, allow_origins, limits, aliases;
    struct opt_real rate, drain, stuck;
    const char *endpoint, *host, *api_key, *cert, *cert_key, *model_dir;
    bool cache_optional; /* no option: cache_dir is the default one */
    bool shared_cache, log_json, no_sandbox, strict_model, lenient, no_warm;
    bool chat, special, ignore_end, no_fuse, no_bos, ids, ignore_unknown, no_answer, check, list,
        csv, profile;
    bool gates, ngram, mtp, think, no_think, no_reuse, json, quiet, verbose, help;
};

struct opt {
    char letter;      /* 0: none */
    const char *name; /* without the dashes */
    enum opt_kind kind;
    const char *arg; /* how help names the value; NULL for a flag */
    const char *def; /* the default, parsed like a value; NULL: none, or said in `help` */
    const char *help;
    size_t field;    /* offsetof(struct args, ...) */
    double min, max; /* of numbers; both 0: any. A count with min -1: from 1, and -1 is no limit */
};

struct opt_group {
    const char *title; /* NULL: the command's own */
    const struct opt *opts;
    size_t n;
};

enum { COMMAND_MAX_GROUPS = 9 }; /* with a NULL */

struct command {
    const char *name, *operands, *summary, *about;
    const struct opt_group *groups[COMMAND_MAX_GROUPS]; /* up to the first NULL */
    size_t min_operands, max_operands;
    int (*run)(const struct args *a); /* returns an exit code */
};

#define OPT_TABLE(table)  (table), sizeof(table) / sizeof(*(table))
#define OPT_FIELD(member) offsetof(struct args, member)
#define OPT_ROW_JSON                                                                            \
    {                                                                                           \
        0, "json", OPT_FLAG, NULL, NULL, "print JSON instead of a table", OPT_FIELD(json), 0, 0 \
    }
#define OPT_ROW_MODEL                                                                          \
    {                                                                                          \
        'm', "model", OPT_TEXT, "MODEL", NULL,                                                 \
            "model to use, instead of giving it as the first argument", OPT_FIELD(model), 0, 0 \
    }
#define OPT_ROW_BACKEND                                                                         \
    {                                                                                           \
        0, "backend", OPT_CHOICE, "auto|metal|cuda|cpu|ref|emu", "auto",                        \
            "backend to run on; auto chooses the first of metal, cuda, cpu and ref that works", \
            OPT_FIELD(backend), 0, 0                                                            \
    }
#define OPT_ROW_AHEAD                                                                             \
    {                                                                                             \
        0, "ahead", OPT_CHOICE, "auto|always|never", "auto",                                      \
            "submit each step before the token of the previous step is known; auto does so only " \
            "on GPUs, where it is faster",                                                        \
            OPT_FIELD(ahead), 0, 0                                                                \
    }
#define OPT_ROW_MAX_MEMORY                                                               \
    {                                                                                    \
        0, "max-memory", OPT_SIZE, "SIZE", NULL,                                         \
            "maximum memory to use, such as 512M or 4G (default: all available memory)", \
            OPT_FIELD(max_memory), 0, 0                                                  \
    }
#define OPT_ROW_NO_FUSE                                                             \
    {                                                                               \
        0, "no-fuse", OPT_FLAG, NULL, NULL,                                         \
            "run each op separately instead of fusing several ops into one kernel", \
            OPT_FIELD(no_fuse), 0, 0                                                \
    }
#define OPT_ROW_IGNORE_UNKNOWN                                                                    \
    {                                                                                             \
        0, "ignore-unknown", OPT_FLAG, NULL, NULL,                                                \
            "open the model even if it requires a feature that fletch does not support, at your " \
            "own risk",                                                                           \
            OPT_FIELD(ignore_unknown), 0, 0                                                       \
    }
#define OPT_ROW_TYPE(otherwise)                                                              \
    {                                                                                        \
        0, "type", OPT_CHOICE, "f32|f16|bf16|q8_0|q4_0|q4_k|q4_k_m|q5_k_m|q6_k", otherwise,  \
            "storage type of the weights; the types that end in _m store some tensors with " \
            "higher precision",                                                              \
            OPT_FIELD(type), 0, 0                                                            \
    }
#define OPT_ROW_ISA                                                                              \
    {                                                                                            \
        0, "isa", OPT_TEXT, "NAME", NULL,                                                        \
            "instruction set of the cpu backend: amx, avx512bf16, avx512, avxvnni, avx2, i8mm, " \
            "dotprod, neon "                                                                     \
            "or generic (default: the best that this machine supports)",                         \
            OPT_FIELD(isa), 0, 0                                                                 \
    }

/* --quiet and --help. */
extern const struct opt_group opts_common;

/* argv[0] is the command's name; *a starts as zero. 0, or the exit code of a usage error that was
 * said. */
int opts_parse(const struct command *cmd, int argc, char **argv, struct args *a);
void opts_free(const struct command *cmd, struct args *a);
/* `-p, --prompt TEXT`. */
void opts_print_name(FILE *out, const struct opt *o);
void opts_print_help(const struct command *cmd);
/* Says what is wrong on one line with a hint where to look; returns exit code 2. */
int opts_wrong(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The candidate that `word` most likely meant, or NULL when none is near. */
struct near {
    const char *word, *best;
    size_t distance;
};
void near_consider(struct near *near, const char *candidate);

/* Whole-string numbers: digits only; decimal with exponent; bytes with a unit. */
bool parse_count(const char *s, uint64_t *v);
bool parse_real(const char *s, double *v);
bool parse_size(const char *s, uint64_t *v);

#endif
