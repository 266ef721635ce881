#!/usr/bin/env python3
"""Do the tests of the Metal driver bite? Each planted mistake must make driver_test fail.

    test/metal_mutate_test.py BUILD

One file at a time is copied with one text replaced, compiled as the stand-in's rules do it and
linked instead of its object. A text that is not found exactly once is a failure: the mistake has to
move with the code."""
import concurrent.futures
import os
import subprocess
import sys
import tempfile

from mutate_test import compiler, mutate

DRIVER = 'src/gpu/driver_metal.m'
LIBRARY = 'src/gpu/metal_library.m'
RESIDENCY = 'src/gpu/metal_residency.m'

MUTANTS = [
    # name, file, text, replacement; those whose test waits first
    ('memory is never asked for again', RESIDENCY, '        request_all(r);\n', ''),
    ('memory is asked for without end', RESIDENCY, 'r->asleep = now >= r->used + r->keep;', 'r->asleep = false;'),
    ('the thread is never woken', RESIDENCY, 'if (r->asleep) pthread_cond_signal(&r->woken);', ''),
    ('a command buffer that is too long', DRIVER, 'PART_SECONDS = 0.1', 'PART_SECONDS = 100'),
    ('a list of too many command buffers', DRIVER, 'if (n_parts <= MAX_PARTS) return most;', 'return most;'),
    ('a launch that is never cut', DRIVER, 'if (c->work <= most) return 1;', 'return 1;'),
    ('shares of a launch that all begin at its start', DRIVER, 's->grid.first[axis] = first;', ''),
    ('shares of a launch that do not know the others', DRIVER,
     'memcpy(s->grid.groups, c->groups, sizeof c->groups);', 's->grid.groups[0] = s->grid.groups[1] = s->grid.groups[2] = 9;'),
    ('a grid that stays bound', DRIVER, 'if (!whole || !to->whole)', 'if (!whole)'),
    ('archives of other builds stay', LIBRARY, '        remove_older(l->path);\n', '        (void)remove_older;\n'),
    ('tensor operations that nobody checks', DRIVER, 'if (y[i] != (float)sum) return false;', ''),
    ('tensor operations on every GPU', DRIVER, '![g->device supportsFamily:(MTLGPUFamily)METAL4] ||', 'false &&'),
    ('tensor operations that are never used', DRIVER, 'out->caps.tensor = g->tensor;', ''),
    ('tensor operations in the language of the others', LIBRARY, 'tensor ? (MTLLanguageVersion)LANGUAGE_4_0 : ', ''),
    ('only the last part is asked how it went', DRIVER, 'if (rc == 0) rc = part;', 'rc = part;'),
    ('macOS is not asked to let long work finish', DRIVER, 'setenv("AGX_RELAX_CDM_CTXSTORE_TIMEOUT", "1", 0);', ''),
    ('only the default device is asked for', DRIVER, 'd = [[all firstObject] retain];', ''),
    ('fast maths', LIBRARY, 'o.mathMode = MTLMathModeSafe;', ''),
    ('fast maths on older systems', LIBRARY, 'o.fastMathEnabled = NO;', ''),
    ('a damaged archive is not replaced', LIBRARY, 'if (l->archive || !d.url) return;', 'return;'),
    ('an archive is never written', LIBRARY, 'if (l->archive && l->added) save(l);', ''),
    ('an archive is never looked into', LIBRARY, 'if (p) return p;', '[p release], p = nil;'),
    ('every kernel compiles its file', LIBRARY, 'l->sections[number] ? 0 : compile(', 'compile('),
    ('buffers are set again', DRIVER, 'if (to->bound[index].buffer != buffer)', 'if (true)'),
    ('a capture for Xcode alone', DRIVER, 'd.destination = MTLCaptureDestinationGPUTraceDocument;', ''),
    ('a capture without its variable', DRIVER,
     'path && ![m supportsDestination:MTLCaptureDestinationGPUTraceDocument]', 'false'),
    ('an encoder without a label', DRIVER, 'e.label = @"fletch step";', ''),
    ('a pipeline without a label', LIBRARY, 'd.label = name;', ''),
    ('less than an element behind an offset', DRIVER, 'return ROUND_UP(MAX(n, 1), 16);', 'return MAX(n, 1);'),
    ('a residency set that is never committed', RESIDENCY,
     '            [(id<MTLResidencySet>)s->set commit];\n            [(id<MTLResidencySet>)s->set requestResidency];\n',
     '            [(id<MTLResidencySet>)s->set requestResidency];\n'),
    ('a residency set that is never asked for', RESIDENCY, '[(id<MTLResidencySet>)s->set requestResidency];\n', ''),
    ('a removal that is never committed', RESIDENCY,
     '        [(id<MTLResidencySet>)s->set commit];\n        s->bytes -= n;\n', '        s->bytes -= n;\n'),
    ('one set for all memory', RESIDENCY, 's[i].bytes + n <= r->most', 's[i].bytes + n <= UINT64_MAX'),
    ('more sets than a queue takes', RESIDENCY, 'r->n < RESIDENCY_SETS && open_set(r)', 'open_set(r)'),
    ('sets that are not ended', RESIDENCY, '[set endResidency];', ''),
    ('sets that stay with their queue', RESIDENCY, '[(id<MTLCommandQueue>)r->queue removeResidencySet:set];', ''),
    ('memory allocated behind the last list is not wired', DRIVER,
     '    residency_commit(&g->residency); /* what was allocated since the list was recorded */\n', ''),
    ('a queue that ran nothing', DRIVER, '            rc = first_command(g, err);\n', ''),
]


TAKES_SECONDS = 'memory_is_kept_*'


def driver_fails(build, folder, name, source, stem):
    """Whether driver_test fails; a text if it could not be told. source: None for the plain link."""
    waits = 'memory is' in name or 'thread' in name
    objects = [os.path.join(build, 'standin', o)
               for o in sorted(os.listdir(os.path.join(build, 'standin')))
               if o.endswith('.o') and o not in ('planted.o', 'kernels.o', 'tensor.o', 'fatbins.o', 'libcuda.o', stem + '.o')]
    objects += [os.path.join(build, 'src/gpu/metal_text.o')]
    kernels = os.path.join(build, 'standin', 'kernels.o')
    objects += [kernels, os.path.join(build, 'standin', 'tensor.o')]
    out = os.path.join(folder, name.replace(' ', '_'))
    if source:
        config = dict(line.split(' := ', 1) for line in open(os.path.join(build, 'config.mk')) if ' := ' in line)
        done = subprocess.run(['clang', '-x', 'objective-c', '-std=gnu11', '-O0', '-w', '-fno-objc-arc', '-fPIC', '-Isrc',
                               '-Iinclude', *config['STANDIN'].split(), '-Itest/standin', '-fobjc-runtime=gcc',
                               '-fconstant-string-class=NSConstantString', '-c', source, '-o', out + '.o'],
                              capture_output=True, text=True)
        if done.returncode:
            return 'does not compile: ' + done.stderr.strip().splitlines()[0]
        objects.append(out + '.o')
    _, libs = compiler(build)
    done = subprocess.run([os.environ.get('CC', 'cc').split()[-1], os.path.join(build, 'test/driver_test.o'), *objects,
                           os.path.join(build, 'libfletch.a'), '-o', out, *libs, '-lobjc'], capture_output=True, text=True)
    if done.returncode:
        return 'does not link: ' + done.stderr.strip().splitlines()[-1]
    done = subprocess.run([out, 'only' if waits else 'skip', TAKES_SECONDS], capture_output=True, text=True, timeout=60)
    return done.returncode != 0


def main():
    build = sys.argv[1]
    if '-fsanitize' in os.environ.get('EXTRA', ''):
        print('skip mutants: a sanitizer adds nothing to them')
        return 0
    if not os.path.exists(os.path.join(build, 'standin', 'driver_metal.o')):
        print('skip mutants: this build has no stand-in for Metal')
        return 0
    with tempfile.TemporaryDirectory() as folder:

        def attempt(mutant):
            name, path, old, new = mutant
            if path is None:
                return name, driver_fails(build, folder, name, None, ''), False
            with open(path) as f:
                text, why = mutate(f.read(), name, old, new)
            if why:
                return name, why, True
            stem = os.path.splitext(os.path.basename(path))[0]
            copy = os.path.join(folder, name.replace(' ', '_') + '.m')
            with open(copy, 'w') as f:
                f.write(text)
            return name, driver_fails(build, folder, name, copy, stem), True

        bad = 0
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for name, got, want in pool.map(attempt, [('unchanged', None, '', '')] + MUTANTS):
                bad += got is not want
                print('ok' if got is want else 'not ok', 'mutant', name, flush=True)
                if got is not want:
                    print('   ', got if isinstance(got, str) else f'driver_test fails: {got}')
    return bad > 0


if __name__ == '__main__':
    sys.exit(main())
