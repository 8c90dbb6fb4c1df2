// Layers, activations and losses. Parameter names are those of the model family a layer comes from,
// so that its checkpoints can be read as they are.
//
// A `derivative` stands where the hand-written adjoint is cheaper or steadier than the derived one;
// each is tested against it.

// --- stages ---

// True where a stage should end after layer i: `stages` parts as equal as can be, 30 layers on 4
// stages are 8 7 8 7.
fn cut(i, layers, stages) {
  require layers >= stages, "there are fewer layers than stages";
  return div((i + 1) * stages, layers) > div(i * stages, layers) and i + 1 < layers;
}

// --- affine maps and tables ---

// y = x Wᵀ + b with W of [out, in], as PyTorch and Llama keep it.
module linear(n_in, n_out, with_bias = true, std = 0.02) {
  param weight: [n_out, n_in] = normal(0.0, std);
  if with_bias {
    param bias: [n_out] = zeros;
  }
  fn (x: [.., n_in]) {
    let y = x @ transpose(weight);
    if with_bias { return y + bias; }
    return y;
  }
}

// y = x W + b with W of [in, out], as GPT-2 keeps it.
module conv1d(n_in, n_out, std = 0.02) {
  param weight: [n_in, n_out] = normal(0.0, std);
  param bias: [n_out] = zeros;
  fn (x: [.., n_in]) { return x @ weight + bias; }
}

// Row i of the table for each id i.
module embedding(n, d, std = 0.02) {
  param weight: [n, d] = normal(0.0, std);
  fn (ids: i32[..]) { return gather(weight, ids); }
}

// --- normalization over the last axis ---

// (x - mean) / sqrt(variance + eps)
fn normalize(x: [.., d], eps) {
  let xc = x - mean(x, axis = -1, keep = true);
  let rstd = rsqrt(mean(xc * xc, axis = -1, keep = true) + eps);
  return xc * rstd;
} derivative (y, dy) {
  let along = mean(dy * y, axis = -1, keep = true);
  return rstd * (dy - mean(dy, axis = -1, keep = true) - y * along);
}

module layer_norm(d, eps = 1e-5) {
  param weight: [d] = ones;
  param bias: [d] = zeros;
  fn (x: [.., d]) { return normalize(x, eps) * weight + bias; }
}

// x / sqrt(mean(x²) + eps)
fn rms_normalize(x: [.., d], eps) {
  let rstd = rsqrt(mean(x * x, axis = -1, keep = true) + eps);
  return x * rstd;
} derivative (y, dy) {
  return rstd * (dy - y * mean(dy * y, axis = -1, keep = true));
}

module rms_norm(d, eps = 1e-6) {
  param weight: [d] = ones;
  fn (x: [.., d]) { return rms_normalize(x, eps) * weight; }
}

// --- activations ---

fn relu(x) { return max(x, 0.0); }

fn sigmoid(x) { return 1.0 / (1.0 + exp(-x)); } derivative (y, dy) { return dy * y * (1.0 - y); }

// x σ(x), also called swish.
fn silu(x) {
  let s = 1.0 / (1.0 + exp(-x));
  return x * s;
} derivative (y, dy) {
  return dy * (s + y * (1.0 - s));
}

// x Φ(x) with the exact normal distribution function.
fn gelu(x) {
  let cdf = 0.5 * (1.0 + erf(x * 0.7071067811865476));
  return x * cdf;
} derivative (y, dy) {
  // The density is exp(-x²/2) / sqrt(2π).
  return dy * (cdf + x * exp(-0.5 * x * x) * 0.3989422804014327);
}

// GPT-2's approximation by tanh; 0.79788… is sqrt(2/π).
fn gelu_tanh(x) {
  let t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
  return 0.5 * x * (1.0 + t);
} derivative (y, dy) {
  let inner = 0.7978845608028654 * (1.0 + 0.134145 * x * x);
  return dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner);
}

// Over the last axis; the largest element is taken off first, so that exp can't overflow.
fn softmax(x: [.., n]) {
  let e = exp(x - max(x, axis = -1, keep = true));
  return e / sum(e, axis = -1, keep = true);
} derivative (y, dy) {
  return y * (dy - sum(dy * y, axis = -1, keep = true));
}

fn log_softmax(x: [.., n]) {
  let shifted = x - max(x, axis = -1, keep = true);
  return shifted - log(sum(exp(shifted), axis = -1, keep = true));
} derivative (y, dy) {
  return dy - exp(y) * sum(dy, axis = -1, keep = true);
}

// Zeroes a share `rate` of the elements in training and scales up the rest.
fn dropout(x, rate) {
  require rate >= 0.0 and rate < 1.0, "a dropout rate is in [0, 1)";
  if not training or rate == 0.0 { return x; }
  return select(random(shape(x)) >= rate, x / (1.0 - rate), 0.0);
}

// --- losses ---

// -log softmax(logits)[target] for each token. A target outside the vocabulary picks nothing.
fn token_losses(logits: [.., vocab], targets: i32[..]) {
  let shifted = logits - max(logits, axis = -1, keep = true);
  let e = exp(shifted);
  let total = sum(e, axis = -1, keep = true);
  let hit = iota(vocab) == reshape(targets, [.., 1]);
  return log(sum(e, axis = -1)) - sum(select(hit, shifted, 0.0), axis = -1);
} derivative (y, dy) {
  let p = e / total;
  return reshape(dy, shape(total)) * select(hit, p - 1.0, p);
}

// The mean over all tokens.
fn cross_entropy(logits: [.., vocab], targets: i32[..]) {
  return mean(token_losses(logits, targets));
}

// The sum over the tokens whose target is not negative, and their number: a loss as a pair.
fn masked_cross_entropy(logits: [.., vocab], targets: i32[..]) {
  let counted = targets >= 0;
  return sum(select(counted, token_losses(logits, targets), 0.0)), sum(cast(counted, i32));
}

fn mean_squared_error(x, y) {
  let difference = x - y;
  return mean(difference * difference);
}

// --- attention ---

// [b, t, heads * d] → [b, heads, t, d]
fn split_heads(x: [b, t, n], heads) {
  return permute(reshape(x, [b, t, heads, n / heads]), [0, 2, 1, 3]);
}

// [b, heads, t, d] → [b, t, heads * d]
fn merge_heads(x: [b, heads, t, d]) {
  return reshape(permute(x, [0, 2, 1, 3]), [b, t, heads * d]);
}

module gpt2_attention(d, heads) {
  require mod(d, heads) == 0, "the width must be a multiple of the heads";
  c_attn: conv1d(d, 3 * d);
  c_proj: conv1d(d, d);
  fn (x: [b, t, d]) {
    let qkv = c_attn(x);
    fn part(i) { return split_heads(qkv[.., i * d..(i + 1) * d], heads); }
    return c_proj(merge_heads(attention(part(0), part(1), part(2), causal = true)));
  }
}

module gpt2_mlp(d, hidden) {
  c_fc: conv1d(d, hidden);
  c_proj: conv1d(hidden, d);
  fn (x: [.., d]) { return c_proj(gelu_tanh(c_fc(x))); }
}

// Rotary positions in Llama's form: element i of a head is paired with i + d / 2, and the pair at
// position p turns by p · base^(-2i/d).
fn rope(x: [b, heads, t, d], base = 10000.0) {
  let half = d / 2;
  let frequency = exp(cast(iota(half), dtype(x)) * (-2.0 * log(base) / d));
  let angle = reshape(cast(iota(t), dtype(x)), [t, 1]) * frequency;
  let c = cos(angle);
  let s = sin(angle);
  let low = x[.., 0..half];
  let high = x[.., half..d];
  return concat([low * c - high * s, high * c + low * s], axis = -1);
}

// Grouped queries: each key head serves heads / kv_heads query heads.
module llama_attention(d, heads, kv_heads, base = 10000.0) {
  require mod(d, heads) == 0, "the width must be a multiple of the heads";
  require mod(heads, kv_heads) == 0, "the heads must be a multiple of the key heads";
  let head = d / heads;
  q_proj: linear(d, heads * head, with_bias = false);
  k_proj: linear(d, kv_heads * head, with_bias = false);
  v_proj: linear(d, kv_heads * head, with_bias = false);
  o_proj: linear(heads * head, d, with_bias = false);
  fn (x: [b, t, d]) {
    let q = rope(split_heads(q_proj(x), heads), base);
    let k = rope(split_heads(k_proj(x), kv_heads), base);
    let v = split_heads(v_proj(x), kv_heads);
    return o_proj(merge_heads(attention(q, k, v, causal = true)));
  }
}

// SwiGLU, Llama's feed-forward part.
module llama_mlp(d, hidden) {
  gate_proj: linear(d, hidden, with_bias = false);
  up_proj: linear(d, hidden, with_bias = false);
  down_proj: linear(hidden, d, with_bias = false);
  fn (x: [.., d]) { return down_proj(silu(gate_proj(x)) * up_proj(x)); }
}
