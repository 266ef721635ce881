/* The part of <Metal/Metal.h> that driver_metal.m uses, for Linux: names, types and numbers as
 * Apple documents them, the text is ours. Metal.m runs it on the emulator. */
#ifndef STANDIN_METAL_H
#define STANDIN_METAL_H

#import <Foundation/Foundation.h>

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

typedef NSInteger MTLMathMode;
enum { MTLMathModeSafe = 0, MTLMathModeRelaxed = 1, MTLMathModeFast = 2 };
typedef NSInteger MTLMathFloatingPointFunctions;
enum { MTLMathFloatingPointFunctionsFast = 0, MTLMathFloatingPointFunctionsPrecise = 1 };
typedef NSUInteger MTLPipelineOption;
enum { MTLPipelineOptionNone = 0, MTLPipelineOptionFailOnBinaryArchiveMiss = 1 << 2 };

@interface MTLCompileOptions : NSObject {
    BOOL fast;
    MTLLanguageVersion version;
    MTLMathMode mode;
    MTLMathFloatingPointFunctions functions;
}
@property(nonatomic) BOOL fastMathEnabled; /* deprecated from macOS 15 on */
@property(nonatomic) MTLLanguageVersion languageVersion;
@property(nonatomic) MTLMathMode mathMode; /* from macOS 15 on */
@property(nonatomic) MTLMathFloatingPointFunctions mathFloatingPointFunctions;
@end

@protocol MTLAllocation <NSObject>
@end
@protocol MTLBuffer <MTLAllocation>
- (NSUInteger)length;
- (void *)contents;
@end
@protocol MTLFunction <NSObject>
@end
@protocol MTLLibrary <NSObject>
- (id<MTLFunction>)newFunctionWithName:(NSString *)name;
@end
@protocol MTLComputePipelineState <NSObject>
- (NSUInteger)maxTotalThreadsPerThreadgroup;
- (NSUInteger)threadExecutionWidth;
@end
@protocol MTLFence <NSObject>
@end

@interface MTLComputePipelineDescriptor : NSObject {
    NSString *label;
    id function;
    NSArray *archives;
    BOOL whole;
}
@property(nonatomic, copy) NSString *label;
@property(nonatomic, retain) id<MTLFunction> computeFunction;
@property(nonatomic, copy) NSArray *binaryArchives;
@property(nonatomic) BOOL threadGroupSizeIsMultipleOfThreadExecutionWidth;
@end
@interface MTLComputePipelineReflection : NSObject
@end

@interface MTLBinaryArchiveDescriptor : NSObject {
    NSURL *url;
}
@property(nonatomic, copy) NSURL *url; /* nil: a new one */
@end
@protocol MTLBinaryArchive <NSObject>
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                            error:(NSError **)error;
- (BOOL)serializeToURL:(NSURL *)url error:(NSError **)error;
@end

@protocol MTLComputeCommandEncoder <NSObject>
@property(nonatomic, copy) NSString *label;
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads;
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope;
- (void)waitForFence:(id<MTLFence>)fence;
- (void)updateFence:(id<MTLFence>)fence;
- (void)endEncoding;
@end

@protocol MTLCommandBuffer <NSObject>
@property(nonatomic, copy) NSString *label;
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type;
- (void)commit;
- (void)waitUntilCompleted;
- (MTLCommandBufferStatus)status;
- (NSError *)error;
- (double)GPUStartTime;
- (double)GPUEndTime;
@end

@interface MTLResidencySetDescriptor : NSObject {
    NSString *label;
}
@property(nonatomic, copy) NSString *label;
@end
@protocol MTLResidencySet <NSObject>
- (void)addAllocation:(id<MTLAllocation>)allocation;
- (void)removeAllocation:(id<MTLAllocation>)allocation;
- (void)removeAllAllocations;
- (void)commit;
- (void)requestResidency;
- (void)endResidency;
@end

@protocol MTLCommandQueue <NSObject>
@property(nonatomic, copy) NSString *label;
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences;
- (void)addResidencySet:(id<MTLResidencySet>)set;
- (void)removeResidencySet:(id<MTLResidencySet>)set;
@end

@protocol MTLDevice <NSObject>
- (NSString *)name;
- (NSUInteger)maxBufferLength;
- (uint64_t)recommendedMaxWorkingSetSize;
- (NSUInteger)currentAllocatedSize;
- (BOOL)supportsFamily:(MTLGPUFamily)family;
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)n;
- (id<MTLFence>)newFence;
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options;
- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source
                               options:(MTLCompileOptions *)options
                                 error:(NSError **)error;
- (id<MTLComputePipelineState>)
    newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                  options:(MTLPipelineOption)options
                               reflection:(MTLComputePipelineReflection **)reflection
                                    error:(NSError **)error;
- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor *)descriptor
                                                 error:(NSError **)error;
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)descriptor
                                               error:(NSError **)error;
@end

@interface MTLCaptureDescriptor : NSObject {
    id object;
    MTLCaptureDestination where;
    NSURL *url;
}
@property(nonatomic, retain) id captureObject;
@property(nonatomic) MTLCaptureDestination destination;
@property(nonatomic, copy) NSURL *outputURL;
@end

@interface MTLCaptureManager : NSObject
+ (MTLCaptureManager *)sharedCaptureManager;
- (BOOL)supportsDestination:(MTLCaptureDestination)destination;
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor *)descriptor error:(NSError **)error;
- (void)stopCapture;
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void);
NSArray *MTLCopyAllDevices(void);

#endif
