#!/usr/bin/env python3
"""What dividing costs in time: steps of none, zero1, zero2 and zero3 in turns, ratios of medians.

    bench/shard_cost.py --rounds 5                      preset nano, 2 ranks, 40 steps
    bench/shard_cost.py --preset small --steps 12

One leaf a rank (numerics.grains = ranks), so that every stage moves what its closed form says. The
time of a step is the median over a run's steps without the first five.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def step_ms(options, settings):
    with tempfile.TemporaryDirectory() as folder:
        words = [str(ROOT / options.build / "bin/lockstep"), "train", "--preset", options.preset,
                 "-n", str(options.ranks), "--json"]
        everything = {"run.dir": folder, "run.steps": options.steps, "log.eval_every": 0,
                      "log.tensorboard": "false", "data.eval_batches": 1, **settings}
        for key, value in everything.items():
            words += ["--set", f"{key}={value}"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        run = Path(json.loads(done.stdout)["run"])
        seconds = [json.loads(line)["seconds"] for line in (run / "metrics.jsonl").open()
                   if '"seconds"' in line]
        return 1e3 * statistics.median(seconds[5:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--preset", default="nano")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    layouts = {
        "none": {},
        "zero1": {"parallel.shard": "zero1"},
        "zero2": {"parallel.shard": "zero2"},
        "zero3": {"parallel.shard": "zero3"},
        "zero3, prefetch 0": {"parallel.shard": "zero3", "parallel.prefetch": 0},
        "recompute block": {"memory.recompute": "block"},
        "offload optimizer": {"memory.offload": "disk"},
    }
    leaves = {"numerics.grains": options.ranks}
    times = {name: [] for name in layouts}
    for _ in range(options.rounds):
        for name, settings in layouts.items():
            times[name].append(step_ms(options, {**leaves, **settings}))
    print(f"{'':20} ms a step: min / median / max    over none, median of rounds (min to max)")
    for name, all_ms in times.items():
        ratios = [ms / none for ms, none in zip(all_ms, times["none"])]
        print(f"{name:20} {min(all_ms):8.1f} / {statistics.median(all_ms):7.1f} / "
              f"{max(all_ms):7.1f}      {statistics.median(ratios):.3f} "
              f"({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
