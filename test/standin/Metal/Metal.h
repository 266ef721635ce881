/* The part of <Metal/Metal.h> that our Metal files use, for Linux and for tools/check-mac: names,
 * types, numbers and what may be nil as Apple documents them, the text is ours. Metal.m runs it on
 * the emulator. What came with macOS 15 is missing where an older SDK is built for. */
#ifndef STANDIN_METAL_H
#define STANDIN_METAL_H

#import <Foundation/Foundation.h>

#if !defined __MAC_OS_X_VERSION_MAX_ALLOWED || __MAC_OS_X_VERSION_MAX_ALLOWED >= 150000
#define STANDIN_SDK_15
#endif
#define SINCE(version) __attribute__((availability(macos, introduced = version)))

#pragma clang assume_nonnull begin

typedef struct {
    NSUInteger width, height, depth;
} MTLSize;

static inline MTLSize MTLSizeMake(NSUInteger w, NSUInteger h, NSUInteger d)
{
    MTLSize s = {w, h, d};
    return s;
}

typedef NSUInteger MTLResourceOptions;
enum {
    MTLResourceStorageModeShared = 0,
    MTLResourceHazardTrackingModeUntracked = 1 << 8,
};
typedef NSUInteger MTLCommandBufferStatus;
enum {
    MTLCommandBufferStatusNotEnqueued = 0,
    MTLCommandBufferStatusCommitted = 2,
    MTLCommandBufferStatusCompleted = 4,
    MTLCommandBufferStatusError = 5,
};
typedef NSUInteger MTLDispatchType;
enum { MTLDispatchTypeSerial = 0, MTLDispatchTypeConcurrent = 1 };
typedef NSUInteger MTLBarrierScope;
enum { MTLBarrierScopeBuffers = 1 };
typedef NSUInteger MTLLanguageVersion;
enum { MTLLanguageVersion3_0 = 3 << 16 };
typedef NSInteger MTLGPUFamily;
enum { MTLGPUFamilyApple7 = 1007 };
typedef NSInteger MTLCaptureDestination;
enum { MTLCaptureDestinationGPUTraceDocument = 2 };

#ifdef STANDIN_SDK_15
typedef NSInteger MTLMathMode;
enum { MTLMathModeSafe = 0, MTLMathModeRelaxed = 1, MTLMathModeFast = 2 };
typedef NSInteger MTLMathFloatingPointFunctions;
enum { MTLMathFloatingPointFunctionsFast = 0, MTLMathFloatingPointFunctionsPrecise = 1 };
#endif
typedef NSUInteger MTLPipelineOption;
enum { MTLPipelineOptionNone = 0, MTLPipelineOptionFailOnBinaryArchiveMiss = 1 << 2 };

@interface MTLCompileOptions : NSObject {
    BOOL fast;
    MTLLanguageVersion version;
#ifdef STANDIN_SDK_15
    MTLMathMode mode;
    MTLMathFloatingPointFunctions functions;
#endif
}
@property(nonatomic) BOOL fastMathEnabled
    __attribute__((availability(macos, introduced=10.11, deprecated=15.0)));
@property(nonatomic) MTLLanguageVersion languageVersion;
#ifdef STANDIN_SDK_15
@property(nonatomic) MTLMathMode mathMode SINCE(15.0);
@property(nonatomic) MTLMathFloatingPointFunctions mathFloatingPointFunctions SINCE(15.0);
#endif
@end

#ifdef STANDIN_SDK_15
SINCE(15.0)
@protocol MTLAllocation <NSObject>
@end
@protocol MTLResource <MTLAllocation>
@end
#else
@protocol MTLResource <NSObject>
@end
#endif
@protocol MTLBuffer <MTLResource>
- (NSUInteger)length;
- (void *)contents;
@end
@protocol MTLFunction <NSObject>
@end
@protocol MTLLibrary <NSObject>
- (nullable id<MTLFunction>)newFunctionWithName:(NSString *)name;
@end
@protocol MTLComputePipelineState <NSObject>
- (NSUInteger)maxTotalThreadsPerThreadgroup;
- (NSUInteger)threadExecutionWidth;
@end
@protocol MTLFence <NSObject>
@end

@protocol MTLBinaryArchive;
@interface MTLComputePipelineDescriptor : NSObject {
    NSString *label;
    id<MTLFunction> function;
    NSArray<id<MTLBinaryArchive>> *archives;
    BOOL whole;
}
@property(nonatomic, copy, nullable) NSString *label;
@property(nonatomic, retain, nullable) id<MTLFunction> computeFunction;
@property(nonatomic, copy, nullable) NSArray<id<MTLBinaryArchive>> *binaryArchives;
@property(nonatomic) BOOL threadGroupSizeIsMultipleOfThreadExecutionWidth;
@end
@interface MTLComputePipelineReflection : NSObject
@end

@interface MTLBinaryArchiveDescriptor : NSObject {
    NSURL *url;
}
@property(nonatomic, copy, nullable) NSURL *url; /* nil: a new one */
@end
@protocol MTLBinaryArchive <NSObject>
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                            error:(NSError *_Nullable *_Nullable)error;
- (BOOL)serializeToURL:(NSURL *)url error:(NSError *_Nullable *_Nullable)error;
@end

@protocol MTLCommandEncoder <NSObject>
@property(nullable, copy) NSString *label;
- (void)endEncoding;
@end

@protocol MTLComputeCommandEncoder <MTLCommandEncoder>
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBuffer:(nullable id<MTLBuffer>)buffer
           offset:(NSUInteger)offset
          atIndex:(NSUInteger)index;
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads;
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope;
- (void)waitForFence:(id<MTLFence>)fence;
- (void)updateFence:(id<MTLFence>)fence;
@end

@protocol MTLCommandBuffer <NSObject>
@property(nullable, copy) NSString *label;
- (nullable id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:
    (MTLDispatchType)type;
- (void)commit;
- (void)waitUntilCompleted;
- (MTLCommandBufferStatus)status;
- (nullable NSError *)error;
- (double)GPUStartTime;
- (double)GPUEndTime;
@end

#ifdef STANDIN_SDK_15
SINCE(15.0)
@interface MTLResidencySetDescriptor : NSObject {
    NSString *label;
}
@property(nonatomic, copy, nullable) NSString *label;
@end
SINCE(15.0)
@protocol MTLResidencySet <NSObject>
- (void)addAllocation:(id<MTLAllocation>)allocation;
- (void)removeAllocation:(id<MTLAllocation>)allocation;
- (void)removeAllAllocations;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@end
#endif

@protocol MTLCommandQueue <NSObject>
@property(nullable, copy) NSString *label;
- (nullable id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;
#ifdef STANDIN_SDK_15
- (void)addResidencySet:(id<MTLResidencySet>)set SINCE(15.0);
- (void)removeResidencySet:(id<MTLResidencySet>)set SINCE(15.0);
#endif
@end

@protocol MTLDevice <NSObject>
- (NSString *)name;
- (NSUInteger)maxBufferLength;
- (uint64_t)recommendedMaxWorkingSetSize;
- (NSUInteger)currentAllocatedSize;
- (BOOL)supportsFamily:(MTLGPUFamily)family;
#ifdef __APPLE__
- (nullable id<MTLCommandQueue>)newCommandQueue; /* tools/mac uses it */
#endif
- (nullable id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)n;
- (nullable id<MTLFence>)newFence;
- (nullable id<MTLBuffer>)newBufferWithLength:(NSUInteger)length
                                      options:(MTLResourceOptions)options;
- (nullable id<MTLLibrary>)newLibraryWithSource:(NSString *)source
                                        options:(nullable MTLCompileOptions *)options
                                          error:(NSError *_Nullable *_Nullable)error;
- (nullable id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:
                                   (MTLComputePipelineReflection *_Nullable *_Nullable)reflection
                                    error:(NSError *_Nullable *_Nullable)error;
- (nullable id<MTLBinaryArchive>)
    newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor *)descriptor
                             error:(NSError *_Nullable *_Nullable)error;
#ifdef STANDIN_SDK_15
- (nullable id<MTLResidencySet>)newResidencySetWithDescriptor:
                                    (MTLResidencySetDescriptor *)descriptor
                                                        error:(NSError *_Nullable *_Nullable)error
    SINCE(15.0);
#endif
@end

@interface MTLCaptureDescriptor : NSObject {
    id object;
    MTLCaptureDestination where;
    NSURL *url;
}
@property(nonatomic, retain, nullable) id captureObject;
@property(nonatomic) MTLCaptureDestination destination;
@property(nonatomic, copy, nullable) NSURL *outputURL;
@end

@interface MTLCaptureManager : NSObject
+ (MTLCaptureManager *)sharedCaptureManager;
- (BOOL)supportsDestination:(MTLCaptureDestination)destination;
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor *)descriptor
                             error:(NSError *_Nullable *_Nullable)error;
- (void)stopCapture;
@end

id<MTLDevice> _Nullable MTLCreateSystemDefaultDevice(void);
NSArray<id<MTLDevice>> *MTLCopyAllDevices(void);

#pragma clang assume_nonnull end

#endif
