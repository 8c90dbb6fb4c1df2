#!/usr/bin/env python3
"""Every library schedule against the published figures: table.py PPC [SCHEDULE…]

For 1, 2, 3, 4 and 8 ranks and as many microbatches as 1, P-1, P, P+1, 2P-1 and 4P: it is accepted and proved to finish,
with the live counts and the bubble of its closed form, or refused with the error that says what it needs. Unit times:
F = I = W = 1 for a stage (of an interleaved or V schedule: for a chunk), whole backward 2. With a cost of a transfer
the forms hold where the ranks divide the microbatches, with other costs where W is no longer than F."""
import concurrent.futures, json, random, re, subprocess, sys

ppc = sys.argv[1]
HOP = 0.0625  # small, and exact in binary


def simulate(schedule, p, m, *options, command="simulate"):
    run = subprocess.run([ppc, command, f"--schedule={schedule}", f"--ranks={p}", f"--microbatches={m}", "--json", *options],
                         capture_output=True, text=True)
    if run.returncode == 0:
        return json.loads(run.stdout)
    return run.stderr if run.returncode == 1 else f"exit {run.returncode}: {run.stderr}"


def ranks(p, f):
    return [f(r) for r in range(p)]


# --- the closed forms: v chunks on each rank, group size, then forward stashes live until I, until W, and the bubble --


def group(p, m):
    return m // max(1, m // p)


class Form:
    """live, held: per rank, None where there is no form. bubble: at unit times, hop: what c adds, per c."""
    v = 1
    cost = "F=1"
    weights = None  # the bubble is P - 1 times F + I + weights * W

    def refused(p, m):
        return None

    def held(p, m):
        return None

    def hop(p, m):
        return None


class gpipe(Form):
    weights = 1
    def live(p, m): return [m] * p
    def bubble(p, m): return 3 * (p - 1)
    def hop(p, m): return 2 * (p - 1)


class one_f_one_b(Form):
    weights = 1
    def live(p, m): return ranks(p, lambda r: min(m, p - r))
    def bubble(p, m): return 3 * (p - 1)
    def hop(p, m): return 2 * (p - 1) * m // p + 2 * (p - 2) if p > 1 else 0


class eager_1f1b(Form):
    weights = 1
    def live(p, m): return ranks(p, lambda r: min(m, 2 * (p - r) - 1))
    def bubble(p, m): return 3 * (p - 1)
    def hop(p, m): return 2 * (p - 1)


class Interleaved(Form):
    v = 2
    weights = 1
    def refused(p, m): return "microbatches must be a multiple of the rounds" if m % max(1, m // p) else None
    # With fewer microbatches than ranks each further chunk waits for the missing ones.
    def bubble(p, m): return 3 * (p - 1) + 3 * max(0, p - m)
    def hop(p, m): return 2 * (2 * p - 1) if p > 1 else 0


class interleaved_1f1b(Interleaved):
    def live(p, m): return ranks(p, lambda r: min(2 * m, 2 * (p - 1 - r) + group(p, m) + 1))


class kimi_k2(Interleaved):
    def live(p, m): return ranks(p, lambda r: min(2 * m, 2 * (p - 1 - r) + group(p, m) + 2))


class interleaved_zero_bubble(Interleaved):
    weights = -1
    def live(p, m): return ranks(p, lambda r: min(2 * m, group(p, m) + p - r))
    def held(p, m): return [min(2 * m, group(p, m) + p)] * p
    def bubble(p, m): return p - 1 if m >= p else None
    def hop(p, m): return None


class looped_bfs(Form):
    v = 2
    weights = 1
    def refused(p, m): return "at least as many microbatches as ranks" if m < p else None
    def live(p, m): return [2 * m] * p
    def bubble(p, m): return 3 * (p - 1)
    # With m = p the way back to rank 0 isn't hidden.
    def hop(p, m): return 2 * (p - 1) if m > p else None


class zb_h1(Form):
    weights = -1
    def live(p, m): return ranks(p, lambda r: min(m, p - r))
    def held(p, m): return [min(m, p)] * p
    def bubble(p, m): return p - 1 if m > p else 2 * (m + p - 1) + 1 - 3 * m if p > 1 else 0
    def hop(p, m): return 4 * (p - 1) if m > p else None


class zb_h2(Form):
    weights = -2
    def live(p, m): return ranks(p, lambda r: min(m, 2 * (p - r) - 1))
    def held(p, m): return [min(m, 2 * p - 1)] * p
    def bubble(p, m): return max(0, 2 * p - 1 - m)
    def hop(p, m): return 2 * (p - 1) if m >= 2 * p - 1 else None


class zb_v(Form):
    v = 2
    def live(p, m): return [2 * p] * p if m >= 2 * p - 1 else None
    def held(p, m): return [2 * p] * p if m >= 2 * p - 1 else None
    def bubble(p, m): return 2 * max(0, 2 * p - 1 - m)


class Block(Form):
    """V-Min and V-Half: the published bubble of the reordered schedule is an upper bound."""
    v = 2
    def refused(p, m): return "at least 2 \\* ranks microbatches" if m < 2 * p else None
    def live(p, m): return None
    def bubble(p, m): return None


class v_min(Block):
    limit = staticmethod(lambda p: 2 * ((p + 4) // 3))
    at_most = {1: 0, 2: 3, 3: 5, 4: 11, 5: 15, 6: 17, 8: 27}


class v_half(Block):
    limit = staticmethod(lambda p: 2 * ((p + 2) // 2))
    at_most = {1: 0, 2: 1, 3: 5, 4: 5, 5: 11, 6: 11, 8: 17}


class dualpipe_v(Form):
    v = 2
    cost = "F=1,pair=3"
    def refused(p, m): return "at least 2 \\* ranks microbatches" if m < 2 * p else None
    def live(p, m): return [2 * p + 1] * p
    def bubble(p, m): return 2 * (p - 1)


FORMS = [gpipe, one_f_one_b, eager_1f1b, interleaved_1f1b, kimi_k2, looped_bfs, zb_h1, zb_h2, interleaved_zero_bubble,
         zb_v, v_min, v_half, dualpipe_v]

# --- the checks: each gives a list of what is wrong ----------------------------------------------------------------


def peaks(got, which):
    return [r[which] for r in got["ranks"]]


def differs(what, got, want):
    return [f"{what} is {got}, not {want}"] if want is not None and got != want else []


def check_case(form, p, m):
    got = simulate(form.__name__, p, m, f"--stages={form.v * p}", f"--cost={form.cost},transfer=0", command="check")
    needs = form.refused(p, m)
    if needs:
        ok = isinstance(got, str) and re.match(r"--schedule:1:1: error: .*" + needs, got) and "required here" in got
        return [] if ok else [f"not refused for '{needs}': {got}"]
    if isinstance(got, str):
        return [got]
    wrong = differs("the verdict", got["verdict"], "proved")
    wrong += differs("live until I", peaks(got, "peak_live"), form.live(p, m))
    wrong += differs("held until W", peaks(got, "peak_live_weight_held"), form.held(p, m))
    wrong += differs("the bubble", got["bubble"], form.bubble(p, m))
    wrong += differs("the step", got["step_time"], got["bubble"] + 3 * form.v * m)
    if issubclass(form, Block):
        wrong += differs("the peak held until W", max(peaks(got, "peak_live_weight_held")), form.limit(p))
        if got["bubble"] > form.at_most.get(p, got["bubble"]):
            wrong.append(f"the bubble {got['bubble']} is above {form.at_most[p]}")
    return wrong


def check_hop(form, p, m):
    got = simulate(form.__name__, p, m, f"--stages={form.v * p}", f"--cost={form.cost},transfer={HOP}")
    return [got] if isinstance(got, str) else differs(f"the bubble with hops of {HOP}", got["bubble"],
                                                      form.bubble(p, m) + HOP * form.hop(p, m))


def check_costs(form, p, F, I, W):
    """The bubble in F, I and W with many microbatches."""
    got = simulate(form.__name__, p, 4 * p, f"--stages={form.v * p}", f"--cost=F={F},I={I},W={W},transfer=0")
    return [got] if isinstance(got, str) else differs("the bubble", got["bubble"], (p - 1) * (F + I + form.weights * W))


def check_figure(schedule, p, m, stages, key, want):
    """A single published figure."""
    got = simulate(schedule, p, m, *([f"--stages={stages}"] if stages else []))
    return [got] if isinstance(got, str) else differs(key, got[key] if key in got else peaks(got, key), want)


def check_greedy(p, m, cost, memory):
    """Within its memory, and no slower than ZB-H1 and ZB-H2 where those fit."""
    got = simulate(f"greedy({cost}, memory = {memory})", p, m, f"--cost={cost.replace(' ', '')}")
    if isinstance(got, str):
        return [got]
    wrong = [f"holds {held}" for held in peaks(got, "peak_live_weight_held") if held > memory]
    for other, needs in (("zb_h1", min(m, p)), ("zb_h2", min(m, 2 * p - 1))):
        if memory >= needs:
            step = simulate(other, p, m, f"--cost={cost.replace(' ', '')}")["step_time"]
            if got["step_time"] > step * (1 + 1e-12):
                wrong.append(f"takes {got['step_time']}, {other} {step}")
    return wrong


def greedy_cases():
    rng = random.Random(1)
    for p in (1, 2, 3, 4, 8):
        for m in sizes(p):
            def cost():
                each = [round(rng.uniform(0.5, 1.5), 3) for _ in range(p)]
                return "1" if rng.random() < 0.4 else str(each).replace(" ", "")
            text = f"F = {cost()}, I = {cost()}, W = {cost()}, transfer = {rng.choice([0, 0.1, 0.5])}"
            yield p, m, text, rng.choice([1, p, 2 * p - 1, 3 * p])


def sizes(p):
    return sorted({m for m in (1, p - 1, p, p + 1, 2 * p - 1, 4 * p) if m > 0})


FIGURES = [
    # few and odd microbatches
    *[("one_f_one_b", 8, m, None, "step_time", t) for m, t in ((1, 24), (2, 27), (4, 33), (7, 42))],
    ("interleaved_1f1b", 2, 1, 4, "step_time", 12),
    ("interleaved_1f1b", 4, 10, 8, "step_time", 69),
    ("interleaved_1f1b", 4, 10, 8, "peak_live", [12, 10, 8, 6]),
    ("interleaved_1f1b", 4, 16, 8, "peak_live", [11, 9, 7, 5]),
    ("interleaved_1f1b", 4, 3, 8, "step_time", 30),
    ("interleaved_1f1b", 4, 3, 8, "peak_live", [6, 6, 6, 4]),
    # three chunks
    ("interleaved_1f1b", 4, 8, 12, "peak_live", [15, 13, 11, 9]),
    ("interleaved_1f1b", 4, 8, 12, "bubble", 9),
    ("interleaved_zero_bubble", 4, 8, 12, "peak_live_weight_held", [12] * 4),
    ("interleaved_zero_bubble", 4, 8, 12, "bubble", 3),
    ("zb_v", 4, 6, 8, "bubble", 2),
    # k consecutive stages act as one
    ("zb_h1", 4, 8, 8, "peak_live_weight_held", [8, 8, 8, 8]),
    ("zb_h1", 4, 8, 8, "bubble", 6),
    ("zb_h2", 4, 8, 8, "bubble", 0),
    ("eager_1f1b", 2, 4, 8, "peak_live", [12, 4]),
    ("zb_v", 2, 4, 8, "bubble", 0),
    ("v_half", 2, 4, 8, "peak_live_weight_held", [8, 8]),
]


def cases():
    for form in FORMS:
        for p in (1, 2, 3, 4, 8) + ((5, 6) if issubclass(form, Block) else ()):
            for m in sizes(p):
                yield f"{form.__name__}, {p} ranks, {m} microbatches", check_case, (form, p, m)
                if m % p == 0 and not form.refused(p, m) and form.hop(p, m) is not None:
                    yield f"{form.__name__}, {p} ranks, {m} microbatches, hops", check_hop, (form, p, m)
    for form in FORMS:
        for p in (2, 4, 8) if form.weights is not None else ():
            for F, I, W in ((18, 17, 9), (10, 12, 8)):
                yield f"{form.__name__}, {p} ranks, F {F}, I {I}, W {W}", check_costs, (form, p, F, I, W)
    for figure in FIGURES:
        yield f"{figure[0]}, {figure[1]} ranks, {figure[2]} microbatches", check_figure, figure
    for case in greedy_cases():
        yield "greedy({2}), {0} ranks, {1} microbatches, memory {3}".format(*case), check_greedy, case


def main():
    wanted = [c for c in cases() if len(sys.argv) < 3 or c[0].split(",")[0].split("(")[0] in sys.argv[2:]]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda c: c[1](*c[2]), wanted))
    bad = 0
    for (name, _, _), wrong in zip(wanted, results):
        for text in wrong:
            bad += 1
            print(f"{name}: {text}")
    print(f"{len(wanted)} cases, {bad} wrong")
    return bad > 0 or not wanted


sys.exit(main())
