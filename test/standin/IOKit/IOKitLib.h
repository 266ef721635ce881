/* The part of <IOKit/IOKitLib.h> that driver_metal.m uses, for Linux: the registry of a machine
 * that has one entry, the GPU's. */
#ifndef STANDIN_IOKIT_H
#define STANDIN_IOKIT_H

#include <stdint.h>

typedef const void *CFTypeRef;
typedef const struct __CFString *CFStringRef;
typedef const struct __CFAllocator *CFAllocatorRef;
typedef const struct __CFDictionary *CFDictionaryRef;
typedef struct __CFDictionary *CFMutableDictionaryRef;
typedef unsigned int mach_port_t;
typedef mach_port_t io_object_t, io_service_t, io_registry_entry_t;
typedef uint32_t IOOptionBits;
typedef int kern_return_t;
#define MACH_PORT_NULL 0

CFMutableDictionaryRef IOServiceMatching(const char *name);
io_service_t IOServiceGetMatchingService(mach_port_t main_port, CFDictionaryRef matching);
CFTypeRef IORegistryEntryCreateCFProperty(io_registry_entry_t entry, CFStringRef key,
                                          CFAllocatorRef allocator, IOOptionBits options);
kern_return_t IOObjectRelease(io_object_t object);

#endif
