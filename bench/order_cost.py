#!/usr/bin/python3
"""What the fixed order of summation costs in shared memory: the fastest all-reduce that keeps the bits
beside the fastest that adds in an order of its own, taking turns.

  bench/order_cost.py                two and four ranks, about a minute

Over a slow link: bench/hosts.py.
"""
import argparse
import json
import os
import statistics
import subprocess

CANONICAL = ["direct", "halving", "binomial"]
ANY = ["ring", "tree", "double_tree"]


def times_of(args, ranks):
    """{(bytes, algorithm): microseconds}"""
    command = [f"{args.build}/bin/lockstep", "bench", "all_reduce", "-n", str(ranks), "--algorithm",
               ",".join(CANONICAL + ANY), "-b", "64K", "-e", "16M", "-f", "16", "--iters", "30", "-c",
               "0", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return {(row["bytes"], row["algorithm"]): row["in_place"]["median_us"]
            for row in json.loads(done.stdout)["results"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--build", default="build")
    args = parser.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    print("| ranks | size | canonical, us | any order, us | cost of the order |\n|---|---|---|---|---|")
    for ranks in map(int, args.ranks.split(",")):
        rounds = [times_of(args, ranks) for _ in range(args.rounds)]
        for size in sorted({size for size, _ in rounds[0]}):
            ours = [min(times[size, name] for name in CANONICAL) for times in rounds]
            others = [min(times[size, name] for name in ANY) for times in rounds]
            cost = [100 * (a / b - 1) for a, b in zip(ours, others)]
            print(f"| {ranks} | {size >> 10} KiB | {statistics.median(ours):.1f} | "
                  f"{statistics.median(others):.1f} | {statistics.median(cost):+.0f} % "
                  f"({min(cost):+.0f} to {max(cost):+.0f}) |")
    print(f"\n{args.rounds} rounds; medians over rounds of the median call; load at the end "
          f"{os.getloadavg()[0]:.1f}.")


if __name__ == "__main__":
    main()
