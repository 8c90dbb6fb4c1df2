"""Adds transfers to a CSV of actions as PyTorch's lowering does: a SEND right behind what makes the value, and at that moment its RECV
at the end of the receiver's row so far.

    lower.py FILE.csv [late]     late: each RECV right before the action that needs it
"""
import re
import sys


def actions_of(cell):
    return [(int(s), "B" if k == "I" else k, int(m)) for s, k, m in re.findall(r"(\d+)([FIWB])(\d+)", cell)]


rows = [[c for c in line.strip().split(",") if c] for line in open(sys.argv[1])]
home = {s: r for r, row in enumerate(rows) for cell in row for s, _, _ in actions_of(cell)}
last = max(home)


def source(s, k, m):
    """What an action needs from another stage."""
    if k == "F" and s > 0:
        return s - 1, "F", m
    return (s + 1, "B", m) if k == "B" and s < last else None


def is_ready(r, cell, done, received):
    needs = [source(*a) for a in actions_of(cell)]
    return all(n is None or (n in done if home[n[0]] == r else (r, n) in received) for n in needs)


def lower():
    out, received, done, left = [[] for _ in rows], set(), set(), [list(r) for r in rows]
    while any(left):
        moved = False
        for r, row in enumerate(left):
            if not row or not is_ready(r, row[0], done, received):
                continue
            moved = True
            cell = row.pop(0)
            out[r].append(cell)
            for s, k, m in actions_of(cell):
                done.add((s, k, m))
                to = s + 1 if k == "F" else s - 1
                if k == "W" or not 0 <= to <= last or home[to] == r:
                    continue
                out[r].append(f"{s}SEND_{k}{m}")
                out[home[to]].append(f"{to}RECV_{k}{m}")
                received.add((home[to], (s, k, m)))
        assert moved, "no rank can go on"
    return out


def late(row):
    receives = {c for c in row if "RECV" in c}
    new = []
    for cell in row:
        new += [c for s, k, m in actions_of(cell) if (c := f"{s}RECV_{k}{m}") in receives]
        new += [cell] if cell not in receives else []
    return new


for row in lower():
    print(",".join(late(row) if sys.argv[2:] == ["late"] else row))
