/* The stand-in Metal framework, on the emulator. Work is done when it is waited for and no sooner,
 * so that a host that forgets to wait reads stale memory. What Metal's validation layer would
 * refuse stops the program: misuse() says what it was. The kernels are those that table.py made of
 * the very text that the driver hands over. */
#import <IOKit/IOKitLib.h>
#import <Metal/Metal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/emu/emu.h"
#include "standin.h"

enum {
    MAX_BUFFERS = 31,
    MAX_COMMANDS = 4096,
    MAX_SETS = 32,
    MAX_MEMBERS = 4096,
    LARGEST_ELEMENT = 16
};

struct standin standin_metal;
extern const char gpu_metal_text[];
extern const struct emu_kernel *const emu_metal[], *const emu_tensor[];

static void misuse(const char *what)
{
    fprintf(stderr, "stand-in Metal: %s\n", what);
    abort();
}

/* An object that counts as alive. */
@interface Counted : NSObject
@end
@implementation Counted
- (id)init
{
    standin_metal.alive++;
    return self;
}
- (void)dealloc
{
    standin_metal.alive--;
    [super dealloc];
}
@end

static NSError *error_of(const char *text)
{
    NSError *e = [[[NSError alloc] init] autorelease];
    e->text = [[NSString stringWithUTF8String:text] retain];
    return e;
}

@implementation MTLCompileOptions
@synthesize fastMathEnabled = fast, languageVersion = version, mathMode = mode;
@synthesize mathFloatingPointFunctions = functions;
- (id)init
{
    fast = YES;
    mode = MTLMathModeFast;
    return self;
}
- (BOOL)respondsToSelector:(SEL)selector
{
    bool newer = strncmp(sel_getName(selector), "setMath", 7) == 0;
    if (newer && standin_metal.fault == STANDIN_OLD_SYSTEM) return NO;
    return [super respondsToSelector:selector];
}
- (bool)isExact
{
    if (standin_metal.fault == STANDIN_OLD_SYSTEM) return !fast;
    return mode == MTLMathModeSafe && functions == MTLMathFloatingPointFunctionsPrecise;
}
@end

@class Device;

@interface Buffer : Counted <MTLBuffer> {
  @public
    u8 *p;
    NSUInteger n;
    Buffer *next; /* of all that are alive */
}
@end

static Buffer *all_buffers;

@implementation Buffer
- (NSUInteger)length
{
    return n;
}
- (void *)contents
{
    return p;
}
- (void)dealloc
{
    Buffer **at = &all_buffers;
    while (*at != self) at = &(*at)->next;
    *at = next;
    free(p);
    [super dealloc];
}
@end

static bool is_alive(const Buffer *b)
{
    const Buffer *i = all_buffers;
    while (i && i != b) i = i->next;
    return i != NULL;
}

static NSUInteger working_set(void)
{
    return standin_metal.working_set ? standin_metal.working_set : (NSUInteger)1 << 34;
}

@interface Function : Counted <MTLFunction> {
  @public
    const struct emu_kernel *kernel;
}
@end
@implementation Function
@end

/* A section of the text: its first line names its kernels. */
@interface Library : Counted <MTLLibrary> {
  @public
    char *names;
    bool tensor; /* compiled for tensor operations */
}
@end
@implementation Library
- (id<MTLFunction>)newFunctionWithName:(NSString *)name
{
    char word[128];
    const struct emu_kernel *k = emu_find(tensor ? emu_tensor : emu_metal, [name UTF8String]);
    snprintf(word, sizeof word, " %s ", [name UTF8String]);
    if (!k || !strstr(names, word)) return nil;
    Function *f = [[Function alloc] init];
    f->kernel = k;
    return f;
}
- (void)dealloc
{
    free(names);
    [super dealloc];
}
@end

@implementation MTLComputePipelineDescriptor
@synthesize label = label, computeFunction = function, binaryArchives = archives;
@synthesize threadGroupSizeIsMultipleOfThreadExecutionWidth = whole;
- (void)dealloc
{
    [label release];
    [function release];
    [archives release];
    [super dealloc];
}
@end
@implementation MTLComputePipelineReflection
@end

@implementation MTLBinaryArchiveDescriptor
@synthesize url = url;
- (void)dealloc
{
    [url release];
    [super dealloc];
}
@end

/* Its file: a first line, then the names of kernels. */
@interface Archive : Counted <MTLBinaryArchive> {
  @public
    char names[65536];
}
@end
@implementation Archive
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                            error:(NSError **)error
{
    (void)error;
    strcat(names, " ");
    strcat(names, ((Function *)descriptor.computeFunction)->kernel->name);
    strcat(names, " ");
    return YES;
}
- (BOOL)serializeToURL:(NSURL *)url error:(NSError **)error
{
    (void)error;
    FILE *f = fopen([url->path UTF8String], "w");
    if (!f) return NO;
    fprintf(f, "archive\n%s\n", names);
    return fclose(f) == 0;
}
- (bool)readFile:(NSURL *)url
{
    FILE *f = fopen([url->path UTF8String], "r");
    bool whole = f && fgets(names, sizeof names, f) && strcmp(names, "archive\n") == 0 &&
                 fgets(names, sizeof names, f);
    if (f) fclose(f);
    return whole;
}
- (bool)has:(const struct emu_kernel *)kernel
{
    char word[128];
    snprintf(word, sizeof word, " %s ", kernel->name);
    return strstr(names, word) != NULL;
}
@end

@interface Pipeline : Counted <MTLComputePipelineState> {
  @public
    const struct emu_kernel *kernel;
}
@end
@implementation Pipeline
- (NSUInteger)maxTotalThreadsPerThreadgroup
{
    return kernel->max_threads;
}
- (NSUInteger)threadExecutionWidth
{
    return EMU_SIMD;
}
@end

@interface Fence : Counted <MTLFence>
@end
@implementation Fence
@end

@implementation MTLResidencySetDescriptor
@synthesize label = label;
- (void)dealloc
{
    [label release];
    [super dealloc];
}
@end

/* Members are owned, those that were removed until the commit, as on macOS. */
@interface Residency : Counted <MTLResidencySet> {
  @public
    struct member {
        Buffer *buffer;
        bool committed, removed;
    } members[MAX_MEMBERS];
    int n;
    bool changed, requested;
}
@end
@implementation Residency
- (void)addAllocation:(id<MTLAllocation>)allocation
{
    if (n == MAX_MEMBERS) misuse("more members of a residency set than the stand-in takes");
    members[n++] = (struct member){[(Buffer *)allocation retain], false, false};
    changed = true;
}
- (void)removeAllocation:(id<MTLAllocation>)allocation
{
    int i = 0;
    while (i < n && (members[i].buffer != (Buffer *)allocation || members[i].removed)) i++;
    if (i == n) misuse("a residency set loses what it never had");
    members[i].removed = true;
    changed = true;
}
- (void)removeAllAllocations
{
    for (int i = 0; i < n; i++) members[i].removed = true;
    changed = true;
}
- (void)commit
{
    NSUInteger sum = 0;
    int left = 0;
    for (int i = 0; i < n; i++) {
        if (members[i].removed) {
            [members[i].buffer release];
            continue;
        }
        sum += [members[i].buffer length];
        members[left] = members[i];
        members[left++].committed = true;
    }
    n = left;
    changed = false;
    standin_metal.largest_set = MAX(standin_metal.largest_set, sum);
    if (n > 1 && sum > working_set() / 20 && standin_metal.residency_sets < MAX_SETS)
        misuse("a residency set of more than a twentieth of the working set");
}
- (void)requestResidency
{
    requested = true;
    standin_metal.residency_requests++;
}
- (void)endResidency
{
    requested = false;
}
- (void)dealloc
{
    if (requested || n) misuse("a residency set goes and leaves its memory wired");
    standin_metal.residency_sets--;
    [super dealloc];
}
@end

struct command {
    const struct emu_kernel *kernel;
    const Buffer *buffers[MAX_BUFFERS]; /* not owned: references are unretained */
    NSUInteger offsets[MAX_BUFFERS];
    u32 grid[6]; /* at the last index */
    MTLSize groups, threads;
    bool after, has_grid;
};

@class Queue;

@interface CommandBuffer : Counted <MTLCommandBuffer> {
  @public
    Queue *queue;
    struct command *commands;
    int n;
    bool encoding, waits_for_fence, updates_fence;
    MTLCommandBufferStatus status;
    NSError *error;
    NSString *label;
}
- (void)run;
@end

@interface Queue : Counted <MTLCommandQueue> {
  @public
    struct emulator *emu;
    CommandBuffer **pending; /* [most] */
    NSUInteger n_made;       /* of which those that were committed are pending */
    NSUInteger most;
    int n_pending;
    int n_encoders;
    Residency *sets[MAX_SETS];
    int n_sets;
    bool had_sets;
    NSString *label;
}
- (bool)isResident:(const Buffer *)b;
@end

@interface Encoder : Counted <MTLComputeCommandEncoder> {
  @public
    NSString *label;
    CommandBuffer *cb;
    struct command now;
    bool ended, barrier;
}
@end

@implementation Encoder
@synthesize label = label;
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state
{
    now.kernel = ((Pipeline *)state)->kernel;
}
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index
{
    if (index >= MAX_BUFFERS || !now.buffers[index]) misuse("an offset into no buffer");
    if (offset >= [now.buffers[index] length]) misuse("an offset beyond its buffer");
    if (now.offsets[index] == offset) misuse("an offset that is set already");
    now.offsets[index] = offset;
}
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index
{
    if (index >= MAX_BUFFERS) misuse("a buffer's index is over 30");
    if (offset >= [buffer length]) misuse("an offset beyond its buffer");
    if (now.buffers[index] == (Buffer *)buffer) misuse("a buffer that is bound already");
    standin_metal.binds++;
    now.buffers[index] = (Buffer *)buffer;
    now.offsets[index] = offset;
}
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index
{
    if (index != MAX_BUFFERS - 1 || length != sizeof now.grid) misuse("bytes that are no grid");
    memcpy(now.grid, bytes, length);
    now.has_grid = true;
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads
{
    if (ended) misuse("an encoder is used after endEncoding");
    if (!now.kernel) misuse("a dispatch without pipeline");
    if (!now.has_grid) misuse("a dispatch without the grid that kernels read");
    if (!groups.width || !groups.height || !groups.depth) misuse("an empty grid");
    if (threads.width * threads.height * threads.depth > now.kernel->max_threads)
        misuse("too many threads in a group");
    for (u32 i = 0; i < now.kernel->n_bufs + (now.kernel->n_args > 0); i++)
        if (!now.buffers[i])
            misuse("a buffer that the kernel uses is not bound");
        else if ([now.buffers[i] length] - now.offsets[i] < LARGEST_ELEMENT)
            misuse("fewer bytes than an element has behind an offset");
    if (threads.width % EMU_SIMD) misuse("threads that are no whole simdgroups");
    if (cb->n == MAX_COMMANDS) misuse("more commands than the stand-in takes");
    now.groups = groups;
    now.threads = threads;
    now.after = barrier;
    barrier = false;
    cb->commands[cb->n++] = now;
    standin_metal.bindings += now.kernel->n_bufs + (now.kernel->n_args > 0);
    standin_metal.dispatches++;
    standin_metal.tensor_products += strcmp(now.kernel->name, "k_panels_tensor") == 0;
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope
{
    if (scope != MTLBarrierScopeBuffers) misuse("a barrier for something else than buffers");
    barrier = true;
    standin_metal.barriers++;
}
- (void)waitForFence:(id<MTLFence>)fence
{
    if (!fence || cb->n > 0) misuse("a fence is waited for behind the first dispatch");
    cb->waits_for_fence = true;
}
- (void)updateFence:(id<MTLFence>)fence
{
    if (!fence) misuse("no fence");
    cb->updates_fence = true;
}
- (void)endEncoding
{
    if (ended) misuse("endEncoding twice");
    ended = true;
    cb->encoding = false;
    if (!label) misuse("an encoder without a label");
}
- (void)dealloc
{
    if (!ended) misuse("an encoder goes without endEncoding");
    [label release];
    [cb release];
    [super dealloc];
}
@end

@implementation CommandBuffer
@synthesize label = label;
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type
{
    if (encoding || status) misuse("an encoder for a command buffer that is busy or committed");
    if (type != MTLDispatchTypeConcurrent) misuse("a serial encoder: barriers would say nothing");
    Encoder *e = [[[Encoder alloc] init] autorelease];
    e->cb = [self retain];
    encoding = true;
    commands = commands ? commands : malloc(MAX_COMMANDS * sizeof *commands);
    return e;
}
- (void)commit
{
    if (encoding) misuse("commit before endEncoding");
    if (status) misuse("commit twice");
    if (!label || !queue->label) misuse("a command buffer or a queue without a label");
    for (int i = 0; i < n && queue->had_sets; i++)
        for (u32 b = 0; b < commands[i].kernel->n_bufs + (commands[i].kernel->n_args > 0); b++)
            if (![queue isResident:commands[i].buffers[b]])
                misuse("a buffer that is in no committed residency set");
    if (!updates_fence || (queue->n_encoders > 0 && !waits_for_fence))
        misuse("untracked buffers, and no fence between this encoder and the one before");
    status = MTLCommandBufferStatusCommitted;
    queue->n_encoders++;
    queue->pending[queue->n_pending++] = [self retain];
    standin_metal.submissions++;
}
- (void)waitUntilCompleted
{
    if (status < MTLCommandBufferStatusCommitted) misuse("wait before commit");
    standin_metal.waits += status == MTLCommandBufferStatusCommitted;
    while (status == MTLCommandBufferStatusCommitted) {
        CommandBuffer *first = queue->pending[0];
        memmove(queue->pending, queue->pending + 1,
                (size_t)--queue->n_pending * sizeof queue->pending[0]);
        [first run];
        queue->n_made--;
        [first release];
    }
}
- (void)run
{
    struct err err = {0};
    int rc = 0;
    u64 n_threads = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        const struct command *c = commands + i;
        struct emu_bind binds[MAX_BUFFERS] = {{{0}, 0}};
        for (u32 b = 0; b < c->kernel->n_bufs + (c->kernel->n_args > 0); b++) {
            if (!is_alive(c->buffers[b])) misuse("a buffer went before the GPU was done with it");
            binds[b].buf = (struct emu_buffer){c->buffers[b]->p, c->buffers[b]->n, NULL};
            binds[b].offset = c->offsets[b];
        }
        binds[MAX_BUFFERS - 1].buf =
            (struct emu_buffer){(u8 *)(uintptr_t)c->grid, sizeof c->grid, NULL};
        struct emu_bind *args = binds + c->kernel->n_bufs;
        args->buf.n = args->offset + c->kernel->n_args; /* Metal does not know its size */
        struct emu_launch l = {
            .kernel = c->kernel,
            .groups = {(u32)c->groups.width, (u32)c->groups.height, (u32)c->groups.depth},
            .threads = (u32)(c->threads.width * c->threads.height * c->threads.depth),
            .binds = binds,
            .after = c->after};
        n_threads += (u64)l.groups[0] * l.groups[1] * l.groups[2] * l.threads;
        if (standin_metal.fault == STANDIN_LOST)
            rc = err_set(&err, FLETCH_E_BACKEND, "the device was removed");
        else if (standin_metal.most_threads && n_threads > standin_metal.most_threads)
            rc = err_set(&err, FLETCH_E_BACKEND, "Impacting Interactivity");
        else
            rc = emu_run(queue->emu, &l, &err);
        if (standin_metal.tensor == STANDIN_TENSOR_WRONG &&
            strcmp(c->kernel->name, "k_tensor_probe") == 0)
            ((float *)(void *)c->buffers[2]->p)[3000] += 1;
        if (standin_metal.fuses && strcmp(c->kernel->name, "k_self_test") == 0)
            ((u32 *)(void *)c->buffers[1]->p)[0] = 0x3a000400;
    }
    if (rc < 0) error = [error_of(err.text) retain];
    status = rc < 0 ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted;
}
- (MTLCommandBufferStatus)status
{
    return status;
}
- (NSError *)error
{
    return error;
}
- (double)GPUStartTime
{
    return 1;
}
- (double)GPUEndTime
{
    return 1.000001;
}
- (void)dealloc
{
    free(commands);
    [error release];
    [label release];
    [super dealloc];
}
@end

@implementation Queue
@synthesize label = label;
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences
{
    CommandBuffer *cb = [[[CommandBuffer alloc] init] autorelease];
    cb->queue = self;
    if (++n_made > most) misuse("so many command buffers that making one waits for the GPU");
    return cb;
}
- (void)addResidencySet:(id<MTLResidencySet>)set
{
    if (n_sets == MAX_SETS) misuse("more residency sets than a queue takes");
    sets[n_sets++] = [(Residency *)set retain];
    had_sets = true;
}
- (void)removeResidencySet:(id<MTLResidencySet>)set
{
    int i = 0;
    while (i < n_sets && sets[i] != (Residency *)set) i++;
    if (i == n_sets) misuse("a queue loses a residency set that it never had");
    sets[i] = sets[--n_sets];
    [(Residency *)set release];
}
- (bool)isResident:(const Buffer *)b
{
    for (int i = 0; i < n_sets; i++)
        for (int j = 0; j < sets[i]->n; j++)
            if (sets[i]->members[j].buffer == b)
                return sets[i]->requested && sets[i]->members[j].committed;
    return false;
}
- (void)dealloc
{
    if (n_pending) misuse("a queue goes before its work is done");
    if (n_sets) misuse("a queue goes with its residency sets: macOS keeps their memory");
    if (had_sets && !n_encoders) misuse("a queue that ran nothing: macOS keeps its memory");
    [label release];
    free(pending);
    emu_close(emu);
    [super dealloc];
}
@end

@interface Device : Counted <MTLDevice>
@end
@implementation Device
- (NSString *)name
{
    return @"stand-in for Metal";
}
- (NSUInteger)maxBufferLength
{
    return (NSUInteger)1 << 32;
}
- (uint64_t)recommendedMaxWorkingSetSize
{
    return working_set();
}
- (BOOL)respondsToSelector:(SEL)selector
{
    bool set = strncmp(sel_getName(selector), "newResidencySet", 15) == 0;
    if (set && standin_metal.fault == STANDIN_OLD_SYSTEM) return NO;
    return [super respondsToSelector:selector];
}
- (NSUInteger)currentAllocatedSize
{
    NSUInteger sum = 0;
    for (const Buffer *b = all_buffers; b; b = b->next) sum += b->n;
    return sum;
}
- (BOOL)supportsFamily:(MTLGPUFamily)family
{
    if (standin_metal.fault == STANDIN_OLD_DEVICE) return family <= 1006;
    if (!standin_metal.tensor) return family <= MTLGPUFamilyApple7;
    return family <= 1010 || family == 5002;
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)n
{
    Queue *q = [[Queue alloc] init];
    q->most = n;
    q->pending = calloc(n, sizeof *q->pending);
    if (emu_open(&q->emu, 0, NULL) < 0) misuse("no emulator");
    return q;
}
- (id<MTLFence>)newFence
{
    return [[Fence alloc] init];
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options
{
    if (!length || length > [self maxBufferLength]) misuse("a buffer of no length, or too long");
    if (!(options & MTLResourceHazardTrackingModeUntracked)) misuse("a buffer that is tracked");
    if (standin_metal.fault == STANDIN_NO_MEMORY) return nil;
    Buffer *b = [[Buffer alloc] init];
    b->p = aligned_alloc(256, (length + 255) / 256 * 256);
    b->n = length;
    memset(b->p, 0xff, length); /* nothing promises zeros */
    b->next = all_buffers;
    all_buffers = b;
    standin_metal.buffers++;
    return b;
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source
                               options:(MTLCompileOptions *)options
                                 error:(NSError **)error
{
    if (![options isExact]) misuse("fast maths");
    static const char define[] = "#define GPU_TENSOR\n";
    const char *text = [source UTF8String], *head = strstr(gpu_metal_text, "//kernels ");
    size_t n = (size_t)(head - gpu_metal_text);
    bool tensor = strncmp(text, define, sizeof define - 1) == 0;
    if (tensor) text += sizeof define - 1;
    if (options.languageVersion != (tensor ? 4 << 16 : MTLLanguageVersion3_0))
        misuse("a text in another language than its own");
    if (strncmp(text, gpu_metal_text, n) || !strstr(head, text + n))
        misuse("a text that was not checked");
    if (strstr(text + n + 1, "//kernels ")) misuse("more of the text than one file's kernels");
    if (standin_metal.fault == STANDIN_BAD_TEXT) {
        *error = error_of("program_source:1:1: error: unknown type name 'kernal'");
        return nil;
    }
    if (tensor && standin_metal.tensor == STANDIN_TENSOR_TEXT) {
        *error = error_of("program_source:3:10: fatal error: 'metal_tensor' file not found");
        return nil;
    }
    standin_metal.libraries++;
    Library *l = [[Library alloc] init];
    l->tensor = tensor;
    l->names = strdup(text + n);
    *strchr(l->names, '\n') = ' ';
    *strchr(l->names + strcspn(l->names, "\n"), '\n') = 0;
    return l;
}
- (id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:(MTLComputePipelineReflection **)reflection
                                    error:(NSError **)error
{
    (void)error;
    (void)reflection;
    const struct emu_kernel *k = ((Function *)descriptor.computeFunction)->kernel;
    bool archived = [(Archive *)[descriptor.binaryArchives firstObject] has:k];
    if (!descriptor.label) misuse("a pipeline without a label");
    if (options == MTLPipelineOptionFailOnBinaryArchiveMiss && !archived) return nil;
    Pipeline *p = [[Pipeline alloc] init];
    p->kernel = k;
    standin_metal.pipelines++;
    standin_metal.archived += archived;
    return p;
}
- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor *)descriptor
                                                 error:(NSError **)error
{
    (void)error;
    Archive *a = [[Archive alloc] init];
    if (!descriptor.url || [a readFile:descriptor.url]) return a;
    [a release];
    return nil;
}
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)descriptor
                                               error:(NSError **)error
{
    (void)error;
    if (standin_metal.fault == STANDIN_OLD_SYSTEM) misuse("residency sets on macOS 14");
    if (!descriptor.label) misuse("a residency set without a label");
    standin_metal.residency_sets++;
    return [[Residency alloc] init];
}
@end

static id<MTLDevice> new_device(void)
{
    if (!getenv("AGX_RELAX_CDM_CTXSTORE_TIMEOUT"))
        misuse("a device is opened before macOS was asked to let long work finish");
    return [[Device alloc] init];
}

id<MTLDevice> MTLCreateSystemDefaultDevice(void)
{
    bool none =
        standin_metal.fault == STANDIN_NO_DEVICE || standin_metal.fault == STANDIN_NO_DEFAULT;
    return none ? nil : new_device();
}

NSArray *MTLCopyAllDevices(void)
{
    NSArray *all = [[NSArray alloc] init];
    if (standin_metal.fault != STANDIN_NO_DEVICE) all->first = new_device();
    return all;
}

/* ---- IOKit ---- */

CFMutableDictionaryRef IOServiceMatching(const char *name)
{
    return (CFMutableDictionaryRef)strdup(name);
}

io_service_t IOServiceGetMatchingService(mach_port_t main_port, CFDictionaryRef matching)
{
    bool found = main_port == MACH_PORT_NULL && standin_metal.cores &&
                 strcmp((const char *)matching, "AGXAccelerator") == 0;
    free((void *)matching);
    standin_metal.alive += found;
    return found;
}

CFTypeRef IORegistryEntryCreateCFProperty(io_registry_entry_t entry, CFStringRef key,
                                          CFAllocatorRef allocator, IOOptionBits options)
{
    (void)allocator;
    if (!entry || options) misuse("a property of nothing in the registry");
    if (strcmp([(NSString *)key UTF8String], "gpu-core-count")) return NULL;
    NSNumber *n = [[NSNumber alloc] init];
    n->value = standin_metal.cores;
    return n;
}

kern_return_t IOObjectRelease(io_object_t object)
{
    standin_metal.alive -= object;
    return 0;
}

@implementation MTLCaptureDescriptor
@synthesize captureObject = object, destination = where, outputURL = url;
- (void)dealloc
{
    [object release];
    [url release];
    [super dealloc];
}
@end

static bool is_capturing;

@implementation MTLCaptureManager
+ (MTLCaptureManager *)sharedCaptureManager
{
    static MTLCaptureManager *shared;
    if (!shared) shared = [[MTLCaptureManager alloc] init];
    return shared;
}
- (BOOL)supportsDestination:(MTLCaptureDestination)destination
{
    const char *enabled = getenv("MTL_CAPTURE_ENABLED");
    return destination == MTLCaptureDestinationGPUTraceDocument && enabled && *enabled == '1';
}
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor *)descriptor error:(NSError **)error
{
    if (!descriptor.captureObject || !descriptor.outputURL) misuse("a capture of nothing");
    if (descriptor.destination != MTLCaptureDestinationGPUTraceDocument)
        misuse("a capture for Xcode, which nobody has open");
    const char *path = [descriptor.outputURL->path UTF8String], *dot = strrchr(path, '.');
    if (!dot || strcmp(dot, ".gputrace")) misuse("a capture that Xcode does not take for one");
    FILE *f = is_capturing ? NULL : fopen(path, "wx");
    if (!f) {
        *error = error_of("Capturing is not possible: there is such a file, or no such folder");
        return NO;
    }
    fclose(f);
    is_capturing = true;
    standin_metal.captures++;
    return YES;
}
- (void)stopCapture
{
    if (!is_capturing) misuse("the end of a capture that never began");
    is_capturing = false;
}
@end
