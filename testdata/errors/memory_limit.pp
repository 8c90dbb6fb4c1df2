// A limit on what a rank maps: the error names the rank, where it is fullest and what takes most there.
//
// RUN: %ppc check %s --memory=9000 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
// RUN: %ppc compile %s --memory=8kB -o %d/out 2>%t; test $? -eq 2 && grep -q 'as in 2GiB, 512MB or 4096' %t
// RUN: %ppc compile %s --memory=9KB -o %d/out 2>%t; test $? -eq 1 && test ! -e %d/out
// RUN: %ppc run %s --memory=9KB -o %d/out 2>%t; test $? -eq 1 && test ! -e %d/out
// What is allowed is what is mapped, to the byte, on every rank:
// RUN: %ppc check %s --json | python3 -c 'import json, sys; print(max(r["mapped_bytes"] for r in json.load(sys.stdin)["ranks"]))' >most
// RUN: %ppc check %s --memory=$(cat most) --json >check.json
// RUN: ! %ppc check %s --memory=$(($(cat most) - 1)) 2>%t; test $(grep -c error: %t) -eq 1
// Of many ranks the first are named:
// RUN: %ppc check %s --memory=1 -D stages=8 --ranks=8 2>%t; test $(grep -c error: %t) -eq 4 && grep -q 'note: 4 more ranks need too much' %t
// RUN: %ppc check %s --memory=1 -D stages=5 --ranks=5 2>%t; grep -q 'note: 1 more rank needs too much' %t
// A program that generates has no schedule: the place is the task's. A file of schedules has no bytes.
// RUN: ! %ppc check %root/testdata/models/gpt2.pp --generate --memory=1MB 2>%t; grep -q '^[^ ]*gpt2.pp:[0-9]*:[0-9]*: error: rank 0 needs .* fullest in fwd' %t
// RUN: echo 'schedule mine(ranks, stages, microbatches) { rank r { for i in 0..microbatches { fwd(r, i); bwd(r, i); } } }' >s.pp
// RUN: ! %ppc check s.pp --schedule=mine --ranks=2 --microbatches=2 --memory=1MB 2>%t; grep -q "memory is of a model, and 's.pp' has no .train." %t
use nn; use optim; use schedules;

const stages = 2;

module net(d) {
  parts[stages]: linear(d, d, std = 0.1);
  fn (x) {
    for i in 0..stages {
      x = tanh(parts[i](x));
      if i + 1 < stages { stage_end; }
    }
    return mean_squared_error(x, x);
  }
}

train {
  model net = net(12);
  data x = synthetic(12);
  batch microbatch = 8, microbatches = 8;
  loss net(cast(x, real));
  ranks stages;
  schedule gpipe;
  optimizer adamw(lr = constant(1e-3));
  steps 1;
}

// CHECK: <library>/schedules.pp:{{[0-9]+:[0-9]+}}: error: rank 0 needs {{[0-9]+,[0-9]+}} bytes, --memory allows 9,000: it is fullest in bwd(0, 0), with {{[0-9]+,[0-9]+}} bytes in use
// CHECK-NEXT: {{bwd|backward}}(
// CHECK-NEXT: {{^ +\^$}}
// CHECK: memory_limit.pp:26:11: note: 3,072 bytes of it: 8 times x, 384 bytes each
// CHECK: <library>/nn.pp:{{[0-9]+:[0-9]+}}: note: 576 bytes of it: parts.0.weight
// CHECK: error: rank 1 needs
// CHECK: memory_limit.pp:26:11: note: 3,072 bytes of it: 8 times x, 384 bytes each
// CHECK: note: 576 bytes of it: gradient of parts.1.weight
