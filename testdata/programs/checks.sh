. "$(dirname "$0")/lib.sh"
# One instruction set is enough here; build.test builds all.
flags="-std=c11 -O1 -fno-math-errno -fno-trapping-math -ffp-contract=off -fopenmp-simd"
build() { must make -s -j2 WARN=-Werror LEVELS=2 "CFLAGS=$flags" "$@"; }

warnings() { # each model × schedule, fused and not
  for m in mlp gpt2 llama skip encdec; do
    for schedule in gpipe one_f_one_b interleaved_1f1b; do
      for fuse in "" --no-fuse; do
        must $ppc compile $models/$m.pp "${tiny[@]}" --ranks=2 --schedule=$schedule $fuse -o made
        build -C made
      done
    done
  done
}

memory() { # AddressSanitizer, UndefinedBehaviorSanitizer, poison where nothing lives; encdec: build.test
  for m in mlp gpt2 llama skip; do
    must $ppc compile $models/$m.pp "${tiny[@]}" --ranks=2 -o made
    build -C made CHECK=1
    CHECK=1 must made/launch.sh --steps=2 --timeout=60 --json
    cp out checked.json
    must $ppc run $models/$m.pp "${tiny[@]}" --ranks=2 --steps=2 --json
    same out checked.json
  done
  must $ppc compile $models/gpt2.pp "${tiny[@]}" -D rate=0.1 --ranks=2 --schedule=interleaved_1f1b -o made
  build -C made CHECK=1
  CHECK=1 must made/launch.sh --steps=2 --timeout=60 --transport=late
}

threads() { # ThreadSanitizer
  for schedule in "4 one_f_one_b" "2 interleaved_1f1b"; do
    set -- $schedule
    must $ppc compile $models/gpt2.pp "${tiny[@]}" --ranks=$1 --schedule=$2 -o made
    build -C made threads
    must made/threads --steps=3 --timeout=60 --json --trace=t.json
    cp out threads.json
    must python3 $root/testdata/programs/trace.py made/plan.json t.json 1 3
    must $ppc run $models/gpt2.pp "${tiny[@]}" --ranks=$1 --schedule=$2 --steps=3 --json
    same out threads.json
  done
}

# Waits that are left out. codegen/program_test.c plants an overflow, a stale read, a fence.
planted() {
  must $ppc compile $models/gpt2.pp "${tiny[@]}" --ranks=2 -o made
  # Ranks don't wait for what they read.
  sed -i 's/^\(.*case PP_AWAIT_RECEIVE: \)return .*/\1return PP_OK;/' made/runtime/rank.c
  grep -q 'case PP_AWAIT_RECEIVE: return PP_OK;' made/runtime/rank.c || fail "nothing planted"
  build -C made CHECK=1
  ! CHECK=1 made/launch.sh --steps=3 --timeout=20 >out 2>err || fail "a missing wait for a receive is not found"
  # Ranks don't wait until what they overwrite was read.
  # Here rank 1 sends the control vector alone, and nothing comes back that would say that it was read.
  cat >feed.pp <<'PP'
use optim;
use schedules;
module feed() {
  param w: [512] = ones;
  fn (x: [b, 512]) {
    let y = x * 2.0;
    stage_end;
    return mean((y - w) * (y - w));
  }
}
train {
  model     net = feed();
  batch     microbatch = 8, microbatches = 2;
  data      x = synthetic(512);
  loss      net(x);
  ranks     2;
  schedule  one_f_one_b;
  optimizer sgd(lr = constant(0.1));
  steps     10;
}
PP
  must $ppc compile feed.pp -o made
  build -C made threads
  must made/threads --timeout=20
  sed -i 's/^\(.*case PP_AWAIT_SEND: \)return .*/\1return PP_OK;/' made/runtime/rank.c
  build -C made threads
  # A sender that runs far ahead before its receiver has read a byte leaves the receiver waiting, without a race: then again.
  for try in 1 2 3 4 5 6; do
    ! made/threads --timeout=5 >out 2>err || fail "a missing wait for a send is not found"
    grep -q 'ThreadSanitizer: data race' err && break
  done
  grep -q 'ThreadSanitizer: data race' err || fail "no race is told"
}
$1
