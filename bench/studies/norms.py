"""Normalisation where a rank has two pictures: over the ranks, over a rank's own, over groups of channels
(Wu and He 2018, arXiv:1803.08494; Peng et al. 2018, arXiv:1711.07240)."""
from .curves import Curve, Panel
from .training import mean, named, spread

NORMS = ["sync", "batch", "group"]
SEEDS = [1, 2, 3]
RANKS = 4
BATCH = 8
STEPS = 600
PICTURES = 2000  # of the 10,000 to test with


def train(trainer):
    steps = 40 if trainer.quick else STEPS
    pictures = 80 if trainer.quick else PICTURES
    for seed in SEEDS[:2] if trainer.quick else SEEDS:
        for norm in NORMS:
            trainer.run(norm, seed, "fashion", {
                "model.norm": norm, "data.global_batch": BATCH, "data.micro_batch": BATCH // RANKS,
                "data.augment": "false", "data.eval_batches": pictures // BATCH, "run.steps": steps,
                "log.eval_every": steps // 3, "optim.lr": 0.001, "optim.warmup_steps": steps // 10})


def table(runs):
    rows = ["| `model.norm` | statistics over | pictures told right, %, mean (least to most) | "
            "validation loss, mean |", "|---|---|---|---|"]
    over = {"sync": f"{BATCH} pictures, on {RANKS} ranks", "batch": f"{BATCH // RANKS} pictures",
            "group": "8 channels of a picture"}
    right = {}
    for norm in NORMS:
        of_norm = named(runs, norm)
        right[norm] = [100 * run["val_accuracy"] for run in of_norm]
        rows.append(f"| {norm} | {over[norm]} | {mean(right[norm]):.2f} ({min(right[norm]):.2f} to "
                    f"{max(right[norm]):.2f}) | {mean([run['val_loss'] for run in of_norm]):.4f} |")
    differences = [a - b for a, b in zip(right["sync"], right["batch"])]
    rows += ["", f"- sync is {mean(differences):+.2f} points from batch, seed by seed "
                 f"{min(differences):+.2f} to {max(differences):+.2f}"]
    return rows


def panels(runs):
    def curve(norm):
        points = zip(*(run["curve"] for run in named(runs, norm)))
        return Curve(norm, [(of_seeds[0][0], [100 * one[2] for one in of_seeds])
                            for of_seeds in points])

    return [Panel(f"{RANKS} ranks of {BATCH // RANKS} pictures", "steps",
                  "test pictures told right, %", [curve(norm) for norm in NORMS])]
