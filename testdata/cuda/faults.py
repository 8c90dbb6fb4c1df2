#!/usr/bin/env python3
"""Faults planted into an emitted CUDA program and its runtime: the checking libraries must report each, by name.

    testdata/cuda/faults.py [--seeds=1:4] [--only=NAME,…] [--keep=DIR] [--list] [--verbose]

faults.table has a fault in each paragraph: its name, where it is planted, a sed program, and what the report must
say for every seed (an extended regular expression that one line of the ranks' errors must match). The program as it
was emitted must report nothing. What ranks wait for for ever is reported by the checking libraries, which know at once,
and, with PPC_CHECK_HANG=wait and one seed, by the program's own watchdog, which must also end everything in order. A fault whose sed program changes nothing, or that does not compile, is a failure of
the table. Without nvcc: `skipped: …`.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys

import matrix
import run

MODEL = os.path.join(run.ROOT, "testdata/models/mlp.pp")
OPTIONS = ["--ranks=2", "--microbatches=4", "--steps=3", "-D", "stages=4", "--schedule=dualpipe_v"]
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "faults.table")


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    p.add_argument("--seeds", default="1:4")
    p.add_argument("--only", default="", help="names of faults")
    p.add_argument("--keep", metavar="DIR")
    p.add_argument("--arch", default="80")
    p.add_argument("--limit", type=float, default=120)
    p.add_argument("--list", action="store_true")
    p.add_argument("--verbose", action="store_true", help="shows the reports")
    p.add_argument("--ppc", default=os.path.join(run.ROOT, "bin/ppc"))
    return p.parse_args()


def read_table(path):
    """Paragraphs of `key: value` lines; a key may come again."""
    faults, fault = [], {}
    with open(path, encoding="utf-8") as f:
        for line in [*f, "\n"]:
            line = line.rstrip("\n")
            if line.startswith("#"):
                continue
            if line:
                key, value = line.split(": ", 1)
                fault.setdefault(key, []).append(value)
            elif fault:
                faults.append(fault)
                fault = {}
    return faults


def plant(fault, folder):
    """Every sed program must change its file."""
    for path, program in zip(fault["file"], fault["sed"], strict=True):
        full = os.path.join(folder, path)
        with open(full, encoding="utf-8") as f:
            before = f.read()
        run.must(["sed", "-E", "-i", program, full], 20)
        with open(full, encoding="utf-8") as f:
            if f.read() == before:
                raise run.Failure(f"nothing planted in {path}")


def build(a, folder, targets):
    return run.must(["make", "-s", "-C", folder, f"ARCH={a.arch}", *targets], 600)


def targets_of(fault):
    """Device code is built for this host only: nvcc sees the program as it was emitted."""
    device = any(p.endswith((".cu", ".cuh")) for p in fault["file"])
    return ["rank_0", "rank_1"] + (["kernels.host.so"] if device else [])


def run_seed(a, folder, seed, options, environment=()):
    command = [os.path.join(folder, "launch.sh"), "--json", "--timeout=8"] + " ".join(options).split()
    return run.call(command, a.limit, env=dict(os.environ, PPC_CHECK=str(seed), **dict(e.split("=", 1) for e in environment)))


def judge(a, fault, seed, done, reports):
    said = [line for line in done.stderr.splitlines() if re.match(r"ppc(-check)?: ", line)]
    if a.verbose:
        print(f"-- {fault['fault'][0]}, seed {seed}: status {done.returncode}\n" + "\n".join(said[:8]))
    for wanted in reports:
        if not any(all(re.search(part, line) for part in wanted.split(" && ")) for line in said):
            raise run.Failure(f"seed {seed}, status {done.returncode}: no line matches {wanted}\n" + "\n".join(said[:12]))
    if done.returncode == 0:
        raise run.Failure(f"seed {seed}: the programs end with status 0")


def try_time_out(a, fault, folder, seed):
    done = run_seed(a, folder, seed, fault.get("options", []), ["PPC_CHECK_HANG=wait"])
    judge(a, fault, seed, done, fault["waits"])
    if re.search("^ppc-check: [^:]*: (leak|unfinished|misuse)", done.stderr, re.M):
        raise run.Failure(f"seed {seed}: the programs do not end in order after a time-out\n{run.tail(done.stderr)}")


def try_fault(a, fault, clean, folder):
    shutil.copytree(clean, folder, symlinks=True)
    plant(fault, folder)
    build(a, folder, targets_of(fault))
    for seed in run.seeds_of(a.seeds):
        judge(a, fault, seed, run_seed(a, folder, seed, fault.get("options", []), fault.get("environment", [])), fault["report"])
    if "waits" in fault:
        try_time_out(a, fault, folder, run.seeds_of(a.seeds)[0])


def make_clean(a, folder):
    run.must([a.ppc, "compile", MODEL, "--target=cuda", "-o", folder] + OPTIONS, 60)
    os.symlink(os.path.join(run.ROOT, "build/check"), os.path.join(folder, "check"))
    build(a, folder, ["all", "kernels.host.so"])
    for seed in run.seeds_of(a.seeds):
        done = run_seed(a, folder, seed, [])
        if done.returncode != 0 or "ppc-check:" in done.stderr:
            raise run.Failure(f"the program as it is, seed {seed}: status {done.returncode}\n{run.tail(done.stderr)}")


def check(a, faults, folder):
    failed, clean = 0, os.path.join(folder, "clean")
    matrix.check_libraries()
    make_clean(a, clean)
    print("ok the program as it was emitted", flush=True)
    for fault in faults:
        name = fault["fault"][0]
        place = os.path.join(folder, re.sub(r"[^a-z0-9]+", "_", name))
        try:
            try_fault(a, fault, clean, place)
            print(f"ok {name}", flush=True)
        except run.Failure as e:
            print(f"FAIL {name}: {e}", flush=True)
            failed += 1
        if not a.keep:
            shutil.rmtree(place, ignore_errors=True)
    print(f"{len(faults) - failed} of {len(faults)} faults are reported")
    return failed


def main():
    a = arguments()
    faults = [f for f in read_table(TABLE) if not a.only or f["fault"][0] in a.only.split(",")]
    if a.list:
        print("\n".join(f["fault"][0] for f in faults))
        return 0
    return run.within(a.keep, "faults", lambda folder: check(a, faults, folder))


if __name__ == "__main__":
    sys.exit(main())
