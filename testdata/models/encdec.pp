// Encoder and decoder, no chain: the encoder's result is read by every decoder stage, and one table is
// used in three stages, for the source, for the target and as the head. It learns to copy its source;
// targets below 0 would not count, so the loss is a pair.
use nn;
use optim;
use schedules;

const layers = 3;  // of the decoder
const width = 32;
const heads = 2;
const length = 12;
const vocab = 32;
const stages = 4;  // one for the encoder, the others for the decoder

// Reads `memory` where the decoder's own attention reads itself.
module cross_attention(d, heads) {
  query: linear(d, d);
  key: linear(d, d);
  value: linear(d, d);
  output: linear(d, d);
  fn (x: [b, t, d], memory: [b, s, d]) {
    let q = split_heads(query(x), heads);
    let k = split_heads(key(memory), heads);
    let v = split_heads(value(memory), heads);
    return output(merge_heads(attention(q, k, v)));
  }
}

module encoder_layer(d, heads) {
  norm_1: layer_norm(d);
  attn: cross_attention(d, heads);
  norm_2: layer_norm(d);
  mlp: gpt2_mlp(d, 4 * d);
  fn (x: [.., d]) {
    let n = norm_1(x);
    let y = x + attn(n, n);
    return y + mlp(norm_2(y));
  }
}

module decoder_layer(d, heads) {
  norm_1: layer_norm(d);
  attn: gpt2_attention(d, heads);
  norm_2: layer_norm(d);
  cross: cross_attention(d, heads);
  norm_3: layer_norm(d);
  mlp: gpt2_mlp(d, 4 * d);
  fn (x: [.., d], memory: [.., d]) {
    let y = x + attn(norm_1(x));
    let z = y + cross(norm_2(y), memory);
    return z + mlp(norm_3(z));
  }
}

module encdec(layers, d, heads, vocab, context, stages) {
  require stages >= 2, "the encoder has a stage of its own";
  shared: embedding(vocab, d, std = 0.1);
  place: embedding(context, d, std = 0.1);
  encoder: encoder_layer(d, heads);
  decoder[layers]: decoder_layer(d, heads);
  norm: layer_norm(d);

  fn (source: i32[b, s], tokens: i32[b, t], targets: i32[b, t]) {
    let memory = encoder(shared(source) + place(iota(s)));
    stage_end;
    let x = shared(tokens) + place(iota(t));
    for i in 0..layers {
      x = decoder[i](x, memory);
      if cut(i, layers, stages - 1) { stage_end; }
    }
    return masked_cross_entropy(norm(x) @ transpose(shared.weight), targets);
  }
}

train {
  model     net = encdec(layers, width, heads, vocab, length, stages);
  batch     microbatch = 4, microbatches = 4;
  data      text = synthetic(length + 1, vocab);
  loss      net(text[.., 1..length + 1], text[.., 0..length], text[.., 1..length + 1]);
  ranks     2;
  stages    stages;
  schedule  gpipe;
  optimizer adamw(lr = cosine(peak = 3e-3, warmup = 5, total = steps), weight_decay = 0.01);
  clip      global_norm(1.0);
  steps     40;
  seed      11;
}
