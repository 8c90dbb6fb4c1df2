// Little used operations, four stages. numpy.test has the loss and the norm of the gradients.
use nn; use optim; use schedules; use own;
const stages = 4;
module net(stages) {
  param a: [3, 2, 4] = normal(0.0, 0.7);
  param c: [4] = uniform(0.5, 1.5);
  param s: [] = ones;
  param t: [5, 3, 2] = normal(0.0, 1.0);
  param k: [2, 1, 7, 4] = normal(0.0, 0.5);
  fn (x: [b, 12], ids: i32[b, n]) {
    let r = reshape(cast(x, real), [b, 3, 4]);
    let p = permute(a, [1, 0, 2]);  // 2 3 4
    let u = reshape(r, [b, 1, 3, 4]) * p + s;  // b 2 3 4
    let m = max(u, axis = 2);  // b 2 4
    let mn = min(u, reshape(c, [1, 4]));
    if stages > 1 { stage_end; }
    let q = pow(abs(mn) + 0.3, c * s);  // tensor ^ tensor
    let z = pad(q, axis = -1, before = 2, after = 1);  // b 2 3 7
    let y = concat([z[.., 1..5], u, reshape(m, [b, 2, 1, 4])], axis = -2);  // b 2 7 4
    let at = attention(y, k[0..2, 0, 0..7, 0..4] + y * 0.1, y, causal = true);  // hm
    if stages > 2 { stage_end; }
    let at2 = attention(at, concat([y, y], axis = 2), concat([at, y], axis = 2), scale = 0.7);  // cross
    let g = gather(t, ids - div(7, 2) * cast(ids > 4, i32));  // b n 3 2
    let gs = sum(g, axis = [1, 3]);  // b 3
    let last = at2[.., 6, 0..4];  // b 2 4
    let i0 = at2[0];  // 2 7 4
    let w = transpose(last) @ last;  // b 4 4
    if stages > 3 { stage_end; }
    let e = mean(w * w, axis = [-1, 0]) * c;  // 4
    let bb = cast(w > 0.0, real);
    let zz = sqrt(sum(w * w * bb, axis = [1, 2], keep = true) + 1.0);  // b 1 1
    return mean(e) + mean(gs * gs) / 7.0 + 0.1 * sum(zz) + mean(i0 * i0) * s
        + mean(-rsqrt(1.0 + exp(-w)) * sin(w) + cos(erf(w)));
  }
}
train {
  model     m = net(stages);
  batch     microbatch = 3, microbatches = 5;
  data      x = f32_file("x.f32", 12);
  data      ids = i32_file("t.i32", 5);
  loss      m(x, ids);
  ranks     2;
  schedule  one_f_one_b;
  optimizer sgd(lr = constant(0.1));
  steps     3;
  seed      3;
}
