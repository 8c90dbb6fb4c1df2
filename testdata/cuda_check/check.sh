#!/bin/bash
# check.sh PART BUILD: programs of this folder under the checking libraries; prints what is wrong, and fails if anything is.
#   clean SEEDS    the program of two ranks: no report, and the same bits for every seed
#   faults SEEDS   each line of `faults`: every seed gives its report
#   cases SEEDS    semantics.c and one_kernel.cu: every case gives the kind of report that it must
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
part=$1 seeds=$2 build=$3
if ! command -v nvcc >/dev/null; then
  echo "skipped: nvcc is not installed"
  exit 0
fi
# Several tests may want the libraries at a time.
mkdir -p "$root/build" "$build"
flock "$root/build/check.lock" make -s -C "$root" check-libs >/dev/null || exit 1
make -s -C "$here" BUILD="$(realpath "$build")" || exit 1
lib=$root/build/check/lib
export LD_LIBRARY_PATH=$lib LD_BIND_NOW=1 NVTX_INJECTION64_PATH=$lib/libcudart.so.13 PPC_CHECK_RANKS=2
limit=60 failed=0
cd "$build" || exit 1

wrong() { # wrong NAME SEED WHAT: and what was reported
  echo "FAIL $1, seed $2: $3"
  sed 's/^/  /' err | head -n 8
  failed=$((failed + 1))
  [ $failed -lt 10 ] || exit 1
}

# Both ranks of the program with fault $1 (none: clean) under seed $2: out, err; its exit status.
pair() {
  local folder=. status other
  [ "$1" != MISSING_BARRIER ] || folder=missing_barrier
  rm -rf work && mkdir work
  cp kernels.fatbin "$folder" 2>/dev/null
  export FAULT=$1 PPC_CHECK_SEED=$2 PPC_CHECK_WORLD=$PWD/work/world PPC_RENDEZVOUS=$PWD/work
  (cd $folder && PPC_CHECK_RANK=0 exec timeout $limit "$OLDPWD/rank_0") >out.0 2>err.0 & local first=$!
  (cd $folder && PPC_CHECK_RANK=1 exec timeout $limit "$OLDPWD/rank_1") >out.1 2>err.1 & local second=$!
  wait $first; status=$?
  wait $second; other=$?
  cat out.0 out.1 >out
  cat err.0 err.1 >err
  [ $status -ne 0 ] || status=$other
  return $status
}

clean() {
  for seed in $(seq 0 $((seeds - 1))); do
    pair none "$seed" || wrong clean "$seed" "exit status $?"
    [ ! -s err ] || wrong clean "$seed" "a report"
    [ "$seed" -ne 0 ] || cp out first
    cmp -s out first || wrong clean "$seed" "other bits than seed 0"
  done
  [ "$(wc -l <first)" -eq 5 ] || wrong clean 0 "not the five lines of output"
}

faults() {
  while read -r name pattern; do
    case $name in '#'* | '') continue ;; esac
    for seed in $(seq 0 $((seeds - 1))); do
      pair "$name" "$seed"
      [ $? -eq 86 ] || wrong "$name" "$seed" "the exit status is not 86"
      grep -Eq "$pattern" err || wrong "$name" "$seed" "no report like $pattern"
    done
  done <"$here/faults"
}

case_is() { # case_is KIND COMMAND...
  local kind=$1 status
  shift
  for seed in $(seq 0 $((seeds - 1))); do
    PPC_CHECK_SEED=$seed timeout $limit "$@" 2>err
    status=$?
    if [ "$kind" = clean ]; then
      { [ $status -eq 0 ] && [ ! -s err ]; } || wrong "$*" "$seed" "exit status $status, want no report"
    elif [ $status -ne 86 ] || ! grep -q ": $kind:" err; then
      wrong "$*" "$seed" "exit status $status, want '$kind'"
    fi
  done
}

cases() {
  ./semantics >list || wrong semantics - "no list of its cases"
  while read -r name kind; do case_is "$kind" ./semantics "$name"; done <list
  for name in $(sed -n 's/^CHECK_KERNEL(\([^,)]*\).*/\1/p' one_kernel.host.cpp); do
    case $name in
    good_*) case_is clean ./one_kernel "$name" ;;
    race_*) case_is 'race in a kernel' ./one_kernel "$name" ;;
    *) case_is "${name//_/ }" ./one_kernel "$name" ;;
    esac
  done
}

$part
[ $failed -eq 0 ]
