"""chains.py PPC MODEL.pp…: a model of four stages with stated costs against the schedule alone: one time, one count
of live stashes. Schedules whose ranks end at different times are left out: the update waits for all."""
import json
import subprocess
import sys

ppc, *models = sys.argv[1:]
schedules = ["gpipe", "one_f_one_b", "eager_1f1b", "interleaved_1f1b", "kimi_k2", "zb_h1", "dualpipe_v", "looped_bfs"]
compared = 0


def simulate(*arguments):
    done = subprocess.run([ppc, "simulate", *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode in (0, 1), done
    return json.loads(done.stdout) if done.returncode == 0 else None


for ranks, microbatches in ((2, 1), (2, 4), (4, 8)):
    for schedule in schedules:
        common = [f"--schedule={schedule}", f"--ranks={ranks}", f"--microbatches={microbatches}",
                  "--cost=F=[1,2,1,1.5],I=2,W=[0.5,0.25,0.5,1],transfer=[0.25,0.5,0.125,0.75]"]
        alone = simulate(*common, "--stages=4")
        for model in models:
            whole = simulate(model, *common, *(["-Dstages=4"] if "mlp" in model else []))
            assert (whole is None) == (alone is None), common
            if whole is None:
                continue
            assert abs(whole["step_time"] - alone["step_time"]) < 1e-9, (model, common, whole["step_time"], alone["step_time"])
            for a, b in zip(whole["ranks"], alone["ranks"]):
                for key in ("peak_live", "peak_live_weight_held", "work"):
                    assert abs(a[key] - b[key]) < 1e-9, (model, common, a, b)
            compared += 1
assert compared >= 30, compared
print("ok")
