#!/usr/bin/env python3
"""What ranks hold, by three witnesses: the plan, the accounts' peaks, and the system's pages.

    bench/memory.py --ranks 1 2 4 8 --shard none zero1 zero2 zero3

Trains a decoder of 28 million parameters for two steps in each layout. The first columns are state
by kind, of the rank that holds most: counted, beside planned. The last ones are the growth of the
job's proportional set size (every page once, whoever maps it) over a job with a model of one layer
of width 32, beside the growth of what was counted; activations are in both.
"""

import argparse
import json
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATE = ("parameters", "gradients", "optimizer", "gathered")
MIB = 1 << 20


def children_of(pid):
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def proportional_bytes(pid):
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run(lockstep, ranks, shard, model, more):
    """The summary of a short run, and the most that its processes held together."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "run.dir": folder, "run.steps": 2, "log.eval_every": 0, "log.tensorboard": "false",
            "data.eval_batches": 1, "data.global_batch": ranks, "data.micro_batch": 1,
            "numerics.grains": ranks, "parallel.shard": shard, **model, **more,
        }
        words = [lockstep, "train", "--preset", "nano", "-n", str(ranks), "--json"]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        job = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
        most = 0
        out = []
        reader = threading.Thread(target=lambda: out.extend(job.communicate()))
        reader.start()
        while reader.is_alive():
            most = max(most, sum(proportional_bytes(pid) for pid in children_of(job.pid)))
            time.sleep(0.02)
        reader.join()
        if job.returncode != 0:
            raise SystemExit(out[1])
        return json.loads(out[0]), most


def counted(summary):
    return sum(sum(rank["peak_bytes"].values()) for rank in summary["ranks"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", default=str(ROOT / "build/bin/lockstep"))
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--shard", nargs="+", default=["none", "zero1", "zero2", "zero3"])
    parser.add_argument("--set", action="append", default=[], dest="more",
                        help="a further setting of all runs")
    parser.add_argument("--pages", action="store_true", help="measure pages, too")
    options = parser.parse_args()
    more = dict(assignment.split("=", 1) for assignment in options.more)
    large = {"model.layers": 9, "model.width": 512, "model.heads": 8, "model.context": 32}
    small = {"model.layers": 1, "model.width": 32, "model.heads": 1, "model.context": 32}
    print("ranks shard    " + "  ".join(f"{kind:>21}" for kind in STATE) +
          "  state off" + ("  pages/counted growth" if options.pages else ""))
    worst = 0
    for ranks in options.ranks:
        for shard in options.shard:
            summary, pages = run(options.lockstep, ranks, shard, large, more)
            most = max(summary["ranks"],
                       key=lambda rank: sum(rank["peak_bytes"][kind] for kind in STATE))
            peak, plan = most["peak_bytes"], most["planned_peak_bytes"]
            off = sum(peak[k] for k in STATE) / sum(plan[k] for k in STATE) - 1
            worst = max(worst, abs(off))
            line = f"{ranks:5} {shard:8} " + "  ".join(
                f"{peak[k] / MIB:9.2f} /{plan[k] / MIB:9.2f}" for k in STATE) + f"  {off:+8.3%}"
            if options.pages:
                base, base_pages = run(options.lockstep, ranks, shard, small, more)
                growth = counted(summary) - counted(base)
                line += f"  {(pages - base_pages) / MIB:8.0f} /{growth / MIB:8.0f}" \
                        f" = {(pages - base_pages) / growth:.3f}"
            print(line, flush=True)
    print(f"largest difference of state: {worst:.3%}")


if __name__ == "__main__":
    main()
