// Gradients of a bf16 product are summed in f32: 256 in microbatch 0 and 1 in microbatch 1 are 257, not 256.
// The weight itself stays f32.
//
// RUN: python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<2f", 256, 1))' >x.f32
// RUN: %ppc run %s --data x=x.f32 --json --save=st --save-gradients=gr >json
// RUN: python3 %root/testdata/compare.py elements gr 0 w=128.5
// RUN: python3 %root/testdata/compare.py elements st 0 w=-127.5
// RUN: %ppc dump %s --data x=x.f32 --after=autodiff | %FileCheck
// RUN: %ppc dump %s --data x=x.f32 --after=fuse --pretty --stage=0 | %FileCheck --check-prefix=ONCE
// RUN: %ppc dump %s --data x=x.f32 --after=schedule --pretty --rank=0 | %FileCheck --check-prefix=ACTIONS
use optim; use schedules;

module net() {
  param w: [1, 1] = ones;
  fn (x: [n, 1]) { return mean(x @ w); }
}

train {
  model     net = net();
  batch     microbatch = 1, microbatches = 2;
  data      x = f32_file("x.f32", 1, order = sequential);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = 1.0);
  steps     1;
  precision bf16;
}

// CHECK: pp.precision = "bf16"
// CHECK: "pp.matmul"{{.*}} (tensor<1x1xbf16>, tensor<1x1xbf16>) -> tensor<1x1xf32>
// CHECK: "pp.matmul_accumulate"{{.*}} (tensor<1x1xbf16>, tensor<1x1xbf16>) -> ()

// The weight is rounded once a step, before the loop.
// ONCE: stage 0, prepare
// ONCE: out: {{.*}}bf16[1, 1]{{.*}}to stage 0 fwd
// ONCE: stage 0, forward
// ONCE: in: {{.*}}bf16[1, 1]{{.*}}from stage 0 prepare
// ACTIONS: rank 0, stages 0
// ACTIONS-NEXT: 0   prepare
// ACTIONS-NEXT: 1   fwd
// ACTIONS-NOT: prepare
