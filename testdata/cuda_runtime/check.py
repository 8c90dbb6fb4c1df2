#!/usr/bin/env python3
"""check.py PART SEEDS BUILD: the runtime of CUDA programs under the checking libraries, with programs written by hand.

  chain   the program of runtime/chain.h: the bits and the lines of its CPU twin for every seed, and no report; options,
          faults and what is said of them
  suite   the suite of transports (runtime/transport_test.c) on 1 to 4 ranks, over each
  host    the program over the transport through the host's memory: bits, faults

Prints what is wrong, and fails if anything is. Skips where no nvcc is installed."""
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIBRARIES = os.path.join(ROOT, "build", "check", "lib")
wrong = 0


def check(condition, *what):
    global wrong
    if not condition:
        print("FAIL", *what)
        wrong += 1
        if wrong > 9:
            sys.exit(1)


def build(folder):
    os.makedirs(os.path.join(ROOT, "build"), exist_ok=True)
    with open(os.path.join(ROOT, "build", "check.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-C", ROOT, "check-libs"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["make", "-s", "-C", HERE, f"BUILD={folder}"], check=True, stdout=subprocess.DEVNULL)


class Job:
    """Ranks of a program as processes; `out` and `err` are those of all, `status` the largest. before: words of a command
    that starts rank 0."""

    def __init__(self, folder, program, ranks, arguments, seed=1, leaves_out=(), before=(), **variables):
        self.world = os.path.join(folder, f"world.{os.getpid()}")
        if os.path.exists(self.world):
            os.remove(self.world)
        self.ranks = []
        for rank in range(ranks):
            if rank in leaves_out:
                continue
            env = dict(os.environ, LD_BIND_NOW="1", PPC_CHECK_SEED=str(seed), PPC_CHECK_RANK=str(rank), PPC_CHECK_RANKS=str(ranks),
                       PPC_CHECK_WORLD=self.world, PPC_RANK=str(rank), PPC_RANKS=str(ranks), TEST_RANK=str(rank), TEST_RANKS=str(ranks),
                       PPC_JOB=f"cuda-runtime-{os.getpid()}", LD_LIBRARY_PATH=LIBRARIES,
                       NVTX_INJECTION64_PATH=os.path.join(LIBRARIES, "libcudart.so.13"))
            env.update({name: str(value) for name, value in variables.items()})
            command = [*(before if rank == 0 else ()), os.path.join(folder, program), *arguments]
            self.ranks.append(subprocess.Popen(command, env=env, cwd=folder, text=True,
                                               stdout=subprocess.PIPE, stderr=subprocess.PIPE))

    def wait(self):
        outs = [rank.communicate(timeout=100) for rank in self.ranks]
        self.out, self.err = ("".join(o[i] for o in outs) for i in (0, 1))
        self.status = max(abs(rank.returncode) for rank in self.ranks)
        return self


def run(*arguments, **more):
    return Job(*arguments, **more).wait()


def lines(job):
    """The JSON lines without what is measured."""
    result = [json.loads(line) for line in job.out.splitlines() if line.startswith("{")]
    for line in result:
        for measured in ("tokens_per_s", "samples_per_s", "peak_rss_bytes", "mapped_bytes", "products", "library_bytes", "transport", "pinned_bytes"):
            line.pop(measured, None)
    return result


def cpu(folder, arguments, **variables):
    env = dict(os.environ, TEST_RANK="0", TEST_RANKS="1", PPC_RANK="0", PPC_RANKS="1", PPC_JOB=f"cuda-runtime-{os.getpid()}")
    env.update({name: str(value) for name, value in variables.items()})
    job = subprocess.run([os.path.join(folder, "chain_cpu"), *arguments], env=env, cwd=folder, text=True, capture_output=True)
    job.out, job.err, job.status = job.stdout, job.stderr, job.returncode
    return job


def same_as_cpu(folder, ranks, seed, arguments, *more, **variables):
    """`more`: options that a program for CPUs doesn't have."""
    expected, job = cpu(folder, arguments, **variables), run(folder, "chain", ranks, [*arguments, *more], seed=seed, **variables)
    what = f"{ranks} ranks, seed {seed}, {' '.join(arguments)} {variables}"
    check(job.status == expected.status, what, "exit status", job.status, job.err)
    check(job.err == expected.err, what, job.err, "where the CPU says", expected.err)
    check(lines(job) == lines(expected), what, job.out, expected.out)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def files(folder):
    """Parameters and gradients out, and in again."""
    for name, program in (("cpu", None), ("gpu", "chain")):
        arguments = ["--steps=3", f"--save={name}.w", f"--save-gradients={name}.g"]
        job = cpu(folder, arguments) if program is None else run(folder, program, 2, arguments)
        check(job.status == 0, "saving", job.err)
    for kind in "wg":
        check(read(f"{folder}/cpu.{kind}") == read(f"{folder}/gpu.{kind}"), "saved", kind)
    same_as_cpu(folder, 2, 1, ["--steps=1", "--init=gpu.w", "--json"])


def traces(folder):
    """A task of every action, and every transfer ends after it began and before the receiving task."""
    told(folder, 2, ["--steps=3", "--trace=t.json", "--trace-steps=2:3"], [], 0)
    with open(os.path.join(folder, "t.json")) as file:
        events = json.load(file)["traceEvents"]
    tasks = [e for e in events if e.get("cat") == "task"]
    check(len(tasks) == 2 * (2 * 16 + 4 + 1 + 4), "traced tasks:", len(tasks))
    check(all(e["dur"] > 0 for e in tasks), "a traced task takes no time")
    begins = {e["id"]: e["ts"] for e in events if e.get("cat") == "transfer" and e["ph"] == "b"}
    ends = {e["id"]: e["ts"] for e in events if e.get("cat") == "transfer" and e["ph"] == "e"}
    check(begins and begins.keys() == ends.keys(), "traced transfers:", len(begins), len(ends))
    check(all(0 < end for end in ends.values()) and max(begins[i] - ends[i] for i in begins) < 1e6, "the clocks of the ranks lie apart")
    told(folder, 1, ["--steps=2", "--graph", "--trace=t.json"], ["--graph and --trace: the actions of a captured step have no times"], 2)


def told(folder, ranks, arguments, texts, status, **more):
    job = run(folder, "chain", ranks, arguments, **more)
    check(job.status == status, arguments, more, "exit status", job.status, job.err)
    for text in texts:
        check(re.search(text, job.err), arguments, more, "does not say", text, "but", job.err)
    return job


def steps_that_change_nothing(folder):
    stop = ["--steps=6", "--json"]
    for bad in ({"PP_TEST_BAD_STEP": 3}, {"PP_TEST_BAD_LOSS_STEP": 2}, {"PP_TEST_NO_COUNT_STEP": 2}):
        for skip in (0, 1):
            expected, job = cpu(folder, stop, PP_TEST_SKIP=skip, **bad), run(folder, "chain", 4, stop, PP_TEST_SKIP=skip, **bad)
            check(job.status == expected.status, bad, skip, job.status, job.err)
            check(lines(job) == lines(expected), bad, skip, job.out, expected.out)
            check(job.err == expected.err.replace("ppc: ", "ppc: rank 3: "), bad, skip, job.err, expected.err)
    # Nobody looks at step 3: what follows must not change anything either.
    saved = ["--steps=9", "--log-every=9", "--quiet"]
    told(folder, 2, saved, [r"rank 1: step 3: the gradient of w\.2 \(stage 2\) has a norm of inf \(nonfinite stop\)"], 4, PP_TEST_BAD_STEP=3)
    told(folder, 2, ["--steps=9", "--log-every=5"], [r"step 3 skipped: the gradient of w\.2"], 0, PP_TEST_BAD_STEP=3, PP_TEST_SKIP=1)
    told(folder, 2, ["--steps=4"], [r"wte: index 70000 at place 3 is outside 0 … 65535, in step 2, input, stage 0, microbatch \d"], 4, PP_TEST_BAD_INDEX_STEP=2,
         PP_TEST_DATA_KIND=1, PP_TEST_DATA=os.path.join(folder, "tokens"))


def stalls(folder):
    """Time-outs of the program's own: the step that is looked at, one that isn't, a captured one."""
    for more in ([], ["--log-every=9"], ["--graph"], ["--graph", "--log-every=9"]):
        texts = [r"no rank has moved for 1\.\d s", r"rank 0 waits until rank 1 has taken x \(chain\.pp:3\), microbatch 3; "
                                                   r"it is at step 1, stage_1_fwd, stage 1, microbatch 3, chain\.pp:10"]
        told(folder, 2, ["--steps=5", "--timeout=1", *more], texts, 86, PP_TEST_LOST_RECEIVE=1, PPC_CHECK_HANG="wait")
    told(folder, 2, ["--steps=4", "--timeout=20"], [r"hang: wait cycle: chain -> chain -> chain"], 86, PP_TEST_LOST_RECEIVE=1)


def hurt(folder, kind, text, *more):
    """Sends rank 1 a signal in the middle: the others say so, end soon, and give all back."""
    job = Job(folder, "chain", 4, ["--steps=100000", "--quiet", "--timeout=3", *more])
    time.sleep(2)
    job.ranks[1].send_signal(kind)
    start = time.time()
    job.wait()
    check(time.time() - start < 6, "a rank that got a signal holds the others up for", time.time() - start, kind, more)
    check(re.search(text, job.err) and "ppc-check" not in job.err, kind, more, job.err)


def no_capture(folder):
    """One line for each rank, and the steps are made as without --graph."""
    job = told(folder, 2, ["--steps=5", "--json", "--graph"], [], 0, PPC_CHECK_NO_CAPTURE=1)
    lines_of = [f"ppc: rank {rank}: warning: --graph: the step can't be captured: operation not permitted when stream is capturing; "
                "its actions are launched one by one" for rank in (0, 1)]
    check(sorted(job.err.splitlines()) == lines_of, "a step that can't be captured:", job.err)
    check(lines(job) == lines(cpu(folder, ["--steps=5", "--json"])), "a step that can't be captured:", job.out)


def full_disk(folder):
    """A file system of one page, which is taken, in a mount namespace of rank 0, which writes the file."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        print("a full disk is not tried: unshare -m is not allowed here")
        return
    full = os.path.join(folder, "full")
    os.makedirs(full, exist_ok=True)
    mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=4k none {full} && head -c 4096 /dev/zero >{full}/old && "$@"; status=$?; ls {full}/*; exit $status', "sh"]
    job = told(folder, 2, ["--steps=2", "--quiet", f"--save={full}/w"], ["full/w.*No space left on device"], 4, before=mount)
    check(job.out.split() == [f"{full}/old"] and "ppc-check" not in job.err, "a full disk:", job.out, job.err)


def faults(folder):
    stalls(folder)
    told(folder, 1, ["--steps=4"], [r"no GPU: .*\(nvidia-smi\)\? Without a GPU: make check, and PPC_CHECK=1 \./launch\.sh"], 1, PPC_CHECK_DEVICES=0)
    told(folder, 1, ["--threads=4"], ["--threads=4: means nothing to a program for GPUs"], 2)
    told(folder, 2, ["--steps=4", "--start-timeout=1"], [r"waited 1 s \(--start-timeout\); of 2 ranks these did not start: 1"], 4, leaves_out=[1])
    told(folder, 4, ["--steps=9"], [r"rank 2 \(pid \d+\) exited without finishing at step 2, stage_2_fwd"], 86, PP_TEST_EXIT_STEP=2)
    full_disk(folder)
    for more in ([], ["--graph"]):
        hurt(folder, signal.SIGKILL, r"rank 1 \(pid \d+\) was killed at step \d+, ", *more)
    hurt(folder, signal.SIGSTOP, r"rank 1 \(pid \d+\) has been stopped by a signal for 2\.\d s at step \d+, ")


def no_kernels(folder):
    bare = os.path.join(folder, "bare")
    os.makedirs(bare, exist_ok=True)
    shutil.copy(os.path.join(folder, "chain"), bare)
    told(bare, 1, ["--steps=1"], [r"kernels\.fatbin, the program's kernels, can't be read: run make"], 1)


def chain(folder, seeds):
    with open(os.path.join(folder, "tokens"), "wb") as file:
        file.write(bytes(range(256)) * 40)
    for seed in range(seeds):
        for ranks in (1, 2, 4):
            same_as_cpu(folder, ranks, seed, ["--steps=4", "--json"])
        same_as_cpu(folder, 2, seed, ["--steps=5", "--json"], "--graph")
        same_as_cpu(folder, 2, seed, ["--steps=7", "--json", "--log-every=3"])
    no_capture(folder)
    traces(folder)
    same_as_cpu(folder, 2, 1, ["--steps=2", "--json"], PP_TEST_DATA_KIND=1, PP_TEST_DATA=os.path.join(folder, "tokens"))
    files(folder)
    steps_that_change_nothing(folder)
    faults(folder)
    no_kernels(folder)


def host(folder, seeds):
    over = "--transport=host"
    for seed in range(seeds):
        for ranks in (2, 4):
            same_as_cpu(folder, ranks, seed, ["--steps=4", "--json"], over)
        same_as_cpu(folder, 2, seed, ["--steps=5", "--json"], over, "--graph")
        same_as_cpu(folder, 4, seed, ["--steps=7", "--json", "--log-every=3"], over)
    job = run(folder, "chain", 2, ["--steps=1", "--json"], PPC_CHECK_DEVICES=1)
    check(job.status == 0 and '"transport":"host"' in job.out, "ranks that share a GPU", job.out, job.err)
    told(folder, 2, ["--steps=1", "--transport=nccl"], [r"rank 0: ranks 0 and 1 have one GPU, which NCCL refuses: --transport=host or auto"], 1, PPC_CHECK_DEVICES=1)
    told(folder, 2, ["--steps=1", "--transport=nccl"], [], 0, PPC_CHECK_DEVICES=1, NCCL_HOSTID="one")
    check('"transport":"nccl"' in run(folder, "chain", 2, ["--steps=1", "--json"], PPC_CHECK_DEVICES=2).out, "ranks with a GPU each")
    job = told(folder, 2, ["--steps=1", over], [], 0)
    check(re.search(r"\ntransfers go through the host's memory, of which \d+ bytes are pinned\n", job.out), job.out)
    told(folder, 2, ["--steps=1", "--transport=shm"], ["no transport shm for 2 ranks"], 2)
    for more in ([], ["--graph"]):
        told(folder, 2, ["--steps=4", "--timeout=2", over, *more], [
            r"no rank has moved for 2\.\d s", r"rank 1 waits until rank 0 sends x \(chain\.pp:3\), microbatch 3; "
            r"it is at step 1, stage_2_fwd, stage 2, microbatch 3, chain\.pp:10"], 4, PP_TEST_LOST_SEND=1)
        told(folder, 2, ["--steps=4", over, *more], [r"rank 1: rank 0 sends transfer \d+ where transfer \d+ is taken: x \(chain.pp:3\), microbatch 3"], 86, PP_TEST_LOST_RECEIVE=1)
        told(folder, 4, ["--steps=9", over, *more], [r"rank 2 \(pid \d+\) exited without finishing at step 2"], 86, PP_TEST_EXIT_STEP=2)
        for kind, text in ((signal.SIGKILL, r"rank 1 \(pid \d+\) was killed at"), (signal.SIGSTOP, r"rank 1 \(pid \d+\) has been stopped by a signal for")):
            hurt(folder, kind, text, over, *more)
    small_memory(folder, over)
    check(not [name for name in os.listdir("/dev/shm") if f"cuda-runtime-{os.getpid()}" in name], "left in /dev/shm")


def small_memory(folder, *more):
    """No room for what the transfers go through: both numbers, before step 1. Only root can make such a place."""
    place = os.path.join(folder, "shm")
    os.makedirs(place, exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1160k", "tmpfs", place], stderr=subprocess.DEVNULL).returncode != 0:
        return
    try:
        job = told(folder, 4, ["--steps=1", f"--shm-dir={place}", *more], [r"is too small: the job needs \d+ bytes of shared memory and \d+ are free"], 1)
        check(int(re.search(r"needs (\d+)", job.err)[1]) < 1 << 20, "the board itself has no room:", job.err)
        check(os.listdir(place) == [], "left in shared memory:", os.listdir(place))
    finally:
        subprocess.run(["umount", place], check=True)


def suite(folder, seeds):
    expected = None
    for ranks, transport in ((1, "self"), *((n, t) for t in ("nccl", "host") for n in (2, 3, 4))):
        for seed in range(1, seeds + 1):
            what = f"suite, {ranks} ranks, {transport}, seed {seed}"
            job = run(folder, "suite", ranks, ["--steps=3", "--json", "--timeout=20", f"--transport={transport}"], seed=seed, TEST_SEED=seed % 3 + 1)
            check(job.status == 0 and job.err == "", f"{what}: status {job.status}", job.err)
            found = re.search(r'"parameters":"([0-9a-f]{64})"', job.out)
            expected = expected or (found and found[1])
            check(found and found[1] == expected, f"{what}: gathered", found and found[1], "not", expected)


def main():
    part, seeds, folder = sys.argv[1], int(sys.argv[2]), os.path.realpath(sys.argv[3])
    if not shutil.which("nvcc"):
        print("skipped: nvcc is not installed")
        return
    build(folder)
    {"chain": chain, "suite": suite, "host": host}[part](folder, seeds)
    sys.exit(wrong > 0)


main()
