#!/usr/bin/env python3
"""What the runs of loss_scale.sh must have printed.

  loss_scale.py equal PLAIN.json SCALED.json
        the same bits: losses, norms, rates, outputs, hashes
  loss_scale.py rule RUN.json INITIAL INTERVAL GROWTH BACKOFF [some | uncounted]
        each step's scale follows from the step before by the rule of torch.amp.GradScaler: a norm that isn't finite
        multiplies it by BACKOFF, INTERVAL finite ones in a row by GROWTH, in f32; nothing leaves 2^-96 … 2^96. Just the
        steps without a finite norm, or with nothing counted, are skipped. some: steps were skipped at first and later
        on, and between them the scale grew; uncounted: steps with nothing counted stand among others.
"""
import json
import struct
import sys


def steps_of(path):
    lines = [json.loads(line) for line in open(path)]
    return [x for x in lines if "step" in x], lines[-1]


def equal(plain, scaled):
    (a, a_end), (b, b_end) = steps_of(plain), steps_of(scaled)
    keys = ("step", "loss", "lr", "grad_norm", "outputs")
    for x, y in zip(a, b):
        for key in keys:
            assert x.get(key) == y.get(key), f"step {x['step']}: {key} is {x.get(key)}, scaled {y.get(key)}"
    assert len(a) == len(b) > 0
    for key in ("parameters", "optimizer"):
        assert a_end[key] == b_end[key], f"{key} differ"


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def after(scale, good, skipped, finite, interval, growth, backoff):
    """Scale and count of good steps that the next step has."""
    if skipped and finite:  # nothing counted
        return scale, good
    if skipped:
        smaller = f32(scale * backoff)
        return (smaller if smaller >= 2.0**-96 else scale), 0
    if good + 1 < interval:
        return scale, good + 1
    larger = f32(scale * growth)
    return (larger if larger <= 2.0**96 else scale), 0


def rule(path, initial, interval, growth, backoff, *expected):
    steps, _ = steps_of(path)
    scale, good = f32(initial), 0
    bad, empty, grew = [], [], []
    for x in steps:
        finite = x["grad_norm"] is not None
        assert f32(x["loss_scale"]) == scale, f"step {x['step']}: the scale is {x['loss_scale']}, not {scale}"
        assert finite or x["skipped"], f"step {x['step']} is not finite, but made"
        if x["skipped"]:
            (empty if finite else bad).append(x["step"])
        before = scale
        scale, good = after(scale, good, x["skipped"], finite, interval, growth, backoff)
        if scale > before:
            grew.append(x["step"])
    assert len(steps) > 4
    if "some" in expected:
        assert bad and bad[0] == 1 and grew and bad[-1] > grew[0] > bad[0], f"skipped {bad}, grew after {grew}"
        assert steps[-1]["loss"] < 0.5 * steps[0]["loss"], "nothing was learnt"
    else:
        assert not bad, f"skipped {bad}"
    assert ("uncounted" in expected) == bool(empty), f"nothing counted in {empty}"
    if empty:
        assert grew and len(empty) < len(steps), f"grew after {grew}, nothing counted in {empty}"


if __name__ == "__main__":
    if sys.argv[1] == "equal":
        equal(*sys.argv[2:])
    else:
        number = lambda text: float.fromhex(text) if text.startswith("0x") else float(text)
        rule(sys.argv[2], *map(number, sys.argv[3:7]), *sys.argv[7:])
