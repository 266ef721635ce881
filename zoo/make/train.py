"""Trains the whole zoo on one GPU, in parallel, within a given time.

    python3 zoo/make/train.py --out DIR [--seconds 290] [--fletch build/fletch] [--only NAME...]

Every model is a process of its own with a time slot; all start at once, so that compiling overlaps with the
writing of the corpus. Left in DIR: zoo.json (all figures), loss.svg, and hf/NAME/ in the
work folder; with --fletch also NAME.gguf in Q8_0, and fletch's perplexity beside PyTorch's.
"""
import argparse
import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys
import time

import numpy
import torch

import bpe
import data
import evaluate
import export
import models
import muon
import plot
from models import Config


@dataclasses.dataclass
class Plan:
    config: Config
    slot: tuple  # begin and end, as fractions of the training time
    lr: float = 3e-3
    batch: int = 32768  # tokens a step
    long: bool = False  # also rows of 4096 tokens
    full: bool = False  # judged on facts and recall too
    compiled: bool = False
    muon: bool = False  # for the matrices inside the blocks
    steps: int = 100000  # an upper bound; usually the time decides
    seed: int = 1


ZOO = {
    "guide": Plan(
        Config("llama", 384, 6, 6, 2, 64, ff=1024, eps=1e-5),
        (0.0, 1.0),
        lr=2e-3,
        long=True,
        full=True,
        compiled=True,
        muon=True,
    ),
    "glm": Plan(
        Config("glm", 256, 4, 4, ff=768, experts=8, expert_ff=128, q_lora=192),
        (0.0, 0.6),
        lr=2e-3,
        long=True,
        full=True,
        compiled=True,
    ),
    "rwkv7": Plan(
        Config("rwkv7", 256, 5, 4, hd=64, ranks=(32, 32, 16, 32)),
        (0.0, 0.6),
        lr=2e-3,
        batch=65536,
        full=True,
        compiled=True,
    ),
    "qwen3": Plan(
        Config("qwen3", 192, 6, 4, 2, 64, ff=512),
        (0.6, 0.88),
        long=True,
        full=True,
        compiled=True,
        muon=True,
    ),
    "guide-draft": Plan(
        Config("llama", 160, 1, 5, 1, 32, ff=480, eps=1e-5), (0.6, 0.72), long=True
    ),
    "tiny-llama": Plan(
        Config("llama", 64, 2, 2, 1, 32, ff=160, eps=1e-5), (0.60, 0.71), lr=5e-3, batch=16384
    ),
    "tiny-qwen2": Plan(
        Config("qwen2", 64, 2, 2, 1, 32, ff=160), (0.71, 0.82), lr=5e-3, batch=16384
    ),
    "tiny-qwen3": Plan(
        Config("qwen3", 64, 2, 2, 1, 64, ff=160), (0.72, 0.83), lr=5e-3, batch=16384
    ),
    "tiny-qwen3moe": Plan(
        Config("qwen3moe", 64, 2, 2, 1, 64, experts=8, expert_ff=32),
        (0.82, 0.93),
        lr=5e-3,
        batch=16384,
    ),
    "tiny-deepseek2": Plan(
        Config("glm", 64, 2, 2, ff=128, experts=4, expert_ff=32, q_lora=32, v_hd=32),
        (0.83, 0.96),
        lr=5e-3,
        batch=16384,
    ),
    "tiny-rwkv7": Plan(
        Config("rwkv7", 64, 2, 1, hd=64, ranks=(16, 16, 16, 16)), (0.86, 0.99), lr=3e-3, batch=32768
    ),
}
QUIET_WEIGHT = 0.05  # what cannot be predicted is learned only as well as to look right
THINK = bpe.load().special["<think>"]  # only a prompt says it, so no weight makes it likely


def log(name, text):
    print(f"{name:>15}  {text}", flush=True)


class Rows:
    """Training rows on the device, drawn in a seeded order, epoch after epoch."""

    def __init__(self, path, batch, device, seed):
        self.all = torch.from_numpy(numpy.load(path)).to(device)
        self.count = max(1, batch // (self.all.shape[1] - 1))
        self.generator = torch.Generator().manual_seed(seed)
        self.order = torch.empty(0, dtype=torch.long)

    def next(self):
        if len(self.order) < self.count:
            self.order = torch.randperm(len(self.all), generator=self.generator)
        pick, self.order = self.order[: self.count], self.order[self.count :]
        ids, targets, weights = evaluate.split(
            self.all[pick.to(self.all.device)], self.all.device, QUIET_WEIGHT
        )
        return ids, targets, weights * (targets != THINK)


def compile_blocks(model):
    """Compiles one block, not the whole model: all layers share the code, so it takes seconds."""
    torch._dynamo.config.automatic_dynamic_shapes = False
    torch._dynamo.config.cache_size_limit = 64
    models.wkv7.wkv = torch.compiler.disable(models.wkv7.wkv)
    models._mean_loss = torch.compile(models._mean_loss)
    for block in model.model.layers:
        block.compile()


class Trainer:
    def __init__(self, name, device):
        self.name, self.plan, self.device = name, ZOO[name], device
        torch.manual_seed(self.plan.seed)
        self.model = models.build(self.plan.config).to(device)
        self.optimizers = self.make_optimizers(device == "cuda")
        self.experts = [m for m in self.model.modules() if isinstance(m, models.Experts)]

    def make_optimizers(self, fused):
        blocks, matrices, others = [], [], []
        for name, p in self.model.named_parameters():
            matrix = p.dim() >= 2 and p.shape[0] > 1
            inside = self.plan.muon and ".layers." in name
            (others if not matrix else blocks if inside else matrices).append(p)
        adam = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
            lr=self.plan.lr,
            betas=(0.9, 0.97),
            eps=1e-8,
            fused=fused,
        )
        return [adam, muon.Muon(blocks, self.plan.lr, 0.1)] if blocks else [adam]

    def losses(self, batch):
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            return models.sequence_loss(self.model, *batch)

    def step(self, batch, rate):
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
        loss, extra = self.losses(batch)
        self.model.zero_grad(set_to_none=True)
        (loss + extra).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        for m in self.experts:
            m.balance()
        return loss.detach()

    def warm_up(self):
        """Compiles for every shape that will occur, on noise, at rate zero."""
        if not (self.plan.compiled and self.device == "cuda"):
            return
        before = time.time()
        compile_blocks(self.model)
        for length in (1024, 4096) if self.plan.long else (1024,):
            noise = torch.randint(
                self.plan.config.vocab, (self.plan.batch // length, length + 1), device=self.device
            )
            self.losses(evaluate.split(noise, self.device))[0].backward()
        self.model.zero_grad(set_to_none=True)
        for m in self.experts:
            m.load.zero_()
        torch.cuda.synchronize()
        log(self.name, f"compiled in {time.time() - before:.0f} s")

    def run(self, work, tok, begin, end):
        """Trains from time `begin` to time `end`; returns the curve."""
        plan, curve = self.plan, []
        short = Rows(work / "short.npy", plan.batch, self.device, plan.seed)
        long = (
            Rows(work / "long.npy", plan.batch, self.device, plan.seed + 1) if plan.long else None
        )
        held = evaluate.split(
            data.rows(tok, 555, 16, 1024, {"stories": 1.0}, held=True), self.device
        )
        choice = torch.Generator().manual_seed(plan.seed + 2)
        begin = max(begin, time.time())
        end = max(end, begin + 5.0)
        step, progress, mark = 0, 0.0, 0.0
        while progress < 1.0:
            progress = max(step / plan.steps, (time.time() - begin) / (end - begin))
            rate = (
                plan.lr
                * min(1.0, (step + 1) / 100)
                * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
            )
            share = 0.1 if progress < 0.1 else 0.4
            rows = long if long and float(torch.rand((), generator=choice)) < share else short
            loss = self.step(rows.next(), rate)
            step += 1
            if step % 20 == 0 and self.device == "cuda":
                torch.cuda.synchronize()
            if progress >= mark or progress >= 1.0:
                mark += 0.04
                curve.append(
                    {
                        "step": step,
                        "tokens": step * plan.batch,
                        "seconds": time.time() - begin,
                        "loss": float(loss),
                        "held": self.held_loss(held),
                    }
                )
        last = curve[-1]
        log(
            self.name,
            f"{step} steps, {last['tokens'] / 1e6:.0f} M tokens, {last['tokens'] / last['seconds'] / 1e3:.0f} k/s, "
            f"held-out stories {last['held']:.3f}",
        )
        return curve

    @torch.no_grad()
    def held_loss(self, held):
        eager(self.device)
        loss = float(self.losses(held)[0])
        eager(self.device, False)
        for m in self.experts:
            m.load.zero_()
        return loss


def eager(device, on=True):
    if device == "cuda":
        torch.compiler.set_stance("force_eager" if on else "default")


class Beside:
    """fletch on the same weights: the GGUF file and the perplexity of the held-out stories in F32."""

    def __init__(self, fletch, folder, gguf):
        self.gguf = gguf
        text = evaluate.HELDOUT / "stories.txt"
        self.convert = subprocess.Popen(
            [fletch, "convert", folder, "-o", gguf, "--type", "q8_0"], stderr=subprocess.PIPE
        )
        self.eval = subprocess.Popen(
            [fletch, "eval", folder, "-f", text, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def result(self):
        said = self.convert.communicate()[1]
        assert self.convert.returncode == 0, said
        out, said = self.eval.communicate()
        assert self.eval.returncode == 0, said
        return {
            "gguf bytes": self.gguf.stat().st_size,
            "f32 perplexity of stories": json.loads(out)["perplexity"],
        }


def one(name, out, work, fletch, start, seconds, device):
    """The life of one model's process."""
    tok = bpe.load()
    trainer = Trainer(name, device)
    plan = trainer.plan
    trainer.warm_up()
    while not (work / "ready").exists():
        time.sleep(0.2)
    zero = (work / "ready").stat().st_mtime
    end = start + seconds
    at = lambda share: zero + (end - zero) * share
    time.sleep(max(0.0, at(plan.slot[0]) - time.time()))
    curve = trainer.run(work, tok, at(plan.slot[0]), at(plan.slot[1]))
    config, weights = export.hf_config(plan.config), export.tensors(trainer.model)
    export.write_hf(work / "hf" / name, config, weights)
    beside = fletch and Beside(fletch, work / "hf" / name, out / f"{name}.gguf")
    torch.save(trainer.model.state_dict(), work / f"{name}.pt")
    eager(device)
    before = time.time()
    figures = {
        "name": name,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "steps": curve[-1]["step"],
        "config": dataclasses.asdict(plan.config),
        "lr": plan.lr,
        "batch": plan.batch,
        "seed": plan.seed,
        "curve": curve,
    }
    figures.update(evaluate.report(trainer.model.eval(), tok, device, plan.full))
    if beside:
        figures["fletch"] = beside.result()
    (work / f"{name}.json").write_text(json.dumps(figures, indent=1))
    short = {
        k: v for k, v in figures.items() if k not in ("curve", "samples", "config", "perplexity")
    }
    log(name, f"judged in {time.time() - before:.0f} s: {json.dumps(short)}")


def drafts(work, device):
    """How often the draft model names the guide's next token."""
    tok, pair = bpe.load(), []
    for name in ("guide", "guide-draft"):
        model = models.build(ZOO[name].config).to(device)
        model.load_state_dict(torch.load(work / f"{name}.pt", map_location=device))
        pair.append(model.eval())
    starts = evaluate.story_starts(tok)
    texts = evaluate.generate(pair[0], tok, device, starts, 128)
    return evaluate.agreement(pair[1], tok, device, starts, texts)


def everything(arguments):
    start = time.time()
    out, work = arguments.out, arguments.work
    for folder in (out, work):
        folder.mkdir(parents=True, exist_ok=True)
    names = arguments.only or list(ZOO)
    command = [
        sys.executable,
        __file__,
        "--out",
        out,
        "--work",
        work,
        "--seconds",
        arguments.seconds,
        "--start",
        start,
        "--device",
        arguments.device,
    ]
    command += ["--fletch", arguments.fletch] if arguments.fletch else []
    children = {
        n: subprocess.Popen(
            [*map(str, command), "--one", n],
            env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "4"},
        )
        for n in names
    }
    for stem, tokens, length in (
        ("short", arguments.tokens, 1024),
        ("long", int(arguments.tokens * 0.6), 4096),
    ):
        numpy.save(
            work / f"{stem}.npy",
            data.build(tokens, length, {"short": 11, "long": 12}[stem], arguments.workers),
        )
    (work / "ready").touch()
    log("corpus", f"{arguments.tokens * 1.6 / 1e6:.0f} M tokens in {time.time() - start:.0f} s")
    failed = [n for n, child in children.items() if child.wait()]
    zoo = {n: json.loads((work / f"{n}.json").read_text()) for n in names if n not in failed}
    if {"guide", "guide-draft"} <= set(zoo):
        zoo["guide-draft"]["agreement with guide"] = drafts(work, arguments.device)
        log("guide-draft", f"agreement with guide {zoo['guide-draft']['agreement with guide']:.3f}")
    (out / "zoo.json").write_text(json.dumps(zoo, indent=1))
    (out / "loss.svg").write_text(
        plot.curves(
            {n: [(p["tokens"] / 1e6, p["held"]) for p in z["curve"]] for n, z in zoo.items()}
        )
    )
    log("all", f"done in {time.time() - start:.0f} s" + (f"; failed: {failed}" if failed else ""))
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument(
        "--work", type=pathlib.Path, default=pathlib.Path("/tmp/zoo-work"), help="scratch folder"
    )
    parser.add_argument(
        "--seconds", type=float, default=290, help="from the start to the end of training"
    )
    parser.add_argument(
        "--tokens", type=int, default=80_000_000, help="short rows; long ones are 0.6 of it"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=max(1, (os.cpu_count() or 2) - 3),
        help="processes that write text",
    )
    parser.add_argument(
        "--fletch", type=pathlib.Path, help="a fletch binary, to convert and to compare with"
    )
    parser.add_argument("--only", nargs="+", choices=list(ZOO))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return one(
            arguments.one,
            arguments.out,
            arguments.work,
            arguments.fletch,
            arguments.start,
            arguments.seconds,
            arguments.device,
        )
    return everything(arguments)


if __name__ == "__main__":
    sys.exit(main())
