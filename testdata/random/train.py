#!/usr/bin/env python3
"""train.py FIRST MODELS [--keep=DIR]: random models × random schedules × random placements.

For each seed from FIRST on: a model, its run on one rank, and several valid schedules on several ranks. Each must
train to the same bits as one rank, map the bytes that `ppc check` predicts, and get no warning about its order.
A failure prints the command that repeats it; with --keep the folder stays."""
import os
import random
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, HERE)
import emitted  # noqa: E402
import model as models  # noqa: E402
import schedule as schedules  # noqa: E402

PER_MODEL = 4
ORDER_WARNING = "adds the gradient of microbatch"


class Case:
    """A seed: the model's file, and its schedules as (name, schedule)."""

    def __init__(self, seed, folder):
        rng = random.Random(seed)
        self.seed, self.path = seed, os.path.join(folder, f"m{seed}.pp")
        self.text, self.model = models.make(rng)
        self.schedules = [(f"s{i}", self.schedule(rng)) for i in range(PER_MODEL)]
        self.transports = [rng.choice(("shm", "late")) for _ in self.schedules]
        for name, schedule in self.schedules:
            flat = all(len(block) == 1 for blocks in schedule for block in blocks)
            self.text += "\n" + (schedules.table if flat and rng.random() < 0.3 else schedules.text)(name, schedule)
        with open(self.path, "w") as f:
            f.write(self.text)

    def schedule(self, rng):
        m = self.model
        needs = schedules.Needs(m.needs) if rng.random() < 0.5 else schedules.Needs.chain(m.stages)
        ranks = rng.randint(1 if rng.random() < 0.1 else min(2, m.stages), min(m.stages, 6))
        return schedules.make(rng, needs, schedules.placement(rng, m.stages, ranks), m.microbatches)


def one_rank(shop, case):
    folder, _ = shop.compile(case.path, f"m{case.seed}-one", ["--verify", "--ranks=1", "--schedule=gpipe"])
    shop.build(folder)
    run = shop.run(folder)
    if any(step["loss"] is None for step in run[0]):
        raise emitted.Failure(f"the loss is not finite: {run[0]}")
    return run


def many_ranks(shop, case, i, base):
    name, schedule = case.schedules[i]
    options = [f"--ranks={len(schedule)}", f"--schedule={name}"]
    predicted = [rank["mapped_bytes"] for rank in emitted.check(case.path, options)["ranks"]]
    folder, said = shop.compile(case.path, f"m{case.seed}-{name}", ["--verify"] + options)
    if ORDER_WARNING in said:
        raise emitted.Failure(f"{name} is warned about although it is in order:\n{said}")
    shop.build(folder)
    run = shop.run(folder, [f"--transport={case.transports[i]}"] if len(schedule) > 1 else [])
    wrong = emitted.difference(base, run)
    if wrong:
        raise emitted.Failure(f"{name} on {len(schedule)} ranks: {wrong}")
    if run[1]["mapped_bytes"] != predicted:
        raise emitted.Failure(f"{name}: mapped {run[1]['mapped_bytes']}, predicted {predicted}")


def try_seed(shop, seed, keep):
    """Returns the failures of a seed."""
    case, failures = Case(seed, shop.folder), []
    try:
        base = one_rank(shop, case)
    except emitted.Failure as failure:
        return [str(failure)]
    for i in range(PER_MODEL):
        try:
            many_ranks(shop, case, i, base)
        except emitted.Failure as failure:
            failures.append(str(failure))
    if not keep:
        for name in os.listdir(shop.folder):
            if name.startswith(f"m{seed}-"):
                shutil.rmtree(os.path.join(shop.folder, name))
    return failures


def main(first, count, keep=None):
    folder = keep or tempfile.mkdtemp(prefix="ppc-random-")
    os.makedirs(folder, exist_ok=True)
    shop, failed, start = emitted.Shop(folder), 0, time.time()
    with ThreadPoolExecutor(2) as pool:
        for seed, failures in zip(range(first, first + count), pool.map(lambda s: try_seed(shop, s, keep), range(first, first + count))):
            failed += bool(failures)
            for failure in failures:
                print(f"seed {seed}: {failure}\n  again: testdata/random/train.py {seed} 1 --keep=DIR", flush=True)
            if sys.stdout.isatty() or (seed - first) % 100 == 99:
                print(f"{seed - first + 1} models, {time.time() - start:.0f} s, {failed} failed", flush=True)
    if not keep:
        shutil.rmtree(folder)
    print(f"{count * PER_MODEL} schedules of {count} models: {failed} models failed")
    return failed != 0


if __name__ == "__main__":
    kept = [a[len("--keep="):] for a in sys.argv[1:] if a.startswith("--keep=")]
    numbers = [int(a) for a in sys.argv[1:] if not a.startswith("--")]
    sys.exit(main(*numbers, *kept))
