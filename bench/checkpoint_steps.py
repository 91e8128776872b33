#!/usr/bin/env python3
"""Steps while a checkpoint is being written against steps of a run that saves none.

    bench/checkpoint_steps.py --ranks 2 --rounds 5

Runs of both kinds in turns. With `checkpoint.every = 2` a save begins when the one before is hardly
done: nearly every step has a write beside it. The time of a step is the median over a run's steps
without the first five; the pause of a save is not in it and told apart. Run it on a quiet machine.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run(options, every):
    """Milliseconds of a step, and of the pauses of all saves for each step of the run."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        settings = {
            "run.dir": folder, "run.steps": options.steps, "log.eval_every": 0,
            "log.tensorboard": "false", "data.eval_batches": 1, "checkpoint.every": every,
            "checkpoint.keep": 1, "model.layers": options.layers, "model.width": options.width,
            "model.heads": 8, "model.context": 64, "data.global_batch": 8 * options.ranks,
            "data.micro_batch": 4, "numerics.grains": options.ranks,
        }
        words = [str(ROOT / "build/bin/lockstep"), "train", "--preset", "nano", "-n",
                 str(options.ranks), "--json"]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        summary = json.loads(done.stdout)
        seconds = [json.loads(line)["seconds"]
                   for line in (Path(summary["run"]) / "metrics.jsonl").open()
                   if '"seconds"' in line]
        pause = summary.get("checkpoints", {"pause_seconds": 0})["pause_seconds"]
        return 1e3 * statistics.median(seconds[5:]), 1e3 * pause / options.steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--layers", type=int, default=9)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--folder", help="where runs are written; the system's for temporary files")
    options = parser.parse_args()
    ratios = []
    for _ in range(options.rounds):
        without, _ = run(options, 0)
        beside, pause = run(options, 2)
        ratios.append(beside / without)
        print(f"step {without:.1f} ms alone, {beside:.1f} ms with writes beside it: "
              f"{ratios[-1]:.3f}; pauses {pause:.1f} ms a step", flush=True)
    print(f"ratio: {min(ratios):.3f} / {statistics.median(ratios):.3f} / {max(ratios):.3f}")


if __name__ == "__main__":
    main()
