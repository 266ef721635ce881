#!/usr/bin/env python3
"""table.py IN.metal OUT.cpp [TABLE DEFINE]: makes the Metal text itself something that the emulator
can run, and says what Apple's compiler would refuse and clang does not see (exit status 1). The
table of its kernels is emu_metal, or TABLE for a text in Metal 4.0 that is compiled with DEFINE.

IN.metal is the very text that a Mac compiles. It is preprocessed as for Metal; each `kernel void
f(T x [[attribute]], ...)` gets an entry that binds its parameters by their attributes, and arrays in
threadgroup memory become references into the emulator's."""
import re
import subprocess
import sys

IDS = {
    'threadgroup_position_in_grid': 'uint3{c.group.x, c.group.y, c.group.z}',
    'threadgroups_per_grid': 'uint3{c.groups.x, c.groups.y, c.groups.z}',
    'thread_index_in_threadgroup': 'c.tid',
    'thread_index_in_simdgroup': 'c.lane',
    'simdgroup_index_in_threadgroup': 'c.simd',
}
FORBIDDEN = (
    (r'\bdouble\b', 'double'),
    (r'\[[&=]?\]\s*\(', 'a lambda'),
    (r'\b(goto|virtual|throw|try|new|delete|dynamic_cast|thread_local|static\s+thread)\b', 'a word that Metal lacks'),
    (r'\*\s*((device|constant|threadgroup|thread|const)\s+)*\*', 'a pointer to a pointer'),
)
# Functions of Metal's library, which `using namespace metal` makes visible: ours of the same name would be
# overloads of them.
LIBRARY = ('abs|acos|all|any|asin|atan|atan2|ceil|clamp|clz|cos|cosh|cross|ctz|distance|dot|exp|exp2|extract_bits|'
           'fabs|faceforward|fdim|floor|fma|fmax|fmin|fmod|fract|frexp|insert_bits|isfinite|isinf|isnan|ldexp|'
           'length|log|log2|mad24|madhi|max|min|mix|mul24|mulhi|normalize|popcount|pow|reflect|refract|'
           'reverse_bits|rint|rotate|round|rsqrt|saturate|select|sign|sin|sinh|smoothstep|sqrt|step|subsat|'
           'tan|tanh|trunc')
SPACES = ('device', 'constant', 'threadgroup', 'thread')

GRID = 30  # the buffer with a launch's grid (simt.h)

complaints = []


def complain(text):
    complaints.append(text)


def closing(s, i):
    """Where the bracket at s[i] is closed, plus one."""
    pairs, depth = {'(': ')', '{': '}'}, 0
    opens, closes = s[i], pairs[s[i]]
    while True:
        depth += (s[i] == opens) - (s[i] == closes)
        i += 1
        if depth == 0:
            return i


def split(s):
    parts, depth = [''], 0
    for c in s:
        depth += (c in '([{') - (c in ')]}')
        if c == ',' and depth == 0:
            parts.append('')
        else:
            parts[-1] += c
    return parts


def binding(kernel, declared, attribute, seen):
    """The expression for one parameter, and the type of the argument block if it is one."""
    if attribute in IDS:
        return IDS[attribute], None
    m = re.match(r'buffer\(\s*(\d+)\s*\)$', attribute)
    if not m:
        complain(f'{kernel}: attribute [[{attribute}]] is not one of those we use')
        return '0', None
    n = int(m[1])
    if n == GRID:
        return f'({declared[:declared.rindex("*") + 1]})b[{n}].buf.p', None
    if n in seen or n > 30:
        complain(f'{kernel}: buffer({n}) ' + ('twice' if n in seen else 'of 0..30'))
    seen.add(n)
    if not re.match(r'(const )?(device|constant)\b', declared):
        complain(f'{kernel}: {declared}: no address space')
    at = f'(b[{n}].buf.p + b[{n}].offset)'
    if '&' in declared:
        t = declared[:declared.index('&')].replace('constant', '').strip()
        return f'*(constant {t} *){at}', t
    return f'({declared[:declared.rindex("*") + 1]}){at}', None


def parameters(kernel, text):
    """Expressions for all parameters, the number of buffers, the argument block's type."""
    values, seen, args = [], set(), None
    for p in split(re.sub(r'(?m)^#.*$', '', text)):
        m = re.match(r'\s*(.*?)\s*\[\[(.*)\]\]\s*$', p, re.S)
        if not m:
            complain(f'{kernel}: parameter without an attribute: {p.strip()}')
            continue
        value, block = binding(kernel, ' '.join(m[1].split()), m[2].strip(), seen)
        values.append(value)
        args = block or args
    if seen != set(range(len(seen))):
        complain(f'{kernel}: numbers of buffers have gaps: {sorted(seen)}')
    return values, len(seen) - (args is not None), args


def find_kernels(text):
    head = r'\[\[\s*max_total_threads_per_threadgroup\((.*?)\)\s*\]\]\s*kernel\s+void\s+(\w+)\s*\('
    for m in re.finditer(head, text):
        end = closing(text, m.end() - 1)
        body = text.index('{', end)
        yield m[2], m[1], parameters(m[2], text[m.end():end - 1]), (body, closing(text, body))
    for m in re.finditer(r'\bkernel\s+(\w+)', text):
        if m[1] != 'void':
            complain(f'a kernel that returns {m[1]}')
        elif not re.search(r'\]\]\s*$', text[:m.start()]):
            complain('a kernel without max_total_threads_per_threadgroup')


def place_arrays(text, bodies):
    def place(m):
        body = next((b for b in bodies if b[0] < m.start() < b[1]), None)
        if not body:
            complain(f'threadgroup array {m[2]} outside a kernel')
            return m[0]
        depth = text.count('{', body[0], m.start()) - text.count('}', body[0], m.start())
        if depth != 1:
            complain(f'threadgroup array {m[2]} inside a block')
        return (f'typedef {m[1]} {m[2]}_array[{m[3]}]; threadgroup {m[2]}_array &{m[2]} = '
                f'*(threadgroup {m[2]}_array *)emu::tg_alloc(sizeof({m[2]}_array), alignof({m[1]}));')
    return re.sub(r'\bthreadgroup\s+(\w+)\s+(\w+)\s*\[((?:[^][]|\[[^][]*\])*)\]\s*;', place, text)


def lint(text):
    text = re.sub(r'(?m)^#.*$', '', text)
    for pattern, what in FORBIDDEN:
        for m in re.finditer(pattern, text):
            complain(f'{what}: {text[max(0, m.start() - 30):m.end() + 10].strip()!r}')
    # Every pointer or reference that is declared names its address space.
    declared = r'(?:(?<=[(,;{}])|^)\s*((?:\w+\s+)*?\w+\s*[*&]\s*\w+)\s*(?=[,)=;\[])'
    types = r'(const\s+)?(float|half|uint|int|char|uchar|short|ushort|ulong|u8|i8|u16|i16|u32|i32|u64|struct \w+|\w+_args)[234]?\s*[*&]'
    for m in re.finditer(declared, text):
        if re.match(types, m[1]) and not re.search(r'\b(%s)\b' % '|'.join(SPACES), m[1]):
            complain(f'no address space: {m[1]!r}')
    # Matrices are a simdgroup's own.
    names = ['simdgroup_matrix', r'simdgroup_\w+8x8']
    names += re.findall(r'\btypedef\s+simdgroup_\w+(?:\s*<[^>]*>)?\s+(\w+)\s*;', text)
    for m in re.finditer(r'\b(device|constant|threadgroup)\s+(const\s+)?(%s)\b' % '|'.join(names), text):
        complain(f'a matrix in {m[1]} memory: {m[0]!r}')
    for m in re.finditer(r'\binline\s+[^;{}()]*?\b(%s)\s*\(' % LIBRARY, text):
        complain(f"a name of Metal's library: {m[1]}")
    # Functions that call themselves: clang takes them, Metal does not.
    for m in re.finditer(r'\binline\s+[\w\s]*?\b(\w+)\s*\([^;{}]*\)\s*\{', text):
        body = text[m.end() - 1:closing(text, m.end() - 1)]
        if re.search(r'\b%s\s*(<[^;]*>)?\(' % m[1], body):
            complain(f'recursion: {m[1]}')


def main():
    source, out = sys.argv[1:3]
    table, define = sys.argv[3:5] if len(sys.argv) > 3 else ('emu_metal', None)
    text = re.sub(r'(?m)^#include <(metal_\w+|MetalPerf.*)>', '', open(source).read())
    version = [f'-D{define}', '-D__METAL_VERSION__=400'] if define else ['-D__METAL_VERSION__=300']
    text = subprocess.run(['clang', '-E', '-x', 'c++', '-nostdinc', '-DMETAL_FUNC=inline', *version, '-'],
                          input=text, capture_output=True, text=True, check=True).stdout
    text = re.sub(r'(?m)^# (\d+) "<stdin>".*', lambda m: f'# {m[1]} "{source}"', text)
    kernels = list(find_kernels(text))
    lint(text)
    code = place_arrays(text, [k[3] for k in kernels])
    with open(out, 'w') as f:
        if define:
            f.write('#include <metal_tensor>\n#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>\n')
        f.write('#include <metal_simdgroup_matrix>\n' + code + '\n')
        for name, _, (values, _, _), _ in kernels:
            f.write(f'static void run_{name}(const emu_bind *b) {{ const emu::ids &c = emu::cur->id; '
                    f'(void)c; {name}({", ".join(values)}); }}\n')
        f.write('static const emu_kernel table[] = {\n')
        for name, most, (_, n, args), _ in kernels:
            size = f'sizeof({args})' if args else '0'
            f.write(f'    {{"{name}", run_{name}, {n}, {size}, {most}, false}},\n')
        f.write('    {},\n};\nextern "C" const emu_kernel *const %s[] = {table, 0};\n' % table)
    for c in complaints:
        print(f'metal: {c}', file=sys.stderr)
    return bool(complaints)


if __name__ == '__main__':
    sys.exit(main())
