// bf16 is stored, not computed with, and no type of parameters.
//
// RUN: %ppc check %s 2>%t; test $? -eq 1 && %FileCheck --implicit-check-not=error: <%t
// RUN: sed 's/precision i32/precision bf16/; s/bf16\[d\]/[d]/' %s >f64.pp; %ppc check f64.pp --dtype=f64 2>%t; test $? -eq 1 && %FileCheck --check-prefix=F64 --implicit-check-not=error: <%t
// RUN: sed 's/precision i32/precision tf32/; s/bf16\[d\]/[d]/' %s >tf32.pp; %ppc check tf32.pp 2>%t; test $? -eq 1 && %FileCheck --check-prefix=TF32 --implicit-check-not=error: <%t
// RUN: %ppc check tf32.pp --precision=f32 && %ppc check tf32.pp --target=cuda && ! %ppc check tf32.pp --target=cuda --dtype=f64 2>%t && %FileCheck --check-prefix=WIDE --implicit-check-not=error: <%t
// RUN: %ppc check %s --precision=f16 2>%t; test $? -eq 2 && %FileCheck --check-prefix=OPTION <%t
use nn; use optim; use schedules;

module net(d) {
  param w: bf16[d] = ones;
  fn (x: [b, d]) { return mean(cast(x, real) * w); }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 2;
  data      x = synthetic(8);
  loss      net(x);
  ranks     1;
  schedule  gpipe;
  optimizer sgd(lr = constant(0.1));
  steps     1;
  precision i32;
}

// CHECK: precision.pp:24:13: error: 'precision' is f32, tf32 or bf16, not the dtype i32
// CHECK: precision.pp:11:12: error: a parameter is f32 or f64, not bf16
// F64: f64.pp:24:13: error: 'precision bf16' is for models of f32, this one is f64
// TF32: tf32.pp:24:13: error: 'precision tf32' needs --target=cuda: CPUs have no TF32 (--precision=f32 computes in f32)
// WIDE: tf32.pp:24:13: error: 'precision tf32' is for models of f32, this one is f64
// OPTION: --precision=f16: expected f32, tf32 or bf16
