# trace.py PLAN TRACE FIRST LAST: a trace file holds what the plan says for each step, and its times can be.
import json, sys
from collections import Counter, defaultdict

plan, trace = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
first, last = int(sys.argv[3]), int(sys.argv[4])
steps = range(first, last + 1)
head, events = trace["otherData"], trace["traceEvents"]
EPS = 0.002  # µs: times have three digits


def of(cat, ph):
    return [e for e in events if e.get("cat") == cat and e["ph"] == ph]


def end(e):
    return e["ts"] + e["dur"]


assert head["plan"] == plan["plan_hash"] and head["ranks"] == plan["n_ranks"], head
assert (head["first_step"], head["last_step"]) == (first, last), head
assert set(e["ph"] for e in events) <= set("MXbesf")
names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
assert names == {r: f"rank {r}" for r in range(plan["n_ranks"])}, names

# Every action of every step, in the order of the plan; none begins before the one before it ends.
tasks = defaultdict(list)
for e in of("task", "X"):
    tasks[e["pid"], e["args"]["step"]].append(e)
assert set(tasks) == {(r["rank"], s) for r in plan["ranks"] for s in steps}
for rank in plan["ranks"]:
    before = -1
    for s in steps:
        row = tasks[rank["rank"], s]
        assert len(row) == len(rank["actions"])
        for i, (e, a) in enumerate(zip(row, rank["actions"])):
            task, args = plan["tasks"][a["task"]], e["args"]
            assert e["name"] == task["name"] and args["kind"] == task["kind"] and args["stage"] == task["stage"]
            assert args["microbatch"] == a["microbatch"] and args["line"] == a["line"] and args["action"] == i
            assert e["ts"] >= before - EPS and e["dur"] >= 0, (e, before)
            before = end(e)
assert any(e["dur"] > 0 for e in of("task", "X"))

# A step holds its tasks.
marks = {(e["pid"], e["args"]["step"]): e for e in of("step", "X")}
assert set(marks) == set(tasks)
for key, mark in marks.items():
    assert mark["ts"] <= tasks[key][0]["ts"] + EPS and end(mark) >= end(tasks[key][-1]) - EPS

# Waits are the plan's, at their actions.
planned = Counter()
for rank in plan["ranks"]:
    for i, a in enumerate(rank["actions"]):
        for op, t, _ in a.get("before", []) + a.get("after", []):
            if op.startswith("await"):
                planned[rank["rank"], i, op[6:], t] += 1
seen = Counter((e["pid"], e["args"]["action"], e["args"]["why"], e["args"]["id"]) for e in of("wait", "X"))
assert seen == Counter({k: v * len(steps) for k, v in planned.items()})

# Each transfer once a step, with its bytes; it ends before its receiver's wait does, and does not begin
# before its sender's earliest task has ended.
begins, ends = of("transfer", "b"), {e["id"]: e for e in of("transfer", "e")}
assert len(begins) == len(ends) == len(plan["transfers"]) * len(steps)
waits = {(e["args"]["id"], e["args"]["step"]): e for e in of("wait", "X") if e["args"]["why"] == "receive"}
for b in begins:
    a, e = b["args"], ends[b["id"]]
    t = plan["transfers"][a["id"]]
    assert all(a[k] == t[k] for k in ("value", "microbatch", "from", "to", "bytes")), (a, t)
    wait, copy = waits[a["id"], a["step"]], e["args"]["copy_us"]
    assert b["pid"] == a["to"] and wait["pid"] == a["to"] and wait["args"]["peer"] == a["from"]
    assert b["ts"] >= tasks[a["from"], a["step"]][0]["ts"] - EPS
    assert b["ts"] <= e["ts"] - copy + EPS and e["ts"] <= end(wait) + EPS, (b, e, wait)
assert len({(b["args"]["id"], b["args"]["step"]) for b in begins}) == len(begins)

# Arrows: both ends lie in something, and they point forward.
starts, finishes = {e["id"]: e for e in of("flow", "s")}, {e["id"]: e for e in of("flow", "f")}
assert set(starts) == set(finishes) == set(ends)
slices = defaultdict(list)
for e in of("task", "X") + of("wait", "X"):
    slices[e["pid"]].append((e["ts"], end(e)))
for i in starts:
    for e in (starts[i], finishes[i]):
        assert any(a - EPS <= e["ts"] <= b + EPS for a, b in slices[e["pid"]]), e
    assert starts[i]["ts"] <= finishes[i]["ts"] + EPS
print(len(events), "events")
