/* The instruction set that test programs use where they ask for none: TEST_ISA, which test/run -i
 * sets. Linked before the library, whose src/cpu/prefer.c it stands for. */
#include <stdlib.h>

#include "cpu/kernels.h"

const char *kernels_preferred(void)
{
    const char *isa = getenv("TEST_ISA");
    return isa && *isa ? isa : NULL;
}
