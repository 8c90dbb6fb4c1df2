// The setting of testdata/parity/make.py, which computes the same with JAX.
use gpt2;
use optim;
use schedules;

train {
  model     net = gpt2(layers = 2, d = 32, heads = 4, vocab = 64, context = 16, stages = 2);
  batch     microbatch = 2, microbatches = 4;
  data      text = i32_file("../parity/tokens.i32", 17);
  loss      net(text[.., 0..16], text[.., 1..17]);
  ranks     2;
  schedule  one_f_one_b;
  optimizer adamw(lr = cosine(peak = 1e-2, warmup = 5, total = 20), weight_decay = 0.1);
  clip      global_norm(1.0);
  steps     20;
}
