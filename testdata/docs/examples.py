#!/usr/bin/env python3
"""Runs the examples of a page: examples.py PPC PAGE.md

```pp      a file that has `train {` is checked with `ppc check`, any other must parse (`ppc fmt`)
```console lines that begin with `$ ` are run by bash in a folder that has the page's whole .pp examples as
           example_1.pp, example_2.pp, … and testdata as a link; the text below a command must be its output. A line
           `…` stands for any lines, `…` inside a line for any characters.
Prints how many were run; a page without any is a failure."""
import os, re, subprocess, sys, tempfile

ppc, page = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
text = open(page).read()
bad = ran = files = 0


def line_of(m):
    return f"{os.path.basename(page)}:{text.count(chr(10), 0, m.start()) + 1}"


def pattern(expected):
    lines = ["(?:.*\n)*?" if l.strip() == "…" else re.escape(l).replace(re.escape("…"), ".*") + " *\n" for l in expected]
    return re.compile("".join(lines) + r"\s*\Z")


def check(m, command, expected, folder):
    global bad, ran
    ran += 1
    p = subprocess.run(["bash", "-c", command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
                       env=dict(os.environ, PATH=os.path.dirname(ppc) + ":" + os.environ["PATH"]))
    if expected is None:
        wrong = p.returncode != 0
    else:
        got = "".join(l.rstrip() + "\n" for l in p.stdout.splitlines())
        wrong = not pattern(expected).match(got + ("" if got.endswith("\n") or not got else "\n"))
    if wrong:
        bad += 1
        print(f"{line_of(m)}: $ {command}\n(exit {p.returncode})\n{p.stdout}")


with tempfile.TemporaryDirectory() as folder:
    os.symlink(os.path.join(root, "testdata"), os.path.join(folder, "testdata"))
    for m in re.finditer(r"^```(pp|console)\n(.*?)^```", text, re.M | re.S):
        kind, body = m.group(1), m.group(2)
        if kind == "pp":
            whole = re.search(r"^train \{", body, re.M)
            files += bool(whole)
            path = os.path.join(folder, f"example_{files}.pp" if whole else "part.pp")
            open(path, "w").write(body)
            check(m, f"{ppc} {'check' if whole else 'fmt'} {os.path.basename(path)}", None, folder)
        else:
            command, expected = None, []
            for l in body.splitlines() + ["$ "]:
                if l.startswith("$ "):
                    if command:
                        check(m, command, expected, folder)
                    command, expected = l[2:], []
                else:
                    expected.append(l.rstrip())
print(f"{os.path.basename(page)}: {ran} examples, {bad} wrong")
sys.exit(bad > 0 or ran == 0)
