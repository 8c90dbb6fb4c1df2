# Emitted programs over the strictest transport (runtime/transport/strict.c): rendezvous, one channel per rank or a few,
# moves that come late as a seed says. Each run must end, with the bits of one rank; one that doesn't is told with its
# command, which has the seed. And the other direction: with two posts of one rank exchanged it hangs there.
. "$(dirname "$0")/lib.sh"
flags="-std=c11 -O1 -fno-math-errno -fno-trapping-math -ffp-contract=off -fopenmp-simd"
build() { must make -s -j2 LEVELS=2 "CFLAGS=$flags" -C made "$@"; }

seeds() { # FIRST LAST COMMAND…
  local first=$1 last=$2
  shift 2
  for seed in $(seq $first $last); do
    must "$@" --steps=2 --json --timeout=30 --transport=strict:$seed:$((1 + seed % 3))
    same out one.json
  done
}

case=${1:?}
shift
case $case in
processes) # MODEL OPTIONS…
  model=$1
  shift
  must $ppc run $models/$model.pp "${tiny[@]}" --ranks=1 --steps=2 --json "$@"
  cp out one.json
  must $ppc compile $models/$model.pp "${tiny[@]}" "$@" -o made
  build
  seeds 1 20 made/launch.sh
  ;;
threads) # the same with all ranks as threads of one process
  model=$1
  shift
  must $ppc run $models/$model.pp "${tiny[@]}" --ranks=1 --steps=2 --json "$@"
  cp out one.json
  must $ppc compile $models/$model.pp "${tiny[@]}" "$@" -o made
  build threads
  seeds 21 40 made/threads
  ;;
broken) # a send before the receive that the peer's order has first
  must $ppc run $models/mlp.pp "${tiny[@]}" -D stages=2 --ranks=1 --microbatches=6 --steps=2 --json
  cp out one.json
  must $ppc compile $models/mlp.pp "${tiny[@]}" -D stages=2 --ranks=2 --microbatches=6 -o made
  sed -i '/PP_POST_RECEIVE, 3, .}/{h;d};/PP_POST_SEND, 4, .}/G' made/rank_0.c
  grep -A1 'PP_POST_SEND, 4, .}' made/rank_0.c | grep -q 'PP_POST_RECEIVE, 3, .}' || fail "the two posts aren't where they were"
  build
  must made/launch.sh --steps=2 --json
  same out one.json
  must made/launch.sh --steps=2 --json --transport=strict:1:2
  same out one.json
  for seed in 1 2 3; do refused 4 'rank [01]' made/launch.sh --steps=2 --json --timeout=2 --transport=strict:$seed; done
  for name in strict: strict:x strict:1:0 strict:1:2:3; do refused 1 "expected strict:SEED:CHANNELS" made/launch.sh --steps=1 --transport=$name; done
  refused 2 'no transport stricter' made/launch.sh --steps=1 --transport=stricter
  ;;
esac
