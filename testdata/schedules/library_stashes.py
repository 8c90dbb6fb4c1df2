"""library_stashes.py PPC MODEL: under every schedule of the library the bytes of stashes on a rank are those that a replay of
its actions counts: a forward stash from fwd to the input half (or the whole backward), a weight stash from there to the weight
half. The counts are those of the published tables."""
import json
import os
import subprocess
import sys
import tempfile

ppc, model = sys.argv[1:3]

# name, chunks, peak of forward stashes on rank r of p with m microbatches and v chunks
ONE = [
    ("gpipe", 1, lambda p, r, m, v: m),
    ("one_f_one_b", 1, lambda p, r, m, v: min(m, p - r)),
    ("eager_1f1b", 1, lambda p, r, m, v: min(m, 2 * (p - r) - 1)),
    ("zb_h1", 1, lambda p, r, m, v: min(m, p - r)),
    ("zb_h2", 1, lambda p, r, m, v: min(m, 2 * (p - r) - 1)),
    ("looped_bfs", 2, lambda p, r, m, v: m * v),
    ("interleaved_1f1b", 2, lambda p, r, m, v: min(m * v, 2 * (p - 1 - r) + (v - 1) * min(m, p) + 1)),
    ("kimi_k2", 2, lambda p, r, m, v: min(m * v, 2 * (p - 1 - r) + (v - 1) * min(m, p) + 2)),
    ("interleaved_zero_bubble", 2, None),
    ("zb_v", 2, lambda p, r, m, v: 2 * p if m >= 2 * p - 1 else None),
    ("dualpipe_v", 2, lambda p, r, m, v: 2 * p + 1),
]


def replay(actions, tasks, stages):
    """Most bytes between two actions, most forward stashes."""
    now = count = most_bytes = most = 0
    for action in actions:
        task = tasks[action["task"]]
        stage = stages[task["stage"]]
        stash, weight = stage["stash_bytes"], stage["weight_stash_bytes"]
        change, n = {"fwd": (stash, 1), "bwd": (-stash, -1), "bwd_input": (weight - stash, -1), "bwd_weight": (-weight, 0)}.get(task["kind"], (0, 0))
        now, count = now + change, count + n
        most_bytes, most = max(most_bytes, now), max(most, count)
    assert now == count == 0
    return most_bytes, most


def try_one(folder, name, chunks, table, ranks, microbatches):
    options = [model, f"--ranks={ranks}", f"--microbatches={microbatches}", f"--schedule={name}", "-D", f"layers={ranks * chunks}"]
    check = json.loads(subprocess.run([ppc, "check", "--json", *options], check=True, stdout=subprocess.PIPE).stdout)
    out = os.path.join(folder, f"{name}_{ranks}_{microbatches}")
    subprocess.run([ppc, "compile", "-o", out, *options], check=True)
    plan = json.load(open(os.path.join(out, "plan.json")))
    for rank, planned in zip(check["ranks"], plan["ranks"]):
        where = (name, ranks, microbatches, rank["rank"])
        most_bytes, most = replay(planned["actions"], plan["tasks"], check["stages"])
        assert rank["stash_bytes"] == most_bytes, (where, rank["stash_bytes"], most_bytes)
        expected = table and table(ranks, rank["rank"], microbatches, chunks)
        assert expected in (None, most), (where, most, expected)


with tempfile.TemporaryDirectory() as folder:
    for name, chunks, table in ONE:
        for ranks, microbatches in ((2, 8), (4, 8), (4, 4), (3, 2)):
            if name == "dualpipe_v" and microbatches < 2 * ranks or name == "looped_bfs" and microbatches < ranks: continue
            try_one(folder, name, chunks, table, ranks, microbatches)
