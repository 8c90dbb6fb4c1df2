"""For tests that build many programs: compiles a model, builds what was emitted, runs its ranks.

A Shop keeps what such programs have in common, so that a build costs what its own stages and ranks cost: objects
go by content into one cache, and those of the runtime are made once and laid into every later folder. Programs
are built at -O1 for the oldest instruction set: bits don't depend on either. A Shop may
be one of checking builds: "check", whose memory is poisoned where nothing lives, or "threads", for ThreadSanitizer."""
import json
import os
import platform
import shutil
import signal
import subprocess
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PPC = os.path.join(ROOT, "bin", "ppc")
FLAGS = "-std=c11 -O1 -fno-math-errno -fno-trapping-math -ffp-contract=off -fopenmp-simd"


class Failure(Exception):
    """What was run and what it said."""


def call(command, cwd=None, env=None, timeout=300):
    """Returns (status, stdout, stderr); ends all that the command has started when it takes too long."""
    process = subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               errors="replace", start_new_session=True)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise Failure(f"{' '.join(command)}: not finished after {timeout} s\n{out[-1000:]}{err[-2000:]}") from None
    return process.returncode, out, err


def need(command, **options):
    status, out, err = call(command, **options)
    if status != 0:
        raise Failure(f"{' '.join(command)}: status {status}\n{out[-1000:]}{err[-3000:]}")
    return out, err


class Shop:
    def __init__(self, folder, kind="", flags=FLAGS):
        self.folder, self.runtime, self.lock = folder, os.path.join(folder, "runtime"), threading.Lock()
        self.objects = {"": "obj", "check": "check/obj", "threads": "obj-threads"}[kind]
        self.launcher = "threads" if kind == "threads" else "launch.sh"
        os.makedirs(folder, exist_ok=True)
        self.arguments = [f"CFLAGS={flags}"] + {"": [], "check": ["CHECK=1"], "threads": ["threads"]}[kind]
        if platform.machine() == "x86_64":
            self.arguments.append("LEVELS=2")
        dropped = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "CHECK")
        self.shared = {k: v for k, v in os.environ.items() if k not in dropped}
        self.env = {**self.shared, "OBJECT_CACHE": os.path.join(folder, "objects"), "OPENBLAS_NUM_THREADS": "1"}
        if kind == "check":
            self.env["CHECK"] = "1"

    def compile(self, model, name, options):
        """Emits the program into a folder of that name; returns (folder, what ppc said)."""
        folder = os.path.join(self.folder, name)
        shutil.rmtree(folder, ignore_errors=True)
        return folder, need([PPC, "compile", model, "-o", folder, "--color=never"] + options)[1]

    def build(self, folder):
        with self.lock:
            first = not os.path.isdir(self.runtime)
            if first:  # here the user's cache, so that the runtime is compiled once for all tests
                self.make(folder, env=self.shared)
                shutil.copytree(os.path.join(folder, self.objects, "runtime"), self.runtime)
        if not first:
            shutil.copytree(self.runtime, os.path.join(folder, self.objects, "runtime"), copy_function=shutil.copyfile)
            self.make(folder)

    def make(self, folder, env=None):
        need(["make", "-s", "-C", folder, *self.arguments], env=env or self.env, timeout=600)

    def run(self, folder, options=()):
        """Returns what the ranks printed as JSON: (steps, last line)."""
        return read_run(need([os.path.join(folder, self.launcher), "--json", *options], env=self.env)[0])


def read_run(out):
    """(steps, last line) of what ranks printed."""
    lines = [json.loads(line) for line in out.splitlines() if line.strip()]
    if not lines or not lines[-1].get("done"):
        raise Failure(f"no last line:\n{out[-1000:]}")
    return lines[:-1], lines[-1]


def check(model, options):
    """The report of `ppc check`."""
    return json.loads(need([PPC, "check", model, "--json", "--color=never"] + options)[0])


def difference(run, other):
    """None, or what two runs don't have in common, to the bit."""
    for a, b in zip(run[0], other[0]):
        for key in ("step", "loss", "grad_norm", "outputs"):
            if a.get(key) != b.get(key):
                return f"step {a['step']}: {key} {b.get(key)} instead of {a.get(key)}"
    for key in ("steps", "parameters", "optimizer"):
        if run[1][key] != other[1][key]:
            return f"{key}: {other[1][key]} instead of {run[1][key]}"
    return None if len(run[0]) == len(other[0]) else f"{len(other[0])} steps instead of {len(run[0])}"
