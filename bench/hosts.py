#!/usr/bin/python3
"""All-reduce over two hosts and a slow link: our algorithms beside Open MPI's own, taking turns.

  bench/hosts.py                        2 x 2 ranks, 16 MiB, 1 Gbit/s; as root, about two minutes
  bench/hosts.py --mbit 100 --size 4M --rounds 3

The hosts are network namespaces of this machine (two_hosts.sh). In every round each algorithm, then
MPI_Allreduce (any order: Open MPI chooses), is started anew and measured; figures are medians over
rounds of a program's median call, with the least and the most. Printed with them: the bytes that our
plan sends out of a host, the time they need on the link, and what its interface counted.
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

OURS = ["direct", "halving", "hierarchical", "ring"]
CANONICAL = {"direct", "halving", "hierarchical"}
NATIVE = "Open MPI's own"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--size", default="16M")
    parser.add_argument("--each", type=int, default=2, help="ranks on each host")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iters", type=int, default=5)
    parser.add_argument("--build", default="build")
    return parser.parse_args()


def on_two_hosts(args, counters, *program):
    return ["bench/two_hosts.sh", "--mbit", str(args.mbit), "--counters", counters, str(args.each),
            *program]


def measure_ours(args, algorithm, counters):
    """Milliseconds of a call, and the result's row."""
    command = on_two_hosts(args, counters, f"{os.path.abspath(args.build)}/bin/lockstep", "bench",
                           "all_reduce", "-n", str(2 * args.each), "--engine", "mpi", "--algorithm",
                           algorithm, "-b", args.size, "-e", args.size, "-w", "1", "--iters",
                           str(args.iters), "--json")
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{algorithm} ended with {done.returncode}:\n{done.stderr}")
    row = json.loads(done.stdout)["results"][0]
    if row["wrong"] or row["across_bytes"] != row["expected_across_bytes"]:
        sys.exit(f"{algorithm}: {row}")
    return row["in_place"]["median_us"] / 1e3, row


def measure_native(args, program, counters):
    size = collectives.size_of(args.size)
    command = on_two_hosts(args, counters, program, "FOLDER")
    running = collectives.Program(command, 2 * args.each, size)
    try:
        return running.turn("all_reduce", size, args.iters, 1) / 1e3
    finally:
        running.close()


def main():
    args = arguments()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    native = f"{os.path.abspath(args.build)}/bin/bench_mpi_ranks.openmpi"
    subprocess.run(["mpicxx.openmpi", "-O3", "-std=c++20", "-I.", "bench/peers/mpi_ranks.cpp", "-o",
                    native], check=True)
    times = {name: [] for name in OURS + [NATIVE]}
    rows = {}
    counted = {}
    with tempfile.TemporaryDirectory() as folder:
        counters = f"{folder}/counters.json"
        for number in range(args.rounds):
            collectives.note(f"# round {number + 1} of {args.rounds}")
            for algorithm in OURS:
                milliseconds, rows[algorithm] = measure_ours(args, algorithm, counters)
                times[algorithm].append(milliseconds)
                counted[algorithm] = json.load(open(counters))["a"]["sent"]
            times[NATIVE].append(measure_native(args, native, counters))
    report(args, times, rows, counted)


def report(args, times, rows, counted):
    hosts = 2
    calls = 2 * (args.iters + 1)  # in place and not, the first of each warms up
    print(f"{hosts} hosts x {args.each} ranks, {args.mbit} Mbit/s, all_reduce of {args.size}iB; "
          f"{args.rounds} rounds in turns of {args.iters} calls; ms: min / median / max; "
          f"load at the end {os.getloadavg()[0]:.1f}.\n")
    print("| algorithm | order | out of a host, MB | its time on the link, ms | measured, ms | "
          "counted by the interface / planned |\n|---|---|---|---|---|---|")
    for name in OURS:
        out = rows[name]["expected_across_bytes"] / hosts
        order = "canonical" if name in CANONICAL else "any"
        print(f"| {name} | {order} | {out / 1e6:.1f} | {8e-3 * out / args.mbit:.0f} | "
              f"{collectives.shown(times[name])} | {counted[name] / (out * calls):.3f} |")
    print(f"| {NATIVE} | any | | | {collectives.shown(times[NATIVE])} | |\n")
    out = {name: rows[name]["expected_across_bytes"] for name in OURS}
    ratio = [a / b for a, b in zip(times["direct"], times["hierarchical"])]
    print(f"direct / hierarchical: planned {out['direct'] / out['hierarchical']:.2f}, measured "
          f"{statistics.median(ratio):.2f} ({min(ratio):.2f} to {max(ratio):.2f})")
    best = [min(times["ring"][i], times[NATIVE][i]) for i in range(args.rounds)]
    cost = [times["hierarchical"][i] / best[i] - 1 for i in range(args.rounds)]
    print(f"hierarchical (canonical) over the faster of ring and Open MPI's own (any order): "
          f"{100 * statistics.median(cost):+.1f} % ({100 * min(cost):+.1f} to "
          f"{100 * max(cost):+.1f})")


if __name__ == "__main__":
    main()
