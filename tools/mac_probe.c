/* What bench does not measure and a Mac's owner notices: how long a start takes, what a token costs
 * after a pause, how long command buffers are, and whether unloading a model gives its memory back.
 * Part of tools/mac-report; lines that begin with "=" go into its table.
 *   mac_probe BACKEND MODEL CACHE NAME [start]   CACHE: folder of what is compiled; NAME: in each
 * line start: only that */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "engine/engine.h"
#include "fletch.h"

enum { N_PROMPT = 16, N_EACH = 5 };
static const double pauses[] = {0, 0.2, 0.5, 1, 1.5, 2};

struct probe {
    const char *name;
    struct fletch_engine *e;
    struct fletch_model *m;
    struct fletch_session *s;
    struct fletch_sampling sampling;
    i32 last; /* token */
};

static void stop(const struct probe *p, const char *what)
{
    fprintf(stderr, "mac_probe: %s: %s\n", what, p->e ? fletch_engine_error(p->e) : "no memory");
    exit(1);
}

/* Memory that the system can't page out, in MB; negative where there is no vm_stat. */
static double wired_mb(void)
{
    double pages = -1, size = 4096;
    char line[256];
    FILE *f = popen("vm_stat 2> /dev/null", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "page size of ");
        if (at) size = atof(at + 13);
        if (strncmp(line, "Pages wired down:", 17) == 0) pages = atof(line + 17);
    }
    if (f) pclose(f);
    return pages * size / 1e6;
}

static void tell_wired(const struct probe *p, const char *when)
{
    double mb = wired_mb();
    if (mb >= 0) printf("= %s, wired memory %s: %.0f MB\n", p->name, when, mb);
}

static void rest(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static double token_seconds(struct probe *p)
{
    double began = base_now();
    if (fletch_session_append(p->s, &p->last, 1, NULL)) stop(p, "a token");
    if (fletch_session_sample(p->s, &p->sampling, &p->last)) stop(p, "a token");
    return base_now() - began;
}

/* Until the first token is there. */
static void start(struct probe *p, const char *backend, const char *model, const char *cache)
{
    double began = base_now();
    struct fletch_engine_params params = {.backend = backend, .tune_dir = cache};
    struct fletch_model_params with = {.n_ctx = 2048, .ahead = FLETCH_AHEAD_NEVER};
    struct fletch_model_info info;
    i32 prompt[N_PROMPT];
    if (fletch_engine_open(&p->e, &params)) stop(p, backend);
    if (fletch_model_open(&p->m, p->e, model, &with)) stop(p, model);
    if (fletch_session_open(&p->s, p->m)) stop(p, "a session");
    fletch_model_info(p->m, &info);
    p->sampling = info.sampling;
    p->sampling.temperature = 0;
    for (u32 i = 0; i < N_PROMPT; i++) prompt[i] = (i32)(i * 37 % MIN(info.n_vocab, 200));
    if (fletch_session_append(p->s, prompt, N_PROMPT, NULL)) stop(p, "the prompt");
    token_seconds(p);
    printf("= %s, start to first token: %.2f s\n", p->name, base_now() - began);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Tokens of which each is asked for after a pause: the median. */
static void measure_pause(struct probe *p, double seconds)
{
    double took[N_EACH];
    for (u32 i = 0; i < N_EACH; i++) {
        rest(seconds);
        took[i] = token_seconds(p);
    }
    qsort(took, N_EACH, sizeof *took, by_size);
    printf("= %s, token after %.1f s of pause: %.2f ms\n", p->name, seconds,
           took[N_EACH / 2] * 1e3);
    fflush(stdout);
}

static void tell_command_buffers(const struct probe *p)
{
    struct exec_counters c = {0};
    if (p->m->x->class->counters) p->m->x->class->counters(p->m->x, &c);
    if (!c.command_buffers) return;
    printf("= %s, command buffers: %.0f us on average, %.0f us the longest, of %llu\n", p->name,
           c.gpu_us / (double)c.command_buffers, c.longest_us,
           (unsigned long long)c.command_buffers);
}

int main(int argc, char **argv)
{
    if (argc != 5 && !(argc == 6 && strcmp(argv[5], "start") == 0)) {
        fprintf(stderr, "usage: mac_probe BACKEND MODEL CACHE NAME [start]\n");
        return 2;
    }
    struct probe p = {.name = argv[4]};
    if (argc == 5) tell_wired(&p, "before");
    start(&p, argv[1], argv[2], argv[3]);
    for (u32 i = 0; i < ARRAY_LEN(pauses) && argc == 5; i++) measure_pause(&p, pauses[i]);
    if (argc == 5) tell_command_buffers(&p), tell_wired(&p, "with the model");
    fletch_session_close(p.s);
    fletch_model_close(p.m);
    if (argc == 5) rest(1), tell_wired(&p, "after it");
    fletch_engine_close(p.e);
    return 0;
}
