// GPT-2 with the parameter names of Hugging Face's checkpoints (without "transformer."), on bytes.
// The head is tied to the token table, so the first and the last stage both use it.
use nn;
use optim;
use schedules;

const layers = 4;
const width = 128;
const heads = 4;
const length = 128;
const vocab = 256;
const stages = 4;
const rate = 0.0;  // of dropout
const peak = 2e-3;  // learning rate

module block(d, heads, rate) {
  ln_1: layer_norm(d);
  attn: gpt2_attention(d, heads);
  ln_2: layer_norm(d);
  mlp: gpt2_mlp(d, 4 * d);
  fn (x: [.., d]) {
    let y = x + dropout(attn(ln_1(x)), rate);
    return y + dropout(mlp(ln_2(y)), rate);
  }
}

module gpt2(layers, d, heads, vocab, context, stages, rate = 0.0) {
  wte: embedding(vocab, d, std = 0.02);
  wpe: embedding(context, d, std = 0.02);
  h[layers]: block(d, heads, rate);
  ln_f: layer_norm(d);

  fn logits(tokens: i32[b, t]) {
    let x = dropout(wte(tokens) + wpe(iota(t)), rate);
    for i in 0..layers {
      x = h[i](x);
      if cut(i, layers, stages) { stage_end; }
    }
    return ln_f(x) @ transpose(wte.weight);
  }

  fn (tokens: i32[b, t], targets: i32[b, t]) { return cross_entropy(logits(tokens), targets); }
}

train {
  model     net = gpt2(layers, width, heads, vocab, length, stages, rate);
  batch     microbatch = 4, microbatches = 8;
  data      text = bytes("corpus.txt", length + 1);
  loss      net(text[.., 0..length], text[.., 1..length + 1]);
  generate  net.logits;
  ranks     2;
  schedule  one_f_one_b;
  optimizer adamw(lr = cosine(peak = peak, warmup = 40, total = steps), beta2 = 0.99,
      weight_decay = 0.1);
  clip      global_norm(1.0);
  steps     400;
  seed      1337;
}
