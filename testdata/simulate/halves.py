"""halves.py WHOLE HALVES: predictions WHOLE.HALVES.json and so on, the first name that of the trace, the second that of
the schedule. A trace of whole backwards is shared out to halves, one of halves is added up."""
import json
import sys

whole, halves = sys.argv[1:]


def tasks(trace, schedule):
    costs = json.load(open(f"{trace}.{schedule}.json"))["costs"]
    assert costs["from"] == "measured"
    return {(t["stage"], t["kind"]): t["cost"] for t in costs["tasks"]}


def near(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


for trace in (whole, halves):
    one, two = tasks(trace, whole), tasks(trace, halves)
    for stage in range(4):
        assert near(one[stage, "fwd"], two[stage, "fwd"])
        split = [two[stage, kind] for kind in ("bwd_input", "bwd_weight") if (stage, kind) in two]
        assert near(one[stage, "bwd"], sum(split)) and all(cost > 0 for cost in split), (trace, stage, one, two)
print("ok")
