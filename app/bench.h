/* What the files of `fletch bench` share. */
#ifndef APP_BENCH_H
#define APP_BENCH_H

#include "report.h"
#include "table.h"

/* A number of a document; 0 where it is missing. */
double get_real(const json_t *j, const char *key);

/* A document as it is kept in a file, for save_file. */
void bench_write_json(FILE *out, const json_t *doc);

/* bench_report.c: tables for people, and CSV. */
void bench_print(const json_t *doc);
void bench_print_csv(const json_t *doc);
void bench_print_profile(const json_t *doc);
void bench_print_kernels(const json_t *doc);
/* What the machine was measured to do, as one line. */
struct bench_line {
    char text[200];
};
struct bench_line bench_say_machine(const json_t *machine);

/* bench_html.c: one page that needs nothing else. */
void bench_write_html(FILE *out, const json_t *doc);

/* bench_serve.c: many clients at once; exit code and a document. */
int bench_serve(struct host *h, const struct args *a, uint32_t n_prompt, uint32_t n_answer,
                const struct ids *clients, json_t **doc);
extern const char *const bench_serve_times[]; /* keys of a case that are seconds, then NULL */
void bench_write_serve_html(FILE *out, const json_t *doc);

/* bench_compare.c: exit code 1 where the second document is significantly slower. */
int bench_compare(const char *path_a, const char *path_b, const struct args *a);
/* A document from a file. Exit code. */
int bench_load(json_t **out, const char *path);
/* Rows of a comparison for people (t) and as JSON objects (list). */
struct bench_compared {
    size_t n, n_slower; /* cases that both documents have; those that became significantly slower */
};
struct bench_compared bench_compare_docs(const json_t *a, const json_t *b, struct table *t,
                                         json_t *list);

#endif
