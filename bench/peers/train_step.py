#!/usr/bin/python3
"""A training step of Lockstep beside PyTorch's, taking turns; prints a table.

  bench/peers/train_step.py                       preset small on two ranks, about three minutes
  bench/peers/train_step.py --vocab 50304         the same with a large vocabulary

Both train the same model on the same tokens: 6 layers, width 384, 256 tokens, batch 4 a rank, AdamW,
float32, one compute thread a rank. PyTorch is eager, DistributedDataParallel over Gloo
(reference_gpt.py). A turn is a run of --steps steps; its figure is the median step without the
first three. The ratio of a round is Lockstep's tokens per second over PyTorch's.

Needs `make build`, `make data` and Debian's python3-torch.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import collectives  # noqa: E402

TOKENS_PER_SEQUENCE = 256
# What Lockstep tells its ranks about kernels is told to PyTorch too: the peer runs at its best.
KERNELS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--set", action="append", default=[], help="more settings of lockstep train")
    parser.add_argument("--build", default="build", help="build folder of `make build`")
    parser.add_argument("--priority", action="store_true", help="run at nice -20 (root)")
    args = parser.parse_args()
    if args.steps < 5:
        parser.error("--steps: 5 or more, since the first three do not count")
    return args


def kernel_variables(build):
    out = subprocess.run([f"{build}/bin/lockstep", "run", "-n", "1", "--", "env"],
                         capture_output=True, text=True, check=True).stdout
    pairs = (line.split("=", 1) for line in out.splitlines() if "=" in line)
    return {name: value for name, value in pairs if name in KERNELS}


def run(command, variables):
    done = subprocess.run(command, env=dict(os.environ, **variables), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def pytorch(args):
    out = run(["/usr/bin/python3", "bench/peers/reference_gpt.py", "--preset", "small",
               "--ranks", str(args.ranks), "--global-batch", str(4 * args.ranks),
               "--vocab", str(args.vocab), "--run-steps", str(args.steps), "--throughput"],
              args.variables)
    return json.loads(out)["tokens_per_second"]


def lockstep(args):
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"run.dir={folder}", f"run.steps={args.steps}", f"model.vocab={args.vocab}",
                    f"data.global_batch={4 * args.ranks}", "log.every=1", "log.eval_every=0"]
        command = [f"{args.build}/bin/lockstep", "train", "--preset", "small",
                   "-n", str(args.ranks), "--json"]
        for setting in settings + args.set:
            command += ["--set", setting]
        run(command, args.variables)
        with open(glob.glob(f"{folder}/*/metrics.jsonl")[0]) as file:
            rows = [json.loads(line) for line in file]
        seconds = [row["seconds"] for row in rows if "seconds" in row]
    return 4 * args.ranks * TOKENS_PER_SEQUENCE / statistics.median(seconds[3:])


def spread(values, digits):
    return " / ".join(f"{value:.{digits}f}"
                      for value in (min(values), statistics.median(values), max(values)))


def main():
    args = arguments()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode:
        sys.exit("absent: PyTorch (Debian package: python3-torch)")
    if args.priority:
        collectives.take_priority()
    args.variables = kernel_variables(args.build)
    ours, theirs = [], []
    for number in range(args.rounds):
        ours.append(lockstep(args))
        theirs.append(pytorch(args))
        collectives.note(f"# round {number + 1} of {args.rounds}: {ours[-1]:.0f}, {theirs[-1]:.0f}")
    ratios = [a / b for a, b in zip(ours, theirs)]
    of_medians = statistics.median(ours) / statistics.median(theirs)
    print(f"{args.ranks} ranks, {args.rounds} rounds of {args.steps} steps in turns; tokens/s: "
          f"min / median / max; load at the end {os.getloadavg()[0]:.1f}.\n")
    print("| vocabulary | Lockstep | PyTorch DDP + Gloo | ratio of medians (min to max) |")
    print("|---|---|---|---|")
    print(f"| {args.vocab} | {spread(ours, 0)} | {spread(theirs, 0)} | "
          f"**{of_medians:.2f}** ({min(ratios):.2f} to {max(ratios):.2f}) |")


if __name__ == "__main__":
    main()
