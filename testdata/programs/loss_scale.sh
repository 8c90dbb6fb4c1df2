# loss_scale.sh same | rule | stop | uncounted | checked | device: see loss_scale.test, and that of testdata/cuda.
. "$(dirname "$0")/lib.sh"
here=$root/testdata/programs

# with MODEL SETTING…: the model with these settings in `train`, as scaled.pp.
with() {
  local model=$1
  shift
  cp $models/corpus.txt .
  awk -v settings="$*" '{ print } /^train \{/ { print "  " settings }' $models/$model.pp >scaled.pp
}

# A loss of 1e12 and more, whose gradients overflow under large scales.
large='const initial = pow(2.0, 96); const interval = 3; const growth = 2.0; const backoff = 0.001953125;'
dynamic='loss_scale dynamic(initial = initial, interval = interval, growth = growth, backoff = backoff);'
overflowing() {
  with skip "$dynamic"
  sed -i "s/return mean(error/return 1e12 * mean(error/; s/^const rate/$large\n&/" scaled.pp
  grep -q 'return 1e12' scaled.pp || fail "nothing is large"
}

# Tied weights, a clip, a (sum, count) loss, split backwards, bf16; gradients that are saved.
same() {
  local options
  for of in "gpt2 4 one_f_one_b" "skip 1 gpipe --dtype=f64" "encdec 2 zb_v" "llama 2 dualpipe_v --precision=bf16"; do
    set -- $of
    options="${tiny[*]} --ranks=$2 --schedule=$3 --steps=5 ${4:-} --json --save-gradients=gradients"
    must $ppc run $models/$1.pp $options && cp out plain.json && mv gradients plain.gradients
    for scale in 1024 'dynamic(initial = 2048, interval = 2)'; do
      [ "$1$scale" != llama1024 ] || continue
      with $1 "loss_scale $scale;"
      must $ppc run scaled.pp $options && cp out scaled.json
      must python3 $here/loss_scale.py equal plain.json scaled.json
      must cmp gradients plain.gradients
    done
    must python3 $here/loss_scale.py rule scaled.json 2048 2 2 0.5
  done
}

# After skips, growths and new skips. Scales that aren't powers of two are rounded as the loss is.
rule() {
  overflowing
  for ranks in 1 2 4; do
    must $ppc run scaled.pp --ranks=$ranks --steps=24 --json && cp out $ranks.json
  done
  must python3 $root/testdata/compare.py same 1.json 2.json 4.json
  must python3 $here/loss_scale.py rule 1.json 0x1p96 3 2 0x1p-9 some
  must $ppc run scaled.pp --steps=24 --json -D initial=1e28 -D growth=1.7 -D backoff=0.3 -D interval=2 && cp out odd.json
  must python3 $here/loss_scale.py rule odd.json 1e28 2 1.7 0.3 some
  must $ppc run scaled.pp --steps=6 --json -D initial='pow(2.0, 95)' -D interval=1 --dtype=f64 && cp out high.json # the largest is reached
  must python3 $here/loss_scale.py rule high.json 0x1p95 1 2 0.5
}

# A constant scale goes with both settings.
stop() {
  overflowing
  sed -i 's/loss_scale dynamic.*/loss_scale initial;/' scaled.pp
  refused 4 'step 1: the gradient of .* has a norm of (inf|nan|-nan) \(nonfinite stop\)' $ppc run scaled.pp --steps=2
  sed -i 's/^train {/&\n  nonfinite skip;/' scaled.pp
  must $ppc run scaled.pp --steps=2 --json
  grep -q 'step 2 skipped' err || fail "step 2 is not skipped"
}

# A step that counts nothing is no good step and no bad one.
uncounted() {
  cat >scaled.pp <<'PP'
use nn; use optim; use schedules;
module rare(d) {
  inner: linear(d, d, std = 0.3);
  fn (x: [b, d]) {
    let y = inner(x);
    stage_end;
    let mask = select(x > 1.6, 1.0, 0.0);
    return sum(mask * y * y), sum(mask);
  }
}
train {
  model     net = rare(4);
  batch     microbatch = 2, microbatches = 2;
  data      x = synthetic(4);
  loss      net(x);
  ranks     2;
  schedule  one_f_one_b;
  optimizer sgd(lr = constant(0.1));
  steps     24;
  loss_scale dynamic(initial = 64, interval = 4);
}
PP
  must $ppc run scaled.pp --json && cp out rare.json
  must python3 $here/loss_scale.py rule rare.json 64 4 2 0.5 uncounted
}

# Under AddressSanitizer, with poison where nothing lives; objects that checks.sh has made too.
checked() {
  local flags="-std=c11 -O1 -fno-math-errno -fno-trapping-math -ffp-contract=off -fopenmp-simd"
  overflowing
  must $ppc run scaled.pp --steps=6 --json && cp out plain.json
  must $ppc compile scaled.pp -o made
  must make -s -j2 -C made CHECK=1 WARN=-Werror LEVELS=2 "CFLAGS=$flags"
  CHECK=1 must made/launch.sh --steps=6 --json --timeout=60 && cp out checked.json
  must python3 $root/testdata/compare.py same plain.json checked.json
}

# CUDA, under the checking libraries: as on CPUs, whatever the seed, captured or not.
device() {
  overflowing
  must $root/testdata/cuda/run.py scaled.pp -D backoff=0.01 -D growth=8.0 -D interval=1 -D initial='pow(2.0, 94)' --schedule=zb_v --steps=10 --seeds=0:2 --keep=made
  cat out
  ! grep -q '^skipped' out || return 0
  for option in "" --graph; do
    PPC_CHECK=3 must made/launch.sh --json --quiet $option && cp out device.json
    ! grep ppc-check: err || fail "a report"
    must python3 $here/loss_scale.py rule device.json 0x1p94 1 8 0.01 some
  done
}
$1
