"""What make_hf.py and make_rwkv.py share: sizes, random values that are exact in F16, the files
beside each model."""

import json
import math
import os
import platform
import shutil

import numpy as np
import torch

T, V = 64, 101
F64 = torch.float64


class Random:
    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def f16(self, t):
        return t.to(torch.float16).to(F64)

    def normal(self, *shape, gain=1.0):
        """Rows that map unit-sized inputs to values of size gain."""
        return self.f16(
            torch.randn(*shape, generator=self.g, dtype=F64) * gain / math.sqrt(shape[-1])
        )

    def around(self, *shape, centre=1.0, spread=0.3):
        u = torch.rand(*shape, generator=self.g, dtype=F64)
        return self.f16(centre + spread * (2 * u - 1))

    def vector(self, n, size):
        return self.f16(torch.randn(n, generator=self.g, dtype=F64) * size)

    def tokens(self):
        return torch.randint(0, V, (T,), generator=self.g)


def write_f32(path, t):
    np.asarray(t.detach().cpu().numpy(), dtype="<f4").tofile(path)


def write_golden(folder, tokens, d, n_layer, files, **more):
    versions = dict(python=platform.python_version(), torch=torch.__version__, numpy=np.__version__)
    try:
        import safetensors
        import transformers

        versions.update(transformers=transformers.__version__, safetensors=safetensors.__version__)
    except ImportError:
        pass
    data = dict(
        tokens=tokens.tolist(),
        n_vocab=V,
        n_embd=d,
        n_layer=n_layer,
        files=files,
        **more,
        versions=versions,
    )
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump(data, f, indent=1)
        f.write("\n")


def entry(path, *shape):
    return dict(path=path, shape=list(shape))


def save_tensors(path, tensors):
    from safetensors.torch import save_file

    save_file({k: t.contiguous() for k, t in tensors.items()}, path, metadata={"format": "pt"})


def load_tensors(folder):
    from safetensors.torch import load_file

    return load_file(os.path.join(folder, "model.safetensors"))


def read_config(folder):
    with open(os.path.join(folder, "config.json")) as f:
        return json.load(f)


def write_config(folder, cfg):
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(cfg, f, indent=2)
        f.write("\n")


def fresh(out, name):
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder
