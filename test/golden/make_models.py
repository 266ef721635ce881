#!/usr/bin/env python3
"""Makes test/golden/models/: tiny random models with the logits and hidden states that
transformers' own classes give, and those of own_models.py for what transformers lacks. See
README.md beside this."""

import argparse
import os

import torch

import make_blocks
import make_delta
import make_families
import make_hf
import make_hybrid
import make_kimi
import make_pool
import make_rwkv
import make_wrapped


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    ap = argparse.ArgumentParser()
    ap.add_argument("-o", "--out", default=os.path.join(here, "models"))
    ap.add_argument("--own-only", action="store_true", help="without transformers' models")
    ap.add_argument("--family", nargs="+", help="only these of make_families.py")
    ap.add_argument("--delta", nargs="+", help="only these of make_delta.py")
    ap.add_argument("--hybrid", nargs="+", help="only these of make_hybrid.py")
    ap.add_argument("--kimi", action="store_true", help="only that of make_kimi.py")
    ap.add_argument("--blocks", action="store_true", help="only that of make_blocks.py")
    ap.add_argument("--wrapped", nargs="+", help="only these of make_wrapped.py")
    ap.add_argument("--pool", action="store_true", help="only those of make_pool.py")
    args = ap.parse_args()
    torch.set_num_threads(4)
    if args.family:
        return make_families.make_all(args.out, args.family)
    if args.delta:
        return make_delta.make_all(args.out, args.delta)
    if args.hybrid:
        return make_hybrid.make_all(args.out, args.hybrid)
    if args.kimi:
        return make_kimi.make_all(args.out)
    if args.wrapped:
        return make_wrapped.make_all(args.out, args.wrapped)
    if args.pool:
        return make_pool.make_all(args.out)
    if args.blocks:
        return make_blocks.make_all(args.out)
    make_rwkv.make_all(args.out)
    make_blocks.make_all(args.out)
    make_kimi.make_all(args.out)
    if not args.own_only:
        make_hf.make_all(args.out)
        make_families.make_all(args.out)
        make_wrapped.make_all(args.out)
        make_delta.make_all(args.out)
        make_hybrid.make_all(args.out)
        make_pool.make_all(args.out)
    for name in sorted(os.listdir(args.out)):
        folder = os.path.join(args.out, name)
        size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
        print(f"{name}: {size} bytes")
        assert size < 320_000, name


if __name__ == "__main__":
    main()
