// A mixture of experts: i32 and bool tensors cross stages, a loss as a pair, outputs of all kinds.
use nn; use optim; use schedules; use own;
const stages = 3; const e = 3; const d = 4;
module moe(stages) {
  emb: embedding(7, d, std = 1.0);
  gate: linear(d, e, std = 1.0);
  param up: [e, d, 5] = normal(0.0, 0.5);
  param down: [e, 5, d] = normal(0.0, 0.5);
  param table: [e, d] = normal(0.0, 1.0);
  head: linear(d, 7, std = 0.5);
  fn (ids: i32[b, t], target: i32[b, t]) {
    let h = emb(ids);
    let g = softmax(gate(h));
    let top = max(g, axis = -1, keep = true);
    let route = g >= top;  // bool [b,t,e]
    let route_id = sum(cast(route, i32) * iota(e), axis = -1);  // i32
    route_id = min(route_id, e - 1);
    let mask = ids > 2;
    output routed = mean(cast(route, real));
    output maxroute = max(route_id);
    output ids_all = concat(route_id);
    if stages > 1 { stage_end; }
    let x = reshape(h, [1, b * t, d]);  // broadcast left
    let y = gelu(x @ up) @ down;  // [e, bt, d]
    if stages > 2 { stage_end; }
    let w = reshape(select(route, g, 0.0), [b * t, e]);
    let yy = sum(y * reshape(transpose(w), [e, b * t, 1]), axis = 0);
    let z = h + reshape(yy, [b, t, d]) + gather(table, route_id);
    z = select(reshape(mask, [b, t, 1]), z, z * 0.5);
    let nmask = not mask and (ids == 1 or ids == 0);
    z = select(reshape(nmask, [b, t, 1]), tanh(z), z);
    let s, n = masked_cross_entropy(head(z), target);
    output counted = sum(n);
    return s, n;
  }
}
train {
  model     m = moe(stages);
  batch     microbatch = 3, microbatches = 5;
  data      a = i32_file("t.i32", 5);
  data      c = i32_file("u.i32", 5);
  loss      m(a, c);
  ranks     3;
  schedule  one_f_one_b;
  optimizer sgd(lr = constant(0.1));
  steps     3;
  seed      5;
}
