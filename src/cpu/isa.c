/* Which kernels this machine can run. */
#include <string.h>

#if defined __x86_64__
#include <cpuid.h>
#endif

#include "base/os.h"
#include "cpu/cpu.h"
#include "cpu/kernels.h"

#if defined __x86_64__
/* Not every compiler knows this one by name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}

/* Nor these: AVX-VNNI is bit 4, AVX512-BF16 bit 5. */
static bool has_of_leaf_7_1(u32 bit)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> bit & 1;
}

/* Tiles must be asked for: the system keeps their state only for processes that did. */
static bool has_amx(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    bool tiles = d >> 24 & 1, int8 = d >> 25 & 1, bf16 = d >> 22 & 1;
    return tiles && int8 && bf16 && os_allow_tiles();
}
#endif

static bool runs(const char *isa)
{
#if defined __x86_64__
    __builtin_cpu_init();
    if (strcmp(isa, "amx") == 0) return runs("avx512") && has_amx();
    if (strcmp(isa, "avx512bf16") == 0) return runs("avx512") && has_of_leaf_7_1(5);
    if (strcmp(isa, "avx512") == 0)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vnni");
    if (strcmp(isa, "avxvnni") == 0) return runs("avx2") && has_of_leaf_7_1(4);
    if (strcmp(isa, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
#elif defined __aarch64__
    if (strcmp(isa, "i8mm") == 0) return os_processor_has("asimddp") && os_processor_has("i8mm");
    if (strcmp(isa, "dotprod") == 0) return os_processor_has("asimddp");
    if (strcmp(isa, "neon") == 0) return true;
#endif
    return strcmp(isa, "generic") == 0;
}

static const struct cpu_kernels tables[] = {
#define TABLE(name) \
    {#name, &cpu_tiles_##name, &cpu_panels_##name, &cpu_rows_##name, &cpu_attention_##name},
    CPU_ISAS(TABLE)
#undef TABLE
};

const struct cpu_kernels *kernels_find(const char *isa)
{
    if (!isa) isa = kernels_preferred();
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        if ((!isa || strcmp(isa, tables[i].isa) == 0) && runs(tables[i].isa)) return &tables[i];
    return NULL;
}

/* On Zen, a second stream and requests far ahead of it are in the way of the second cache's own
 * prefetcher; on Xeons, two streams are faster. */
bool kernels_one_stream(void)
{
#if defined __x86_64__
    __builtin_cpu_init();
    return __builtin_cpu_is("amd");
#else
    return false;
#endif
}
