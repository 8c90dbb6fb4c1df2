#!/usr/bin/env python3
"""shapes.py NAME…: pipelines whose shape is unusual; each gives the bits of one rank and maps what is predicted.

  carried    shapes.pp on 2 to 6 ranks, under schedules with whole and split backwards
  deep       48 stages on 8 ranks, 64 microbatches
  vee        DualPipe-V, 16 stages on 8 ranks, 18 microbatches
  long       500 steps in a row on 4 ranks
  slow       one rank of 3 stands still most of the time, each in turn, on both transports"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "testdata"))
import emitted  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SKIP = os.path.join(ROOT, "testdata", "models", "skip.pp")
MLP = os.path.join(ROOT, "testdata", "models", "mlp.pp")


def program(shop, path, name, options):
    folder, _ = shop.compile(path, name, options)
    shop.build(folder)
    return folder


def compare(shop, path, common, many):
    """One rank against each (ranks, schedule) of `many`, all with the same cut."""
    base = shop.run(program(shop, path, "one", common + ["--ranks=1", "--schedule=gpipe"]))
    for ranks, schedule in many:
        options = common + [f"--ranks={ranks}", f"--schedule={schedule}"]
        run = shop.run(program(shop, path, "many", options))
        predicted = [rank["mapped_bytes"] for rank in emitted.check(path, options)["ranks"]]
        wrong = emitted.difference(base, run)
        if wrong or run[1]["mapped_bytes"] != predicted:
            raise emitted.Failure(f"{schedule} on {ranks} ranks: {wrong or 'other bytes than predicted'}")
    return len(base[0]), len(many)


def carried(shop):
    many = [(6, "one_f_one_b"), (6, "zb_h1"), (6, "zb_h2"), (3, "zb_v"), (3, "interleaved_1f1b"), (3, "looped_bfs"), (2, "zb_h1"), (3, "in_turn")]
    return compare(shop, os.path.join(HERE, "shapes.pp"), [], many)


def deep(shop):
    options = ["-Dlayers=48", "-Dstages=48", "-Dwidth=4", "-Dlength=4", "--microbatch=1", "--microbatches=64", "--steps=1"]
    return compare(shop, SKIP, options, [(8, "interleaved_1f1b(6)")])


def vee(shop):
    options = ["-Dlayers=16", "-Dstages=16", "-Dwidth=4", "-Dlength=4", "--microbatches=18", "--steps=2"]
    return compare(shop, SKIP, options, [(8, "dualpipe_v")])


def long(shop):
    options = ["-Dlayers=4", "-Dstages=4", "-Dwidth=8", "--steps=500"]
    return compare(shop, MLP, options, [(4, "zb_h1"), (2, "zb_v")])


# --- a rank that stands still ---------------------------------------------------------------------------------


def stutter(process, stop):
    """Stops the process for 20 ms at a time, with 2 ms between: it does a tenth of the work that it could."""
    while not stop.wait(0.002) and process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        stop.wait(0.02)
        process.send_signal(signal.SIGCONT)


def run_slowly(shop, folder, ranks, slow, transport):
    env = {**shop.env, "PPC_RANKS": str(ranks), "PPC_JOB": f"slow-{os.getpid()}-{slow}-{transport}"}
    processes = [subprocess.Popen([os.path.join(folder, f"rank_{r}"), "--json", f"--transport={transport}"],
                                  env={**env, "PPC_RANK": str(r)}, stdout=subprocess.PIPE, text=True) for r in range(ranks)]
    stop = threading.Event()
    thread = threading.Thread(target=stutter, args=(processes[slow], stop))
    thread.start()
    try:
        said = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        stop.set()
        thread.join()
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise emitted.Failure(f"rank {slow} is slow over {transport}: statuses {[p.returncode for p in processes]}")
    return emitted.read_run("".join(said))


def slow(shop):
    options = ["-Dlayers=3", "-Dstages=3", "-Dwidth=8", "--microbatches=12", "--steps=20"]
    base = shop.run(program(shop, MLP, "one", options + ["--ranks=1", "--schedule=gpipe"]))
    n = 0
    for schedule in ("gpipe", "one_f_one_b"):
        folder = program(shop, MLP, "many", options + ["--ranks=3", f"--schedule={schedule}"])
        for rank in range(3):
            for transport in ("shm", "late"):
                wrong = emitted.difference(base, run_slowly(shop, folder, 3, rank, transport))
                if wrong:
                    raise emitted.Failure(f"{schedule}, rank {rank} is slow over {transport}: {wrong}")
                n += 1
    return len(base[0]), n


def main(names):
    folder = tempfile.mkdtemp(prefix="ppc-shapes-")
    shop, failed = emitted.Shop(folder), False
    for name in names:
        try:
            steps, runs = {"carried": carried, "deep": deep, "vee": vee, "long": long, "slow": slow}[name](shop)
            print(f"{name}: {runs} runs of {steps} steps", flush=True)
        except emitted.Failure as failure:
            print(f"{name}: {failure}", flush=True)
            failed = True
    shutil.rmtree(folder)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
