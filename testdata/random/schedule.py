"""Random schedules and what is known about them. A schedule is a list of ranks, a rank a list of blocks, a block
a list of actions (kind, stage, microbatch), kinds being F, B, I and W; a block of several is an overlap.

Valid ones are made by list scheduling: a rank is drawn, then one of its actions that are ready, so the order in
which they were drawn proves that the schedule can finish. `judge` says of any schedule whether it is right."""

CALLS = {"F": "fwd", "B": "bwd", "I": "bwd_input", "W": "bwd_weight"}


class Needs:
    """Which actions an action waits for: those of its own stage, and those of the stages that it is tied to."""

    def __init__(self, below):
        self.below = below  # by stage: the stages whose forward results its forward reads
        self.above = [[t for t in range(len(below)) if s in below[t]] for s in range(len(below))]

    @staticmethod
    def chain(stages):
        return Needs([set(range(max(0, s - 1), s)) for s in range(stages)])

    def of(self, action, split):
        """`split` is the set of (stage, microbatch) that run halves."""
        kind, s, m = action
        if kind == "F":
            return [("F", q, m) for q in self.below[s]]
        if kind == "W":
            return [("I", s, m)]
        return [("F", s, m)] + [("I" if (t, m) in split else "B", t, m) for t in self.above[s]]


# --- making -------------------------------------------------------------------------------------------------


def placement(rng, stages, ranks):
    """A rank for each stage; each rank has one."""
    kind = rng.choice(("blocks", "round", "vee", "any", "any", "reversed"))
    if kind == "round":
        place = [s % ranks for s in range(stages)]
    elif kind == "vee":
        place = [s % (2 * ranks) if s % (2 * ranks) < ranks else 2 * ranks - 1 - s % (2 * ranks) for s in range(stages)]
    elif kind == "any":
        place = list(range(ranks)) + [rng.randrange(ranks) for _ in range(stages - ranks)]
        rng.shuffle(place)
    else:
        place = [s * ranks // stages for s in range(stages)]
    return place[::-1] if kind == "reversed" else place


def splitting(rng, stages, microbatches):
    """The (stage, microbatch) whose backward runs in halves."""
    kind = rng.choice(("none", "all", "stages", "microbatches", "mixed", "mixed"))
    odd = [rng.random() < 0.5 for _ in range(stages + microbatches)]
    return {(s, m) for s in range(stages) for m in range(microbatches)
            if kind == "all" or (kind == "stages" and odd[s]) or (kind == "microbatches" and odd[stages + m])
            or (kind == "mixed" and rng.random() < 0.5)}


class Maker:
    def __init__(self, rng, needs, place, microbatches, split):
        self.rng, self.needs, self.place, self.split = rng, needs, place, split
        self.stages, self.microbatches = len(place), microbatches
        self.done, self.added = set(), [0] * self.stages  # added: microbatches whose gradients the stage has
        self.left = {a for s in range(self.stages) for m in range(microbatches)
                     for a in ([("F", s, m)] + ([("I", s, m), ("W", s, m)] if (s, m) in split else [("B", s, m)]))}
        self.taste = [{k: rng.choice((0.05, 1, 20)) for k in CALLS} for _ in range(max(place) + 1)]
        self.order = rng.choice(("up", "up", "any"))

    def ready(self, rank):
        return [a for a in self.left if self.place[a[1]] == rank and all(n in self.done for n in self.needs.of(a, self.split))
                and (a[0] not in "BW" or a[2] == self.added[a[1]])]

    def draw(self, rank, n):
        """Up to n actions that are ready now: none can wait for another."""
        ready = sorted(self.ready(rank))
        drawn = []
        while ready and len(drawn) < n:
            kind = self.rng.choices(ready, [self.taste[rank][a[0]] for a in ready])[0][0]
            group = [a for a in ready if a[0] == kind]
            first = min(a[2] for a in group)
            drawn.append(self.rng.choice([a for a in group if a[2] == first] if self.order == "up" else group))
            ready.remove(drawn[-1])
        return drawn

    def take(self, actions):
        for a in actions:
            self.left.remove(a)
            self.done.add(a)
            self.added[a[1]] += a[0] in "BW"


def make(rng, needs, place, microbatches, overlaps=True):
    """A valid schedule in which each stage adds its gradients in ascending order."""
    maker = Maker(rng, needs, place, microbatches, splitting(rng, len(place), microbatches))
    ranks = max(place) + 1
    weights = [rng.choice((1, 1, 5)) for _ in range(ranks)]
    share = rng.choice((0, 0, 0.3)) if overlaps else 0
    out = [[] for _ in range(ranks)]
    while maker.left:
        rank = rng.choices(range(ranks), weights)[0]
        block = maker.draw(rank, rng.choice((2, 2, 3)) if rng.random() < share else 1)
        maker.take(block)
        if block:
            out[rank].append(block)
    return out


# --- judging ------------------------------------------------------------------------------------------------


def judge(schedule, stages, microbatches, needs):
    """Returns (None, in_order) of a right schedule, (reason, None) of a wrong one: it goes through the actions as
    ranks would whose sends never block. in_order: every stage adds its gradients in ascending order."""
    at, rank_of = {}, {}
    for r, blocks in enumerate(schedule):
        if not blocks:
            return f"rank {r} runs nothing", None
        for n, a in enumerate(a for block in blocks for a in block):
            if not (0 <= a[1] < stages and 0 <= a[2] < microbatches):
                return f"{a} is out of range", None
            if a in at:
                return f"{a} runs twice", None
            if rank_of.setdefault(a[1], r) != r:
                return f"stage {a[1]} runs on two ranks", None
            at[a] = n
    split = {a[1:] for a in at if a[0] in "IW"}
    for s in range(stages):
        for m in range(microbatches):
            whole = ("B", s, m) in at
            if whole and (s, m) in split:
                return f"({s}, {m}) runs both the whole and a half", None
            if any((k, s, m) not in at for k in ("FB" if whole else "FIW")):
                return f"({s}, {m}) is not complete", None
            if at[("F", s, m)] > at[("B" if whole else "I", s, m)] or (not whole and at[("I", s, m)] > at[("W", s, m)]):
                return f"({s}, {m}) runs backward before forward", None
    stuck = run(schedule, needs, split)
    if stuck:
        return f"rank {stuck[0]} can't run {stuck[1]}", None
    added = [[a[2] for blocks in schedule for block in blocks for a in block if a[1] == s and a[0] in "BW"] for s in range(stages)]
    return None, all(a == sorted(a) for a in added)


def run(schedule, needs, split):
    """None, or the first rank that is stuck and its block. A block starts when all that its actions need is there."""
    done, next_of, moved = set(), [0] * len(schedule), True
    while moved:
        moved = False
        for r, blocks in enumerate(schedule):
            while next_of[r] < len(blocks) and all(n in done for a in blocks[next_of[r]] for n in needs.of(a, split)):
                done.update(blocks[next_of[r]])
                next_of[r] += 1
                moved = True
    return next(((r, blocks[next_of[r]]) for r, blocks in enumerate(schedule) if next_of[r] < len(blocks)), None)


# --- printing -----------------------------------------------------------------------------------------------


def call(action):
    return f"{CALLS[action[0]]}({action[1]}, {action[2]});"


def text(name, schedule):
    """The schedule in the language, a call for each action."""
    lines = [f"schedule {name}(ranks, stages, microbatches) {{", "  rank r {"]
    for r, blocks in enumerate(schedule):
        lines.append(f"    if r == {r} {{")
        for block in blocks:
            calls = " ".join(call(a) for a in block)
            lines.append(f"      {calls}" if len(block) == 1 else f"      overlap {{ {calls} }}")
        lines.append("    }")
    return "\n".join(lines + ["  }", "}", ""])


def table(name, schedule):
    """The same as lists of numbers, which a loop walks."""
    rows = [[a for block in blocks for a in block] for blocks in schedule]
    numbers = ",\n    ".join("[" + ", ".join(f"[{'FBIW'.index(k)}, {s}, {m}]" for k, s, m in row) + "]" for row in rows)
    return f"""schedule {name}(ranks, stages, microbatches) {{
  let rows = [
    {numbers}];
  let kinds = [fwd, bwd, bwd_input, bwd_weight];
  rank r {{ for a in rows[r] {{ kinds[a[0]](a[1], a[2]); }} }}
}}
"""


def csv(schedule):
    """As PyTorch's table, a row for each rank; None with an overlap, for which it has one form only."""
    if any(len(block) > 1 for blocks in schedule for block in blocks):
        return None
    return "".join(",".join(f"{s}{kind}{m}" for (kind, s, m), in blocks) + "\n" for blocks in schedule)
