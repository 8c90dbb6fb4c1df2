"""table.py PPC TABLE.tsv SCHEDULE…: the published bubble rates of these schedules, to their four digits."""
import csv
import json
import subprocess
import sys

ppc, table, *schedules = sys.argv[1:]
rows = list(csv.DictReader((line for line in open(table) if not line.startswith("#")), delimiter="\t"))
assert len(rows) == 8
for row in rows:
    for schedule in schedules:
        v = int(row["v"]) if schedule == "interleaved_1f1b" else 1
        times = {key: float(row[key]) / v for key in "FIW"}
        cost = ",".join(f"{key}={time!r}" for key, time in times.items()) + f",transfer={row['transfer']}"
        command = [ppc, "simulate", f"--schedule={schedule}", f"--ranks={row['ranks']}", "--json", f"--cost={cost}",
                   f"--microbatches={row['microbatches']}", f"--stages={v * int(row['ranks'])}"]
        result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        rate = result["bubble_rate"]
        assert f"{rate:.4f}" == row[schedule], (command, rate, row[schedule])
        work = int(row["microbatches"]) * v * sum(times.values())
        assert abs(result["bubble"] - (result["step_time"] - work)) < 1e-9 * work
        assert abs(rate - result["bubble"] / result["step_time"]) < 1e-12
print("ok")
