#!/usr/bin/env python3
"""Models × schedules: CUDA programs under the checking libraries against the programs for CPUs.

    testdata/cuda/matrix.py [MODEL…] [--schedules=S,T] [--precisions=f32,bf16] [--seeds=1:6] [--arch=80] [--kernels=first|all]

For each model of testdata/models and each precision the CPU target gives the losses, once: its bits are the same
for all schedules. Each schedule's program is built, with every warning an error, and run once for each seed. Losses must
lie within 1e-5 of the CPU's (bf16: 2e-2), losses and parameters must be the same bits for all seeds and all
schedules, and no run may report anything. Two ranks hold four stages, or two stages of models that have no more.

Programs whose device code is the same share it, and all of a model share the runtime's objects. nvcc compiles that of the first schedule of a model (--kernels=all: of
each), for one architecture (--arch): the program under check runs what the C++ compiler made of the same text.
Prints a line for each schedule, and what the parts took. Without nvcc: `skipped: …`.
"""
import argparse
import hashlib
import os
import resource
import shutil
import sys

import run

SCHEDULES = ("dualpipe_v", "gpipe", "one_f_one_b", "interleaved_1f1b", "zb_h1", "zb_v")  # the first needs every kernel
SIZES = {"ranks": 2, "microbatches": 4, "steps": 2, "stages": 4, "width": 32, "length": 16}
FOLDER = os.path.join(run.ROOT, "testdata/models")
MODELS = sorted(name[:-3] for name in os.listdir(FOLDER) if name.endswith(".pp"))


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0], allow_abbrev=False)
    p.add_argument("models", nargs="*", default=MODELS)
    p.add_argument("--schedules", default=",".join(SCHEDULES))
    p.add_argument("--precisions", default="f32,bf16")
    p.add_argument("--seeds", default="1:6")
    p.add_argument("--arch", default="80")
    p.add_argument("--kernels", choices=["first", "all"], default="first")
    p.add_argument("--limit", type=float, default=300)
    p.add_argument("--keep", metavar="DIR")
    p.add_argument("--ppc", default=os.path.join(run.ROOT, "bin/ppc"))
    return p.parse_args()


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Clock:
    """What the parts took of the processor, in seconds."""

    def __init__(self):
        self.took = {}

    def time(self, part, function, *args):
        begin = cpu_seconds()
        try:
            return function(*args)
        finally:
            self.took[part] = self.took.get(part, 0.0) + cpu_seconds() - begin


def ranks_of(path, schedule):
    """Two stages, which is what some models have, are the least that one rank has in a V."""
    return 1 if schedule in ("zb_v", "dualpipe_v") and not run.has_const(path, "stages") else SIZES["ranks"]


def options(path, precision):
    named = [f"--{k}={SIZES[k]}" for k in ("microbatches", "steps")] + ([f"--precision={precision}"] if precision != "f32" else [])
    return named + [x for k in ("stages", "width", "length") if run.has_const(path, k) for x in ("-D", f"{k}={SIZES[k]}")]


def check_libraries():
    os.makedirs(os.path.join(run.ROOT, "build"), exist_ok=True)
    run.must(["flock", os.path.join(run.ROOT, "build/check.lock"), "make", "-s", "-C", run.ROOT, "check-libs"], 600)


def digest(path):
    """Of a file, or of all in a folder."""
    text = hashlib.sha256()
    paths = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names] or [path]
    for one in sorted(paths):
        with open(one, "rb") as f:
            text.update(os.path.relpath(one, path).encode() + b" " + hashlib.sha256(f.read()).digest())
    return text.digest()


class Built:
    """What programs share, by its text: the folder that has device code, or objects of the runtime, which includes
    nothing of a program, built."""

    def __init__(self, keep_all, arch):
        self.kernels, self.runtime, self.fatbin, self.keep_all, self.arch = {}, {}, None, keep_all, arch

    def make_kernels(self, folder, clock):
        first = self.kernels.setdefault(digest(os.path.join(folder, "kernels.cu")), folder)
        if first != folder:
            for name in ("kernels.host.so", "kernels.fatbin"):
                shutil.copy2(os.path.join(first, name), folder)
            return
        clock.time("device code for this CPU", make, folder, "kernels.host.so")
        if self.fatbin is None or self.keep_all:
            clock.time("nvcc", make, folder, "kernels.fatbin", f"ARCH={self.arch}")
            self.fatbin = self.fatbin or os.path.join(folder, "kernels.fatbin")
        else:
            shutil.copy2(self.fatbin, folder)

    def take_runtime(self, folder):
        first = os.path.join(self.runtime.setdefault(digest(os.path.join(folder, "runtime")), folder), "obj/runtime")
        if os.path.isdir(first):
            shutil.copytree(first, os.path.join(folder, "obj/runtime"), copy_function=shutil.copy)


def make(folder, *targets):
    done = run.must(["make", "-s", "-C", folder, "WARN=-Werror", *targets], 1200)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "warning" in line]
    if said:
        raise run.Failure("warnings of the build:\n" + "\n".join(said))


def build(a, path, precision, schedule, folder, built, clock):
    clock.time("ppc", run.must, [a.ppc, "compile", path, "--target=cuda", f"--schedule={schedule}", f"--ranks={ranks_of(path, schedule)}",
                            "-o", folder] + options(path, precision), 120)
    os.symlink(os.path.join(run.ROOT, "build/check"), os.path.join(folder, "check"))
    built.make_kernels(folder, clock)
    built.take_runtime(folder)
    clock.time("host code", make, folder, *(f"rank_{r}" for r in range(ranks_of(path, schedule))))


def run_schedule(a, folder, precision, expected, first, clock):
    """Losses and hashes of the first run; `first` are those of earlier schedules."""
    worst = 0.0
    a.tolerance, a.precision, a.set = None, precision, []
    for seed in run.seeds_of(a.seeds):
        got = clock.time("runs", run.run_seed, a, folder, seed)
        worst = max(worst, run.compare(a, expected, got[0]))
        if first is not None and got != first:
            raise run.Failure(f"seed {seed} gives other bits:\n{got}\n{first}")
        first = got
    return first, worst


def check_model(a, model, precision, folder, clock):
    path = model if os.path.sep in model else os.path.join(FOLDER, model + ".pp")
    expected, _ = run.results(clock.time("CPU", run.must, [a.ppc, "run", path, "--json", "--ranks=1"] + options(path, precision), a.limit).stdout)
    built, first, failed = Built(a.kernels == "all", a.arch), None, 0
    for schedule in a.schedules.split(","):
        what, place = f"{model} {precision} {schedule}", os.path.join(folder, f"{model}_{precision}_{schedule}")
        try:
            build(a, path, precision, schedule, place, built, clock)
            first, worst = run_schedule(a, place, precision, expected, first, clock)
            print(f"ok {what}: losses within {worst:.2g}", flush=True)
        except run.Failure as e:
            print(f"FAIL {what}: {e}", flush=True)
            failed += 1
    return failed


def main():
    a = arguments()

    def body(folder):
        clock = Clock()
        check_libraries()
        failed = sum(check_model(a, model, precision, folder, clock) for model in a.models for precision in a.precisions.split(","))
        print(", ".join(f"{part} {seconds:.1f} s" for part, seconds in clock.took.items()))
        return failed

    return run.within(a.keep, "matrix", body)


if __name__ == "__main__":
    sys.exit(main())
