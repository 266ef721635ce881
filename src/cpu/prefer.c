/* In a file of its own so that tests can link another one (test/isa.c). */
#include "cpu/kernels.h"

const char *kernels_preferred(void)
{
    return NULL;
}
