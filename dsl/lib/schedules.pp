// Pipeline schedules. Each is given ranks, stages and microbatches by name.
//
// gpipe and one_f_one_b take any number of stages that the ranks divide: the
// k = stages / ranks consecutive stages of a rank act as one.

// All forwards, then all backwards (Huang et al., arXiv 1811.06965).
schedule gpipe(ranks, stages, microbatches) {
  require mod(stages, ranks) == 0, "the stages must be a multiple of the ranks";
  let k = stages / ranks;
  rank r {
    for i in 0..microbatches {
      for s in r * k..(r + 1) * k { fwd(s, i); }
    }
    for i in 0..microbatches {
      for s in reverse(r * k..(r + 1) * k) { bwd(s, i); }
    }
  }
}

// One forward, one backward (PipeDream-flush, arXiv 2006.09503): at most ranks - r microbatches of
// activations are alive on rank r.
schedule one_f_one_b(ranks, stages, microbatches) {
  require mod(stages, ranks) == 0, "the stages must be a multiple of the ranks";
  let k = stages / ranks;
  fn forward(r, i) { for s in r * k..(r + 1) * k { fwd(s, i); } }
  fn backward(r, i) { for s in reverse(r * k..(r + 1) * k) { bwd(s, i); } }
  rank r {
    let warmup = min(microbatches, ranks - r - 1);
    for i in 0..warmup { forward(r, i); }
    for i in 0..microbatches - warmup { forward(r, warmup + i); backward(r, i); }
    for i in microbatches - warmup..microbatches { backward(r, i); }
  }
}

// Interleaved 1F1B (Megatron-LM, arXiv 2104.04473): stage c * ranks + r is chunk c of rank r.
schedule interleaved_1f1b(ranks, stages, microbatches, chunks = div(stages, ranks)) {
  require stages == ranks * chunks, "stages must be ranks * chunks";
  let rounds = max(1, div(microbatches, ranks));
  require mod(microbatches, rounds) == 0, "microbatches must be a multiple of the rounds";
  let group = microbatches / rounds;
  let n = microbatches * chunks;
  fn chunk(k) { return mod(div(k, group), chunks); }
  fn microbatch(k) { return div(k, group * chunks) * group + mod(k, group); }
  fn forward(r, k) { fwd(chunk(k) * ranks + r, microbatch(k)); }
  fn backward(r, k) { bwd((chunks - 1 - chunk(k)) * ranks + r, microbatch(k)); }
  rank r {
    let warmup = min(n, 2 * (ranks - 1 - r) + (chunks - 1) * group);
    for k in 0..warmup { forward(r, k); }
    for k in 0..n - warmup { forward(r, warmup + k); backward(r, k); }
    for k in n - warmup..n { backward(r, k); }
  }
}
