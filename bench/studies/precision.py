"""Compute types beside fp32 of the same seed: bf16, fp16 with a scale that follows the gradients, fp16
without one (Micikevicius et al. 2018, arXiv:1710.03740; Kalamkar et al. 2019, arXiv:1905.12322)."""
from .curves import Curve, Panel
from .training import batch_of, mean, named

SEEDS = [1, 2, 3, 4, 5]
RANKS = 2
TYPES = {
    "fp32": {},
    "bf16": {"precision.compute": "bf16"},
    "fp16, dynamic scale": {"precision.compute": "fp16"},
    "fp16, no scale": {"precision.compute": "fp16", "precision.loss_scale": 1, "run.on_nan": "skip"},
}
# How far from fp32 the mean may be, in nats.
CLAIMS = {"bf16": 0.01, "fp16, dynamic scale": 0.02}
# The model as the preset has it, and a batch of 32,768 tokens, whose terms weigh a sixteenth as much.
LARGE = 512
LARGE_STEPS_OF_16 = 2560  # 80 steps
# At the preset's rate such a run may stay at the frequencies of bytes, in any type.
LARGE_RATE = 0.0015
LARGE_SEEDS = [1, 2, 3]
MODELS = {"nano, batch 16": SEEDS, f"small decoder, batch {LARGE}": LARGE_SEEDS}


def settings_of(model, quick):
    if model.startswith("nano"):
        return {"run.steps": 20 if quick else 600, "log.eval_every": 10 if quick else 100}
    steps = 64 if quick else LARGE_STEPS_OF_16
    return {**batch_of(LARGE, steps, 5), "optim.lr": LARGE_RATE}


def train(trainer):
    """Seed by seed, so that a study that is stopped has whole ones."""
    for seed in SEEDS[:2] if trainer.quick else SEEDS:
        for model, seeds in MODELS.items():
            for name, compute in TYPES.items() if seed in seeds else []:
                trainer.run(f"{model}: {name}", seed, "nano",
                            {**settings_of(model, trainer.quick), **compute})


def of(runs, model, name):
    """Of the seeds that every type has: a study that was stopped may lack some of the last."""
    seeds = [{run["seed"] for run in named(runs, f"{model}: {one}")} for one in TYPES]
    return [run for run in named(runs, f"{model}: {name}")
            if run["seed"] in set.intersection(*seeds)]


def differences(runs, model, name, evaluation=-1):
    """To fp32 of the same seed, at one evaluation."""
    return [run["curve"][evaluation][1] - plain["curve"][evaluation][1]
            for run, plain in zip(of(runs, model, name), of(runs, model, "fp32"))]


def losses_of(runs):
    return ", ".join(f"{run['val_loss']:.4f}" for run in runs)


def table(runs):
    rows = ["| model | compute | validation loss of each seed | to fp32 of the seed: mean (least to "
            "most) | steps left out |", "|---|---|---|---|---|"]
    said = []
    for model in MODELS:
        for name in TYPES:
            those = of(runs, model, name)
            apart = differences(runs, model, name)
            left_out = sum(run["skipped_steps"] for run in those)
            compared = "" if name == "fp32" else (f"{mean(apart):+.4f} ({min(apart):+.4f} to "
                                                  f"{max(apart):+.4f})")
            rows.append(f"| {model} | {name} | {losses_of(those)} | {compared} | {left_out} |")
            if name in CLAIMS:
                held = "holds" if abs(mean(apart)) <= CLAIMS[name] else "does not hold"
                said.append(f"- {model}: {name} within {CLAIMS[name]} nats of fp32 on average "
                            f"{held} ({mean(apart):+.4f})")
        plain = [run["val_loss"] for run in of(runs, model, "fp32")]
        said.append(f"- {model}: seeds of fp32 lie {max(plain) - min(plain):.4f} nats apart")
    return rows + [""] + said


def panels(runs):
    def curve(model, name):
        steps = [one[0] for one in of(runs, model, name)[0]["curve"]]
        return Curve(name, [(step, differences(runs, model, name, n))
                            for n, step in enumerate(steps)])

    return [Panel(model, "steps", "validation loss less that of fp32, nats",
                  [curve(model, name) for name in TYPES if name != "fp32"]) for model in MODELS]
