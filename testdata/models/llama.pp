// Llama with the parameter names of Hugging Face's checkpoints: RMS norm, rotary positions, grouped
// queries, SwiGLU.
use nn;
use optim;
use schedules;

const layers = 4;
const width = 64;
const heads = 4;
const kv_heads = 2;
const hidden = 128;
const length = 32;
const vocab = 64;
const stages = 4;

module layer(d, heads, kv_heads, hidden) {
  input_layernorm: rms_norm(d);
  self_attn: llama_attention(d, heads, kv_heads);
  post_attention_layernorm: rms_norm(d);
  mlp: llama_mlp(d, hidden);
  fn (x: [.., d]) {
    let y = x + self_attn(input_layernorm(x));
    return y + mlp(post_attention_layernorm(y));
  }
}

module decoder(n_layers, d, heads, kv_heads, hidden, vocab, stages) {
  embed_tokens: embedding(vocab, d);
  layers[n_layers]: layer(d, heads, kv_heads, hidden);
  norm: rms_norm(d);
  fn (tokens: i32[b, t]) {
    let x = embed_tokens(tokens);
    for i in 0..n_layers {
      x = layers[i](x);
      if cut(i, n_layers, stages) { stage_end; }
    }
    return norm(x);
  }
}

module llama(n_layers, d, heads, kv_heads, hidden, vocab, stages) {
  model: decoder(n_layers, d, heads, kv_heads, hidden, vocab, stages);
  lm_head: linear(d, vocab, with_bias = false);
  fn logits(tokens: i32[b, t]) { return lm_head(model(tokens)); }
  fn (tokens: i32[b, t], targets: i32[b, t]) { return cross_entropy(logits(tokens), targets); }
}

train {
  model     net = llama(layers, width, heads, kv_heads, hidden, vocab, stages);
  batch     microbatch = 2, microbatches = 4;
  data      text = synthetic(length + 1, vocab);
  loss      net(text[.., 0..length], text[.., 1..length + 1]);
  generate  net.logits;
  ranks     2;
  schedule  interleaved_1f1b;
  optimizer adamw(lr = linear_decay(peak = 1e-3, warmup = 5, total = steps), weight_decay = 0.1);
  clip      global_norm(1.0);
  steps     20;
  seed      7;
}
