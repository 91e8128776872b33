#!/usr/bin/python3
"""A training step of Lockstep beside PyTorch's, taking turns; prints a table.

  bench/peers/train_step.py                       preset small on two ranks, about three minutes
  bench/peers/train_step.py --vocab 50304         the same with a large vocabulary
  bench/peers/train_step.py --ranks 1             alone, without communication

All train the same model on the same tokens: 6 layers, width 384, 256 tokens, batch 4 a rank, AdamW,
one compute thread a rank. PyTorch is eager, DistributedDataParallel over Gloo, in fp32 and with
torch.autocast in bf16 (reference_gpt.py); Lockstep computes in fp32 and in bf16. A turn is a run of
--steps steps; its figure is the median step without the first three. The ratio of a round is
Lockstep's tokens per second over PyTorch's. Of each Lockstep's model FLOP/s are shown as a share of
what a matrix product reaches on its ranks, as they measured it when they started: the figure that
`lockstep train` shows as MFU.

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


def pytorch(args, autocast):
    out = run(["/usr/bin/python3", "bench/peers/reference_gpt.py", "--preset", "small",
               "--ranks", str(args.ranks), "--global-batch", str(4 * args.ranks),
               "--vocab", str(args.vocab), "--run-steps", str(args.steps), "--throughput"]
              + (["--autocast"] if autocast else []), args.variables)
    return json.loads(out)["tokens_per_second"]


def lockstep(args, compute):
    """Tokens per second and MFU."""
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"run.dir={folder}", f"run.steps={args.steps}", f"model.vocab={args.vocab}",
                    f"data.global_batch={4 * args.ranks}", "log.every=1", "log.eval_every=0",
                    "data.eval_batches=1", f"precision.compute={compute}"]
        command = [f"{args.build}/bin/lockstep", "train", "--preset", "small",
                   "-n", str(args.ranks), "--json"]
        for setting in settings + args.set:
            command += ["--set", setting]
        run(command, args.variables)
        with open(glob.glob(f"{folder}/*/metrics.jsonl")[0]) as file:
            rows = [json.loads(line) for line in file]
        rows = [row for row in rows if "seconds" in row][3:]
    seconds = statistics.median(row["seconds"] for row in rows)
    return (4 * args.ranks * TOKENS_PER_SEQUENCE / seconds,
            statistics.median(row["mfu"] for row in rows))


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
    figures = {name: [] for name in ("fp32", "bf16", "PyTorch fp32", "PyTorch bf16")}
    mfu = {"fp32": [], "bf16": []}
    for number in range(args.rounds):
        for compute in mfu:
            rate, share = lockstep(args, compute)
            figures[compute].append(rate)
            mfu[compute].append(share)
            figures[f"PyTorch {compute}"].append(pytorch(args, autocast=compute == "bf16"))
        last = ", ".join(f"{name} {rates[-1]:.0f}" for name, rates in figures.items())
        collectives.note(f"# round {number + 1} of {args.rounds}: {last}")
    print(f"{args.ranks} ranks, vocabulary {args.vocab}, {args.rounds} rounds of {args.steps} steps "
          f"in turns; tokens/s: min / median / max; load at the end {os.getloadavg()[0]:.1f}.\n")
    print("| program | tokens/s |\n|---|---|")
    for name, rates in figures.items():
        shown = name if name.startswith("PyTorch") else f"Lockstep {name}"
        if name in mfu:
            shown += f", MFU {100 * statistics.median(mfu[name]):.0f} %"
        print(f"| {shown} | {spread(rates, 0)} |")
    print("\n| ratio | of medians (min to max) |\n|---|---|")
    for ours, theirs in (("fp32", "PyTorch fp32"), ("bf16", "PyTorch fp32"),
                         ("bf16", "PyTorch bf16"), ("bf16", "fp32")):
        ratios = [a / b for a, b in zip(figures[ours], figures[theirs])]
        of_medians = statistics.median(figures[ours]) / statistics.median(figures[theirs])
        peer = theirs if theirs.startswith("PyTorch") else f"Lockstep {theirs}"
        print(f"| Lockstep {ours} / {peer} | **{of_medians:.2f}** "
              f"({min(ratios):.2f} to {max(ratios):.2f}) |")


if __name__ == "__main__":
    main()
