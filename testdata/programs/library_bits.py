#!/usr/bin/env python3
"""library_bits.py [--ranks=2,4] [--microbatches=P-1,4P] [--models=gpt2,…] [--schedules=zb_h1,…] [--keep=DIR]

Every schedule of the library × ranks × microbatches trains every model to the bits of one rank with the same cut,
and maps the bytes that `ppc check` predicts. What a schedule does not allow is refused at a `require` of the library.
One run on one rank serves all schedules of a cut and a number of microbatches. The models are as small as they get."""
import os
import re
import shutil
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "testdata"))
import emitted  # noqa: E402

LIBRARY = os.path.join(ROOT, "dsl", "lib", "schedules.pp")
TWO_CHUNKS = {"zb_v", "v_half", "v_min", "dualpipe_v"}  # in a V; those with an argument `chunks` get two as well
COMMON = ["-Dwidth=8", "-Dlength=4", "--steps=2"]
MODELS = {"gpt2": ["-Dheads=2"], "llama": ["-Dheads=2", "-Dkv_heads=1", "-Dhidden=8", "-Dvocab=16"], "skip": [],
          "encdec": ["-Dheads=2", "-Dvocab=16"]}


def library():
    """The schedules as (name, chunks of a rank)."""
    found = re.findall(r"^schedule (\w+)\(([^{]*)\)", open(LIBRARY).read(), re.M)
    return [(name, 2 if "chunks" in arguments or name in TWO_CHUNKS else 1) for name, arguments in found]


def allowed(name, ranks, microbatches):
    """The table of the facts, column "needs"."""
    if name in ("interleaved_1f1b", "kimi_k2", "interleaved_zero_bubble"):
        return microbatches % max(1, microbatches // ranks) == 0
    if name == "looped_bfs":
        return microbatches >= ranks
    return name not in ("v_half", "v_min", "dualpipe_v") or microbatches >= 2 * ranks


class Bench:
    def __init__(self, folder):
        self.shop, self.lock, self.references = emitted.Shop(folder), threading.Lock(), {}

    def options(self, model, stages, microbatches):
        layers = stages - 1 if model == "encdec" else stages
        return COMMON + MODELS[model] + [f"-Dstages={stages}", f"-Dlayers={layers}", f"--microbatches={microbatches}"]

    def train(self, model, name, options):
        path = os.path.join(ROOT, "testdata", "models", f"{model}.pp")
        folder, said = self.shop.compile(path, name, options)
        if "within rounding" in said:
            raise emitted.Failure(f"{name}: gradients are added out of order\n{said}")
        self.shop.build(folder)
        run = self.shop.run(folder)
        shutil.rmtree(folder)
        return run, path

    def reference(self, model, stages, microbatches):
        """The run on one rank, made by whoever asks first."""
        key = (model, stages, microbatches)
        with self.lock:
            lock, made = self.references.setdefault(key, (threading.Lock(), []))
        with lock:
            if not made:
                options = self.options(*key) + ["--ranks=1", "--schedule=gpipe"]
                made.append(self.train(model, "one-" + "-".join(map(str, key)), options)[0])
            return made[0]

    def try_one(self, model, schedule, chunks, ranks, microbatches):
        stages = max(chunks * ranks, 2 if model == "encdec" else 1)
        options = self.options(model, stages, microbatches) + [f"--ranks={ranks}", f"--schedule={schedule}"]
        if not allowed(schedule, ranks, microbatches):
            refused(os.path.join(ROOT, "testdata", "models", f"{model}.pp"), options)
            return
        base = self.reference(model, stages, microbatches)
        run, path = self.train(model, f"{model}-{schedule}-{ranks}-{microbatches}", options)
        wrong = emitted.difference(base, run)
        if wrong:
            raise emitted.Failure(wrong)
        predicted = [rank["mapped_bytes"] for rank in emitted.check(path, options)["ranks"]]
        if run[1]["mapped_bytes"] != predicted:
            raise emitted.Failure(f"mapped {run[1]['mapped_bytes']}, predicted {predicted}")


def refused(path, options):
    status, out, err = emitted.call([emitted.PPC, "check", path, "--color=never"] + options)
    if status != 1 or out or not re.search(r"error: [^\n]*\bmust be\b.*schedules\.pp:\d+:\d+: note: required here", err, re.S):
        raise emitted.Failure(f"status {status}; to be refused by what the schedule requires:\n{err}")


def counts(text, ranks):
    """"P-1,4P" for 4 ranks is [3, 16]; without what is below 1."""
    terms = [re.fullmatch(r"(\d*)(P?)([+-]\d+)?", t) for t in text.split(",")]
    values = [(int(t[1] or 1) * (ranks if t[2] else 1) + int(t[3] or 0)) for t in terms]
    return sorted({v for v in values if v > 0})


def cases(words):
    names = words["schedules"].split(",") if words["schedules"] else None
    for model in words["models"].split(","):
        for ranks in map(int, words["ranks"].split(",")):
            for microbatches in counts(words["microbatches"], ranks):
                for schedule, chunks in library():
                    if not names or schedule in names:
                        yield model, schedule, chunks, ranks, microbatches


def main(arguments):
    words = {"ranks": "2,4", "microbatches": "P-1,4P", "models": ",".join(MODELS), "schedules": "", "keep": ""}
    words.update(a[2:].split("=", 1) for a in arguments)
    folder = words["keep"] or tempfile.mkdtemp(prefix="ppc-library-")
    os.makedirs(folder, exist_ok=True)
    bench, failed, done = Bench(folder), 0, 0

    def attempt(case):
        try:
            bench.try_one(*case)
        except emitted.Failure as failure:
            return str(failure)
        return None

    with ThreadPoolExecutor(2) as pool:
        todo = list(cases(words))
        for case, failure in zip(todo, pool.map(attempt, todo)):
            done += 1
            if failure:
                failed += 1
                model, schedule, _, ranks, microbatches = case
                again = f"--models={model} --schedules={schedule} --ranks={ranks} --microbatches={microbatches}"
                print(f"{model}, {schedule}, {ranks} ranks, {microbatches} microbatches: {failure}\n  again: "
                      f"testdata/programs/library_bits.py {again}", flush=True)
    if not words["keep"]:
        shutil.rmtree(folder)
    print(f"{done} runs of {len(library())} schedules: {failed} failed")
    return failed != 0 or done == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
