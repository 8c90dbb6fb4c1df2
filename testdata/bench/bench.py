#!/usr/bin/env python3
"""make bench: speeds as ratios in one run. bench.py PPC

Times what a user waits for: compiling, and training the demo's GPT on 1, 2 and 4 ranks, fused and not. Each figure is
the median of three runs, taken in turn so that a noisy machine hits all of them alike."""
import json, os, statistics, subprocess, sys, time

import scale

ppc = os.path.abspath(sys.argv[1])
root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
model = os.path.join(root, "testdata/models/gpt2.pp")
STEPS, ROUNDS = 12, 3


def speed(*options):
    out = subprocess.run([ppc, "run", model, f"--steps={STEPS}", "--json", *options], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    rates = [json.loads(l) for l in out.stdout.splitlines()]
    return statistics.median(r["tokens_per_s"] for r in rates if "step" in r)


def check(*options):
    begin = time.monotonic()
    subprocess.run([ppc, "check", model, *options], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


runs = {"1 rank": ["--ranks=1"], "2 ranks": ["--ranks=2"], "4 ranks": ["--ranks=4"], "1 rank, not fused": ["--ranks=1", "--no-fuse"]}
checks = {"gpt2": [], "96 layers, 32 stages, 8 ranks, 64 microbatches": ["-D", "layers=96", "-D", "stages=32", "--ranks=8", "--microbatches=64"]}
for options in runs.values():
    speed(*options)  # builds
taken = {k: [] for k in runs}
for _ in range(ROUNDS):
    for k, options in runs.items():
        taken[k].append(speed(*options))
one = statistics.median(taken["1 rank"])
print(f"{'training gpt2.pp':50} tokens/s   to 1 rank")
for k, v in taken.items():
    print(f"  {k:48} {statistics.median(v):8.0f} {statistics.median(v) / one:10.2f}")
first = None
print(f"{'ppc check':50}  seconds     to gpt2")
for k, options in checks.items():
    t = statistics.median(check(*options) for _ in range(ROUNDS))
    first = first or t
    print(f"  {k:48} {t:8.3f} {t / first:10.1f}")
print(f"{'ppc check of a chain of small stages':50}  actions   seconds      CPU       MB")
for stages, ranks, microbatches, schedule in (scale.SMALL, (7, 7, 20000, "one_f_one_b"), (4, 4, 20000, "gpipe"), scale.BIG):
    taken = [scale.check(ppc, stages, ranks, microbatches, schedule, "--json") for _ in range(ROUNDS)]
    actions = sum(r["actions"] for r in json.loads(taken[0][3])["ranks"])
    seconds, megabytes, cpu = (statistics.median(t[i] for t in taken) for i in range(3))
    print(f"  {f'{schedule}, {ranks} ranks, {stages} stages, {microbatches} microbatches':48} {actions:8} {seconds:9.3f} {cpu:8.3f} {megabytes:8.0f}")
