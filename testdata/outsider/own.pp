// Schedules that no library has: what a stranger would write.
// V-shape: 2 stages per rank, stage s<P on rank s, others mirrored.
schedule vshape(ranks, stages, microbatches) {
  require stages == 2 * ranks, "two stages a rank";
  rank r {
    for i in 0..microbatches { fwd(r, i); }
    for i in 0..microbatches { fwd(stages - 1 - r, i); }
    for i in 0..microbatches { bwd(stages - 1 - r, i); }
    for i in reverse(0..microbatches) { bwd(r, i); }
  }
}
// ZB-H1
schedule zb_h1(ranks, stages, microbatches) {
  require stages == ranks, "one stage a rank";
  rank r {
    let warmup = min(microbatches, ranks - r);
    let f = 0; let b = 0; let w = 0;
    for i in 0..warmup { fwd(r, f); f += 1; }
    while b < microbatches {
      bwd_input(r, b); b += 1;
      if b - w > r { bwd_weight(r, w); w += 1; }
      if f < microbatches { fwd(r, f); f += 1; }
    }
    while w < microbatches { bwd_weight(r, w); w += 1; }
  }
}
// odd stages in halves, even whole; odd microbatches whole too
schedule mixed(ranks, stages, microbatches) {
  let k = div(stages + ranks - 1, ranks);
  rank r {
    for i in 0..microbatches { for s in r * k..min(stages, (r + 1) * k) { fwd(s, i); } }
    for i in 0..microbatches {
      for s in reverse(r * k..min(stages, (r + 1) * k)) {
        if mod(s, 2) == 1 { bwd_input(s, i); bwd_weight(s, i); } else { bwd(s, i); }
      }
    }
  }
}
schedule halves(ranks, stages, microbatches) {
  let k = div(stages + ranks - 1, ranks);
  rank r {
    for i in 0..microbatches { for s in r * k..min(stages, (r + 1) * k) { fwd(s, i); } }
    for i in 0..microbatches {
      for s in reverse(r * k..min(stages, (r + 1) * k)) { bwd_input(s, i); }
    }
    for i in 0..microbatches { for s in r * k..min(stages, (r + 1) * k) { bwd_weight(s, i); } }
  }
}
