"""scale.py PPC: a chain of small stages under schedules of many actions: within a time and a memory that a laptop has.
The limits are generous (the machine may be busy); `make bench` prints what it takes."""
import json
import os
import resource
import subprocess
import sys
import time

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chain.pp")


def check(ppc, stages, ranks, microbatches, schedule, *options):
    """Seconds, megabytes, the report."""
    begin = time.monotonic()
    process = subprocess.Popen([ppc, "check", MODEL, "-D", f"stages={stages}", f"--ranks={ranks}", f"--microbatches={microbatches}",
                                f"--schedule={schedule}", *options], stdout=subprocess.PIPE)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return time.monotonic() - begin, usage.ru_maxrss / 1000, usage.ru_utime + usage.ru_stime, out


BIG = (768, 64, 512, "interleaved_zero_bubble")
SMALL = (8, 8, 64, "zb_h1")

if __name__ == "__main__":
    ppc = sys.argv[1]
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    _, megabytes, cpu, out = check(ppc, *BIG, "--json")
    report = json.loads(out)
    actions = sum(rank["actions"] for rank in report["ranks"])
    assert actions > 1_170_000 and report["verdict"] == "proved", actions
    assert len(out) < 5_000_000, len(out)
    assert megabytes < 2000 and cpu < 60, (megabytes, cpu)
    _, _, _, out = check(ppc, 768, 64, 8, "interleaved_zero_bubble")
    assert out.count(b"\n") < 250, "the report is for people"
    seconds = min(check(ppc, *SMALL)[2] for _ in range(5))
    assert seconds < 0.5, seconds
    # as many microbatches as a rank can hold stashes of: nothing may grow with the square of them
    _, _, cpu, _ = check(ppc, 4, 4, 20000, "gpipe")
    assert cpu < 30, cpu
