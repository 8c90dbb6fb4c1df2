// What elaborate makes: parameters by path, stages from markers, explicit broadcasts, products of two
// matrices, a stated derivative as a function of its own, the update of one parameter, rate and clip.
//
// RUN: %ppc dump %s --after=elaborate | %FileCheck
// RUN: %ppc dump %s --after=elaborate | mlir-opt-19 --irdl-file=<(%ppc dump --irdl) >/dev/null
use optim;
use schedules;

fn square(x) {
  let twice = 2 * x;
  return x * x;
} derivative (y, dy) {
  return dy * twice;
}

module layer(n, m) {
  param weight: [n, m] = normal(0.0, 0.5);
  param bias: [m] = zeros;
  fn (x: [.., n]) {
    let y = x @ weight + bias;
    output largest = max(y);
    return square(y);
  }
}

module net(d) {
  h[2]: layer(d, d);
  fn (x: [b, d]) {
    let y = h[0](reshape(x, [2, b / 2, d]));
    stage_end;
    return sum(h[1](y)), b;
  }
}

train {
  model     net = net(8);
  batch     microbatch = 4, microbatches = 3;
  data      x = synthetic(8);
  loss      net(x);
  ranks     2;
  schedule  one_f_one_b;
  optimizer sgd(lr = linear_decay(0.5, warmup = 2, total = steps));
  clip      global_norm(2.0);
  steps     7;
}

// CHECK: module attributes
// CHECK-SAME: pp.dtype = "f32"
// CHECK-SAME: pp.loss_pair
// CHECK-SAME: pp.microbatch = 4
// CHECK-SAME: pp.microbatches = 3
// CHECK-SAME: pp.ranks = 2
// CHECK-SAME: pp.schedule = "one_f_one_b"
// CHECK-SAME: pp.stages = 2
// CHECK-SAME: pp.states = "m"
// CHECK-SAME: pp.steps = 7
// CHECK: "pp.parameter"() {a = 0.000000e+00 : f64, b = 5.000000e-01 : f64, init = "normal", sym = "h.0.weight", type = tensor<8x8xf32>}
// CHECK: sym = "h.0.bias", type = tensor<8xf32>
// CHECK: sym = "h.1.weight"
// CHECK: sym = "h.1.bias"
// CHECK: "pp.source"() {kind = "synthetic", order = "random", path = "", sym = "x", type = tensor<4x8xf32>, vocabulary = 0 : i64}
// CHECK: func.func @loss()
// CHECK: %[[X:.*]] = "pp.data"() {pp.stage = 0 : i64, source = "x"}
// CHECK: %[[R:.*]] = "pp.reshape"(%[[X]]) {{.*}} -> tensor<2x2x8xf32>
// CHECK: %[[W:.*]] = "pp.param"() {param = "h.0.weight", pp.path = "h.{{[01]}}", pp.stage = 0 : i64}
// CHECK: %[[FLAT:.*]] = "pp.reshape"(%[[R]]) {{.*}} -> tensor<4x8xf32>
// CHECK: %[[P:.*]] = "pp.matmul"(%[[FLAT]], %[[W]]) {{.*}} -> tensor<4x8xf32>
// CHECK: %[[P3:.*]] = "pp.reshape"(%[[P]]) {{.*}} -> tensor<2x2x8xf32>
// CHECK: %[[B:.*]] = "pp.param"() {param = "h.0.bias"
// CHECK: %[[B3:.*]] = "pp.broadcast"({{.*}} -> tensor<2x2x8xf32>
// CHECK: %[[Y:.*]] = "pp.add"(%[[P3]], %[[B3]]) {pp.name = "y"
// CHECK: %[[Y64:.*]] = "pp.cast"(%[[Y]]) {{.*}} -> tensor<2x2x8xf64>
// CHECK: %[[MAX:.*]] = "pp.reduce_max"(%[[Y64]]) {{.*}} -> tensor<f64>
// CHECK: "pp.output"(%[[MAX]]) {kind = "max", output = "h.0.largest", pp.path = "h.0", pp.stage = 0 : i64}
// CHECK: %[[TWICE:.*]] = "pp.mul"({{.*}}%[[Y]]) {pp.name = "twice"
// CHECK: %[[SQUARE:.*]] = "pp.mul"(%[[Y]], %[[Y]])
// CHECK: "pp.with_derivative"(%[[SQUARE]], %[[Y]], %[[TWICE]]) {derivative = @derivative.0, n_arguments = 1 : i64, n_results = 1 : i64
// CHECK: "pp.param"() {param = "h.1.weight", pp.path = "h.{{[01]}}", pp.stage = 1 : i64}
// CHECK: "pp.loss"({{.*}}) {pp.stage = 1 : i64} : (tensor<f32>, tensor<f64>)
// CHECK: func.func @derivative.0(%[[DY0:.*]]: tensor<2x2x8xf32>, %[[DY:.*]]: tensor<2x2x8xf32>, %[[A:.*]]: tensor<2x2x8xf32>, %[[T:.*]]: tensor<2x2x8xf32>)
// CHECK: %[[DX:.*]] = "pp.mul"(%[[DY]], %[[T]])
// CHECK: return %[[DX]]
// CHECK: func.func @rate(%{{.*}}: tensor<f64>) -> tensor<f64>
// CHECK: "pp.select"
// CHECK: func.func @update.h.0.weight(%{{.*}}: tensor<8x8xf32>, %{{.*}}: tensor<8x8xf32>, %{{.*}}: tensor<8x8xf32>, %{{.*}}: tensor<f64>) -> (tensor<8x8xf32>, tensor<8x8xf32>)
// CHECK: func.func @update.h.1.bias(
// CHECK: func.func @clip(%{{.*}}: tensor<f64>) -> tensor<f64>
