"""holds.py SIMULATE.json CHECK.json: what a model's prediction says of itself holds together, and with `ppc check`."""
import json
import sys


def near(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def hold_together(s, check, counts=None):
    """counts: how often each (stage, kind) of the loop runs, where that isn't once for each microbatch."""
    tasks = {(t["stage"], t["kind"]): t["cost"] for t in s["costs"]["tasks"]}
    work = {}
    for rank in check["ranks"]:
        total = 0.0
        for stage, kind in tasks:
            if stage in rank["stages"]:
                loop = kind in ("fwd", "bwd", "bwd_input", "bwd_weight")
                times = counts[stage, kind] if loop and counts else check["microbatches"] if loop else 1
                total += tasks[stage, kind] * times
        work[rank["rank"]] = total
    assert s["costs"]["from"] == "estimated" and s["unit"] == "seconds"
    assert s["n_ranks"] == len(s["ranks"]) == len(check["ranks"]) and s["stages"] == len(check["stages"])
    for rank, other in zip(s["ranks"], check["ranks"]):
        assert near(rank["work"], work[rank["rank"]]), (rank, work)
        assert abs(rank["bubble"] - (s["step_time"] - rank["work"])) <= 1e-9 * s["step_time"] and rank["bubble"] >= 0
        assert rank["actions"] == other["actions"]
        assert rank["mapped_bytes"] == other["mapped_bytes"] >= rank["peak_bytes"] > 0
    assert near(s["step_time"], max(r["end"] - r["start"] for r in s["ranks"]))
    assert abs(s["bubble"] - min(r["bubble"] for r in s["ranks"])) <= 1e-9 * s["step_time"] and near(s["bubble_rate"], s["bubble"] / s["step_time"])
    path = s["critical_path"]
    assert path[0]["start"] == 0 and path[-1]["end"] == max(r["end"] for r in s["ranks"])
    # On one rank a gap is the wait for an earlier send's buffer: at most the time of a transfer.
    hop = max((t["size_bytes"] for t in check["transfers"]["values"]), default=0) / s["costs"]["link"]
    for a, b in zip(path, path[1:]):
        gap = b["start"] - a["end"]
        assert gap >= 0 and (a["rank"] != b["rank"] or gap <= hop + 1e-9 * s["step_time"]), (a, b, hop)
    assert counts or {t["kind"] for t in path} & {"update", "decide", "finish"}, "the path goes through what follows the loop"
    if counts:
        return
    flops = check["product_flops_per_step"]
    assert flops / s["costs"]["flops"] <= sum(work.values()) * (1 + 1e-9)
    if s["costs"]["bandwidth"] >= 1e15:  # nothing but products takes time
        assert near(flops / s["costs"]["flops"], sum(work.values()))


if __name__ == "__main__":
    hold_together(*(json.load(open(path)) for path in sys.argv[1:3]))
    print("ok")
