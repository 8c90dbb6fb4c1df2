# svg.py FILE TASKS ARROWS [MAX_BYTES]: an SVG is well formed, needs nothing from elsewhere, and has a box with a title
# for each task and an arrow for each transfer, all of them inside the picture. TASKS -: boxes may be merged.
import os, re, sys
import xml.etree.ElementTree as ET

path, tasks, arrows = sys.argv[1:4]
text = open(path, encoding="utf-8").read()
assert len(text) <= int(sys.argv[4] if len(sys.argv) > 4 else 10**6), len(text)
root = ET.fromstring(text)
ns = "{http://www.w3.org/2000/svg}"
assert root.tag == ns + "svg"
assert not re.search(r"(href|src|url\((?!#))", text) and "<script" not in text and text.count("http") == 1
assert "nan" not in text and "inf" not in text.replace("inline", "")
x0, y0, width, height = map(float, root.get("viewBox").split())
boxes = [g for g in root.iter(ns + "g") if re.fullmatch("[FBIWU][0-9]+", g.get("class", ""))]
legend = [g for g in boxes if g.find(ns + "text") is not None and g.find(ns + "title") is None and len(g.find(ns + "text").text) == 1]
titled = [g for g in boxes if g.find(ns + "title") is not None]
if tasks != "-":
    assert len(titled) == int(tasks), (len(titled), tasks)
    assert all(re.match(r"[FBIWU]( of microbatch \d+)?(, stage \d+)?\n\S+.* to \S+", g.find(ns + "title").text) for g in titled)
for g in boxes:
    r = g.find(ns + "rect")
    x, y, w, h = (float(r.get(k)) for k in ("x", "y", "width", "height"))
    assert 0 <= x and x + w <= width and 0 <= y and y + h <= height and w > 0 and h > 0, r.attrib
    label = g.find(ns + "text")
    assert label is None or len(label.text) * 6 <= w + 1.6, (label.text, w)
paths = [p for p in root.iter(ns + "path") if p.get("class") == "a"]
assert len(paths) == int(arrows), (len(paths), arrows)
ids = {g.get("id") for g in boxes}
for p in paths:
    sets = p.findall(ns + "set")
    assert 1 <= len(sets) <= 2 and p.get("display") == "none"
    for s in sets:
        assert s.get("begin").split(".")[0] in ids and s.get("end").split(".")[0] in ids
