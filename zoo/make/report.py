"""Figures of one or more training runs (later files win) as zoo/figures.json, zoo/loss.svg and a Markdown table.

    python3 zoo/make/report.py RUN/zoo.json... [--fletch build/fletch]

With --fletch, every shipped file is evaluated in its Q8_0 form too.
"""
import argparse
import json
import pathlib
import subprocess

import plot

ZOO = pathlib.Path(__file__).resolve().parent.parent


def shipped(name):
    return ZOO / ("tiny/" + name.removeprefix("tiny-") if name.startswith("tiny-") else name)


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


def q8_perplexity(fletch, name):
    run = subprocess.run(
        [fletch, "eval", f"{shipped(name)}.gguf", "-f", ZOO / "heldout/stories.txt", "--json"],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return json.loads(run.stdout)["perplexity"]


def table(zoo):
    yield "| file | parameters | bytes | tokens seen | held-out stories, nats | perplexity: PyTorch F32 | fletch F32 | fletch Q8_0 |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, z in zoo.items():
        f = z["fletch"]
        yield (
            f"| `{shipped(name).relative_to(ZOO)}.gguf` | {z['parameters'] / 1e6:.2f} M | {f['gguf bytes']:,} | "
            f"{z['steps'] * z['batch'] / 1e6:.0f} M | {z['loss']['stories']:.3f} | {z['perplexity']['stories']:.5f} | "
            f"{f['f32 perplexity of stories']:.5f} | {f.get('q8_0 perplexity of stories', float('nan')):.5f} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=pathlib.Path)
    parser.add_argument("--fletch", type=pathlib.Path)
    arguments = parser.parse_args()
    zoo = {}
    for path in arguments.runs:
        zoo.update(json.loads(path.read_text()))
    for name, z in zoo.items():
        if arguments.fletch:
            z["fletch"]["q8_0 perplexity of stories"] = q8_perplexity(arguments.fletch, name)
    lines = (f" {json.dumps(n)}: {json.dumps(rounded(z))}" for n, z in zoo.items())
    (ZOO / "figures.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    (ZOO / "loss.svg").write_text(
        plot.curves(
            {n: [(p["tokens"] / 1e6, p["held"]) for p in z["curve"]] for n, z in zoo.items()}
        )
    )
    print("\n".join(table(zoo)))


if __name__ == "__main__":
    main()
