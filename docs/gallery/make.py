#!/usr/bin/env python3
"""Draws the library's schedules: make.py PPC FOLDER writes FOLDER/NAME.svg for each and an index, README.md.

All are drawn for 4 ranks, 8 microbatches and F = I = W = 1; what has several chunks on a rank, with two.
Lines of the library stay out of the pictures: they move, and the pictures wouldn't be the same text any more."""
import json, os, re, subprocess, sys

ppc, folder = sys.argv[1:3]
library = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "dsl", "lib", "schedules.pp")
names = re.findall(r"^schedule (\w+)\(([^{]*)\)", open(library).read(), re.M)

index = ["# The library's schedules in pictures", "",
         "4 ranks, 8 microbatches, F = I = W = 1 for a chunk; made by `make gallery`. What each needs and holds stands in [schedules.md](../schedules.md#the-librarys-schedules). "
         "Opened by itself, a picture tells what each box is, and shows its transfers while the pointer is on it.", ""]
for name, parameters in names:
    arguments = [f"--schedule={name}", "--ranks=4", "--microbatches=8"] + (["--stages=8"] if "chunks" in parameters else [])
    path = os.path.join(folder, name + ".svg")
    out = subprocess.run([ppc, "simulate", *arguments, f"--svg={path}", "--json"], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"{name}: {out.stderr}")
    facts = json.loads(out.stdout)
    text = re.sub(r"&#10;schedules\.pp:\d+", "", open(path).read())
    open(path, "w").write(text)
    live = max(r["peak_live_weight_held"] for r in facts["ranks"])
    index += [f"## {name}", "", f"`ppc simulate {' '.join(arguments)}`: step {facts['step_time']:g}, bubble {facts['bubble']:g} "
              f"({100 * facts['bubble_rate']:.1f} %), at most {live} stashes of a chunk on a rank.", "", f"![{name}]({name}.svg)", ""]
with open(os.path.join(folder, "README.md"), "w") as f:
    f.write("\n".join(index))
