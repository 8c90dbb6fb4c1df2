"""random_models.py PPC FIRST COUNT: predictions of random models under random schedules (those of testdata/random, with skips,
tied weights, halves and overlap blocks): every plan that is accepted has times, and the numbers hold together."""
import collections
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "random"))
import train  # noqa: E402
from holds import hold_together  # noqa: E402

ppc, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def ask(command, case, name, ranks):
    arguments = [ppc, command, case.path, f"--schedule={name}", f"--ranks={ranks}", "--json"]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, (case.seed, arguments, done.returncode, done.stderr)
    return json.loads(done.stdout)


with tempfile.TemporaryDirectory() as folder:
    for seed in range(first, first + count):
        case = train.Case(seed, folder)
        for name, schedule in case.schedules:
            kinds = {"F": "fwd", "B": "bwd", "I": "bwd_input", "W": "bwd_weight"}
            counts = collections.Counter((s, kinds[k]) for rank in schedule for block in rank for k, s, _ in block)
            try:
                hold_together(ask("simulate", case, name, len(schedule)), ask("check", case, name, len(schedule)), counts)
            except AssertionError as wrong:
                sys.exit(f"seed {seed}, {name}: {wrong!r}")
print(count, "models")
