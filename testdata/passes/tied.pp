// One weight in three stages: each accumulates its own, the owner folds them in descending order, and
// the others take the new value.
//
// RUN: %ppc dump %s --after=autodiff | %FileCheck --check-prefix=AUTODIFF
// RUN: %ppc dump %s --after=stages | %FileCheck --check-prefix=STAGES
// RUN: %ppc dump %s --after=split | %FileCheck --check-prefix=SPLIT
use optim;
use schedules;

module net(n) {
  param w: [n, n] = normal(0.0, 0.1);
  param spare: [n] = zeros;
  fn (x: [b, n]) {
    let y = cast(x, real) @ w;
    stage_end;
    y = tanh(y) @ w;
    stage_end;
    return sum(y @ transpose(w));
  }
}

train {
  model net = net(4);
  batch microbatch = 2, microbatches = 3;
  data x = synthetic(4);
  loss net(x);
  ranks 3;
  schedule one_f_one_b;
  optimizer sgd(lr = constant(0.1));
  steps 1;
  seed 1;
}

// AUTODIFF: func.func @microbatch()
// AUTODIFF: "pp.loss"
// AUTODIFF: "pp.constant"() {{.*}}pp.backward{{.*}}value = 1.0
// AUTODIFF: "pp.matmul_accumulate"{{.*}}pp.stage = 2
// AUTODIFF: "pp.matmul_accumulate"{{.*}}pp.stage = 1
// AUTODIFF: "pp.matmul_accumulate"{{.*}}pp.stage = 0
// AUTODIFF-NOT: pp.matmul_accumulate
// AUTODIFF: func.func @step()
// AUTODIFF-NEXT: "pp.loop"() {body = @microbatch, count = 3 : i64}

// STAGES: "pp.parameter"() {{.*}}accumulators = array<i64: 0, 1, 2>{{.*}}owner = 0 : i64{{.*}}stages = array<i64: 0, 1, 2>{{.*}}sym = "w"
// STAGES: "pp.parameter"() {{.*}}accumulators = array<i64>{{.*}}sym = "spare"
// STAGES: "pp.matmul_accumulate"{{.*}}pp.weight_half
// STAGES: func.func @step()
// STAGES: [[G2:%.*]] = "pp.gradient"() {of_stage = 2 : i64
// STAGES: [[G1:%.*]] = "pp.gradient"() {of_stage = 1 : i64
// STAGES: [[A:%.*]] = "pp.add"([[G2]], [[G1]]){{.*}}pp.stage = 0
// STAGES: [[G0:%.*]] = "pp.gradient"() {of_stage = 0 : i64
// STAGES: [[B:%.*]] = "pp.add"([[A]], [[G0]]){{.*}}pp.stage = 0
// STAGES: "pp.fold"([[B]])
// STAGES: "pp.control"
// STAGES-NOT: "pp.assign"{{.*}}"spare"
// STAGES: "pp.assign"{{.*}}"w"

// SPLIT: module @stage_0
// SPLIT: func.func @fwd
// SPLIT: func.func @bwd(
// SPLIT: func.func @finish(
// SPLIT: func.func @update(
// SPLIT-NOT: func.func @refresh
// SPLIT: module @stage_1
// SPLIT: func.func @bwd_input
// SPLIT: func.func @bwd_weight
// SPLIT: func.func @refresh({{.*}}pp.refresh = "w"
// SPLIT: module @stage_2
// SPLIT: func.func @decide
// SPLIT: func.func @refresh({{.*}}pp.refresh = "w"
