/* Memory where there is hardly any left. A request that finds none fails, and nothing else: JSON
 * whose memory could not be had is NULL and marks the thread, which looks at the mark when it has
 * done what it does for one request. Small things that the server can't go on without come from a
 * reserve. JSON and libevent may take half of it, so that errors can be said. */
#include <event2/event.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "app.h"
#include "server.h"

enum { N_BLOCKS = 16, BLOCK_BYTES = 1 << 20, SMALL_BYTES = 65536 };

/* Of the process, because jansson and libevent call for memory without saying for whom. Blocks are
 * addresses that nobody writes to: giving one back to the system makes room for malloc. */
static struct {
    pthread_mutex_t lock;
    void *blocks[N_BLOCKS]; /* NULL: given back */
} reserve = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool failed;

/* Gives a block back, but none of the first `keep`. False: there is none left. */
static bool give_back(size_t keep)
{
    bool found = false;
    pthread_mutex_lock(&reserve.lock);
    for (size_t i = N_BLOCKS; i > keep && !found; i--) {
        found = reserve.blocks[i - 1];
        if (found) munmap(reserve.blocks[i - 1], BLOCK_BYTES);
        reserve.blocks[i - 1] = NULL;
    }
    pthread_mutex_unlock(&reserve.lock);
    return found;
}

void memory_restock(void)
{
    bool full = false;
    pthread_mutex_lock(&reserve.lock);
    for (size_t i = 0; i < N_BLOCKS && !full; i++) {
        if (reserve.blocks[i]) continue;
        void *p =
            mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        full = p == MAP_FAILED;
        if (!full) reserve.blocks[i] = p;
    }
    pthread_mutex_unlock(&reserve.lock);
}

static void *resize(void *old, size_t n)
{
    void *p;
    do {
        p = realloc(old, n);
    } while (!p && n <= SMALL_BYTES && give_back(N_BLOCKS / 2));
    if (!p && n) failed = true;
    return p;
}

static void *take(size_t n)
{
    return resize(NULL, n);
}

void memory_open(void)
{
    json_set_alloc_funcs(take, free);
    event_set_mem_functions(take, resize, free);
    memory_restock();
}

void memory_close(void)
{
    while (give_back(0)) continue;
}

void memory_begin(void)
{
    failed = false;
}

bool memory_failed(void)
{
    return failed;
}

void memory_fail(void)
{
    failed = true;
}

void *memory_resize(void *old, size_t n)
{
    void *p;
    do {
        p = realloc(old, n);
    } while (!p && give_back(0));
    return need(p);
}

void *memory_zeroed(size_t n)
{
    return memset(memory_resize(NULL, n), 0, n);
}

char *memory_copy(const char *text)
{
    size_t n = strlen(text) + 1;
    return memcpy(memory_resize(NULL, n), text, n);
}
