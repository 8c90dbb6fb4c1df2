#!/usr/bin/env python3
"""One model, one schedule: its CUDA program under the checking libraries against its CPU program.

    testdata/cuda/run.py MODEL.pp [--seeds=0:5] [--ranks=N] [--schedule=S] [--dtype=T] [--precision=T] [--transport=T] [-D NAME=VALUE]… [OPTION]…

Builds the CUDA program (device code for one architecture; a warning is an error), runs it once for each seed, and
compares: losses with those of the CPU target (for tf32: in f32) within --tolerance (relative to the larger of 1 and the loss), and
losses and parameters of every seed to the bit. Any line of the checking libraries is a failure and is shown. Prints
one line when all is well. --keep=DIR leaves the program there. Without nvcc it prints `skipped: …` and succeeds.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SMALL = ["width=32", "length=16"]  # of the models in testdata/models


class Failure(Exception):
    pass


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    p.add_argument("model")
    p.add_argument("--seeds", default="0:5", help="A:B, without B, or a list 0,7,9")
    p.add_argument("--ranks", type=int)
    p.add_argument("--microbatches", type=int)
    p.add_argument("--schedule")
    p.add_argument("--dtype")
    p.add_argument("--precision")
    p.add_argument("--steps", type=int, default=2)
    p.add_argument("-D", dest="defines", action="append", default=[], metavar="NAME=VALUE")
    p.add_argument("--transport", help="of the runs (nccl)")
    p.add_argument("--arch", default="80", help="of the device code")
    p.add_argument("--tolerance", type=float, help="of losses (1e-5; tf32: 2e-3, bf16: 2e-2)")
    p.add_argument("--limit", type=float, default=300, help="seconds for each run")
    p.add_argument("--keep", metavar="DIR")
    p.add_argument("--ppc", default=os.path.join(ROOT, "bin/ppc"))
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a variable of the environment of the runs")
    return p.parse_args()


def seeds_of(text):
    if ":" in text:
        first, end = text.split(":")
        return range(int(first), int(end))
    return [int(s) for s in text.split(",")]


def options(a):
    named = [("ranks", a.ranks), ("microbatches", a.microbatches), ("schedule", a.schedule), ("dtype", a.dtype), ("precision", a.precision), ("steps", a.steps)]
    given = {d.split("=")[0] for d in a.defines}
    defines = [d for d in SMALL if d.split("=")[0] not in given and has_const(a.model, d.split("=")[0])] + a.defines
    return [f"--{name}={value}" for name, value in named if value is not None] + [x for d in defines for x in ("-D", d)]


def has_const(model, name):
    with open(model, encoding="utf-8") as f:
        return any(line.split()[:2] == ["const", name] for line in f)


def call(command, limit, **more):
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit, **more)
    except subprocess.TimeoutExpired as e:
        text = e.stderr if isinstance(e.stderr, str) else (e.stderr or b"").decode()
        raise Failure(f"no end after {limit:g} s: {' '.join(command)}\n{text}") from None


def must(command, limit, **more):
    done = call(command, limit, **more)
    if done.returncode != 0:
        raise Failure(f"status {done.returncode}: {' '.join(command)}\n{tail(done.stdout)}{tail(done.stderr)}")
    return done


def tail(text, n=30):
    lines = text.splitlines()
    return "".join(line + "\n" for line in lines[-n:])


def results(text):
    """Losses of the steps, and the hashes of parameters and optimizer state."""
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [r["loss"] for r in rows if "loss" in r and "step" in r], {k: r[k] for r in rows for k in ("parameters", "optimizer") if k in r}


def build(a, folder):
    must([a.ppc, "compile", a.model, "--target=cuda", f"--arch={a.arch}", "-o", folder] + options(a), 120)
    os.makedirs(os.path.join(ROOT, "build"), exist_ok=True)
    must(["flock", os.path.join(ROOT, "build/check.lock"), "make", "-s", "-C", ROOT, "check-libs"], 600)
    link = os.path.join(folder, "check")
    if not os.path.exists(link):
        os.symlink(os.path.join(ROOT, "build/check"), link)
    done = must(["make", "-s", "-j2", "-C", folder, "WARN=-Werror", "all", "kernels.host.so"], 1200)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "warning" in line]
    if said:
        raise Failure("warnings of the build:\n" + "\n".join(said))


def run_seed(a, folder, seed, options=()):
    environment = dict(os.environ, PPC_CHECK=str(seed), **dict(s.split("=", 1) for s in a.set))
    done = call([os.path.join(folder, "launch.sh"), "--json", *options], a.limit, env=environment)
    reports = [line for line in done.stderr.splitlines() if "ppc-check:" in line]
    if reports or done.returncode != 0:
        raise Failure(f"seed {seed}: status {done.returncode}\n" + ("\n".join(reports[:20]) or tail(done.stderr)))
    return results(done.stdout)


def compare(a, expected, got):
    tolerance = a.tolerance or {"bf16": 2e-2, "tf32": 2e-3}.get(a.precision, 1e-5)
    if len(expected) != len(got) or not got:
        raise Failure(f"{len(got)} losses, {len(expected)} on CPUs")
    finite = [(x, y) for x, y in zip(expected, got) if x is not None and y is not None]
    if [x is None for x in expected] != [y is None for y in got]:
        raise Failure(f"not the same losses are finite: {got}, on CPUs {expected}")
    worst = max((abs(x - y) / max(1.0, abs(x)) for x, y in finite), default=0.0)
    if not worst <= tolerance:
        raise Failure(f"losses differ by {worst:.3g}, allowed are {tolerance:g}: {got}, on CPUs {expected}")
    return worst


def check(a, folder):
    expected, _ = results(must([a.ppc, "run", a.model, "--json"] + options(a), a.limit).stdout)
    build(a, folder)
    first, worst, seeds = None, 0.0, seeds_of(a.seeds)
    for seed in seeds:
        got = run_seed(a, folder, seed, [f"--transport={a.transport}"] if a.transport else [])
        worst = max(worst, compare(a, expected, got[0]))
        if first is not None and got != first:
            raise Failure(f"seed {seed} gives other bits than seed {seeds[0]}:\n{got}\n{first}")
        first = got
    return len(seeds), worst


def has_nvcc():
    cuda = os.environ.get("CUDA")
    return os.path.exists(os.path.join(cuda, "bin/nvcc")) if cuda else shutil.which("nvcc") is not None


def within(keep, what, body):
    """The exit status of body(folder), whose result is true if something failed; the folder is `keep`, or one that goes."""
    if not has_nvcc():
        print("skipped: nvcc is not installed")
        return 0
    folder = keep or tempfile.mkdtemp(prefix="ppc-cuda.")
    try:
        return 1 if body(folder) else 0
    except Failure as e:
        print(f"FAIL {what}: {e}")
        return 1
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def main():
    a = arguments()
    what = " ".join([os.path.basename(a.model)] + options(a) + ([f"--transport={a.transport}"] if a.transport else []))

    def body(folder):
        n, worst = check(a, folder)
        print(f"ok {what}: {n} seeds, losses within {worst:.2g}")
        return 0

    return within(a.keep, what, body)


if __name__ == "__main__":
    sys.exit(main())
