"""Runs of `lockstep train` for the studies: one at a time, each in a folder that is removed."""
import json
import os
import subprocess
import sys
import tempfile
import time

# A decoder of 120,576 parameters, whose run over a million tokens takes seconds.
SMALL_DECODER = {"model.layers": 2, "model.width": 64, "model.heads": 2, "model.context": 64}
SMALL_TOKENS = 64
# Samples of each evaluation, whatever the batch is: eval_batches counts batches.
EVAL_SAMPLES = 1024


class Trainer:
    """`known` are runs that need not be trained again; `keep` is called after each new one."""

    def __init__(self, build, ranks, quick, known, keep):
        self.build, self.ranks, self.quick = build, ranks, quick
        self.known, self.keep = known, keep
        self.runs = []
        self.start = time.monotonic()

    def run(self, name, seed, preset, settings):
        """Trains and keeps the run's figures in `runs`. A run whose loss stops being a number has
        `diverged`, and no `val_loss`."""
        for run in self.known:
            if (run["name"], run["seed"], run["settings"]) == (name, seed, settings):
                self.runs.append(run)
                return run
        with tempfile.TemporaryDirectory(prefix="study-") as folder:
            words = [f"{self.build}/bin/lockstep", "train", "--preset", preset, "-n", str(self.ranks),
                     "--json"]
            of_study = {"run.seed": seed, "log.tensorboard": "false", "run.check_every": 0}
            for key, value in {**of_study, **settings, "run.dir": folder}.items():
                words += ["--set", f"{key}={value}"]
            start = time.monotonic()
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            seconds = time.monotonic() - start
            diverged = done.returncode == 1 and "is not finite" in done.stderr
            if done.returncode != 0 and not diverged:
                sys.exit(f"{' '.join(words)}\n{done.stderr}")
            summary = {} if diverged else json.loads(done.stdout)
            run = {"name": name, "seed": seed, "preset": preset, "settings": settings,
                   "diverged": diverged, "seconds": round(seconds, 1),
                   "curve": evaluations(folder)}
            for key in ("val_loss", "val_accuracy", "skipped_steps", "loss_scale", "identity",
                        "param_digest"):
                run[key] = summary.get(key)
        self.runs.append(run)
        self.keep(self.runs)
        said = "diverged" if diverged else f"validation loss {run['val_loss']:.4f}"
        print(f"{time.monotonic() - self.start:6.0f} s  {name}, seed {seed}: {said}, "
              f"{seconds:.1f} s", file=sys.stderr, flush=True)
        return run


def evaluations(runs):
    """[step, val_loss, val_accuracy or None] of the one run below the folder."""
    found = []
    (run,) = os.listdir(runs)
    with open(os.path.join(runs, run, "metrics.jsonl"), encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            if "val_loss" in line:
                found.append([line["step"], line["val_loss"], line.get("val_accuracy")])
    return found


def batch_of(samples, steps_of_16, evaluations_of_run, warmup=0.1):
    """Settings of a small decoder's run: batches of `samples`, as many tokens as `steps_of_16` batches
    of 16 have, evaluated on the same samples whatever the batch is."""
    steps = steps_of_16 * 16 // samples
    return {**SMALL_DECODER, "data.global_batch": samples, "data.micro_batch": 4 if samples < 64 else 16,
            "data.eval_batches": EVAL_SAMPLES // samples, "run.steps": steps,
            "log.eval_every": max(1, steps // evaluations_of_run),
            "optim.warmup_steps": round(warmup * steps)}


def spread(values):
    return f"{min(values):.4f} to {max(values):.4f}"


def mean(values):
    return sum(values) / len(values)


def named(runs, name):
    return [run for run in runs if run["name"] == name]
