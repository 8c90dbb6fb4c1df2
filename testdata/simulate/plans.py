"""plans.py PPC MODEL.pp…: the step of a model against a simulator that shares nothing with ppc's, over the operations of
plan.json: a send is on its way from the end of the action before it for the cost of a transfer (behind the loop for
none), a receive ends when it is there, and a send's buffer is free when its transfer is over and was asked for."""
import json
import random
import subprocess
import sys

ppc, *models = sys.argv[1:]
random.seed(1)
SCHEDULES = ["gpipe", "eager_1f1b", "zb_h2", "greedy", "kimi_k2", "zb_v"]


def ppc_json(*args):
    return json.loads(subprocess.run([ppc, *args], check=True, stdout=subprocess.PIPE).stdout)


def simulate(plan, costs, hop):
    """The longest span of a rank."""
    sent, asked, clock = {}, {}, [0.0] * plan["n_ranks"]
    begun, left = {}, []
    for r in plan["ranks"]:
        left.append([x for i, a in enumerate(r["actions"])
                     for x in (*a.get("before", []), ["run", a["task"]], *a.get("after", []))])
    moved = True
    while moved:
        moved = False
        for r, todo in enumerate(left):
            while todo:
                op, t = todo[0][:2]
                time = hop if op != "run" and plan["transfers"][t]["microbatch"] >= 0 else 0
                if op == "run":
                    begun.setdefault(r, clock[r])
                    task = plan["tasks"][t]
                    clock[r] += costs.get(task["kind"], lambda stage: 0)(task["stage"])
                elif op == "post_send":
                    sent[t] = clock[r]
                elif op == "post_receive":
                    asked[t] = clock[r]
                elif t not in sent or t not in asked:
                    break
                else:
                    clock[r] = max(clock[r], sent[t] + time, asked[t] if op == "await_send" else 0)
                todo.pop(0)
                moved = True
    assert not any(left)
    return max(end - begun[r] for r, end in enumerate(clock))


def check(model, schedule, hop):
    args = [model, f"--schedule={schedule}", "--ranks=2", f"--microbatches={random.choice([4, 6])}"]
    subprocess.run([ppc, "compile", *args, "-o", "plan"], check=True)
    plan = json.load(open("plan/plan.json"))
    f, i, w = ([random.choice([0.5, 1, 2, 3]) for _ in range(plan["n_stages"])] for _ in "FIW")
    costs = {"fwd": lambda s: f[s], "bwd_input": lambda s: i[s], "bwd_weight": lambda s: w[s], "bwd": lambda s: i[s] + w[s]}
    stated = ",".join(f"{k}=[{','.join(map(str, x))}]" for k, x in zip("FIW", (f, i, w))) + f",transfer={hop}"
    found = ppc_json("simulate", *args, "--cost", stated, "--json")["step_time"]
    expected = simulate(plan, costs, hop)
    assert abs(found - expected) < 1e-9 * expected, (args, stated, found, expected)


for model in models:
    for schedule in SCHEDULES:
        check(model, schedule, random.choice([0, 0.25, 1]))
