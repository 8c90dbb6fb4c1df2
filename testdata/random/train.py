#!/usr/bin/env python3
"""train.py FIRST MODELS [--check=EVERY] [--keep=DIR]: random models × random schedules × random placements.

For each seed from FIRST on: a model, its run on one rank, and several valid schedules on several ranks. Each must
train to the same bits as one rank, map the bytes that `ppc check` predicts, be refused with one byte less, and get no
warning about its order. Some runs are traced: the trace must hold the schedule's actions and the plan's transfers. One
schedule of every EVERY-th model runs in both checking builds as well. A failure prints the command that repeats it; with
--keep the folder stays."""
import json
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
        self.fused = [rng.random() > 0.05 for _ in self.schedules]
        self.traced = [rng.random() < 0.15 for _ in self.schedules]
        for name, schedule in self.schedules:
            flat = all(len(block) == 1 for blocks in schedule for block in blocks)
            self.text += "\n" + (schedules.table if flat and rng.random() < 0.3 else schedules.text)(name, schedule)
        with open(self.path, "w") as f:
            f.write(self.text)

    def schedule(self, rng):
        m = self.model
        needs = schedules.Needs(m.needs) if rng.random() < 0.5 else schedules.Needs.chain(m.stages)
        ranks = rng.randint(1 if rng.random() < 0.1 else min(2, m.stages), min(m.stages, 8))
        return schedules.make(rng, needs, schedules.placement(rng, m.stages, ranks), m.microbatches)


def one_rank(shop, case):
    folder, _ = shop.compile(case.path, f"m{case.seed}-one", ["--verify", "--ranks=1", "--schedule=gpipe"])
    shop.build(folder)
    run = shop.run(folder)
    if any(step["loss"] is None for step in run[0]):
        raise emitted.Failure(f"the loss is not finite: {run[0]}")
    return run


def predict(case, options):
    """The report of `ppc check`; a byte less than the fullest rank needs is refused."""
    report = emitted.check(case.path, options)
    most = max(rank["mapped_bytes"] for rank in report["ranks"])
    status, out, err = emitted.call([emitted.PPC, "check", case.path, f"--memory={most - 1}"] + options)
    if status != 1 or out or f"needs {most:,} bytes" not in err:
        raise emitted.Failure(f"--memory={most - 1}: status {status}\n{err}")
    return report, [f"--memory={most}"]


def check_trace(path, schedule, report):
    """Of step 2: each rank's tasks in the order of the schedule (some stages have nothing to do), and all transfers."""
    with open(path) as f:
        events = [e for e in json.load(f)["traceEvents"] if e.get("args", {}).get("step") == 2]
    kinds = {"fwd": "F", "bwd": "B", "bwd_input": "I", "bwd_weight": "W"}
    for r, blocks in enumerate(schedule):
        ran = [(kinds.get(e["args"]["kind"]), e["args"]["stage"], e["args"].get("microbatch"))
               for e in events if e.get("cat") == "task" and e["ph"] == "X" and e["pid"] == r]
        planned = iter([a for block in blocks for a in block])
        if len(ran) != report["ranks"][r]["actions"] or not all(a in planned for a in ran if a[0]):
            raise emitted.Failure(f"rank {r}'s trace: {ran}")
    moved = sum(e.get("cat") == "transfer" and e["ph"] == "b" and e["args"]["to"] == e["pid"] for e in events)
    if moved != report["transfers"]["count"]:
        raise emitted.Failure(f"{moved} transfers are traced, {report['transfers']['count']} planned")


def many_ranks(shop, case, i, base):
    name, schedule = case.schedules[i]
    options = [f"--ranks={len(schedule)}", f"--schedule={name}"] + ["--no-fuse"] * (not case.fused[i])
    report, limit = predict(case, options)
    folder, said = shop.compile(case.path, f"m{case.seed}-{name}", ["--verify"] + options + limit)
    if ORDER_WARNING in said:
        raise emitted.Failure(f"{name} is warned about although it is in order:\n{said}")
    shop.build(folder)
    trace = os.path.join(folder, "trace.json")
    run = shop.run(folder, [f"--transport={case.transports[i]}"] * (len(schedule) > 1) + [f"--trace={trace}"] * case.traced[i])
    wrong = emitted.difference(base, run)
    predicted = [rank["mapped_bytes"] for rank in report["ranks"]]
    if not wrong and run[1]["mapped_bytes"] != predicted:
        wrong = f"mapped {run[1]['mapped_bytes']}, predicted {predicted}"
    if wrong:
        raise emitted.Failure(f"{name} on {len(schedule)} ranks: {wrong}")
    if case.traced[i]:
        check_trace(trace, schedule, report)


def try_seed(shops, seed, check, keep):
    """Returns the failures of a seed."""
    case, failures = Case(seed, shops[0].folder), []
    try:
        base = one_rank(shops[0], case)
    except emitted.Failure as failure:
        return [str(failure)]
    checked = [(shop, seed % PER_MODEL) for shop in shops[1:]] if check and seed % check == 0 else []
    for shop, i in [(shops[0], i) for i in range(PER_MODEL)] + checked:
        try:
            many_ranks(shop, case, i, base)
        except emitted.Failure as failure:
            failures.append(str(failure))
    if not keep:
        clean(shops, f"m{seed}")
    return failures


def clean(shops, name):
    """Away with the folders of a seed and its file."""
    for shop in shops:
        for entry in os.listdir(shop.folder):
            if entry.startswith(name + "-"):
                shutil.rmtree(os.path.join(shop.folder, entry))
    os.remove(os.path.join(shops[0].folder, name + ".pp"))


def main(first, count, check=0, keep=None):
    folder = keep or tempfile.mkdtemp(prefix="ppc-random-")
    shops = [emitted.Shop(folder)] + [emitted.Shop(os.path.join(folder, kind), kind) for kind in ("check", "threads")]
    failed, start, seeds = 0, time.time(), range(first, first + count)
    with ThreadPoolExecutor(2) as pool:
        for seed, failures in zip(seeds, pool.map(lambda s: try_seed(shops, s, check, keep), seeds)):
            failed += bool(failures)
            for failure in failures:
                print(f"seed {seed}: {failure}\n  again: testdata/random/train.py {seed} 1 --keep=DIR", flush=True)
            if sys.stdout.isatty() or (seed - first) % 100 == 99:
                print(f"{seed - first + 1} models, {time.time() - start:.0f} s, {failed} failed", flush=True)
    if not keep:
        shutil.rmtree(folder)
    print(f"{count * PER_MODEL} schedules of {count} models: {failed} models failed")
    return failed != 0


def word(name, default):
    return next((a.split("=", 1)[1] for a in sys.argv[1:] if a.startswith(f"--{name}=")), default)


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:] if not a.startswith("--")]
    sys.exit(main(*numbers, check=int(word("check", 0)), keep=word("keep", None)))
