/* The part of <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h> that tools/mac/ffn.m
 * uses, and of Foundation and Metal what only that file uses, for tools/check-mac: names, types and
 * what may be nil as Apple documents them, the text is ours. Nothing runs it. */
#ifndef STANDIN_MPSGRAPH_H
#define STANDIN_MPSGRAPH_H

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#pragma clang assume_nonnull begin

@interface NSProcessInfo : NSObject
+ (NSProcessInfo *)processInfo;
- (double)systemUptime;
@end

@interface NSNumber (Literals)
+ (NSNumber *)numberWithUnsignedLong:(unsigned long)value;
@end

@interface NSArray <Object>(Literals)
+ (instancetype)arrayWithObjects:(const Object _Nonnull[_Nullable])objects count:(NSUInteger)n;
@end

@protocol NSCopying
- (id)copyWithZone:(nullable void *)zone;
@end
@interface NSDictionary<Key, Object> : NSObject
+ (instancetype)dictionaryWithObjects:(const Object _Nonnull[_Nullable])objects
                              forKeys:(const id<NSCopying> _Nonnull[_Nullable])keys
                                count:(NSUInteger)n;
@end

@interface MPSGraphTensor : NSObject <NSCopying>
@end
@interface MPSGraphOperation : NSObject
@end

typedef NSArray<NSNumber *> MPSShape;
typedef uint32_t MPSDataType;
enum { MPSDataTypeFloat16 = 0x10000000 | 16 };

@interface MPSGraphTensorData : NSObject
- (instancetype)initWithMTLBuffer:(id<MTLBuffer>)buffer
                            shape:(MPSShape *)shape
                         dataType:(MPSDataType)type;
@end
typedef NSDictionary<MPSGraphTensor *, MPSGraphTensorData *> MPSGraphTensorDataDictionary;

@interface MPSGraph : NSObject
- (MPSGraphTensor *)placeholderWithShape:(nullable MPSShape *)shape
                                dataType:(MPSDataType)type
                                    name:(nullable NSString *)name;
- (MPSGraphTensor *)matrixMultiplicationWithPrimaryTensor:(MPSGraphTensor *)a
                                          secondaryTensor:(MPSGraphTensor *)b
                                                     name:(nullable NSString *)name;
- (MPSGraphTensor *)multiplicationWithPrimaryTensor:(MPSGraphTensor *)a
                                    secondaryTensor:(MPSGraphTensor *)b
                                               name:(nullable NSString *)name;
- (MPSGraphTensor *)sigmoidWithTensor:(MPSGraphTensor *)tensor name:(nullable NSString *)name;
- (MPSGraphTensorDataDictionary *)runWithMTLCommandQueue:(id<MTLCommandQueue>)queue
                                                   feeds:(MPSGraphTensorDataDictionary *)feeds
                                           targetTensors:(NSArray<MPSGraphTensor *> *)tensors
                                        targetOperations:
                                            (nullable NSArray<MPSGraphOperation *> *)operations;
@end

#pragma clang assume_nonnull end

#endif
