"""independent.py PPC SEED: every library schedule against a simulator that shares nothing with ppc's: the table of actions
from `ppc dump --format=csv`, times by fixed-point iteration over all actions, random costs for each stage."""
import json
import random
import re
import subprocess
import sys

ppc, seed = sys.argv[1], int(sys.argv[2])
random.seed(seed)
SCHEDULES = re.findall(r"^schedule (\w+)\(", open(sys.argv[3]).read(), re.M)


def cells(line):
    """One list of actions (stage, kind, microbatch) for each cell that is not empty."""
    for cell in line.split(","):
        if cell:
            yield [(int(s), k, int(m)) for s, k, m in re.findall(r"(\d+)([FBIW])(\d+)", cell)]


def cost_of(costs, kind, stage):
    return costs["I"][stage] + costs["W"][stage] if kind == "B" else costs[kind][stage]


def needs(action, last_stage, there):
    s, kind, m = action
    if kind == "F":
        return [(s - 1, "F", m)] if s else []
    if kind == "W":
        return [(s, "I", m)]
    return [(s, "F", m)] + [(s + 1, k, m) for k in "BI" if s < last_stage and (s + 1, k, m) in there]


def simulate(rows, costs, pair):
    rank = {action: r for r, row in enumerate(rows) for block in row for action in block}
    last_stage = max(s for s, _, _ in rank)
    start, end = dict.fromkeys(rank, 0.0), dict.fromkeys(rank, 0.0)
    moved = True
    while moved:  # up to the longest path
        moved = False
        for r, row in enumerate(rows):
            clock = 0.0
            for block in row:
                for action in block:
                    for other in needs(action, last_stage, rank):
                        clock = max(clock, end[other] + (costs["transfer"][other[0]] if rank[other] != r else 0))
                begun = clock
                both = pair is not None and sorted(k for _, k, _ in block) in (["B", "F"], ["F", "I"])
                for action in block:
                    if both:
                        clock = begun + pair
                    else:
                        begun, clock = clock, clock + cost_of(costs, action[1], action[0])
                    moved |= (start[action], end[action]) != (begun, clock)
                    start[action], end[action] = begun, clock
    return [measure(row, start, end) for row in rows]


def measure(row, start, end):
    """Span, busy time, most stashes until I and until W."""
    live = held = peak_live = peak_held = 0
    busy = 0.0
    for block in row:
        kinds = [k for _, k, _ in block]
        live += kinds.count("F")
        held += kinds.count("F")
        peak_live, peak_held = max(peak_live, live), max(peak_held, held)
        live -= kinds.count("B") + kinds.count("I")
        held -= kinds.count("B") + kinds.count("W")
        busy += max(end[a] for a in block) - min(start[a] for a in block)
    return end[row[-1][-1]] - start[row[0][0]], busy, peak_live, peak_held


def run(*arguments):
    return subprocess.run([ppc, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


compared = 0
for schedule in SCHEDULES:
    for _ in range(4):
        ranks, microbatches = random.choice([1, 2, 3, 4, 5]), random.choice([2, 4, 6, 8, 9, 12])
        common = [f"--schedule={schedule}", f"--ranks={ranks}", f"--microbatches={microbatches}"]
        table = run("dump", *common, "--format=csv")
        if table.returncode:
            assert table.returncode == 1 and "error:" in table.stderr, table
            continue
        rows = [list(cells(line)) for line in table.stdout.splitlines()]
        stages = 1 + max(s for row in rows for block in row for s, _, _ in block)
        costs = {key: [random.choice([0.5, 1, 1, 1.25, 2, 3]) for _ in range(stages)] for key in ("F", "I", "W", "transfer")}
        pair = random.choice([None, 1.5])
        text = ",".join(f"{key}=[{','.join(map(str, values))}]" for key, values in costs.items())
        done = run("simulate", *common, "--json", f"--cost={text}" + (f",pair={pair}" if pair else ""))
        assert done.returncode == 0, (common, done.stderr)
        got, want = json.loads(done.stdout), simulate(rows, costs, pair)
        step = max(span for span, _, _, _ in want)
        assert abs(got["step_time"] - step) < 1e-9, (common, text, pair, got["step_time"], step)
        for mine, (span, busy, live, held) in zip(got["ranks"], want):
            assert abs(mine["end"] - mine["start"] - span) < 1e-9 and abs(mine["work"] - busy) < 1e-9, (common, text, pair, mine, span, busy)
            assert (mine["peak_live"], mine["peak_live_weight_held"]) == (live, held), (common, mine, live, held)
        compared += 1
print(len(SCHEDULES), "schedules,", compared, "compared")
assert len(SCHEDULES) >= 13 and compared >= 2 * len(SCHEDULES)
