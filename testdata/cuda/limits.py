#!/usr/bin/env python3
"""Models at the limits of one op or kernel, on stdout: sums of N parameters of many sizes (`sum N`), a concat of them
(`concat N`), N square tables of 46,000 rows on one rank (`tables N`), a mean over N * 32,768 elements (`mean N`), a table
of two rows of N (`row N`)."""
import sys

kind, n = sys.argv[1], int(sys.argv[2])
names = [f"p{i}" for i in range(n)]
sizes = {"sum": lambda i: 1 + i % 5, "concat": lambda i: i + 1}
data, loss = "x = synthetic(3)", "m(x)"
if kind in sizes:
    params = "".join(f"  param p{i}: [{sizes[kind](i)}] = normal(0.0, 1.0);\n" for i in range(n))
    body = f"mean(x) + {' + '.join(p + '[0]' for p in names)}" if kind == "sum" else f"mean(concat([{', '.join(names)}]) * mean(x))"
elif kind == "mean":
    params = "  param w: [8] = ones;\n"
    body = f"mean(reshape(w, [8, 1, 1]) * reshape(cast(iota({n}), real), [{n}, 1]) * reshape(cast(iota(4096), real), [1, 4096])) + mean(x)"
else:
    rows, columns = (46000, 46000) if kind == "tables" else (2, n)
    params = "".join(f"  param t{i}: [{rows}, {columns}] = normal(0.0, 1.0);\n" for i in range(n if kind == "tables" else 1))
    body = "mean(" + " + ".join(f"gather(t{i}, x)" for i in range(n if kind == "tables" else 1)) + ")"
    data = "x = synthetic(3, 2)"
print(f"""use nn; use optim; use schedules;
module net() {{
{params}  fn (x: {'i32' if 'gather' in body else ''}[b, 3]) {{ return {body}; }}
}}
train {{
  model m = net(); batch microbatch = 2, microbatches = 2; data {data}; loss {loss};
  ranks 1; schedule gpipe; optimizer sgd(lr = constant(0.01)); clip global_norm(1.0); steps 2;
}}""")
