#!/usr/bin/env python3
"""Whole models through the Metal and CUDA drivers, on their stand-ins: the tiny models of the zoo say
word for word what they say on the emulator, greedy and, with a cache of q4, with a seed. Metal runs its own text of the
kernels, so this compares two expansions of every kernel; prompts go through panels of bf16. Called with the build folder."""
import json
import os
import re
import subprocess
import sys

MODELS = ('llama', 'qwen2', 'qwen3moe', 'deepseek2', 'rwkv7')
STANDINS = (('metal', 'Metal.o'), ('cuda', 'libcuda.so.1'))
WAYS = (('--temp', '0'), ('--temp', '0.8', '--seed', '7', '--kv-type', 'q4'))


def say(fletch, model, backend, way):
    run = subprocess.run([fletch, 'run', f'zoo/tiny/{model}.gguf', '--backend', backend, '-p',
                          'Once upon a time', '-n', '12', '-q', '--act-type', 'bf16', *way], capture_output=True, text=True)
    return run.stdout if run.returncode == 0 else f'{run.returncode}: {run.stderr}'


def scratch(fletch, shape, context):
    """Bytes of scratch memory of every group while a chunk of a prompt is read on Metal."""
    run = subprocess.run([fletch, 'explain', shape, '--backend', 'metal', '-c', str(context), '--json'],
                         capture_output=True, text=True)
    if run.returncode != 0:
        return run.stderr
    trunk = json.loads(run.stdout)['programs'][0]
    return trunk['chunk'], [group['scratch_bytes'] for group in trunk['groups']]


def scratch_does_not_grow(fletch):
    """Attention of prompts has no buffer of rows by context; for shapes, so nothing is loaded."""
    bad = 0
    for shape in ('Llama-3.1-8B:q8_0', 'GLM-4.7-Flash:q8_0'):
        short, long = scratch(fletch, shape, 2048), scratch(fletch, shape, 65536)
        ok = short == long and max(short[1]) > 0
        bad += not ok
        print(f'{"ok" if ok else "not ok"} scratch of {shape} behind 2048 and 65536 tokens'
              + ('' if ok else f'\n  {short}\n  {long}'))
    return bad


def deep_attention_is_right(fletch, backends):
    """One row behind 2,100 tokens, many chunks of positions, against the reference."""
    bad = 0
    for b in backends:
        run = subprocess.run([fletch, 'bench', '--kernel', 'attention', '--backend', b, '--json', '-r', '1',
                              '--shape', 'depth=2100,heads=4,kv_heads=2,head=64'], capture_output=True, text=True)
        doc = json.loads(run.stdout) if run.returncode == 0 else {'kernels': []}
        rows = doc['kernels']
        ok = [r['form'] for r in rows] == ['unfused', 'scores only', 'with softmax']
        ok = ok and rows[0]['ok'] and rows[0]['shape']['depth'] == 2100 and all(r['us'] > 0 for r in rows)
        ok = ok and doc['machine']['gpu_read_gb_s'] > 0 and 0 < rows[0]['bandwidth_share'] <= 1
        bad += not ok
        print(f'{"ok" if ok else "not ok"} attention behind 2,100 tokens on {b}' + ('' if ok else f'\n  {run.stderr}{rows}'))
    return bad


def odd_scores_are_right(build, backends):
    """Attention where softmax has nothing usual to do, against the reference."""
    bad = 0
    for b in backends:
        for what in ('scores of ten thousand', 'equal scores', 'scores of minus infinity'):
            run = subprocess.run([os.path.join(build, 'src/gpu/op_test'), b, f'attention, {what}'], capture_output=True, text=True)
            ok = run.returncode == 0 and re.search(rf'\b[1-9]\d* cases on {b}$', run.stdout + run.stderr, re.M)
            bad += not ok
            print(f'{"ok" if ok else "not ok"} attention with {what} on {b}' + ('' if ok else f'\n  {run.stdout}{run.stderr}'))
    return bad


def doctor_tells_of_arithmetic(fletch, backends):
    run = subprocess.run([fletch, 'doctor', '--json'], capture_output=True, text=True)
    told = {b['name']: b['arithmetic'] for b in json.loads(run.stdout)['backends']}
    ok = all(told[b] and told[b]['right'] for b in backends) and not told['cpu']
    print('ok' if ok else 'not ok', 'doctor says that kernels compute as they must')
    return not ok


def tells_memory(fletch):
    """`run -v` says what the device has; the server's gauges are in served.c, of the same call."""
    run = subprocess.run([fletch, 'run', 'zoo/tiny/llama.gguf', '--backend', 'metal', '-p', 'Once', '-n', '2', '-v'],
                         capture_output=True, text=True)
    ok = re.search(r'^GPU memory: .+ allocated, at most .+ recommended$', run.stderr, re.M)
    print(f'{"ok" if ok else "not ok"} run -v tells the memory of the GPU' + ('' if ok else f'\n  {run.stderr}'))
    return not ok


def main():
    build = sys.argv[1]
    fletch = os.path.join(build, 'standin', 'fletch')
    there = [b for b, part in STANDINS if os.path.exists(os.path.join(build, 'standin', part))]
    bad = scratch_does_not_grow(fletch) if 'metal' in there else 0
    bad += doctor_tells_of_arithmetic(fletch, ['emu'] + there)
    bad += deep_attention_is_right(fletch, ['emu'] + [b for b in there if b == 'metal'])
    bad += odd_scores_are_right(build, there)
    bad += tells_memory(fletch) if 'metal' in there else 0
    for b, _ in STANDINS:
        if b not in there:
            print(f'skip {b}: this build has no stand-in for it')
    for model in MODELS if there else ():
        for way in WAYS:
            expected = say(fletch, model, 'emu', way)
            for b in there:
                said = say(fletch, model, b, way)
                ok = said == expected and expected.strip()
                print(f'{"ok" if ok else "not ok"} {model} on {b} {" ".join(way)}')
                if not ok:
                    bad += 1
                    print(f'  emu: {expected!r}\n  {b}: {said!r}')
    return bad > 0


if __name__ == '__main__':
    sys.exit(main())
