"""measured.py PPC MODEL.pp SCHEDULE…: runs the model on two ranks with --trace and predicts the step from the costs in
that trace. On a quiet machine they agree within 10 %; others may use this one, so that one of several runs must."""
import json
import subprocess
import sys

ppc, model, *schedules = sys.argv[1:]
TRIES = 6


def ratio(schedule, steps):
    common = [model, f"--schedule={schedule}", "--ranks=2"]
    subprocess.run([ppc, "run", *common, f"--steps={steps}", f"--trace-steps=2:{steps}", "--trace=trace.json", "--quiet"],
                   check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([ppc, "simulate", *common, "--costs=trace.json", "--json"], check=True, stdout=subprocess.PIPE)
    result = json.loads(done.stdout)
    assert result["costs"]["from"] == "measured" and result["costs"]["trace"] == "trace.json"
    return result["step_time"] / result["costs"]["measured_step_time"]


for schedule in schedules:
    ratios = []
    while len(ratios) < TRIES and not (ratios and abs(ratios[-1] - 1) < 0.1):
        ratios.append(ratio(schedule, 5 + len(ratios)))
    print(schedule, *(f"{r:.3f}" for r in ratios))
    assert abs(ratios[-1] - 1) < 0.1, (schedule, ratios)
