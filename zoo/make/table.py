"""Perplexity of every zoo model in each storage type, as a Markdown table: `make zoo-table`.

    python3 zoo/make/table.py build/fletch [MODEL.gguf...]

The shipped Q8_0 files are the source of all the others.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ZOO = pathlib.Path(__file__).resolve().parent.parent
MODELS = "guide glm rwkv7 qwen3 guide-draft tiny/llama tiny/qwen2 tiny/qwen3 tiny/qwen3moe tiny/deepseek2 tiny/rwkv7"
TYPES = "f32 f16 q8_0 q6_k q5_k_m q4_k q4_0".split()


def perplexity(fletch, model, kind, folder):
    path = folder / "model.gguf"
    subprocess.run([fletch, "convert", model, "-o", path, "--type", kind, "-q"], check=True)
    text = ZOO / "heldout/stories.txt"
    run = [fletch, "eval", path, "-f", text, "--backend", "cpu", "--json", "-q"]
    return json.loads(subprocess.run(run, check=True, stdout=subprocess.PIPE).stdout)["perplexity"]


def line(first, cells):
    print(f"| {first:22} |" + "".join(f" {cell:>8} |" for cell in cells), flush=True)


def main():
    fletch = sys.argv[1]
    paths = [pathlib.Path(p).resolve() for p in sys.argv[2:]]
    line("perplexity", (kind.upper() for kind in TYPES))
    line("---", ["---:"] * len(TYPES))
    with tempfile.TemporaryDirectory() as folder:
        for path in paths or [ZOO / f"{name}.gguf" for name in MODELS.split()]:
            found = [perplexity(fletch, path, kind, pathlib.Path(folder)) for kind in TYPES]
            line(f"`{path.relative_to(ZOO)}`", [f"{p:.4f}" for p in found])


if __name__ == "__main__":
    main()
