#!/usr/bin/env python3
"""mutate.py FIRST COUNT [--train=EVERY] [--keep=DIR]: valid schedules, made wrong or only other.

From a schedule of the library or a random one, one to three mutations: two actions swapped, one dropped, repeated,
moved, given another rank, stage, microbatch or kind, blocks joined. Where the stages form a chain `schedule.judge` knows
whether the result is right, and `ppc check`, with a model and without, must say the same: status 1 and errors at places
in the file, or status 0, with a warning exactly when gradients are added out of order. One in EVERY of those accepted is
trained: to the bits of one rank, or within rounding where the warning said so. A fifth are of random models."""
import os
import random
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, HERE)
import emitted  # noqa: E402
import model as models  # noqa: E402
import schedule as schedules  # noqa: E402
from train import ORDER_WARNING, word  # noqa: E402

LIBRARY = ("gpipe", "one_f_one_b", "eager_1f1b", "zb_h1", "zb_h2", "looped_bfs", "interleaved_1f1b", "kimi_k2",
           "interleaved_zero_bubble", "zb_v", "v_half", "v_min", "dualpipe_v")
ERROR = re.compile(r"^[^:\n]+:\d+:\d+: error: .", re.M)
MODEL = """use nn;
use optim;
use schedules;
const stages = 2;

module net(stages) {
  part[stages]: linear(6, 6, std = 0.4);
  fn (sample: [b, 6]) {
    let x = cast(sample, real);
    let y = x;
    for i in 0..stages {
      y = y + tanh(part[i](y));
      if i + 1 < stages { stage_end; }
    }
    return mean_squared_error(y, sin(x));
  }
}

train {
  model     net = net(stages);
  batch     microbatch = 2, microbatches = 2;
  data      x = synthetic(6);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.05), momentum = 0.9);
  steps     2;
}
"""

# --- mutations: each changes a schedule in place --------------------------------------------------------------


def spot(rng, schedule):
    """A rank and the number of one of its blocks."""
    r = rng.choice([r for r, blocks in enumerate(schedule) if blocks])
    return r, rng.randrange(len(schedule[r]))


def swap_near(rng, schedule):
    r, i = spot(rng, schedule)
    j = min(len(schedule[r]) - 1, i + rng.choice((1, 1, 2)))
    schedule[r][i], schedule[r][j] = schedule[r][j], schedule[r][i]


def swap_any(rng, schedule):
    r, i = spot(rng, schedule)
    q, j = spot(rng, schedule)
    schedule[r][i], schedule[q][j] = schedule[q][j], schedule[r][i]


def drop(rng, schedule):
    r, i = spot(rng, schedule)
    schedule[r].pop(i)


def repeat(rng, schedule):
    r, i = spot(rng, schedule)
    schedule[r].insert(rng.randint(0, len(schedule[r])), list(schedule[r][i]))


def move(rng, schedule):
    r, i = spot(rng, schedule)
    block = schedule[r].pop(i)
    near = max(0, i + rng.choice((-3, -2, 2, 3)))
    schedule[r].insert(rng.choice((near, rng.randint(0, len(schedule[r])))), block)


def other_rank(rng, schedule):
    r, i = spot(rng, schedule)
    q = rng.randrange(len(schedule))
    schedule[q].insert(rng.randint(0, len(schedule[q])), schedule[r].pop(i))


def whole_stage_moved(rng, schedule):
    """All of a stage to another rank, in an order that may or may not do."""
    r, i = spot(rng, schedule)
    stage, q = schedule[r][i][0][1], rng.randrange(len(schedule))
    taken = [(n, b) for n, b in enumerate(schedule[r]) if b[0][1] == stage]
    schedule[r] = [b for b in schedule[r] if b[0][1] != stage]
    for n, block in taken:
        schedule[q].insert(min(len(schedule[q]), n * 2), block)


def renumber(part, by):
    def mutate(rng, schedule):
        r, i = spot(rng, schedule)
        action = list(schedule[r][i][0])
        action[part] += rng.choice(by)
        schedule[r][i] = [tuple(action)] + schedule[r][i][1:]
    return mutate


def other_kind(rng, schedule):
    r, i = spot(rng, schedule)
    schedule[r][i] = [(rng.choice("FBIW"),) + schedule[r][i][0][1:]] + schedule[r][i][1:]


def halve(rng, schedule):
    """A whole backward as its halves, the second somewhere behind the first."""
    r, i = spot(rng, schedule)
    kind, s, m = schedule[r][i][0]
    if kind == "B" and len(schedule[r][i]) == 1:
        schedule[r][i] = [("I", s, m)]
        schedule[r].insert(rng.randint(i + 1, min(len(schedule[r]), i + 4)), [("W", s, m)])


def join(rng, schedule):
    r, i = spot(rng, schedule)
    if i + 1 < len(schedule[r]):
        schedule[r][i] = schedule[r][i] + schedule[r].pop(i + 1)


MUTATIONS = (swap_near, swap_near, swap_near, swap_any, drop, repeat, move, move, other_rank, whole_stage_moved, renumber(1, (-1, 1)),
             renumber(2, (-1, 1)), other_kind, halve, halve, join, join)


def mutated(rng, schedule):
    out = [[list(block) for block in blocks] for blocks in schedule]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(MUTATIONS)(rng, out)
    return out


# --- the schedules to start from ------------------------------------------------------------------------------


def dumped(path, options):
    """The actions of a schedule as `ppc dump` prints them."""
    out, _ = emitted.need([emitted.PPC, "dump", path, "--after=schedule", "--pretty", "--color=never"] + options)
    kinds, ranks = {call: kind for kind, call in schedules.CALLS.items()}, []
    for line in out.splitlines():
        if re.match(r"rank \d+, stages ", line):
            ranks.append([])
        found = re.match(r"\s*\d+\s+(\w+)\s+stage (\d+)\s+microbatch (\d+)\b", line)
        if found and found[1] in kinds:
            ranks[-1].append([(kinds[found[1]], int(found[2]), int(found[3]))])
    return ranks


class Starts:
    """Schedules of the library are dumped once."""

    def __init__(self, folder):
        self.path, self.known = os.path.join(folder, "chain.pp"), {}
        with open(self.path, "w") as f:
            f.write(MODEL)

    def library(self, rng):
        key = (rng.choice(LIBRARY), *rng.choice(((2, 2), (2, 4), (3, 3), (4, 4))), rng.choice((1, 2, 3, 4, 5)))
        if key not in self.known:
            name, ranks, stages, microbatches = key
            options = [f"--schedule={name}", f"--ranks={ranks}", f"-Dstages={stages}", f"--microbatches={microbatches}"]
            status = emitted.call([emitted.PPC, "check", self.path] + options)[0]
            self.known[key] = dumped(self.path, options) if status == 0 else None
        return self.known[key], key[2], key[3]

    def any(self, rng):
        schedule = None
        if rng.random() < 0.5:
            schedule, stages, microbatches = self.library(rng)
        if schedule is None:
            stages, microbatches = rng.randint(2, 5), rng.randint(1, 4)
            place = schedules.placement(rng, stages, rng.randint(2, min(stages, 4)))
            schedule = schedules.make(rng, schedules.Needs.chain(stages), place, microbatches)
        return schedule, stages, microbatches


# --- checking -------------------------------------------------------------------------------------------------


class Mutant:
    """Of a chain: what is right is known in every case."""
    bare = table = None  # files beside `path`: the schedule alone, and as a table

    def __init__(self, starts, folder, rng, seed):
        start, stages, microbatches = starts.any(rng)
        self.bare_options = [f"--stages={stages}", f"--microbatches={microbatches}"]
        self.prepare(rng, folder, seed, start, MODEL, [f"-Dstages={stages}", f"--microbatches={microbatches}"])
        self.judge(stages, microbatches, schedules.Needs.chain(stages))
        self.bare = self.write(os.path.join(folder, f"x{seed}_bare.pp"), "")
        self.write_table(os.path.join(folder, f"x{seed}.csv"))

    def write_table(self, path):
        """The schedule as a table. There, a whole backward and a weight half of it are an old way to write the halves."""
        text = schedules.csv(self.schedule)
        if text and "both the whole" not in (self.reason or ""):
            self.table = path
            with open(path, "w") as f:
                f.write(text)

    def prepare(self, rng, folder, seed, start, model, options):
        self.seed, self.schedule = seed, mutated(rng, start)
        self.common = ["--schedule=mutant", f"--ranks={len(self.schedule)}"]
        self.options = self.common + options
        self.path = self.write(os.path.join(folder, f"x{seed}.pp"), model)

    def judge(self, stages, microbatches, needs):
        self.reason, self.in_order = schedules.judge(self.schedule, stages, microbatches, needs)
        self.stuck = "can't run" in (self.reason or "")

    def write(self, path, head):
        with open(path, "w") as f:
            f.write(head + "\n" + schedules.text("mutant", self.schedule))
        return path

    def check(self):
        """None, or what is wrong with what `ppc check` says, with the model and without, and of the table."""
        runs = [[self.path] + self.options, [self.bare] + self.common + self.bare_options]
        if self.table:
            runs.append([self.path] + self.options + [f"--schedule={self.table}"])
        for options in runs:
            status, out, err = emitted.call([emitted.PPC, "check", "--color=never"] + options)
            wrong = self.wrong_verdict(status, out, err)
            if wrong:
                return f"{' '.join(options)}: {wrong}\n{err}"
        return None

    def wrong_verdict(self, status, out, err):
        self.accepted = status == 0
        if status != (1 if self.reason else 0):
            return f"status {status}, but {self.reason or 'it is right'}"
        if self.stuck and "error: this schedule can't finish" not in err:
            return f"no error about a deadlock, although {self.reason}"
        if self.reason:
            return None if ERROR.search(err) and not out else f"no error with a place, or a report as well: {out}"
        if (ORDER_WARNING in err) == self.in_order:
            return f"a warning about the order is {'there' if self.in_order else 'missing'}"
        return None

    def train(self, shop):
        runs = []
        for name, options in (("one", ["--ranks=1", "--schedule=gpipe"]), ("many", [])):
            folder, _ = shop.compile(self.path, f"x{self.seed}-{name}", self.options + options)
            shop.build(folder)
            runs.append(shop.run(folder))
            shutil.rmtree(folder)
        if self.in_order:
            return emitted.difference(*runs)
        near = all(abs(a[key] - b[key]) <= 1e-4 * abs(a[key]) for a, b in zip(runs[0][0], runs[1][0]) for key in ("loss", "grad_norm"))
        return None if near else f"another result, beyond rounding: {runs[1][0]} instead of {runs[0][0]}"


class LooseMutant(Mutant):
    """Of a random model, of which only more is known than its stages need of one another: a schedule that would be stuck
    may still be right. Then it trains."""

    def __init__(self, starts, folder, rng, seed):
        text, model = models.make(rng, steps=2)
        while model.stages == 1:
            text, model = models.make(rng, steps=2)
        needs = schedules.Needs(model.needs)
        place = schedules.placement(rng, model.stages, rng.randint(2, min(model.stages, 4)))
        self.prepare(rng, folder, seed, schedules.make(rng, needs, place, model.microbatches), text, [])
        self.judge(model.stages, model.microbatches, needs)

    def check(self):
        status, out, err = emitted.call([emitted.PPC, "check", self.path, "--color=never"] + self.options)
        if self.stuck and status == 0:
            self.accepted, self.in_order = True, ORDER_WARNING not in err
            return None
        if not self.reason and not self.in_order and ORDER_WARNING not in err:
            self.in_order = True  # the stage has nothing to add
        wrong = self.wrong_verdict(status, out, err)
        return wrong and f"{' '.join(self.options)}: {wrong}\n{err}"


def try_mutant(starts, shop, seed, every, keep):
    """Returns (accepted, trained, what is wrong or None)."""
    rng = random.Random(seed)
    mutant = (LooseMutant if seed % 5 == 0 else Mutant)(starts, shop.folder, rng, seed)
    wrong = mutant.check()
    trains = not wrong and mutant.accepted and every and (mutant.stuck or rng.random() * every < 1)
    if trains:
        try:
            wrong = mutant.train(shop)
        except emitted.Failure as failure:
            wrong = str(failure)
    for path in (mutant.path, mutant.bare, mutant.table):
        if path and not keep:
            os.remove(path)
    return mutant.accepted, trains, wrong


def main(first, count, every=0, keep=None):
    folder = keep or tempfile.mkdtemp(prefix="ppc-mutants-")
    os.makedirs(folder, exist_ok=True)
    starts, shop = Starts(folder), emitted.Shop(folder)
    accepted = trained = failed = 0
    seeds = range(first, first + count)
    with ThreadPoolExecutor(2) as pool:
        for seed, (right, ran, wrong) in zip(seeds, pool.map(lambda s: try_mutant(starts, shop, s, every, keep), seeds)):
            accepted, trained, failed = accepted + right, trained + bool(ran), failed + bool(wrong)
            if wrong:
                again = f"testdata/random/mutate.py {seed} 1 --train=1 --keep=DIR"
                print(f"mutant {seed}: {wrong}\n  again: {again}; the file is DIR/x{seed}.pp", flush=True)
    if not keep:
        shutil.rmtree(folder)
    print(f"{count} mutants: {count - accepted} refused, {accepted} accepted, {trained} of them trained; {failed} wrong")
    return failed != 0 or (count >= 100 and not 0 < accepted < count)


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:] if not a.startswith("--")]
    sys.exit(main(*numbers, every=int(word("train", 0)), keep=word("keep", None)))
