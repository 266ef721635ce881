/* Which kernels this machine can run. */
#include <string.h>

#if defined __x86_64__
#include <cpuid.h>
#endif

#include "cpu/cpu.h"
#include "cpu/kernels.h"

#if defined __x86_64__
/* Not every compiler knows this one by name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
#endif

static bool runs(const char *isa)
{
#if defined __x86_64__
    __builtin_cpu_init();
    if (strcmp(isa, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vnni");
    if (strcmp(isa, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
#endif
    return strcmp(isa, "generic") == 0;
}

static const struct cpu_kernels *const tables[] = {
#if defined __x86_64__
    &cpu_kernels_avx512,
    &cpu_kernels_avx2,
#endif
    &cpu_kernels_generic,
};

const struct cpu_kernels *kernels_find(const char *isa)
{
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        if ((!isa || strcmp(isa, tables[i]->isa) == 0) && runs(tables[i]->isa)) return tables[i];
    return NULL;
}

const char *cpu_isa(void)
{
    return kernels_find(NULL)->isa;
}
