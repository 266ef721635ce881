#include "gpu/metal.h"

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include "base/os.h"

/* If the SDK knows them. */
#if !defined __MAC_OS_X_VERSION_MAX_ALLOWED || __MAC_OS_X_VERSION_MAX_ALLOWED >= 150000
#define HAS_SETS
#endif

#ifdef HAS_SETS
static const double PERIOD = 0.5; /* seconds from one request to the next */

void residency_open(struct residency *r, metal_object device, metal_object queue)
{
    *r = (struct residency){0};
    if (![device respondsToSelector:@selector(newResidencySetWithDescriptor:error:)]) return;
    r->device = device;
    r->queue = queue;
    r->most = [(id<MTLDevice>)device recommendedMaxWorkingSetSize] / 20;
    pthread_mutex_init(&r->lock, NULL);
    os_cond_init(&r->woken);
}

static bool open_set(struct residency *r)
{
    id<MTLDevice> device = (id<MTLDevice>)r->device;
    MTLResidencySetDescriptor *d = [[[MTLResidencySetDescriptor alloc] init] autorelease];
    d.label = @"fletch memory";
    id<MTLResidencySet> set = [device newResidencySetWithDescriptor:d error:NULL];
    if (!set) return false;
    [(id<MTLCommandQueue>)r->queue addResidencySet:set];
    r->sets[r->n++] = (struct resident_set){.set = set};
    return true;
}

/* The first set that has room; when there are as many as may be, the one that has most. */
static u32 choose_set(struct residency *r, u64 n)
{
    u32 least = 0;
    for (u32 i = 0; i < r->n; i++) {
        if (r->sets[i].bytes + n <= r->most) return i;
        if (r->sets[i].bytes < r->sets[least].bytes) least = i;
    }
    return r->n < RESIDENCY_SETS && open_set(r) ? r->n - 1 : least;
}

u32 residency_add(struct residency *r, metal_object buffer, u64 n)
{
    if (!r->device) return 0;
    pthread_mutex_lock(&r->lock);
    u32 i;
    @autoreleasepool {
        i = choose_set(r, n);
        if (i < r->n) { /* else the system makes no set: the buffer is wired at each step */
            struct resident_set *s = &r->sets[i];
            [(id<MTLResidencySet>)s->set addAllocation:(id<MTLBuffer>)buffer];
            s->bytes += n;
            s->changed = true;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return i;
}

/* At once: what was removed is in use until the commit, and may be what the next model lacks. */
void residency_remove(struct residency *r, u32 set, metal_object buffer, u64 n)
{
    if (set >= r->n) return;
    pthread_mutex_lock(&r->lock);
    @autoreleasepool {
        struct resident_set *s = &r->sets[set];
        [(id<MTLResidencySet>)s->set removeAllocation:(id<MTLBuffer>)buffer];
        [(id<MTLResidencySet>)s->set commit];
        s->bytes -= n;
    }
    pthread_mutex_unlock(&r->lock);
}

void residency_commit(struct residency *r)
{
    if (!r->device) return;
    pthread_mutex_lock(&r->lock);
    @autoreleasepool {
        for (u32 i = 0; i < r->n; i++) {
            struct resident_set *s = &r->sets[i];
            if (!s->changed) continue;
            [(id<MTLResidencySet>)s->set commit];
            [(id<MTLResidencySet>)s->set requestResidency];
            s->changed = false;
        }
    }
    pthread_mutex_unlock(&r->lock);
}

static void request_all(struct residency *r)
{
    @autoreleasepool {
        for (u32 i = 0; i < r->n; i++)
            if (!r->sets[i].changed) [(id<MTLResidencySet>)r->sets[i].set requestResidency];
    }
}

static void *keep_awake(void *ctx)
{
    struct residency *r = ctx;
    pthread_mutex_lock(&r->lock);
    while (!r->ends) {
        double now = base_now();
        r->asleep = now >= r->used + r->keep;
        if (r->asleep) {
            pthread_cond_wait(&r->woken, &r->lock);
            continue;
        }
        request_all(r);
        os_cond_wait(&r->woken, &r->lock, now + PERIOD);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

int residency_keep(struct residency *r, double seconds, struct err *err)
{
    if (!r->device || r->has_thread) return 0;
    r->keep = seconds;
    r->used = base_now();
    if (pthread_create(&r->thread, NULL, keep_awake, r))
        return err_set(err, FLETCH_E_NOMEM, "no thread that keeps the GPU's memory");
    r->has_thread = true;
    return 0;
}

void residency_used(struct residency *r)
{
    if (!r->has_thread) return;
    pthread_mutex_lock(&r->lock);
    r->used = base_now();
    if (r->asleep) pthread_cond_signal(&r->woken);
    pthread_mutex_unlock(&r->lock);
}

static void end_thread(struct residency *r)
{
    if (!r->has_thread) return;
    pthread_mutex_lock(&r->lock);
    r->ends = true;
    pthread_cond_signal(&r->woken);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
}

void residency_close(struct residency *r)
{
    if (!r->device) return;
    end_thread(r);
    @autoreleasepool {
        for (u32 i = 0; i < r->n; i++) {
            id<MTLResidencySet> set = (id<MTLResidencySet>)r->sets[i].set;
            [set endResidency];
            [set removeAllAllocations];
            [set commit];
            [(id<MTLCommandQueue>)r->queue removeResidencySet:set];
            [set release];
        }
    }
    pthread_cond_destroy(&r->woken);
    pthread_mutex_destroy(&r->lock);
    *r = (struct residency){0};
}

#else
void residency_open(struct residency *r, metal_object device, metal_object queue)
{
    (void)device;
    (void)queue;
    *r = (struct residency){0};
}

u32 residency_add(struct residency *r, metal_object buffer, u64 n)
{
    (void)r;
    (void)buffer;
    (void)n;
    return 0;
}

void residency_remove(struct residency *r, u32 set, metal_object buffer, u64 n)
{
    (void)r;
    (void)set;
    (void)buffer;
    (void)n;
}

void residency_commit(struct residency *r)
{
    (void)r;
}

void residency_close(struct residency *r)
{
    (void)r;
}

int residency_keep(struct residency *r, double seconds, struct err *err)
{
    (void)r;
    (void)seconds;
    (void)err;
    return 0;
}

void residency_used(struct residency *r)
{
    (void)r;
}
#endif
