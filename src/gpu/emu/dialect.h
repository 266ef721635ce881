/* simt.h for the emulator. Fast: DEV, CONST and TG are plain pointers. Checked: pointers that know
 * their buffer, whose elements are proxies, so that every load and store is looked at. */
#ifndef FLETCH_EMU_DIALECT_H
#define FLETCH_EMU_DIALECT_H

#include <string.h>

#include "gpu/emu/rt.h"

typedef unsigned int uint;
typedef unsigned short ushort;
using emu::uint3;
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    uint x, y;
};
struct alignas(16) uint4 {
    uint x, y, z, w;
};

namespace emu
{
template <class T> struct mutable_of {
    typedef T type;
};
template <class T> struct mutable_of<const T> {
    typedef T type;
};
/* Binds parameter i of a kernel: buffers (0 bytes), perhaps arguments, its ids. */
template <class T> struct bind;
template <class T> struct bind<const T &> {
    enum { bytes = sizeof(T) };
    static const T &get(const emu_bind *b, u32 i) { return *(const T *)(b[i].buf.p + b[i].offset); }
};
template <> struct bind<ids> {
    static const ids &get(const emu_bind *, u32) { return cur->id; }
};

template <u32... I> struct indices {
};
template <u32 N, u32... I> struct count : count<N - 1, N - 1, I...> {
};
template <u32... I> struct count<0, I...> {
    typedef indices<I...> type;
};
template <class T, class... Rest> struct last_but_one : last_but_one<Rest...> {
};
template <class T> struct last_but_one<T, ids> {
    typedef T type;
};

#ifdef SIMT_CHECKED
static const bool checked = true;
#else
static const bool checked = false;
#endif

template <auto F> struct entry;
template <class... A, void (*F)(A...)> struct entry<F> {
    template <u32... I> static void go(const emu_bind *b, indices<I...>)
    {
        F(bind<A>::get(b, I)...);
    }
    static void call(const emu_bind *b) { go(b, typename count<sizeof...(A)>::type()); }
    typedef bind<typename last_but_one<A...>::type> last;
    static constexpr u32 n_args = last::bytes;
    static constexpr emu_kernel kernel(const char *name, u32 max_threads)
    {
        return {name, call, sizeof...(A) - 1 - (n_args > 0), n_args, max_threads, checked};
    }
};

#ifdef SIMT_CHECKED

enum space { DEVICE, GROUP };

/* An element: loaded by conversion, stored by assignment. */
template <class T, space S> struct element {
    typedef typename mutable_of<T>::type V;
    T *p;
    const emu_buffer *b;
    access_by by;
    void access(bool write) const
    {
        if (S == GROUP)
            tg_access(p, sizeof(T), write);
        else
            dev_access(b, (u64)((const u8 *)p - b->p), sizeof(T), write, by);
    }
    operator V() const
    {
        access(false);
        return *p;
    }
    const element &operator=(const V &v) const
    {
        access(true);
        *p = v;
        return *this;
    }
    const element &operator=(const element &o) const { return *this = (V)o; }
    template <class U> const element &operator+=(U u) const { return *this = (V)(*this) + u; }
    template <class U> const element &operator-=(U u) const { return *this = (V)(*this) - u; }
    template <class U> const element &operator*=(U u) const { return *this = (V)(*this) * u; }
};

template <class T, space S> struct pointer {
    T *p;
    emu_buffer b;
    access_by by;
    template <class I> element<T, S> operator[](I i) const
    {
        T *q = p + i;
        if ((u8 *)q < b.p || (u8 *)(q + 1) > b.p + b.n)
            fail("%s[%lld] of %llu elements", S == GROUP ? "threadgroup array" : "buffer",
                 (long long)(q - (T *)b.p), (unsigned long long)(b.n / sizeof(T)));
        if ((uintptr_t)q % alignof(T)) fail("misaligned access to %zu bytes", sizeof(T));
        return {q, &b, by};
    }
    template <class I> pointer operator+(I n) const { return {p + n, b, by}; }
    template <class U> explicit operator pointer<U, S>() const { return {(U *)p, b, by}; }
    operator pointer<const T, S>() const { return {p, b, by}; }
};

/* CONST: may be read before dep_wait. */
template <class T> struct const_pointer : pointer<const T, DEVICE> {
    const_pointer(const pointer<const T, DEVICE> &o) : pointer<const T, DEVICE>(o) {}
    template <class U>
    explicit const_pointer(const pointer<const U, DEVICE> &o)
        : pointer<const T, DEVICE>{(const T *)o.p, o.b, o.by}
    {
    }
};

template <class T> struct bind<pointer<T, DEVICE>> {
    enum { bytes = 0 };
    static pointer<T, DEVICE> get(const emu_bind *b, u32 i)
    {
        return {(T *)(b[i].buf.p + b[i].offset), b[i].buf, {i, false}};
    }
};
template <class T> struct bind<const_pointer<T>> {
    enum { bytes = 0 };
    static const_pointer<T> get(const emu_bind *b, u32 i)
    {
        return const_pointer<T>(
            pointer<const T, DEVICE>{(const T *)(b[i].buf.p + b[i].offset), b[i].buf, {i, true}});
    }
};

#define CONST(T) emu::const_pointer<T>
#define DEV(T)   emu::pointer<T, emu::DEVICE>
#define TG(T)    emu::pointer<T, emu::GROUP>
#define TG_ARRAY(T, name, n)                                              \
    T *const name##_at = (T *)emu::tg_alloc(sizeof(T) * (n), alignof(T)); \
    const emu::pointer<T, emu::GROUP> name = {                            \
        name##_at, {(u8 *)name##_at, sizeof(T) * (n), 0}, {0, false}}
#define dep_wait()       ((void)(emu::cur->waited = true))
#define mat_at(p, pitch) emu::meet_at((p).p, pitch, line)

template <class T, space S> u32 *atomic_at(const pointer<T, S> &p)
{
    p[0]; /* bounds and alignment; atomic accesses don't race */
    return (u32 *)p.p;
}
template <space S> static inline u32 add(const pointer<u32, S> &p, u32 v)
{
    return __atomic_fetch_add(atomic_at(p), v, __ATOMIC_ACQ_REL);
}

#else

template <class T> struct bind<T *> {
    enum { bytes = 0 };
    static T *get(const emu_bind *b, u32 i) { return (T *)(b[i].buf.p + b[i].offset); }
};
#define CONST(T)             const T *
#define DEV(T)               T *
#define TG(T)                T *
#define TG_ARRAY(T, name, n) T *const name = (T *)emu::tg_alloc(sizeof(T) * (n), alignof(T))
#define dep_wait()           ((void)0)
#define mat_at(p, pitch)
static inline u32 add(u32 *p, u32 v)
{
    return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL);
}

#endif

template <class M> static inline M multiply(M a, M b, M c, int line)
{
    meet_multiply(&a.x, &b.x, &c.x, line);
    return c;
}

template <class T> struct ops;
template <> struct ops<float> {
    enum { sum = OP_SUM_F32, max = OP_MAX_F32 };
};
template <> struct ops<u32> {
    enum { sum = OP_SUM_U32, max = OP_MAX_U32 };
};
template <> struct ops<i32> {
    enum { sum = OP_SUM_U32, max = OP_MAX_I32 };
};
} // namespace emu

#define KERNEL(name, n_threads)              \
    static const u32 name##_max = n_threads; \
    static void name
/* For tools/gpu-table. */
#ifdef SIMT_CHECKED
#define EMU_TABLE(file) emu_checked_##file
#else
#define EMU_TABLE(file) emu_fast_##file
#endif
// clang-format off
#define EMU_ENTRY(name) emu::entry<name>::kernel(#name, name##_max)
// clang-format on
#define BUF(n)
#define THR(T)                T *
#define ARGS(T)               const T &
#define ARGS_IN(T)            const T &
#define GPU_IDS               , emu::ids gpu_ids
#define gpu_group             gpu_ids.group
#define gpu_groups            gpu_ids.groups
#define gpu_tid               gpu_ids.tid
#define gpu_lane              gpu_ids.lane
#define gpu_simd              gpu_ids.simd
#define GPU_CONST(T, name, n) static const T name[n]
#define GPU_FN                static inline __attribute__((unused))
#define UNROLL
#define ROLLED
#define tg_barrier()     emu::meet(emu::OP_BARRIER, __LINE__)
#define tg_dev_barrier() emu::meet(emu::OP_DEV_BARRIER, __LINE__)
#define simd_barrier()   emu::meet(emu::OP_SIMD_BARRIER, __LINE__)
#define dep_launch()
#define dev_fence()
#define sees_groups()    emu::see_groups()
#define as_float(u)      emu::bits<float>((uint)(u))
#define as_uint(f)       emu::bits<uint>((float)(f))
#define fmaf(a, b, c)    __builtin_fmaf(a, b, c)
#define fabsf(x)         __builtin_fabsf(x)
#define fmaxf(a, b)      __builtin_fmaxf(a, b)
#define fminf(a, b)      __builtin_fminf(a, b)
#define sqrtf(x)         __builtin_sqrtf(x)
#define rintf(x)         __builtin_rintf(x)
#define floorf(x)        __builtin_floorf(x)
#define INFINITY         __builtin_inff()
#define NAN              __builtin_nanf("")
#define SIMT_LANE        emu::cur->id.lane
#define SIMT_LINE        , int line = __builtin_LINE()
#define mat_fma(a, b, c) emu::multiply(a, b, c, __LINE__)
#define atomic_u32       u32
#define atomic_add(p, v) emu::add(p, v)

GPU_FN float2 make_float2(float a, float b)
{
    return {a, b};
}
GPU_FN float4 make_float4(float a, float b, float c, float d)
{
    return {a, b, c, d};
}
GPU_FN uint2 make_uint2(uint a, uint b)
{
    return {a, b};
}
GPU_FN uint4 make_uint4(uint a, uint b, uint c, uint d)
{
    return {a, b, c, d};
}
GPU_FN uint min(uint a, uint b)
{
    return a < b ? a : b;
}
GPU_FN uint max(uint a, uint b)
{
    return a < b ? b : a;
}
GPU_FN int min(int a, int b)
{
    return a < b ? a : b;
}
GPU_FN int max(int a, int b)
{
    return a < b ? b : a;
}

template <class T> GPU_FN T simd_shuffle_xor(T v, u16 m, int line = __builtin_LINE())
{
    return emu::bits<T>(emu::meet_exchange(emu::bits<u32>(v), line)[emu::cur->id.lane ^ (m & 31)]);
}
template <class T> GPU_FN T simd_shuffle(T v, u16 lane, int line = __builtin_LINE())
{
    return emu::bits<T>(emu::meet_exchange(emu::bits<u32>(v), line)[lane & 31]);
}
template <class T> GPU_FN T simd_broadcast(T v, u16 lane, int line = __builtin_LINE())
{
    return simd_shuffle(v, lane, line);
}
template <class T> GPU_FN T simd_sum(T v, int line = __builtin_LINE())
{
    return emu::bits<T>(emu::meet_reduce((enum emu::op)emu::ops<T>::sum, emu::bits<u32>(v), line));
}
template <class T> GPU_FN T simd_max(T v, int line = __builtin_LINE())
{
    return emu::bits<T>(emu::meet_reduce((enum emu::op)emu::ops<T>::max, emu::bits<u32>(v), line));
}
GPU_FN bool simd_any(bool v, int line = __builtin_LINE())
{
    return emu::meet_reduce(emu::OP_ANY, v, line) != 0;
}

GPU_FN float f16_to_f32(u16 h)
{
    return emu::f16_to_f32(h);
}
GPU_FN u16 f32_to_f16(float f)
{
    return emu::f32_to_f16(f);
}
typedef int dot_sum;
GPU_FN int dot4_i8(uint a, uint b, int acc)
{
    for (int i = 0; i < 32; i += 8) acc += (int)(i8)(a >> i) * (int)(i8)(b >> i);
    return acc;
}

/* Words of Metal that would be fine names here. */
#pragma GCC poison half bfloat device constant threadgroup thread double sampler vertex fragment

#endif
