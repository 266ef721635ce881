#include "gpu/metal.h"

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

/* If the SDK knows them. */
#if !defined __MAC_OS_X_VERSION_MAX_ALLOWED || __MAC_OS_X_VERSION_MAX_ALLOWED >= 150000
#define HAS_SETS
#endif

#ifdef HAS_SETS
void residency_open(struct residency *r, metal_object device, metal_object queue)
{
    *r = (struct residency){0};
    if (![device respondsToSelector:@selector(newResidencySetWithDescriptor:error:)]) return;
    r->device = device;
    r->queue = queue;
    r->most = [(id<MTLDevice>)device recommendedMaxWorkingSetSize] / 20;
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
    @autoreleasepool {
        u32 i = choose_set(r, n);
        if (i == r->n) return 0; /* the system makes no set: the buffer is wired at each step */
        struct resident_set *s = &r->sets[i];
        [(id<MTLResidencySet>)s->set addAllocation:(id<MTLBuffer>)buffer];
        s->bytes += n;
        s->changed = true;
        return i;
    }
}

/* At once: what was removed is in use until the commit, and may be what the next model lacks. */
void residency_remove(struct residency *r, u32 set, metal_object buffer, u64 n)
{
    if (set >= r->n) return;
    @autoreleasepool {
        struct resident_set *s = &r->sets[set];
        [(id<MTLResidencySet>)s->set removeAllocation:(id<MTLBuffer>)buffer];
        [(id<MTLResidencySet>)s->set commit];
        s->bytes -= n;
    }
}

void residency_commit(struct residency *r)
{
    @autoreleasepool {
        for (u32 i = 0; i < r->n; i++) {
            struct resident_set *s = &r->sets[i];
            if (!s->changed) continue;
            [(id<MTLResidencySet>)s->set commit];
            [(id<MTLResidencySet>)s->set requestResidency];
            s->changed = false;
        }
    }
}

void residency_close(struct residency *r)
{
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
#endif
