#!/usr/bin/python3
"""The model and training of Lockstep's presets in eager PyTorch: the peer to stand beside.

Same model (GPT-2 decoder, tied head), same start distributions, same token files, batch, optimizer,
schedule and evaluation windows; its own random numbers. Two uses:

  curve        reference_gpt.py --seed 1 --out curves/nano_seed1.jsonl
               Writes {"step", "loss"} a step and at last {"val_loss"}, in nats per token.
  throughput   reference_gpt.py --preset small --ranks 2 --throughput
               DistributedDataParallel over Gloo, one process a rank. Prints tokens per second:
               the median step without the first three.

Needs Debian's python3-torch (1.13). Run it with OMP_NUM_THREADS=1: one compute thread a rank, as
Lockstep's ranks have.
"""
import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torch.distributed
from torch import nn
from torch.nn import functional

PRESETS = {
    "nano": dict(layers=4, heads=4, width=128, context=128, global_batch=16, steps=600, lr=4e-3,
                 warmup=50, eval_batches=16),
    "small": dict(layers=6, heads=6, width=384, context=256, global_batch=8, steps=50, lr=1e-3,
                  warmup=10, eval_batches=4),
}
INIT_STD = 0.02


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="nano")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--train", default="data/austen/train.bin", help="flat uint16 tokens")
    parser.add_argument("--valid", default="data/austen/val.bin", help="flat uint16 tokens")
    parser.add_argument("--out", default="", help="the curve as JSON lines; default: stdout")
    parser.add_argument("--vocab", type=int, default=256)
    for key in PRESETS["nano"]:
        kind = float if key == "lr" else int
        parser.add_argument("--" + key.replace("_", "-"), type=kind, help="default: the preset's")
    parser.add_argument("--micro-batch", type=int, default=0,
                        help="sequences a forward; 0: all of the rank's")
    parser.add_argument("--run-steps", type=int, default=0,
                        help="stop after so many steps of the schedule")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--bucket-mb", type=float, default=25)
    parser.add_argument("--autocast", action="store_true",
                        help="products in bf16, by torch.autocast")
    parser.add_argument("--throughput", action="store_true",
                        help="print tokens per second in place of a curve; no evaluation")
    parser.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--rendezvous", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    for key, value in PRESETS[args.preset].items():
        if getattr(args, key) is None:
            setattr(args, key, value)
    if args.global_batch % args.ranks:
        parser.error("the global batch does not divide by the ranks")
    args.micro_batch = args.micro_batch or args.global_batch // args.ranks
    if args.global_batch // args.ranks % args.micro_batch:
        parser.error("a rank's sequences do not divide by the micro-batch")
    return args


class LayerNorm(nn.LayerNorm):
    """In fp32: under autocast PyTorch 1.13 has no layer norm on a CPU."""

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return super().forward(x.float())


class Block(nn.Module):
    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.ln_1 = LayerNorm(width, eps=1e-5)
        self.c_attn = nn.Linear(width, 3 * width)
        self.attn_proj = nn.Linear(width, width)
        self.ln_2 = LayerNorm(width, eps=1e-5)
        self.c_fc = nn.Linear(width, 4 * width)
        self.mlp_proj = nn.Linear(4 * width, width)
        # An attribute, not a buffer: Gloo in 1.13 does not broadcast booleans.
        self.hidden = torch.ones(context, context, dtype=torch.bool).triu(1)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(width, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(self.hidden[:length, :length], float("-inf"))
        y = (functional.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.attn_proj(y)
        h = functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")
        return x + self.mlp_proj(h)


class Gpt(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.wte = nn.Embedding(args.vocab, args.width)
        self.wpe = nn.Embedding(args.context, args.width)
        self.blocks = nn.ModuleList(
            Block(args.width, args.heads, args.context) for _ in range(args.layers))
        self.ln_f = LayerNorm(args.width, eps=1e-5)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                residual = name.endswith("proj.weight")
                nn.init.normal_(parameter, std=INIT_STD /
                                (math.sqrt(2 * args.layers) if residual else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.ln_f(x), self.wte.weight)  # the head is tied
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def windows(tokens, firsts, context):
    """Inputs and targets of the windows that begin at tokens `firsts`."""
    rows = numpy.stack([tokens[first:first + context + 1] for first in firsts])
    rows = torch.from_numpy(rows.astype(numpy.int64))
    return rows[:, :-1], rows[:, 1:]


def training_firsts(count, context, batch, seed):
    """First tokens of each step's windows: all windows in a random order, epoch after epoch."""
    generator = torch.Generator().manual_seed(seed)
    order = []
    while True:
        while len(order) < batch:
            order += torch.randperm((count - 1) // context, generator=generator).tolist()
        yield [window * context for window in order[:batch]]
        del order[:batch]


def evaluation_firsts(count, context, wanted):
    """Evenly spaced windows: those of input/sampler.h, evaluation_token()."""
    available = (count - 1) // context
    return [index * available // wanted * context for index in range(wanted)]


def learning_rate(args, step):
    """optim/schedule.h: linear warmup, then a cosine to a tenth at the last step."""
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    first = max(args.warmup - 1, 0)
    progress = min(1.0, (step - first) / max(1, args.steps - 1 - first))
    return args.lr * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW([dict(params=matrices, weight_decay=0.1),
                              dict(params=vectors, weight_decay=0.0)],
                             lr=0.0, betas=(0.9, 0.95), eps=1e-8)


def train(args, rank):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    model = Gpt(args)
    net = model
    if args.ranks > 1:
        net = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=args.bucket_mb)
    optimizer = make_optimizer(model)
    tokens = numpy.memmap(args.train, dtype="<u2", mode="r")
    batches = training_firsts(len(tokens), args.context, args.global_batch, args.seed)
    share = args.global_batch // args.ranks
    micro_batches = share // args.micro_batch
    out = open(args.out, "w") if args.out and rank == 0 else sys.stdout
    seconds = []

    for step in range(args.run_steps or args.steps):
        ids, targets = windows(tokens, next(batches)[rank * share:(rank + 1) * share], args.context)
        begin = time.perf_counter()
        loss_of_step = 0.0
        for micro in range(micro_batches):
            rows = slice(micro * args.micro_batch, (micro + 1) * args.micro_batch)
            last = micro + 1 == micro_batches
            quiet = net.no_sync() if args.ranks > 1 and not last else contextlib.nullcontext()
            with quiet:
                with torch.autocast("cpu", torch.bfloat16, enabled=args.autocast):
                    loss = net(ids[rows], targets[rows]) / micro_batches
                loss.backward()
            loss_of_step += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(args, step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - begin)
        if rank == 0 and not args.throughput:
            print(json.dumps({"step": step + 1, "loss": round(loss_of_step, 5)}), file=out,
                  flush=True)

    if rank != 0:
        return
    if args.throughput:
        rate = args.global_batch * args.context / statistics.median(seconds[3:] or seconds)
        print(json.dumps({"preset": args.preset, "ranks": args.ranks, "steps": len(seconds),
                          "micro_batch": args.micro_batch, "tokens_per_second": round(rate, 1)}))
    else:
        print(json.dumps({"val_loss": round(evaluate(args, model), 5)}), file=out)


@torch.no_grad()
def evaluate(args, model):
    tokens = numpy.memmap(args.valid, dtype="<u2", mode="r")
    firsts = evaluation_firsts(len(tokens), args.context, args.eval_batches * args.global_batch)
    losses = [model(*windows(tokens, firsts[i:i + args.global_batch], args.context)).item()
              for i in range(0, len(firsts), args.global_batch)]
    return sum(losses) / len(losses)


def main():
    args = arguments()
    if args.ranks == 1:
        train(args, 0)
    elif args.rank < 0:  # the parent: one process a rank, which meet at a file
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:],
                       "--rendezvous", os.path.join(folder, "rendezvous")]
            ranks = [subprocess.Popen(command + ["--rank", str(r)]) for r in range(args.ranks)]
            failed = any([rank.wait() for rank in ranks])
        sys.exit(1 if failed else 0)
    else:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        torch.distributed.init_process_group("gloo", init_method=f"file://{args.rendezvous}",
                                             rank=args.rank, world_size=args.ranks)
        train(args, args.rank)
        torch.distributed.barrier()


if __name__ == "__main__":
    main()
