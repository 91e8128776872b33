"""LARS and LAMB beside SGD and AdamW with a small and a large batch, the same tokens, each at the best
rate of a small search of its own (You et al. 2017, arXiv:1708.03888, and 2020, arXiv:1904.00962)."""
from .curves import Curve, Panel
from .training import SMALL_TOKENS, batch_of, mean, named, spread

BATCHES = [16, 256]
STEPS = 512  # at a batch of 16: half a million tokens
SEEDS = [1, 2, 3]
RANKS = 2
FACTOR = 3  # from a rate of the search to the next
FURTHER = 2  # rates beyond the first three, while the best is the first or the last
# The middle of the first three rates, of each batch. LARS steps a bias that starts at zero by the plain
# rate, so its trust is larger than the paper's, and its rates are near SGD's.
MIDDLE = {"sgd": (0.1, 0.3), "adamw": (0.006, 0.018), "lars": (0.3, 2), "lamb": (0.03, 0.1)}
FURTHER_SETTINGS = {"lars": {"optim.trust": 0.02}}


def settings_of(name, batch, rate, quick):
    return {**batch_of(batch, 64 if quick else STEPS, 4), "optim.name": name, "optim.lr": rate,
            "optim.weight_decay": 0, **FURTHER_SETTINGS.get(name, {})}


def loss_of(run):
    return float("inf") if run["diverged"] else run["val_loss"]


def search(trainer, name, batch):
    """The best run of the first seed."""
    middle = MIDDLE[name][BATCHES.index(batch)]
    rates = [middle / FACTOR, middle, middle * FACTOR]
    found = {}
    for tried in range(3 + FURTHER):
        if tried < 3:
            rate = rates[tried]
        elif best == min(found):
            rate = min(found) / FACTOR
        elif best == max(found):
            rate = max(found) * FACTOR
        else:
            break
        rate = float(f"{rate:.3g}")
        found[rate] = trainer.run(name, SEEDS[0], "nano",
                                  settings_of(name, batch, rate, trainer.quick))
        best = min(found, key=lambda one: loss_of(found[one]))
    return found[best]


def train(trainer):
    for batch in BATCHES:
        for name in MIDDLE:
            rate = search(trainer, name, batch)["settings"]["optim.lr"]
            for seed in SEEDS[1:]:
                trainer.run(name, seed, "nano", settings_of(name, batch, rate, trainer.quick))


def of_batch(runs, name, batch):
    return [run for run in named(runs, name) if run["settings"]["data.global_batch"] == batch]


def best_of(runs, name, batch):
    """The runs at the rate that all seeds have."""
    those = of_batch(runs, name, batch)
    rate = those[-1]["settings"]["optim.lr"]
    return [run for run in those if run["settings"]["optim.lr"] == rate]


def searched(runs, name, batch):
    """Each rate of the first seed with its loss, lowest rate first."""
    first = [run for run in of_batch(runs, name, batch) if run["seed"] == SEEDS[0]]
    first.sort(key=lambda run: run["settings"]["optim.lr"])
    return ", ".join(f"{run['settings']['optim.lr']:g}: "
                     + ("diverged" if run["diverged"] else f"{run['val_loss']:.3f}")
                     for run in first)


def table(runs):
    rows = ["| batch | optimizer | rate | validation loss, mean (least to most) | rates of the search, "
            "one seed |", "|---|---|---|---|---|"]
    for batch in BATCHES:
        for name in MIDDLE:
            best = best_of(runs, name, batch)
            losses = [loss_of(run) for run in best]
            rows.append(f"| {batch} | {name} | {best[0]['settings']['optim.lr']:g} | "
                        f"{mean(losses):.4f} ({spread(losses)}) | {searched(runs, name, batch)} |")
    rows.append("")
    for name in MIDDLE:
        small, large = (mean([loss_of(run) for run in best_of(runs, name, batch)])
                        for batch in BATCHES)
        rows.append(f"- {name}: {large - small:+.4f} nats from batch {BATCHES[0]} to {BATCHES[1]}")
    return rows


def panels(runs):
    def curve(name, batch):
        best = best_of(runs, name, batch)
        points = zip(*(run["curve"] for run in best))
        return Curve(name, [(of_seeds[0][0] * batch * SMALL_TOKENS, [one[1] for one in of_seeds])
                            for of_seeds in points])

    return [Panel(f"batch {batch}", "tokens", "validation loss, nats per byte",
                  [curve(name, batch) for name in MIDDLE]) for batch in BATCHES]
