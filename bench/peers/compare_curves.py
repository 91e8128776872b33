#!/usr/bin/python3
"""Does a run's loss curve lie among those of another program's seeds?

  compare_curves.py RUN/metrics.jsonl curves/nano_seed1.jsonl curves/nano_seed2.jsonl ...

Files are JSON lines; those with "step" and "loss" count, over the steps that all files have. A
curve is smoothed to the means of windows of 50 steps; the first window is left out, where the loss
falls from the start value and a step's offset would outweigh everything. The distance of two curves
is the root mean square, over windows, of their difference, in nats per token.

The run passes if its distance to the nearest seed is at most the largest distance between two seeds:
it is then no further from the other program than that program is from itself. Exit status: 0 it
passes, 1 it does not, 2 the files cannot be compared (fewer than two seeds or two windows).
"""
import argparse
import itertools
import json
import math
import sys


def read(path):
    losses, val_loss = {}, None
    with open(path) as lines:
        for line in lines:
            entry = json.loads(line)
            if "step" in entry and "loss" in entry:
                losses[entry["step"]] = entry["loss"]
            val_loss = entry.get("val_loss", val_loss)
    return losses, val_loss


def smoothed(losses, steps, window):
    sums = {}
    for step in steps:
        sums.setdefault((step - 1) // window, []).append(losses[step])  # steps count from 1
    sums.pop(0, None)
    return [sum(values) / len(values) for _, values in sorted(sums.items())]


def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / len(a))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("seeds", nargs="+")
    parser.add_argument("--window", type=int, default=50, help="steps (default 50)")
    args = parser.parse_args()

    files = {path: read(path) for path in [args.run, *args.seeds]}
    steps = sorted(set.intersection(*(set(losses) for losses, _ in files.values())))
    curves = {path: smoothed(losses, steps, args.window) for path, (losses, _) in files.items()}
    if len(args.seeds) < 2 or len(curves[args.run]) < 2:
        print("two seeds and two windows of common steps are needed", file=sys.stderr)
        return 2

    width = max(map(len, files))
    for path, (_, val_loss) in files.items():
        ends = f"windows {curves[path][0]:.4f} -> {curves[path][-1]:.4f}"
        print(f"{path:{width}}  {ends}  val_loss {val_loss if val_loss is not None else '-'}")
    nearest = min(distance(curves[args.run], curves[seed]) for seed in args.seeds)
    spread = max(distance(curves[a], curves[b])
                 for a, b in itertools.combinations(args.seeds, 2))
    passed = nearest <= spread
    print(f"distance to the nearest seed {nearest:.4f}, largest distance between seeds "
          f"{spread:.4f} nats per token: {'within' if passed else 'OUTSIDE'} the spread")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
