/* A Foundation of the few classes that driver_metal.m uses, so that clang and a bare Objective-C
 * runtime can build and run it on Linux. Names and meaning are Apple's, the text is ours. */
#ifndef STANDIN_FOUNDATION_H
#define STANDIN_FOUNDATION_H

#include <objc/objc.h>
#include <objc/runtime.h>
#ifdef __APPLE__
#include <objc/NSObject.h> /* Apple's own, which tools/check-mac has */
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma clang assume_nonnull begin

#ifndef __APPLE__
typedef unsigned long NSUInteger;
typedef long NSInteger;

@protocol NSObject
- (instancetype)retain;
- (oneway void)release;
- (instancetype)autorelease;
- (BOOL)respondsToSelector:(SEL)s;
- (BOOL)isKindOfClass:(Class)c;
@end

/* The count of owners lives behind the object: constant strings have no place for it. */
__attribute__((objc_root_class))
@interface NSObject<NSObject> {
    Class isa;
}
+ (instancetype)alloc;
+ (Class)class;
- (instancetype)init;
- (void)dealloc;
@end
#endif

@interface NSString : NSObject
+ (nullable instancetype)stringWithUTF8String:(const char *)s;
- (nullable const char *)UTF8String;
- (id)copyWithZone:(nullable void *)zone;
@end

@interface NSConstantString : NSString { /* what the compiler makes of @"..." */
    char *text;
    unsigned int n;
}
@end

@interface NSNumber : NSObject {
  @public
    unsigned int value;
}
- (unsigned int)unsignedIntValue;
@end

@interface NSArray<Object> : NSObject {
  @public
    Object _Nullable first;
}
+ (instancetype)arrayWithObject:(Object)object;
- (nullable Object)firstObject; /* nil of an empty one */
- (id)copyWithZone:(nullable void *)zone;
@end

@interface NSError : NSObject {
  @public
    NSString *text;
}
- (NSString *)localizedDescription;
@end

@interface NSURL : NSObject {
  @public
    NSString *path;
}
+ (NSURL *)fileURLWithPath:(NSString *)path;
- (id)copyWithZone:(nullable void *)zone;
@end

#ifndef __APPLE__
@interface NSAutoreleasePool : NSObject {
  @public
    id _Nullable *_Nullable objects;
    int n;
    NSAutoreleasePool *_Nullable outer;
}
+ (void)addObject:(id)object;
- (void)drain;
@end
#endif

#pragma clang assume_nonnull end

#endif
