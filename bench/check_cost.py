#!/usr/bin/python3
"""What guard, ledger and watchdog cost: calls of 8 bytes with and without them, in turns.

  bench/check_cost.py                     after `make build` and `make data`

A call without a check is possible here only (net/world.h, CallChecks). Then a run of
the preset nano says how long a step takes; its calls times the cost of all three is their share.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
import collectives  # noqa: E402

KINDS = {"all on": "heap", "no guard": "no-guard", "no ledger": "no-ledger",
         "no watchdog": "no-watchdog", "all off": "bare"}
# Of a nano step on two ranks: two buckets, the loss, whether to stop.
CALLS_PER_STEP = 4


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--build", default="build", help="build folder of `make build`")
    parser.add_argument("--step-ms", type=float, default=0, help="of a nano step; 0: measure it")
    parser.add_argument("--priority", action="store_true", help="run at nice -20 (root)")
    args = parser.parse_args()
    args.ours_only = True
    return args


def nano_step_ms(build):
    with tempfile.TemporaryDirectory() as folder:
        command = [f"{build}/bin/lockstep", "train", "--preset", "nano", "-n", "2", "--json",
                   "--set", "run.steps=40", "--set", f"run.dir={folder}"]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return 1000 * 16 * 128 / json.loads(out)["tokens_per_second"]


def main():
    args = arguments()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    program = collectives.build(args)["lockstep"]
    if args.priority:
        collectives.take_priority()
    step_ms = args.step_ms or nano_step_ms(args.build)
    running = {name: collectives.Program([program, "FOLDER", "2", kind], 2, 8)
               for name, kind in KINDS.items()}
    times = {name: [] for name in KINDS}
    try:
        for _ in range(args.rounds):
            for name, ranks in running.items():
                times[name].append(1000 * ranks.turn("all_reduce", 8, 30, collectives.BATCH))
    finally:
        for ranks in running.values():
            ranks.close()
    print(f"all_reduce of 8 B on 2 ranks, {args.rounds} rounds in turns, ns: min / median / max\n")
    print("| checks | ns | less than all on, median of rounds |\n|---|---|---|")
    saved = {}
    for name, of_rounds in times.items():
        saved[name] = statistics.median(on - off for on, off in zip(times["all on"], of_rounds))
        spread = f"{min(of_rounds):.0f} / {statistics.median(of_rounds):.0f} / {max(of_rounds):.0f}"
        print(f"| {name} | {spread} | {saved[name]:.0f} |")
    share = CALLS_PER_STEP * max(0.0, saved["all off"]) / (step_ms * 1e6)
    print(f"\nA nano step: {step_ms:.1f} ms, {CALLS_PER_STEP} calls: {share:.6%} of it.")


if __name__ == "__main__":
    main()
