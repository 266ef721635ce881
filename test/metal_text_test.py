#!/usr/bin/env python3
"""Mistakes that Apple's compiler would refuse must be refused here too, where it can't be had: each
text below has one, and must be stopped by one of the three checks that the kernels' Metal text goes
through (clang with address spaces, C++ for OpenCL, table.py; on a Mac also Apple's). Called with the build folder."""
import os
import shutil
import subprocess
import sys
import tempfile

HEAD = '''#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;
struct some_args { float v; uint i; };
static inline float first(device const float *p) { return p[0]; }
'''
KERNEL = '''[[max_total_threads_per_threadgroup(64)]] kernel void k(device float *p [[buffer(0)]]%s,
    uint3 g [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]])
{ %s }'''


def body(text, parameters='', before=''):
    return before + KERNEL % (parameters, text)


RIGHT = {
    'threadgroup memory and a helper': body(
        'threadgroup float s[8]; s[t] = p[t]; threadgroup_barrier(mem_flags::mem_threadgroup);'
        'p[t] = s[0] + first(p);'),
    'vectors': body('p[t] = float4(1.0f, 2.0f, 3.0f, 4.0f).y;'),
    'matrices': body(
        'threadgroup float s[64]; s[t] = p[t]; threadgroup_barrier(mem_flags::mem_threadgroup);'
        'simdgroup_float8x8 m, n; simdgroup_load(m, s, 8); simdgroup_load(n, p, 8, ulong2(0ul, 0ul), true);'
        'simdgroup_multiply_accumulate(m, m, n, make_filled_simdgroup_matrix<float, 8, 8>(0.0f));'
        'simdgroup_store(m, p, 8);'),
    'halves by halves, summed in floats': body(
        'simdgroup_float8x8 m; simdgroup_half8x8 n; threadgroup half s[64];'
        'simdgroup_load(n, s, 8); simdgroup_multiply(m, n, n); simdgroup_store(m, p, 8);'),
    'arguments': body('p[t] = a.v;', ', constant some_args &a [[buffer(1)]]'),
}
WRONG = {
    'device pointer as threadgroup pointer': body('threadgroup float *q = p; q[0] = 1;'),
    'threadgroup passed as device': body('threadgroup float s[8]; p[t] = first(s);'),
    'cast from device to threadgroup': body('p[t] = ((threadgroup float *)p)[0];'),
    'helper without address space, given device': body(
        'p[t] = h(p);', before='static float h(float *q) { return q[0]; }\n'),
    'helper without address space, given a local': body(
        'float x = 1; p[t] = h(&x);', before='static float h(float *q) { return q[0]; }\n'),
    'local pointer without address space': body('float x = 1; float *q = &x; p[t] = q[0];'),
    'reference without address space': body(
        'float x; h(x); p[t] = x;', before='static void h(float &x) { x = 1; }\n'),
    'kernel parameter without address space': body('p[t] = q[0];', ', float *q [[buffer(1)]]'),
    'write to constant': body('q[0] = 1;', ', constant float *q [[buffer(1)]]'),
    'parameter without attribute': body('p[t] = q[0];', ', device float *q'),
    'the same buffer twice': body('p[t] = q[t];', ', device float *q [[buffer(0)]]'),
    'buffers with a gap': body('p[t] = q[t];', ', device float *q [[buffer(2)]]'),
    'buffer 31': body('p[t] = q[t];', ', device float *q [[buffer(31)]]'),
    'misspelt attribute': body('p[t] = l;', ', uint l [[thread_index_in_simdgroop]]'),
    'threadgroup array in a block': body(
        'if (t < 4u) { threadgroup float s[8]; s[t] = 1; p[t] = s[0]; }'),
    'threadgroup array in a helper': body(
        'p[t] = h();', before='static float h() { threadgroup float s[8]; s[0] = 1; return s[0]; }\n'),
    'global without constant': body('p[t] = tab[0];', before='float tab[2] = {1, 2};\n'),
    'static local': body('static float x = 0; p[t] = x;'),
    'double': body('double d = p[0]; p[t] = (float)d;'),
    'recursion': body('p[t] = r(3);',
                      before='static inline int r(int x) { return x ? r(x - 1) + 1 : 0; }\n'),
    'function pointer': body('float (*f)(float) = h; p[t] = f(p[t]);',
                             before='static float h(float x) { return x; }\n'),
    'lambda': body('auto f = [](float x) { return x; }; p[t] = f(p[t]);'),
    'virtual function': body('V v; p[t] = v.f();',
                             before='struct V { virtual float f() { return 1; } };\n'),
    'array of a length that is not constant': body('float a[t]; a[0] = 1; p[t] = a[0];'),
    'pointer to pointer': body('q[0][0] = 1;', ', device float *device *q [[buffer(1)]]'),
    'unknown function': body('p[t] = simd_summ(p[t]);'),
    'goto': body('goto x; x: p[t] = 1;'),
    'new': body('thread float *q = new float; p[t] = *q;'),
    'kernel that returns something': 'kernel int k(device float *p [[buffer(0)]]) { return 1; }',
    'kernel without a largest group': 'kernel void k(device float *p [[buffer(0)]]) { p[0] = 1; }',
    'as_type of another size': body('p[t] = as_type<float>((ushort)1);'),
    'matrix of a thread\'s own memory': body(
        'float x[64]; simdgroup_float8x8 m; simdgroup_load(m, x, 8); simdgroup_store(m, p, 8);'),
    'matrix of constant memory': body(
        'simdgroup_float8x8 m; simdgroup_load(m, q, 8); simdgroup_store(m, p, 8);',
        ', constant float *q [[buffer(1)]]'),
    'matrix stored to memory that is const': body(
        'simdgroup_float8x8 m; simdgroup_load(m, q, 8); simdgroup_store(m, q, 8);',
        ', device const float *q [[buffer(1)]]'),
    'halves loaded from floats': body('simdgroup_half8x8 m; simdgroup_load(m, p, 8); p[t] = 1;'),
    'matrix of 16 by 16': body('simdgroup_matrix<float, 16, 16> m; simdgroup_load(m, p, 16);'),
    'matrix of ints': body('simdgroup_matrix<int, 8, 8> m; p[t] = 1; m.x = 1;'),
    'bfloat before Metal 3.1': body('simdgroup_bfloat8x8 m; simdgroup_multiply(m, m, m); p[t] = 1;'),
    'matrix in threadgroup memory': body(
        'threadgroup simdgroup_float8x8 m[2]; simdgroup_load(m[0], p, 8); p[t] = 1;'),
    'typedef of a matrix in threadgroup memory': body(
        'threadgroup mat m[2]; p[t] = 1;', before='typedef simdgroup_float8x8 mat;\n'),
    'matrix by a number': body(
        'simdgroup_float8x8 m; simdgroup_load(m, p, 8); simdgroup_multiply(m, m, 2.0f);'),
    'product given as a value': body(
        'simdgroup_float8x8 m; simdgroup_load(m, p, 8);'
        'simdgroup_multiply(make_filled_simdgroup_matrix<float, 8, 8>(0.0f), m, m);'),
    'a function of the library defined anew': body(
        'p[t] = mix(p[0], 1);', before='static inline float mix(float a, int b) { return a + (float)b; }\n'),
    'C++17': body('if constexpr (sizeof(uint) == 4) p[t] = 1;'),
    'fused multiply-add by another name': body('p[t] = fmaf(p[0], p[1], p[2]);'),
}
COMMON = ['-D__METAL_VERSION__=300', '-Wno-unknown-attributes', '-Itest/standin/msl',
          '-fsyntax-only']
OPENCL = ['clang', '-x', 'cl', '-cl-std=clc++2021', '-cl-no-stdinc', '-Xclang',
          '-cl-ext=-all,+cl_khr_fp16,+__opencl_c_generic_address_space'] + COMMON
# On a Mac Apple's own compiler instead of C++ for OpenCL.
METAL = ['xcrun', '-sdk', 'macosx', 'metal', '-std=metal3.0', '-w', '-fsyntax-only']
ON_MAC = sys.platform == 'darwin'
CPLUSPLUS = ['clang', '-x', 'c++', '-std=c++14', '-Werror=c++17-extensions', '-fno-exceptions', '-Isrc', '-Iinclude'] + COMMON


def refused(folder, text):
    """Which of the three checks stop it."""
    metal, cpp = os.path.join(folder, 'k.metal'), os.path.join(folder, 'k.cpp')
    with open(metal, 'w') as f:
        f.write(HEAD + text + '\n')

    def fails(command):
        return subprocess.run(command, capture_output=True).returncode != 0
    by = []
    if fails((METAL if ON_MAC else OPENCL) + [metal]):
        by.append('Metal' if ON_MAC else 'OpenCL')
    if fails([sys.executable, 'test/standin/msl/table.py', metal, cpp]):
        by.append('table.py')
    if not os.path.exists(cpp) or fails(CPLUSPLUS + [cpp]):
        by.append('C++')
    return by


def contracts(folder, keep):
    """Does a product and a sum become one operation, which is the compiler's default, in the text
    of the self-test's kernel? Without keep the text lacks its pragmas."""
    metal = os.path.join(folder, 'contract.metal')
    text = subprocess.run(['tools/gpu-text', 'src/gpu/kernels/self_test.gpu'], capture_output=True,
                          text=True, check=True).stdout
    with open(metal, 'w') as f:
        f.writelines(l + '\n' for l in text.split('\n') if keep or not l.startswith('#pragma'))
    command = [o for o in (METAL if ON_MAC else OPENCL) if o != '-fsyntax-only']
    command += ['-ffp-contract=on', '-S', '-emit-llvm', '-o', '-', metal]
    return 'fmuladd' in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main():
    if not shutil.which('clang'):
        print('skip metal_text: there is no clang')
        return 0
    if ON_MAC and subprocess.run(METAL[:3] + ['-f', 'metal'], capture_output=True).returncode:
        print("skip metal_text: Apple's Metal compiler, which comes with Xcode, is not here")
        return 0
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, text in RIGHT.items():
            by = refused(folder, text)
            print(('not ok' if by else 'ok'), name + (' refused by ' + ', '.join(by) if by else ''))
            bad += bool(by)
        for name, text in WRONG.items():
            by = refused(folder, text)
            print(('ok' if by else 'not ok'), name + ': ' + (', '.join(by) or 'taken by all'))
            bad += not by
        for keep, name in ((True, 'nothing is contracted'), (False, 'without pragmas it would be')):
            right = contracts(folder, keep) != keep
            print('ok' if right else 'not ok', name)
            bad += not right
    return bad > 0


if __name__ == '__main__':
    sys.exit(main())
