"""bytes.py CHECK.json RUN.json: compares the report of `ppc check` with what the ranks mapped."""
import json
import sys

check = json.load(open(sys.argv[1]))
done = [json.loads(line) for line in open(sys.argv[2])][-1]
planned = [rank["mapped_bytes"] for rank in check["ranks"]]
assert planned == done["mapped_bytes"], (planned, done["mapped_bytes"])
for rank in check["ranks"]:
    assert sum(rank["bytes"].values()) == rank["mapped_bytes"], rank
    assert rank["arena_bytes"] + rank["window_bytes"] == rank["mapped_bytes"], rank
    assert all(n >= 0 for n in rank["bytes"].values()), rank
# one embedding in three stages: counted once as parameters, held by each rank that uses it
held = sum(rank["bytes"]["parameters"] for rank in check["ranks"])
assert held > 4 * check["parameters"], (held, check["parameters"])
values = check["transfers"]["values"]
assert sum(v["count"] for v in values) == check["transfers"]["count"]
assert len({(v["id"], v["to"]) for v in values}) == len(values), "each value moves once to each rank"
assert check["verdict"] == "proved"
