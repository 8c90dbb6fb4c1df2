// Pipeline schedules. Each is given ranks, stages and microbatches by name, and says by `require`
// what it does not allow. ppc knows none of them: a schedule in your own file has the same rights.
//
// A rank holds one or more chunks of the model. Schedules of one chunk, and those in a V, take any
// multiple of the stages that they need: then k consecutive stages act as one chunk, and one cut of
// a model runs on fewer ranks too.
//
// F, I and W are the times of a chunk's forward, input half and weight half, B = I + W. Memory
// counts forward stashes: until their input half ran, or ("weight-held") until their weight half
// ran. docs/schedules.md has a table of all, and their pictures.

fn forward(first, k, i) { for s in 0..k { fwd(first + s, i); } }
fn backward(first, k, i) { for s in 0..k { bwd(first + k - 1 - s, i); } }
fn backward_input(first, k, i) { for s in 0..k { bwd_input(first + k - 1 - s, i); } }
fn backward_weight(first, k, i) { for s in 0..k { bwd_weight(first + k - 1 - s, i); } }

// --- one chunk on each rank ----------------------------------------------------------------------

// All forwards, then all backwards (Huang et al., arXiv 1811.06965). Simplest, with long runs of
// one kind; holds every microbatch. Bubble (ranks - 1) (F + B).
schedule gpipe(ranks, stages, microbatches) {
  require mod(stages, ranks) == 0, "the stages must be a multiple of the ranks";
  let k = stages / ranks;
  rank r {
    for i in 0..microbatches { forward(r * k, k, i); }
    for i in 0..microbatches { backward(r * k, k, i); }
  }
}

// One forward, one backward (PipeDream-flush, arXiv 2006.09503). The bubble of gpipe with little
// memory: at most ranks - r microbatches on rank r.
schedule one_f_one_b(ranks, stages, microbatches) {
  require mod(stages, ranks) == 0, "the stages must be a multiple of the ranks";
  let k = stages / ranks;
  rank r {
    let warmup = min(microbatches, ranks - 1 - r);
    for i in 0..warmup { forward(r * k, k, i); }
    for i in 0..microbatches - warmup { forward(r * k, k, warmup + i); backward(r * k, k, i); }
    for i in microbatches - warmup..microbatches { backward(r * k, k, i); }
  }
}

// 1F1B with its forwards a pair earlier (Zhuang et al., arXiv 2211.05322): transfers hide behind a
// whole pair. Twice the memory: 2 (ranks - r) - 1 microbatches.
schedule eager_1f1b(ranks, stages, microbatches) {
  require mod(stages, ranks) == 0, "the stages must be a multiple of the ranks";
  let k = stages / ranks;
  rank r {
    let ahead = min(microbatches, 2 * (ranks - r) - 1);
    for i in 0..ahead { forward(r * k, k, i); }
    for i in 0..microbatches - ahead { backward(r * k, k, i); forward(r * k, k, ahead + i); }
    for i in microbatches - ahead..microbatches { backward(r * k, k, i); }
  }
}

// ZB-H1 (Qi et al., arXiv 2401.10241): 1F1B with weight halves that wait for what would be a
// bubble. A third of 1F1B's, (ranks - 1) (F + I - W); holds up to `ranks` stashes on every rank,
// weight-held.
schedule zb_h1(ranks, stages, microbatches) {
  require mod(stages, ranks) == 0, "the stages must be a multiple of the ranks";
  let k = stages / ranks;
  rank r {
    let f = 0; let w = 0;
    while f < min(microbatches, ranks - 1 - r) { forward(r * k, k, f); f += 1; }
    for i in 0..microbatches {
      if f < microbatches { forward(r * k, k, f); f += 1; }
      backward_input(r * k, k, i);
      if i + 1 - w > r { backward_weight(r * k, k, w); w += 1; }
    }
    for i in w..microbatches { backward_weight(r * k, k, i); }
  }
}

// ZB-H2 of the same paper: twice the warm-up, so no bubble at equal costs from 2 ranks - 1
// microbatches on; up to 2 ranks - 1 stashes on every rank, weight-held.
schedule zb_h2(ranks, stages, microbatches) {
  require mod(stages, ranks) == 0, "the stages must be a multiple of the ranks";
  let k = stages / ranks;
  rank r {
    let f = 0; let w = 0;
    while f < min(microbatches, 2 * (ranks - 1 - r)) { forward(r * k, k, f); f += 1; }
    for i in 0..microbatches {
      if f < microbatches { forward(r * k, k, f); f += 1; }
      backward_input(r * k, k, i);
      if i + 1 - w > 2 * r { backward_weight(r * k, k, w); w += 1; }
    }
    for i in w..microbatches { backward_weight(r * k, k, i); }
  }
}

// --- several chunks on each rank: stage c * ranks + r is chunk c of rank r -----------------------

// Breadth first (Lamy-Poirier, arXiv 2211.05953): chunk by chunk all forwards, then all backwards.
// The gradients of a chunk are complete together; holds everything.
schedule looped_bfs(ranks, stages, microbatches, chunks = div(stages, ranks)) {
  require microbatches >= ranks, "there must be at least as many microbatches as ranks";
  require stages == ranks * chunks, "stages must be ranks * chunks";
  rank r {
    for c in 0..chunks { for i in 0..microbatches { fwd(c * ranks + r, i); } }
    for c in 0..chunks { for i in 0..microbatches { bwd((chunks - 1 - c) * ranks + r, i); } }
  }
}

// The interleaved ones run a group of microbatches through all chunks, then the next group. A short
// last group would deadlock, so groups are equal and have at least as many microbatches as there
// are ranks (all of them when there are fewer). Of the k-th forward and the k-th backward of rank r:
// the stage of the one, that of the other, the microbatch of both.
fn interleaving(ranks, chunks, group) {
  fn stage(r, k) { return mod(div(k, group), chunks) * ranks + r; }
  fn stage_back(r, k) { return (chunks - 1 - mod(div(k, group), chunks)) * ranks + r; }
  fn microbatch(k) { return div(k, group * chunks) * group + mod(k, group); }
  return stage, stage_back, microbatch;
}

// Interleaved 1F1B (Megatron-LM, arXiv 2104.04473): the bubble of 1F1B divided by the chunks; more
// stashes, each of a smaller chunk, and `chunks` times the transfers.
schedule interleaved_1f1b(ranks, stages, microbatches, chunks = div(stages, ranks)) {
  require stages == ranks * chunks, "stages must be ranks * chunks";
  let rounds = max(1, div(microbatches, ranks));
  require mod(microbatches, rounds) == 0,
      "microbatches must be a multiple of the rounds (microbatches / ranks, rounded down)";
  let group = microbatches / rounds;
  let n = microbatches * chunks;
  let stage, stage_back, microbatch = interleaving(ranks, chunks, group);
  fn forward(r, k) { fwd(stage(r, k), microbatch(k)); }
  fn backward(r, k) { bwd(stage_back(r, k), microbatch(k)); }
  rank r {
    let warmup = min(n, 2 * (ranks - 1 - r) + (chunks - 1) * group);
    for k in 0..warmup { forward(r, k); }
    for k in 0..n - warmup { forward(r, warmup + k); backward(r, k); }
    for k in n - warmup..n { backward(r, k); }
  }
}

// The same with one more forward before the first backward (Kimi K2, arXiv 2507.20534): transfers
// hide behind a pair, for one more stash.
schedule kimi_k2(ranks, stages, microbatches, chunks = div(stages, ranks)) {
  require stages == ranks * chunks, "stages must be ranks * chunks";
  let rounds = max(1, div(microbatches, ranks));
  require mod(microbatches, rounds) == 0,
      "microbatches must be a multiple of the rounds (microbatches / ranks, rounded down)";
  let group = microbatches / rounds;
  let n = microbatches * chunks;
  let stage, stage_back, microbatch = interleaving(ranks, chunks, group);
  fn forward(r, k) { fwd(stage(r, k), microbatch(k)); }
  fn backward(r, k) { bwd(stage_back(r, k), microbatch(k)); }
  rank r {
    let ahead = min(n, 2 * (ranks - 1 - r) + (chunks - 1) * group + 2);
    for k in 0..ahead { forward(r, k); }
    for k in 0..n - ahead { backward(r, k); forward(r, ahead + k); }
    for k in n - ahead..n { backward(r, k); }
  }
}

// Interleaved with halves: a shorter warm-up, and weight halves that wait as in zb_h1. Bubble
// (ranks - 1) (F + I - W); holds ranks * chunks stashes, weight-held.
schedule interleaved_zero_bubble(ranks, stages, microbatches, chunks = div(stages, ranks)) {
  require stages == ranks * chunks, "stages must be ranks * chunks";
  let rounds = max(1, div(microbatches, ranks));
  require mod(microbatches, rounds) == 0,
      "microbatches must be a multiple of the rounds (microbatches / ranks, rounded down)";
  let group = microbatches / rounds;
  let n = microbatches * chunks;
  let stage, stage_back, microbatch = interleaving(ranks, chunks, group);
  rank r {
    let warmup = min(n, ranks - 1 - r + (chunks - 1) * group);
    for k in 0..warmup { fwd(stage(r, k), microbatch(k)); }
    for k in 0..n {
      if warmup + k < n { fwd(stage(r, warmup + k), microbatch(warmup + k)); }
      bwd_input(stage_back(r, k), microbatch(k));
      if k >= r { bwd_weight(stage_back(r, k - r), microbatch(k - r)); }
    }
    for k in max(0, n - r)..n { bwd_weight(stage_back(r, k), microbatch(k)); }
  }
}

// --- two chunks on each rank, in a V: down the ranks and back up ---------------------------------

// A microbatch's backward starts on the rank where its forward did, so all ranks hold about as
// much.

// ZB-V (Qi et al., arXiv 2401.10241): no bubble at equal costs from 2 ranks - 1 microbatches on,
// with the memory of 1F1B's rank 0 (2 ranks chunks).
schedule zb_v(ranks, stages, microbatches) {
  require mod(stages, 2 * ranks) == 0, "the stages must be a multiple of 2 * ranks";
  let k = stages / (2 * ranks);
  rank r {
    let down = r * k; let up = (2 * ranks - 1 - r) * k;
    let f0 = 0; let f1 = 0; let i0 = 0; let i1 = 0; let w0 = 0; let w1 = 0;
    // Fewer microbatches run the order of 2 ranks - 1, with the others left out.
    let n = max(microbatches, 2 * ranks - 1);
    fn forward_down() { if f0 < microbatches { forward(down, k, f0); } f0 += 1; }
    fn forward_up() { if f1 < microbatches { forward(up, k, f1); } f1 += 1; }
    fn input_down() { if i0 < microbatches { backward_input(down, k, i0); } i0 += 1; }
    fn input_up() { if i1 < microbatches { backward_input(up, k, i1); } i1 += 1; }
    fn weight_down() { if w0 < microbatches { backward_weight(down, k, w0); } w0 += 1; }
    fn weight_up() { if w1 < microbatches { backward_weight(up, k, w1); } w1 += 1; }
    for j in 0..2 * (ranks - r) - 1 { forward_down(); }
    for j in 0..r { forward_up(); forward_down(); }
    for j in 0..ranks - r { forward_up(); input_up(); weight_up(); }
    while f1 < n {
      if f0 < n { forward_down(); }
      input_down(); weight_down();
      forward_up(); input_up(); weight_up();
    }
    for j in 0..r { input_down(); input_up(); }
    for j in 0..ranks - r { input_down(); weight_down(); }
    while w1 < n { weight_up(); }
    while w0 < n { weight_down(); }
  }
}

// DualPipe-V (DeepSeek-AI, arXiv 2412.19437, and the cut-in-half form of its authors' repository):
// forward and backward of different microbatches run as one, so that the transfers of one hide
// behind the other's arithmetic; 2 ranks + 1 chunks on every rank.
schedule dualpipe_v(ranks, stages, microbatches) {
  require microbatches >= 2 * ranks, "there must be at least 2 * ranks microbatches";
  require mod(stages, 2 * ranks) == 0, "the stages must be a multiple of 2 * ranks";
  let k = stages / (2 * ranks);
  rank r {
    let first = [r * k, (2 * ranks - 1 - r) * k];
    let f = [0, 0]; let b = [0, 0];  // microbatches so far, of each chunk
    let waiting = [];  // weight halves: [chunk, microbatch]
    fn run_forward(c) { forward(first[c], k, f[c]); f[c] += 1; }
    fn run_backward(c) { backward(first[c], k, b[c]); b[c] += 1; }
    fn run_input(c) { backward_input(first[c], k, b[c]); append(waiting, [c, b[c]]); b[c] += 1; }
    fn run_weight() { let w = pop_front(waiting); backward_weight(first[w[0]], k, w[1]); }
    fn pair(c, d) {
      for s in 0..k { overlap { fwd(first[c] + s, f[c]); bwd(first[d] + k - 1 - s, b[d]); } }
      f[c] += 1; b[d] += 1;
    }
    let above = ranks - 1 - r;
    for j in 0..2 * above { run_forward(0); }
    for j in 0..r + 1 { run_forward(0); run_forward(1); }
    for j in 0..above { run_input(1); run_weight(); run_forward(1); }
    for j in 0..microbatches - 2 * ranks + r + 1 {
      // Apart, the rank at the turn starts the first backward sooner.
      if j == 0 and above == 0 { run_forward(0); run_backward(1); } else { pair(0, 1); }
      pair(1, 0);
    }
    for j in 0..above { run_backward(1); pair(1, 0); }
    for j in 0..2 * (r + 1) {  // the second half of these leaves its weights to the end
      if j < r + 1 { run_backward(1 - mod(j, 2)); } else { run_input(1 - mod(j, 2)); }
    }
    for j in 0..above { run_weight(); run_input(0); }
    for j in 0..r + 1 { run_weight(); }
  }
}

// V-Min and V-Half (Qi et al., arXiv 2405.15362) hold about a third and half of what 1F1B's rank 0
// does. One microbatch takes one slot for each of forward down, forward up, input up, input down on
// every rank; a new one starts every six slots, so two are left for the weight halves. How far
// apart the slots stand decides how long a stash lives, and so the memory.
//
// In the block's order each rank then runs what it can at once, without more stashes than the block
// itself has, and weight halves while it would wait: that shortens the start and the end.
schedule v_min(ranks, stages, microbatches) {
  require microbatches >= 2 * ranks, "there must be at least 2 * ranks microbatches";
  require mod(stages, 2 * ranks) == 0, "the stages must be a multiple of 2 * ranks";
  let d = mod(ranks, 3) == 0 ? 2 : 0;  // no two slots of a rank may be equal modulo 6
  let block = [];
  for r in 0..ranks {
    append(block, [r, 2 * ranks - 1 - r, 2 * ranks + d + r, 4 * ranks + d - 1 - r]);
  }
  let order = repeat_block(ranks, microbatches, block, 2 * div(ranks + 4, 3));
  rank r { run_v(r, ranks, stages, order[r]); }
}

schedule v_half(ranks, stages, microbatches) {
  require microbatches >= 2 * ranks, "there must be at least 2 * ranks microbatches";
  require mod(stages, 2 * ranks) == 0, "the stages must be a multiple of 2 * ranks";
  let d = mod(ranks, 2) == 0 ? 3 : 0;
  let block = [];
  for r in 0..ranks {
    append(block, [2 * r, 3 * ranks - 2 - r, 3 * ranks + d - 1 + 2 * r, 6 * ranks + d - 2 - r]);
  }
  let order = repeat_block(ranks, microbatches, block, 2 * div(ranks + 2, 2));
  rank r { run_v(r, ranks, stages, order[r]); }
}

// The order of each rank: 0 forward down, 1 forward up, 2 input up, 3 input down, 4 weight up, 5
// weight down.
fn repeat_block(ranks, microbatches, block, limit) {
  let order, span = run_block(ranks, microbatches, block, limit, true);
  let late, late_span = run_block(ranks, microbatches, block, limit, false);
  return span <= late_span ? order : late;
}

// One slot after the other: of what a rank could run, the first in the block's order. `early` lets
// the first chunk's forwards run before their slot. Gives the orders and how many slots they take.
fn run_block(ranks, microbatches, block, limit, early) {
  let order = []; let n = []; let most = []; let start = [];
  for r in 0..ranks {
    append(order, []); append(n, [0, 0, 0, 0, 0, 0]); append(start, -1);
    append(most, stashes_of_block(block[r]));
  }
  // The next microbatch of this kind: do its inputs exist, and is there room?
  fn can_run(r, kind, t) {
    let done = n[r]; let i = done[kind];
    if i == microbatches { return false; }
    if kind >= 4 { return done[kind - 2] > i; }
    if kind > 0 and done[kind - 1] == i { return false; }
    let from = mod(kind, 2) == 0 ? r - 1 : r + 1;
    if from >= 0 and from < ranks and n[from][kind] == i { return false; }
    if kind >= 2 { return true; }
    if kind == 0 and not early and t < block[r][0] + 6 * i { return false; }
    let held = done[0] + done[1] - done[4] - done[5];
    return held < limit and done[kind] - done[5 - kind] < most[r][kind];
  }
  fn choose(r, t) {
    let best = -1; let slot = 0;
    for kind in 0..6 {
      if best >= 0 and best < 4 and kind >= 4 { break; }
      if can_run(r, kind, t) {
        let s = block[r][kind < 4 ? kind : kind - 2] + 6 * n[r][kind];
        if best < 0 or s < slot { best = kind; slot = s; }
      }
    }
    return best;
  }
  let left = 6 * ranks * microbatches; let span = 0; let t = 0;
  while left > 0 {
    let chosen = [];
    for r in 0..ranks { append(chosen, choose(r, t)); }
    for r in 0..ranks {
      if chosen[r] >= 0 {
        if start[r] < 0 { start[r] = t; }
        append(order[r], chosen[r]); n[r][chosen[r]] += 1; left -= 1;
        span = max(span, t + 1 - start[r]);
      }
    }
    t += 1;
  }
  return order, span;
}

// How many stashes of each chunk the repeated block of a rank has at most: one lives from its
// forward to its weight half, in the first free slot behind the input half.
fn stashes_of_block(slots) {
  let used = [false, false, false, false, false, false];
  for s in slots { used[mod(s, 6)] = true; }
  fn first_free(s) {
    while used[mod(s, 6)] { s += 1; }
    used[mod(s, 6)] = true;
    return s;
  }
  let down = first_free(slots[3] + 1);
  let up = first_free(slots[2] + 1);
  return [div(down - slots[0] + 5, 6), div(up - slots[1] + 5, 6)];
}

fn run_v(r, ranks, stages, order) {
  let k = stages / (2 * ranks);
  let down = r * k; let up = (2 * ranks - 1 - r) * k;
  let first = [down, up, up, down, up, down]; let n = [0, 0, 0, 0, 0, 0];
  for kind in order {
    let i = n[kind]; n[kind] += 1;
    if kind < 2 {
      forward(first[kind], k, i);
    } else if kind < 4 {
      backward_input(first[kind], k, i);
    } else {
      backward_weight(first[kind], k, i);
    }
  }
}

// --- from costs and a memory limit ---------------------------------------------------------------

// Searches for the order that suits the costs of a model (after Qi et al., arXiv 2401.10241,
// section 3): F, I, W of one stage and `transfer` of one hop, each a number or a list per stage, in
// any unit of time. No rank holds more than `memory` (a number, or a list per rank): a forward adds
// `stash`, of which `weight_stash` stays from the input half to the weight half (numbers or lists
// per stage). Never slower than zb_h1 or zb_h2 where those fit.
schedule greedy(ranks, stages, microbatches, F = 1, I = 1, W = 1, transfer = 0, memory = stages,
    stash = 1, weight_stash = stash) {
  require mod(stages, ranks) == 0, "the stages must be a multiple of the ranks";
  let k = stages / ranks;
  fn suits(x, n) { return not is_list(x) or len(x) == n; }
  require suits(F, stages) and suits(I, stages) and suits(W, stages),
      "a list of costs must have one for each stage";
  require suits(stash, stages) and suits(weight_stash, stages),
      "a list of stashes must have one for each stage";
  require transfer >= 0, "costs and stashes can't be negative";
  require suits(memory, ranks), "a list of limits must have one for each rank";
  fn of_ranks(x) {
    let sums = [];
    for r in 0..ranks {
      let sum = 0.0;
      for s in r * k..(r + 1) * k { sum += is_list(x) ? x[s] : x; }
      require sum >= 0, "costs and stashes can't be negative";
      append(sums, sum);
    }
    return sums;
  }
  let stashes = of_ranks(stash); let weights = of_ranks(weight_stash);
  let costs = [of_ranks(F), of_ranks(I), of_ranks(W)];
  let room = []; let grow = [[], [], []];  // what F, I and W of each rank add to what it holds
  for r in 0..ranks {
    append(room, is_list(memory) ? memory[r] : memory);
    append(grow[0], max(stashes[r], weights[r]));
    append(grow[1], weights[r] - grow[0][r]);
    append(grow[2], -weights[r]);
    require room[r] >= grow[0][r], "the memory must hold a microbatch on each rank";
  }
  let best = []; let best_span = infinity;
  for ahead in [greedy_line(ranks, 1, grow[0], room), greedy_line(ranks, 2, grow[0], room),
      greedy_fill(ranks, microbatches, costs, transfer, grow[0], room, false),
      greedy_fill(ranks, microbatches, costs, transfer, grow[0], room, true)] {
    for gaps in 0..3 {
      let order, span = greedy_order(ranks, microbatches, costs, transfer, grow, room, ahead, gaps);
      if span < best_span { best = order; best_span = span; }
    }
  }
  rank r {
    let n = [0, 0, 0];
    for kind in best[r] {
      let i = n[kind]; n[kind] += 1;
      if kind == 0 {
        forward(r * k, k, i);
      } else if kind == 1 {
        backward_input(r * k, k, i);
      } else {
        backward_weight(r * k, k, i);
      }
    }
  }
}

// How many forwards each rank runs ahead of its first pair: `steps` more than the next rank, as far
// as there is room.
fn greedy_line(ranks, steps, stash, room) {
  let ahead = [];
  for r in 0..ranks {
    let fits = steps * (ranks - 1 - r);
    while (fits + 1) * stash[r] > room[r] + 1e-9 { fits -= 1; }
    append(ahead, r == 0 ? fits : min(fits, ahead[r - 1]));
  }
  return ahead;
}

// The same from the costs: as many as end before the first input half can start (with `over`, the
// last may end behind that), on each rank fewer than on the one above it.
fn greedy_fill(ranks, microbatches, costs, transfer, stash, room, over) {
  let first = [];  // when each rank has run its first forward
  for r in 0..ranks { append(first, (r == 0 ? 0 : first[r - 1] + transfer) + costs[0][r]); }
  let counts = []; let back = first[ranks - 1] - transfer;  // when the first input half can start
  for r in reverse(0..ranks) {
    let n = 0; let t = first[r]; back += transfer;
    while n + 1 < microbatches and (n + 2) * stash[r] <= room[r] + 1e-9
        and (over ? t < back : t + costs[0][r] <= back) {
      n += 1; t += costs[0][r];
    }
    append(counts, n);
    back = max(t, back) + costs[1][r];
  }
  let ahead = reverse(counts);
  for r in 1..ranks { ahead[r] = max(0, min(ahead[r], ahead[r - 1] - 1)); }
  return ahead;
}

// Rounds of at most one forward on each rank from the first down, then one input half from the last
// up. A weight half runs before one of them when memory is short; with `gaps` also where it fits
// before the input arrives, and longer than that when the gap would make this rank the idlest (1)
// or always (2). Without gaps: as soon as more wait than the rank has forwards less than rank 0.
// Gives the order of each rank, 0 forward, 1 input half, 2 weight half, and the time of the step.
fn greedy_order(ranks, microbatches, costs, transfer, grow, room, ahead, gaps) {
  let order = []; let n = []; let end = []; let start = [];
  let now = []; let held = []; let idle = [];
  for r in 0..ranks {
    append(order, []); append(n, [0, 0, 0]); append(end, [[], [], []]);
    append(start, 0.0); append(now, 0.0); append(held, 0.0); append(idle, 0.0);
  }
  let idlest = 0.0;
  fn arrival(r, kind) {
    let from = kind == 0 ? r - 1 : r + 1;
    return kind == 2 or from < 0 or from == ranks ? 0.0 : end[from][kind][n[r][kind]] + transfer;
  }
  fn run(r, kind) {
    let begin = max(now[r], arrival(r, kind));
    if len(order[r]) == 0 { start[r] = begin; } else { idle[r] += begin - now[r]; }
    idlest = max(idlest, idle[r]);
    now[r] = begin + costs[kind][r];
    held[r] += grow[kind][r];
    append(order[r], kind); append(end[r][kind], now[r]); n[r][kind] += 1;
  }
  fn waiting(r) { return n[r][1] - n[r][2]; }
  fn prepare(r, kind) {
    while waiting(r) > 0 and held[r] + grow[kind][r] > room[r] + 1e-9 { run(r, 2); }
    if gaps > 0 {
      let at = arrival(r, kind);
      while waiting(r) > 0 and now[r] + costs[2][r] <= at + 1e-9 { run(r, 2); }
      let gap = at - now[r];
      if waiting(r) > 0 and gap > 1e-9 and (gaps == 2 or idle[r] + gap > idlest) { run(r, 2); }
    }
  }
  fn forwards() {
    let takes = [];  // from the last rank up: there is room, and the next rank takes one
    for r in reverse(0..ranks) {
      let fits = held[r] + grow[0][r] + waiting(r) * grow[2][r] <= room[r] + 1e-9;
      append(takes, n[r][0] < microbatches and fits and (r == ranks - 1 or takes[ranks - 2 - r]));
    }
    takes = reverse(takes);
    for r in 0..ranks {
      if takes[r] and (r == 0 or n[r][0] < n[r - 1][0]) { prepare(r, 0); run(r, 0); }
    }
  }
  for r in 0..ranks { for i in 0..min(microbatches, 1 + ahead[r]) { run(r, 0); } }
  for i in 0..microbatches {
    if i > 0 { forwards(); }
    for r in reverse(0..ranks) {
      prepare(r, 1);
      run(r, 1);
      if gaps == 0 and waiting(r) > ahead[0] - ahead[r] { run(r, 2); }
    }
  }
  let span = 0.0;
  for r in 0..ranks {
    while waiting(r) > 0 { run(r, 2); }
    span = max(span, now[r] - start[r]);
  }
  return order, span;
}
