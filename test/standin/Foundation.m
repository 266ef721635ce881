#import <Foundation/Foundation.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MORE_OWNERS(object) (*(int *)object_getIndexedIvars(object))

@implementation NSObject
+ (id)alloc
{
    return class_createInstance(self, sizeof(int));
}
+ (Class)class
{
    return self;
}
- (id)init
{
    return self;
}
- (id)retain
{
    MORE_OWNERS(self)++;
    return self;
}
- (oneway void)release
{
    if (MORE_OWNERS(self)-- == 0) [self dealloc];
}
- (id)autorelease
{
    [NSAutoreleasePool addObject:self];
    return self;
}
- (BOOL)respondsToSelector:(SEL)s
{
    return class_getInstanceMethod(object_getClass(self), s) != NULL;
}
- (BOOL)isKindOfClass:(Class)c
{
    Class own = object_getClass(self);
    while (own && own != c) own = class_getSuperclass(own);
    return own != NULL;
}
- (void)dealloc
{
    object_dispose(self);
}
@end

@interface CString : NSString {
  @public
    char *text;
}
@end

@implementation CString
- (const char *)UTF8String
{
    return text;
}
- (void)dealloc
{
    free(text);
    [super dealloc];
}
@end

@implementation NSString
+ (id)stringWithUTF8String:(const char *)s
{
    CString *c = [[[CString alloc] init] autorelease];
    c->text = strdup(s);
    return c;
}
- (const char *)UTF8String
{
    return NULL;
}
- (id)copyWithZone:(void *)zone
{
    (void)zone;
    return [self retain];
}
@end

@implementation NSConstantString
- (const char *)UTF8String
{
    return text;
}
- (id)retain
{
    return self;
}
- (oneway void)release
{
}
- (id)autorelease
{
    return self;
}
@end

@implementation NSNumber
- (unsigned int)unsignedIntValue
{
    return value;
}
@end

@implementation NSArray
+ (id)arrayWithObject:(id)object
{
    NSArray *a = [[[self alloc] init] autorelease];
    a->first = [object retain];
    return a;
}
- (id)firstObject
{
    return first;
}
- (id)copyWithZone:(void *)zone
{
    (void)zone;
    return [self retain];
}
- (void)dealloc
{
    [first release];
    [super dealloc];
}
@end

@implementation NSError
- (NSString *)localizedDescription
{
    return text;
}
- (void)dealloc
{
    [text release];
    [super dealloc];
}
@end

@implementation NSURL
+ (id)fileURLWithPath:(NSString *)p
{
    NSURL *u = [[[self alloc] init] autorelease];
    u->path = [p retain];
    return u;
}
- (id)copyWithZone:(void *)zone
{
    (void)zone;
    return [self retain];
}
- (void)dealloc
{
    [path release];
    [super dealloc];
}
@end

static __thread NSAutoreleasePool *innermost;

@implementation NSAutoreleasePool
- (id)init
{
    outer = innermost;
    innermost = self;
    return self;
}
+ (void)addObject:(id)object
{
    if (!innermost) {
        fprintf(stderr, "stand-in Foundation: autorelease without a pool\n");
        abort();
    }
    innermost->objects = realloc(innermost->objects, (size_t)(innermost->n + 1) * sizeof object);
    innermost->objects[innermost->n++] = object;
}
- (void)drain
{
    [self release];
}
- (void)dealloc
{
    for (int i = 0; i < n; i++) [objects[i] release];
    free(objects);
    innermost = outer;
    [super dealloc];
}
@end
