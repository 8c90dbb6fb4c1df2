#!/usr/bin/env python3
"""lives.py FOLDER…: in the lives that checking builds watch (rank_R.c under PP_CHECK), a byte belongs to
one life at a time, and every life that starts also ends after it, or lasts."""
import re, sys

ROW = re.compile(r'\{(\d+), ([01]), (PP_\w+), (\d+), (\d+), "(.*)"\},')
rows = 0


def table(text, name):
    body = re.search(r"pp_life %s\[\] = \{(.*?)\n\};" % name, text, re.S)
    for m in ROW.finditer(body.group(1) if body else ""):
        point, starts, space, offset, size, label = m.groups()
        yield int(point), starts == "1", space, int(offset), int(size), label


for folder in sys.argv[1:]:
    r = 0
    while True:
        path = f"{folder}/rank_{r}.c"
        try:
            text = open(path).read()
        except FileNotFoundError:
            break
        live = {}
        for point, starts, *place, label in list(table(text, "always")) + list(table(text, "lives")):
            space, offset, size = place
            rows += 1
            if not starts:
                if live.pop(tuple(place), None) is None:
                    sys.exit(f"{path}: point {point}: {label} ends but did not start")
                continue
            for (s, o, n), other in live.items():
                if s == space and o < offset + size and offset < o + n:
                    sys.exit(f"{path}: point {point}: {label} starts at {space} {offset} where {other} lives")
            live[tuple(place)] = label
        r += 1
    if r == 0:
        sys.exit(f"{folder}: no rank_0.c")
if rows == 0:
    sys.exit("no lives found")
print(rows, "starts and ends")
