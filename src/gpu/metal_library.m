#include "gpu/metal.h"

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gpu/layout.h"

/* If the SDK knows them: then what is deprecated is only for the systems before. */
#if !defined __MAC_OS_X_VERSION_MAX_ALLOWED || __MAC_OS_X_VERSION_MAX_ALLOWED >= 150000
#define HAS_MATH_MODE
#endif

extern const char gpu_metal_text[];                          /* metal_text.S */
static const char MARK[] = "//kernels", PREFIX[] = "metal-"; /* of archives' names */

void library_open(struct library *l, metal_object device)
{
    *l = (struct library){.device = device};
}

/* ---- sections ---- */

static const char *next_mark(const char *text)
{
    const char *mark = strstr(text, MARK);
    return mark ? mark : text + strlen(text);
}

/* Does the section that begins here name the kernel? */
static bool names(const char *section, const char *name)
{
    const char *end = strchr(section, '\n');
    size_t n = strlen(name);
    for (const char *at = section; at && at < end; at = strchr(at + 1, ' '))
        if (*at == ' ' && strncmp(at + 1, name, n) == 0 && (at[1 + n] == ' ' || at + 1 + n == end))
            return true;
    return false;
}

/* Its number and beginning; false: no section has the kernel. */
static bool find_section(const char *name, u32 *number, const char **begin)
{
    *number = 0;
    for (*begin = next_mark(gpu_metal_text); **begin; *begin = next_mark(*begin + 1)) {
        if (names(*begin, name)) return true;
        ++*number;
    }
    return false;
}

/* ---- compiling ---- */

/* Of the text of tensor.gpu: what it is compiled with, and as which language. */
static const char TENSOR[] = "#define GPU_TENSOR\n";
enum { LANGUAGE_4_0 = 4 << 16 }; /* MTLLanguageVersion4_0 of newer SDKs */

/* The same bits on every backend. */
static MTLCompileOptions *options(bool tensor)
{
    MTLCompileOptions *o = [[[MTLCompileOptions alloc] init] autorelease];
    o.languageVersion = tensor ? (MTLLanguageVersion)LANGUAGE_4_0 : MTLLanguageVersion3_0;
#ifdef HAS_MATH_MODE
    if ([o respondsToSelector:@selector(setMathMode:)]) {
        o.mathMode = MTLMathModeSafe;
        o.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
        return o;
    }
#endif
    o.fastMathEnabled = NO;
    return o;
}

static int refused(const char *what, const char *name, NSError *e, struct err *err)
{
    const char *why = e ? [[e localizedDescription] UTF8String] : "no reason given";
    fprintf(stderr, "Metal, %s %s:\n%s\n", what, name, why);
    return err_set(err, FLETCH_E_BACKEND, "Metal rejected %s %s: %s", what, name, why);
}

static int compile(struct library *l, const char *name, u32 section, const char *begin,
                   struct err *err)
{
    size_t head = (size_t)(next_mark(gpu_metal_text) - gpu_metal_text);
    size_t n = (size_t)(next_mark(begin + 1) - begin);
    bool tensor = names(begin, "k_tensor_probe");
    size_t first = tensor ? sizeof TENSOR - 1 : 0;
    char *text = malloc(first + head + n + 1);
    if (!text) return err_nomem(err, "the text of kernels");
    memcpy(text, TENSOR, first);
    memcpy(text + first, gpu_metal_text, head);
    memcpy(text + first + head, begin, n);
    text[first + head + n] = 0;
    NSError *e = nil;
    l->sections[section] =
        [(id<MTLDevice>)l->device newLibraryWithSource:[NSString stringWithUTF8String:text]
                                               options:options(tensor)
                                                 error:&e];
    free(text);
    return l->sections[section] ? 0 : refused("the text of", name, e, err);
}

/* From the archive, or compiled and put there. */
static id<MTLComputePipelineState> pipeline(struct library *l, id<MTLFunction> f, NSString *name,
                                            NSError **e)
{
    id<MTLDevice> device = (id<MTLDevice>)l->device;
    MTLComputePipelineDescriptor *d = [[[MTLComputePipelineDescriptor alloc] init] autorelease];
    id<MTLComputePipelineState> p = nil;
    d.computeFunction = f;
    d.label = name;
    d.threadGroupSizeIsMultipleOfThreadExecutionWidth = YES;
    if (l->archive) {
        d.binaryArchives = [NSArray arrayWithObject:l->archive];
        p = [device newComputePipelineStateWithDescriptor:d
                                                  options:MTLPipelineOptionFailOnBinaryArchiveMiss
                                               reflection:NULL
                                                    error:NULL];
        if (p) return p;
        d.binaryArchives = nil;
    }
    p = [device newComputePipelineStateWithDescriptor:d
                                              options:MTLPipelineOptionNone
                                           reflection:NULL
                                                error:e];
    if (p && l->archive)
        l->added |=
            [(id<MTLBinaryArchive>)l->archive addComputePipelineFunctionsWithDescriptor:d
                                                                                  error:NULL];
    return p;
}

static int find_kernel(struct library *l, const char *name, metal_object *out, struct err *err)
{
    u32 number;
    const char *begin;
    if (!find_section(name, &number, &begin))
        return err_set(err, FLETCH_E_UNSUPPORTED, "there is no kernel %s", name);
    CHECK(number < LIBRARY_SECTIONS);
    int rc = l->sections[number] ? 0 : compile(l, name, number, begin, err);
    if (rc < 0) return rc;
    NSError *e = nil;
    NSString *text = [NSString stringWithUTF8String:name];
    id<MTLFunction> f = [(id<MTLLibrary>)l->sections[number] newFunctionWithName:text];
    if (!f) return err_set(err, FLETCH_E_UNSUPPORTED, "there is no kernel %s", name);
    id<MTLComputePipelineState> p = pipeline(l, f, text, &e);
    [f release];
    if (!p) return refused("kernel", name, e, err);
    if ([p threadExecutionWidth] != 32) {
        rc = err_set(err, FLETCH_E_UNSUPPORTED, "kernel %s has simdgroups of %u, not 32", name,
                     (u32)[p threadExecutionWidth]);
        [p release];
        return rc;
    }
    *out = p;
    return 0;
}

int library_kernel(struct library *l, const char *name, metal_object *out, struct err *err)
{
    @autoreleasepool {
        return find_kernel(l, name, out, err);
    }
}

/* ---- the archive ---- */

static NSURL *url_of(const char *path)
{
    return [NSURL fileURLWithPath:[NSString stringWithUTF8String:path]];
}

void library_keep(struct library *l, const char *folder)
{
    enum { ROOM = 4096 };
    if (l->archive || !(l->path = malloc(ROOM))) return;
    if (snprintf(l->path, ROOM, "%s/%s%s", folder, PREFIX, layout_kernels()) >= ROOM) return;
    @autoreleasepool {
        id<MTLDevice> device = (id<MTLDevice>)l->device;
        MTLBinaryArchiveDescriptor *d = [[[MTLBinaryArchiveDescriptor alloc] init] autorelease];
        if (access(l->path, R_OK) == 0) d.url = url_of(l->path);
        l->archive = [device newBinaryArchiveWithDescriptor:d error:NULL];
        if (l->archive || !d.url) return;
        d.url = nil;
        l->archive = [device newBinaryArchiveWithDescriptor:d error:NULL];
    }
}

/* What builds before this one left in the folder of the archive, and processes that were stopped
 * while they wrote it: their names have a dot. */
static void remove_older(const char *path)
{
    enum { ROOM = 4096 + 256, HOUR = 3600 };
    char other[ROOM];
    const char *own = strrchr(path, '/') + 1;
    size_t n = (size_t)(own - path);
    snprintf(other, sizeof other, "%.*s", (int)n, path);
    DIR *folder = opendir(other);
    for (struct dirent *d; folder && (d = readdir(folder));) {
        struct stat st;
        if (strncmp(d->d_name, PREFIX, sizeof PREFIX - 1) || strcmp(d->d_name, own) == 0) continue;
        if (snprintf(other + n, sizeof other - n, "%s", d->d_name) >= (int)(sizeof other - n))
            continue;
        bool fresh = stat(other, &st) == 0 && time(NULL) - st.st_mtime < HOUR;
        if (!strchr(d->d_name, '.') || !fresh) unlink(other);
    }
    if (folder) closedir(folder);
}

/* As a whole or not at all: another process may read it. What can't be written is not missed. */
static void save(const struct library *l)
{
    enum { ROOM = 4096 + 16 };
    char part[ROOM];
    snprintf(part, sizeof part, "%s.%ld", l->path, (long)getpid());
    bool written = [(id<MTLBinaryArchive>)l->archive serializeToURL:url_of(part) error:NULL];
    if (!written || rename(part, l->path))
        unlink(part);
    else
        remove_older(l->path);
}

void library_close(struct library *l)
{
    @autoreleasepool {
        if (l->archive && l->added) save(l);
        for (u32 i = 0; i < LIBRARY_SECTIONS; i++) [l->sections[i] release];
        [l->archive release];
    }
    free(l->path);
    *l = (struct library){0};
}
