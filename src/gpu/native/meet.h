/* A barrier of a group's first T threads; others bring what these work on. */
#ifndef NATIVE_MEET_H
#define NATIVE_MEET_H

#include "gpu/simt.h"

template <int T> GPU_FN void meet()
{
    asm volatile("bar.sync 1, %0;" ::"n"(T) : "memory");
}

#endif
