"""Linear scaling of the rate with the batch, with and without warmup, plain SGD with momentum, the same
tokens at every batch (Goyal et al. 2017, arXiv:1706.02677)."""
from .curves import Curve, Panel
from .training import batch_of, mean, named, spread

BASE = 16
# By the rate at the base: the best of a few, near the largest that trains at all; one with room above.
BATCHES = {0.1: [16, 32, 64, 128, 256], 0.025: [16, 64, 256]}
STEPS = 1024  # at the base: a million tokens
SEEDS = [1, 2, 3]
RANKS = 2
FIXED, LINEAR, WARM = "fixed rate", "linear, no warmup", "linear, warmup"
# A loss this far above that of the base counts as broken.
TOLERANCE = 0.1


def settings_of(name, rate, batch, steps):
    scaled = {} if name == FIXED else {"optim.lr_scaling": "linear", "optim.base_batch": BASE}
    return {**batch_of(batch, steps, 1, warmup=0 if name == LINEAR else 0.1), "optim.name": "sgd",
            "optim.lr": rate, "optim.weight_decay": 0, "optim.grad_clip": 0, **scaled}


def train(trainer):
    quick = trainer.quick
    for rate in list(BATCHES)[:1] if quick else BATCHES:
        for batch in BATCHES[rate][:2] if quick else BATCHES[rate]:
            for seed in SEEDS[:2] if quick else SEEDS:
                for name in (FIXED, LINEAR, WARM):
                    if name == FIXED and batch == BASE:
                        continue  # that is WARM
                    trainer.run(name, seed, "nano",
                                settings_of(name, rate, batch, 32 if quick else STEPS))


def rates_of(runs):
    return sorted({run["settings"]["optim.lr"] for run in runs}, reverse=True)


def of_rate(runs, rate):
    return [run for run in runs if run["settings"]["optim.lr"] == rate]


def losses(runs, name, batch):
    if batch == BASE and name == FIXED:
        name = WARM
    return [run["val_loss"] for run in named(runs, name)
            if run["settings"]["data.global_batch"] == batch]


def batches_of(runs):
    return sorted({run["settings"]["data.global_batch"] for run in runs})


def cell(values):
    there = [value for value in values if value is not None]
    lost = len(values) - len(there)
    words = f"{mean(there):.4f} ({spread(there)})" if there else ""
    if lost:
        words += f"{' and ' if there else ''}{lost} of {len(values)} diverged"
    return words


def holds_up_to(runs, name):
    """The largest batch up to which every mean is near the base's, warmed up; None: not the base's."""
    base = mean(losses(runs, WARM, BASE))
    last = None
    for batch in batches_of(runs):
        values = losses(runs, name, batch)
        if None in values or mean(values) > base + TOLERANCE:
            break
        last = batch
    return last


def table(runs):
    rows = ["| rate at batch 16 | batch | steps | " + " | ".join((FIXED, LINEAR, WARM)) + " |",
            "|---|---|---|---|---|---|"]
    said = [""]
    for rate in rates_of(runs):
        those = of_rate(runs, rate)
        for batch in batches_of(those):
            steps = next(run["settings"]["run.steps"] for run in those
                         if run["settings"]["data.global_batch"] == batch)
            cells = [cell(losses(those, name, batch)) for name in (FIXED, LINEAR, WARM)]
            rows.append(f"| {rate} | {batch} | {steps} | {' | '.join(cells)} |")
        for name in (FIXED, LINEAR, WARM):
            last = holds_up_to(those, name)
            where = f"up to batch {last}" if last else "nowhere"
            said.append(f"- {rate}, {name}: within {TOLERANCE} nats of batch {BASE} {where}")
    return rows + said


def panels(runs):
    found = []
    for rate in rates_of(runs):
        those = of_rate(runs, rate)
        curves = [Curve(name, [(batch, losses(those, name, batch)) for batch in batches_of(those)])
                  for name in (FIXED, LINEAR, WARM)]
        found.append(Panel(f"rate {rate} at batch {BASE} (a cross: diverged)", "samples a batch",
                           "validation loss, nats per byte", curves, log_x=True))
    return found
