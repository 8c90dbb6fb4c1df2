#!/bin/bash
# check.sh PART BUILD: programs of this folder under the checking libraries; prints what is wrong, and fails if anything is.
#   clean SEEDS    the program of two ranks: no report, and the same bits for every seed
#   faults SEEDS   each line of `faults`: every seed gives its report
#   jobs SEEDS     jobs.c: every case, with all its ranks
#   cases SEEDS    semantics.c, graphs.c, products.c and one_kernel.cu: every case gives the kind of report that it must
set -u
here=$(cd "$(dirname "$0")" && pwd)
part=$1 seeds=$2 build=$3
. "$here/../cuda_libraries.sh"
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
  for program in semantics graphs products; do
    ./$program >list || wrong $program - "no list of its cases"
    while read -r name kind; do case_is "$kind" ./$program "$name"; done <list
  done
  for name in $(sed -n 's/^CHECK_KERNEL(\([^,)]*\).*/\1/p' one_kernel.host.cpp); do
    case $name in
    good_*) case_is clean ./one_kernel "$name" ;;
    race_*) case_is 'race in a kernel' ./one_kernel "$name" ;;
    *) case_is "${name//_/ }" ./one_kernel "$name" ;;
    esac
  done
}

# All ranks of a case of jobs.c. A rank that kills itself is not judged by its status; another's time-out must be shown.
job() { # job NAME N_RANKS KIND SEED
  local pids=() status=0 one
  rm -rf work && mkdir work
  export PPC_CHECK_SEED=$4 PPC_CHECK_WORLD=$PWD/work/world PPC_RENDEZVOUS=$PWD/work PPC_CHECK_RANKS=$2 PPC_CHECK_HANG=report
  [ "$3" != clean ] || PPC_CHECK_HANG=wait
  PPC_CHECK_LIMIT=60
  [ "$1" != elsewhere ] || PPC_CHECK_LIMIT=1
  export PPC_CHECK_LIMIT
  for r in $(seq 0 $(($2 - 1))); do
    PPC_CHECK_RANK=$r timeout $limit ./jobs "$1" "$r" >/dev/null 2>err.$r & pids+=($!)
  done
  for pid in "${pids[@]}"; do
    [ "$1" = elsewhere ] && [ $status -eq 86 ] && kill "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null; one=$?
    [ $status -ne 0 ] || [ $one -eq 137 ] || status=$one
  done
  cat err.* >err
  rm err.*
  if [ "$3" = clean ]; then
    { [ $status -eq 0 ] && [ ! -s err ]; } || wrong "job $1" "$4" "exit status $status, want no report"
  elif [ $status -ne 86 ] || ! grep -q ": $3:" err; then
    wrong "job $1" "$4" "exit status $status, want '$3'"
  fi
}

jobs() {
  while read -r name n_ranks kind; do
    for seed in $(seq 0 $((seeds - 1))); do job "$name" "$n_ranks" "$kind" "$seed"; done
  done < <(PPC_CHECK_RANKS=1 ./jobs)
}

$part
[ $failed -eq 0 ]
