#!/usr/bin/python3
"""The bubble of pipelines by three witnesses: closed form, the plan's clock with the measured times, and
measured. Stages sleep in the place of computing, so a few cores are enough for all of them.

  bench/bubble.py                          all schedules, P = 2, 4, 8 and M = 4, 8, 16: about 5 minutes
  bench/bubble.py --schedules zero-bubble --stages 4 --micro-batches 8
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

CHUNKS = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zero-bubble": 1}


def has_form(schedule, stages, micro_batches):
    if schedule == "interleaved":
        return micro_batches % stages == 0
    return schedule != "zero-bubble" or micro_batches >= stages


def bubble_of(args, schedule, stages, micro_batches):
    """The summary's pipeline: bubble, planned_bubble, bubble_formula."""
    chunks = CHUNKS[schedule]
    sleep = args.sleep_ms / chunks
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "run.dir": folder, "run.steps": args.steps, "log.tensorboard": "false",
            "model.layers": stages * chunks, "data.global_batch": 4 * micro_batches,
            "numerics.grains": 1, "parallel.pipeline": stages, "parallel.schedule": schedule,
            "parallel.chunks": chunks,
        }
        words = [f"{args.build}/bin/lockstep", "train", "--preset", "nano", "-n", str(stages),
                 "--synthetic-compute", f"{sleep},{sleep},{sleep}", "--json"]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return json.loads(done.stdout)["pipeline"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", default=",".join(CHUNKS))
    parser.add_argument("--stages", default="2,4,8")
    parser.add_argument("--micro-batches", default="4,8,16")
    parser.add_argument("--sleep-ms", type=float, default=100,
                        help="of a stage's forward, gradients of inputs and of weights, each")
    parser.add_argument("--steps", type=int, default=2, help="their median; of two, the worse")
    parser.add_argument("--build", default="build")
    args = parser.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    print("| schedule | P | M | closed form | plan | measured | error |\n|---|---|---|---|---|---|---|")
    most = 0
    for schedule in args.schedules.split(","):
        for stages in map(int, args.stages.split(",")):
            for micro_batches in map(int, args.micro_batches.split(",")):
                if not has_form(schedule, stages, micro_batches):
                    continue
                said = bubble_of(args, schedule, stages, micro_batches)
                # Of zero-bubble (P - 1)(F + B - W) a step; the three are equal here.
                zero = (stages - 1) / (3 * micro_batches + stages - 1)
                form = zero if schedule == "zero-bubble" else said["bubble_formula"]
                error = 100 * (said["bubble"] / form - 1)
                most = max(most, abs(error))
                print(f"| {schedule} | {stages} | {micro_batches} | {form:.4f} | "
                      f"{said['planned_bubble']:.4f} | {said['bubble']:.4f} | {error:+.1f} % |",
                      flush=True)
    print(f"\nLargest error {most:.1f} %; load at the end {os.getloadavg()[0]:.1f}.")


if __name__ == "__main__":
    main()
