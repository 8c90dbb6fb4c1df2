#!/usr/bin/env python3
"""Comparisons for the tests, with the standard library alone.

  compare.py losses RUN.json REFERENCE.json TOLERANCE   the step lines of --json against {"losses": […], "norms": […]}
  compare.py tensors A.safetensors B.safetensors TOL    every tensor: ‖a−b‖ / max(‖a‖,‖b‖) ≤ TOL
  compare.py same RUN.json RUN.json …                   equal losses and hashes, to the bit
  compare.py below RUN.json LIMIT                       the last loss
  compare.py elements A.safetensors TOL NAME=X …         every element of these tensors is X within TOL (relative)
  compare.py contained A.safetensors B.safetensors      every tensor of A is in B, to the bit
  compare.py differ A.safetensors NAME NAME             two tensors of one shape that have no element in common
  compare.py step RUN.json N TOL KEY=X …                what step N printed is X within TOL (relative)
  compare.py memory RUN.json CHECK.json                 mapped bytes = predicted; resident within 10 % + 40 MB"""
import json, math, struct, sys
from array import array


def fail(text):
    print("compare:", text)
    sys.exit(1)


def run(path):
    lines = [json.loads(l) for l in open(path) if l.strip()]
    if not lines or not lines[-1].get("done"):
        fail(f"{path}: no last line with \"done\"")
    return lines[:-1], lines[-1]


def tensors(path):
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        head = json.loads(f.read(n))
        body = f.read()
    out = {}
    for name, t in head.items():
        if name != "__metadata__":
            a = array({"F32": "f", "F64": "d"}[t["dtype"]])
            a.frombytes(body[t["data_offsets"][0]:t["data_offsets"][1]])
            out[name] = (t["shape"], a)
    return out


def relative(a, b):
    na, nb = math.sqrt(math.fsum(x * x for x in a)), math.sqrt(math.fsum(x * x for x in b))
    d = math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b)))
    return d / max(na, nb) if max(na, nb) > 0 else 0.0


def near(what, value, wanted, tol):
    if value != wanted and not abs(value - wanted) <= tol * abs(wanted):
        fail(f"{what} is {value!r}, not {wanted!r}")


def pairs(args):
    return [(a.split("=")[0], float(a.split("=")[1])) for a in args]


def main(kind, *args):
    if kind == "losses":
        steps, _ = run(args[0])
        ref, tol = json.load(open(args[1])), float(args[2])
        if len(steps) != len(ref["losses"]):
            fail(f"{len(steps)} steps, expected {len(ref['losses'])}")
        worst = max(abs(s["loss"] - r) / abs(r) for s, r in zip(steps, ref["losses"]))
        worst_norm = max(abs(s["grad_norm"] - r) / abs(r) for s, r in zip(steps, ref["norms"]))
        print(f"losses {worst:.2e}, norms {worst_norm:.2e}")
        if not worst <= tol or not worst_norm <= 10 * tol:
            fail(f"above {tol}")
    elif kind == "tensors":
        a, b, tol = tensors(args[0]), tensors(args[1]), float(args[2])
        if a.keys() != b.keys():
            fail(f"other names: {sorted(a.keys() ^ b.keys())}")
        worst = 0.0
        for name in a:
            if a[name][0] != b[name][0]:
                fail(f"{name}: shapes {a[name][0]} and {b[name][0]}")
            r = relative(a[name][1], b[name][1])
            worst = max(worst, r)
            if not r <= tol:
                fail(f"{name}: {r:.2e} is above {tol}")
        print(f"{len(a)} tensors, worst {worst:.2e}")
    elif kind == "same":
        first = run(args[0])
        for path in args[1:]:
            other = run(path)
            if [s["loss"] for s in other[0]] != [s["loss"] for s in first[0]]:
                bad = [i + 1 for i, (x, y) in enumerate(zip(first[0], other[0])) if x["loss"] != y["loss"]]
                fail(f"{path}: losses differ from {args[0]} at steps {bad[:5]}")
            for key in ("parameters", "optimizer"):
                if other[1][key] != first[1][key]:
                    fail(f"{path}: {key} differ from {args[0]}")
        print(f"{len(args)} runs of {len(first[0])} steps, the same bits")
    elif kind == "below":
        steps, _ = run(args[0])
        print("last loss", steps[-1]["loss"])
        if not steps[-1]["loss"] < float(args[1]):
            fail(f"not below {args[1]}")
    elif kind == "elements":
        a, tol = tensors(args[0]), float(args[1])
        for name, x in pairs(args[2:]):
            for i, value in enumerate(a[name][1]):
                near(f"{name}[{i}]", value, x, tol)
    elif kind == "contained":
        a, b = tensors(args[0]), tensors(args[1])
        for name in a:
            if name not in b or a[name][0] != b[name][0] or a[name][1].tobytes() != b[name][1].tobytes():
                fail(f"{name} is not the same in {args[1]}")
    elif kind == "differ":
        a = tensors(args[0])
        if any(x == y for x, y in zip(a[args[1]][1], a[args[2]][1])):
            fail(f"{args[1]} and {args[2]} have equal elements")
    elif kind == "step":
        step, tol = run(args[0])[0][int(args[1]) - 1], float(args[2])
        for key, x in pairs(args[3:]):
            near(key, step[key], x, tol)
    elif kind == "memory":
        _, done = run(args[0])
        predicted = [r["mapped_bytes"] for r in json.load(open(args[1]))["ranks"]]
        if done["mapped_bytes"] != predicted:
            fail(f"mapped {done['mapped_bytes']}, predicted {predicted}")
        for m, rss in zip(done["mapped_bytes"], done["peak_rss_bytes"]):
            if rss > 1.1 * m + 40e6:
                fail(f"resident {rss}, mapped {m}")
        print("mapped", done["mapped_bytes"], "resident", done["peak_rss_bytes"])
    else:
        fail(f"unknown comparison {kind}")


main(*sys.argv[1:])
