/* A Foundation of the few classes that driver_metal.m uses, so that clang and a bare Objective-C
 * runtime can build and run it on Linux. Names and meaning are Apple's, the text is ours. */
#ifndef STANDIN_FOUNDATION_H
#define STANDIN_FOUNDATION_H

#include <objc/objc.h>
#include <objc/runtime.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned long NSUInteger;
typedef long NSInteger;

@protocol NSObject
- (id)retain;
- (oneway void)release;
- (id)autorelease;
- (BOOL)respondsToSelector:(SEL)s;
- (BOOL)isKindOfClass:(Class)c;
@end

/* The count of owners lives behind the object: constant strings have no place for it. */
__attribute__((objc_root_class))
@interface NSObject<NSObject> {
    Class isa;
}
+ (id)alloc;
+ (Class)class;
- (id)init;
- (void)dealloc;
@end

@interface NSString : NSObject
+ (id)stringWithUTF8String:(const char *)s;
- (const char *)UTF8String;
- (id)copyWithZone:(void *)zone;
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

@interface NSArray : NSObject {
  @public
    id first;
}
+ (id)arrayWithObject:(id)object;
- (id)firstObject; /* nil of an empty one */
- (id)copyWithZone:(void *)zone;
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
+ (id)fileURLWithPath:(NSString *)path;
- (id)copyWithZone:(void *)zone;
@end

@interface NSAutoreleasePool : NSObject {
  @public
    id *objects;
    int n;
    NSAutoreleasePool *outer;
}
+ (void)addObject:(id)object;
- (void)drain;
@end

#endif
