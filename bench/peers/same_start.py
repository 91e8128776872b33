#!/usr/bin/python3
"""Does PyTorch, from Lockstep's own start values and on its own windows, train the same curve?

  lockstep train --preset nano --set run.steps=0                   start values: RUN0
  lockstep train --preset nano --set log.eval_every=0              the curve: RUN
  same_start.py RUN0/final.safetensors RUN/metrics.jsonl --steps 60

Where compare_curves.py asks whether two programs differ by more than their seeds do, this takes the
seed away: start values are read from the file, and the order of windows is computed here from its
definition (base/counter_random.h, input/sampler.h). What is left is rounding. Prints, every ten
steps, both losses and gradient norms; exit status 1 if a loss differs by more than 1e-4 nats.
"""
import argparse
import json
import struct
import sys
import types

import numpy
import torch
from torch import nn

import reference_gpt as peer

WORD = (1 << 64) - 1
SEED = 1337


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & WORD
    return value


def narrowed(key, part):
    """RandomKey::with."""
    return mix64(key ^ mix64((part + 1) & WORD))


def permutation(size, key):
    """input/sampler.h, Permutation: eight Feistel rounds, walked until inside."""
    half = ((size - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1

    def visit(index):
        value = index
        while True:
            left, right = value >> half, value & mask
            for turn in range(8):
                left, right = right, left ^ (mix64(key ^ mix64((right * 8 + turn) & WORD)) & mask)
            value = left << half | right
            if value < size:
                return value

    return visit


def start_values(path):
    """The tensors of a safetensors file, by the names of reference_gpt's model."""
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    renamed = {"attn.c_proj": "attn_proj", "mlp.c_proj": "mlp_proj", "attn.c_attn": "c_attn",
               "mlp.c_fc": "c_fc"}
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        values = torch.from_numpy(numpy.frombuffer(data[begin:end], dtype="<f4").copy())
        if name.startswith("h."):
            _, block, rest = name.split(".", 2)
            for theirs, ours in renamed.items():
                rest = rest.replace(theirs, ours)
            name = f"blocks.{block}.{rest}"
        tensors[name] = values.view(entry["shape"])
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("start")
    parser.add_argument("metrics")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--train", default="data/austen/train.bin")
    args = parser.parse_args()

    torch.set_num_threads(1)
    preset = types.SimpleNamespace(vocab=256, **peer.PRESETS["nano"])
    model = peer.Gpt(preset)
    model.load_state_dict(start_values(args.start))
    optimizer = peer.make_optimizer(model)
    tokens = numpy.memmap(args.train, dtype="<u2", mode="r")
    epoch_key = narrowed(narrowed(mix64(SEED), fnv1a("sampler")), 0)
    window = permutation((len(tokens) - 1) // preset.context, mix64(epoch_key))
    wanted = [entry for entry in map(json.loads, open(args.metrics)) if "loss" in entry]

    largest = 0.0
    for step in range(min(args.steps, len(wanted))):
        samples = range(step * preset.global_batch, (step + 1) * preset.global_batch)
        ids, targets = peer.windows(tokens, [window(i) * preset.context for i in samples],
                                    preset.context)
        loss = model(ids, targets)
        loss.backward()
        norm = float(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        for group in optimizer.param_groups:
            group["lr"] = peer.learning_rate(preset, step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ours = wanted[step]
        largest = max(largest, abs(loss.item() - ours["loss"]))
        if step % 10 == 0:
            print(f"step {step + 1:3}  loss {loss.item():.6f} {ours['loss']:.6f}  "
                  f"gradient norm {norm:.6f} {ours['grad_norm']:.6f}", flush=True)
    print(f"largest difference of a loss: {largest:.2g} nats")
    sys.exit(0 if largest <= 1e-4 else 1)


if __name__ == "__main__":
    main()
