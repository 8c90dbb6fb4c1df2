#!/usr/bin/env python3
"""What matrix products do before they store, and TF32, under the checking libraries: gpt2.pp on 1, 2 and 4 ranks.

    testdata/cuda/products.py [--ppc=PPC] [--keep=DIR]

The losses are those of the CPU target within 1e-5, and losses, parameters and optimizer state have the same bits for
every number of ranks (a seed for each), and when the step is captured, its pointers with it; without epilogues the losses are near those with them. In TF32 the losses are
within 2e-3, the bits others, and the same for two seeds; NVIDIA_TF32_OVERRIDE is refused where it says something else, and an epilogue that the library doesn't have.
Device code is built for this host only; the fatbin is of nothing. Without nvcc: `skipped: …`.
"""
import argparse
import os
import shutil
import sys
import types

import matrix
import run

MODEL = os.path.join(run.ROOT, "testdata/models/gpt2.pp")
SIZE = ["--steps=2", "--microbatches=4", "-D", "width=32", "-D", "length=16"]


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    p.add_argument("--ppc", default=os.path.join(run.ROOT, "bin/ppc"))
    p.add_argument("--keep", metavar="DIR")
    p.add_argument("--limit", type=float, default=120)
    return p.parse_args()


def build(a, folder, n_ranks, options):
    run.must([a.ppc, "compile", MODEL, "--target=cuda", f"--ranks={n_ranks}", "-o", folder] + SIZE + options, 60)
    os.symlink(os.path.join(run.ROOT, "build/check"), os.path.join(folder, "check"))
    matrix.make(folder, "kernels.host.so", *(f"rank_{r}" for r in range(n_ranks)))
    with open(os.path.join(folder, "nothing.cu"), "w", encoding="utf-8") as f:
        f.write("extern \"C\" __global__ void nothing() {}\n")
    nvcc = os.path.join(os.environ["CUDA"], "bin/nvcc") if os.environ.get("CUDA") else "nvcc"
    run.must([nvcc, "-fatbin", "-arch=sm_80", "-o", "kernels.fatbin", "nothing.cu"], 60, cwd=folder)


def train(a, folder, n_ranks, seeds, options=(), environment=(), run_options=()):
    """Losses and hashes, the same for all seeds. `options` are of ppc, when the folder isn't there yet."""
    if not os.path.exists(folder):
        build(a, folder, n_ranks, list(options))
    settings = types.SimpleNamespace(limit=a.limit, set=list(environment))
    results = [run.run_seed(settings, folder, seed, run_options) for seed in seeds]
    if any(r != results[0] for r in results):
        raise run.Failure(f"{folder}: other bits for another seed: {results}")
    return results[0]


def near(what, expected, got, precision):
    worst = run.compare(types.SimpleNamespace(tolerance=None, precision=precision), expected, got)
    print(f"ok {what}: losses within {worst:.2g}", flush=True)


def refused(a, folder, message, environment=()):
    try:
        train(a, folder, 2, [1], environment=environment)
    except run.Failure as e:
        if message in str(e):
            return
        raise
    raise run.Failure(f"no '{message}'")


def without_algorithm(a, folder, clean):
    """The library has none when rows of the sum are not a multiple of 8 long."""
    shutil.copytree(clean, folder, symlinks=True)
    path = os.path.join(folder, "tables.c")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace("64, 128, 32, PP_F32, PP_F32, PP_EPILOGUE_GELU_AUX", "64, 124, 32, PP_F32, PP_F32, PP_EPILOGUE_GELU_AUX"))
    matrix.make(folder, "rank_0", "rank_1")
    refused(a, folder, "cuBLASLt has no algorithm for the product 1 x [64, 124, 32], epilogue gelu_aux, compiled with --no-epilogues the program does without it")


def check(a, folder):
    matrix.check_libraries()
    place = lambda name: os.path.join(folder, name)
    cpu, _ = run.results(run.must([a.ppc, "run", MODEL, "--json", "--ranks=1"] + SIZE, a.limit).stdout)
    whole = train(a, place("on_1"), 1, [1])
    near("epilogues", cpu, whole[0], "f32")
    for n in (2, 4):
        if train(a, place(f"on_{n}"), n, [n]) != whole:
            raise run.Failure(f"{n} ranks give other bits than one")
    if train(a, place("on_2"), 2, [3], run_options=["--graph", "--steps=4"]) != train(a, place("on_2"), 2, [3], run_options=["--steps=4"]):
        raise run.Failure("a captured step gives other bits")
    print("ok the same bits on 1, 2 and 4 ranks, and captured", flush=True)
    near("without epilogues", cpu, train(a, place("without"), 2, [1], ["--no-epilogues"])[0], "f32")
    tf32 = train(a, place("tf32"), 2, [1, 2], ["--precision=tf32"])
    near("TF32", cpu, tf32[0], "tf32")
    if tf32[1] == whole[1]:
        raise run.Failure("TF32 gives the bits of f32")
    for name, value in (("tf32", "0"), ("on_2", "1")):
        refused(a, place(name), f"NVIDIA_TF32_OVERRIDE={value} is set", [f"NVIDIA_TF32_OVERRIDE={value}"])
    if train(a, place("on_2"), 2, [1], environment=["NVIDIA_TF32_OVERRIDE=0"]) != whole:
        raise run.Failure("NVIDIA_TF32_OVERRIDE=0 changes products of f32")
    without_algorithm(a, place("none"), place("on_2"))
    print("ok what is refused", flush=True)


def main():
    a = arguments()
    return run.within(a.keep, "products", lambda folder: check(a, folder))


if __name__ == "__main__":
    sys.exit(main())
