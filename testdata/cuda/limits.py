#!/usr/bin/env python3
"""Models at the limits of one op or kernel, on stdout: sums of N parameters of many sizes (`sum N`), a concat of them
(`concat N`)."""
import sys

kind, n = sys.argv[1], int(sys.argv[2])
names = [f"p{i}" for i in range(n)]
params = "".join(f"  param p{i}: [{1 + i % 5 if kind == 'sum' else i + 1}] = normal(0.0, 1.0);\n" for i in range(n))
body = "mean(x) + " + " + ".join(f"{p}[0]" for p in names) if kind == "sum" else f"mean(concat([{', '.join(names)}]) * mean(x))"
print(f"""use nn; use optim; use schedules;
module net() {{
{params}  fn (x: [b, 3]) {{ return {body}; }}
}}
train {{
  model m = net(); batch microbatch = 2, microbatches = 2; data x = synthetic(3); loss m(x);
  ranks 1; schedule gpipe; optimizer sgd(lr = constant(0.01)); steps 2;
}}""")
