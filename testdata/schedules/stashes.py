"""stashes.py CHECK.json FORWARD,… WEIGHT,…: each rank keeps at most so many forward and weight stashes between two
actions, one stage on each rank; and the bytes per action agree with the peak that is printed."""
import json
import sys

check = json.load(open(sys.argv[1]))
forward, weight = ([int(n) for n in text.split(",")] for text in sys.argv[2:4])
assert len(check["ranks"]) == len(forward) == len(weight)
for rank, stage, f, w in zip(check["ranks"], check["stages"], forward, weight):
    expected = f * stage["stash_bytes"] + w * stage["weight_stash_bytes"]
    assert rank["stash_bytes"] == expected, (rank["rank"], rank["stash_bytes"], expected)
    assert stage["stash_bytes"] > 0 and (sum(weight) == 0 or stage["weight_stash_bytes"] > 0)
    live = rank["live_bytes"]
    assert len(live) == rank["actions"] and min(live) > 0
    assert max(live) == live[rank["peak_action"]] == rank["peak_bytes"] <= rank["mapped_bytes"]
    assert rank["stash_bytes"] < rank["peak_bytes"]
