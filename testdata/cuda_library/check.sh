#!/bin/bash
# check.sh SEEDS BUILD: the device library compiles for every architecture, and gives under the checking library, for every
# seed, what the CPU's functions give. Prints what is wrong, and fails if anything is.
set -u
here=$(cd "$(dirname "$0")" && pwd)
seeds=$1 build=$2
. "$here/../cuda_libraries.sh"
cd "$build" || exit 1
for seed in $(seq 0 $((seeds - 1))); do
  PPC_CHECK_SEED=$seed LD_LIBRARY_PATH=$lib LD_BIND_NOW=1 ./library >out 2>err || { echo "seed $seed, exit status $?"; cat out err; exit 1; }
  [ ! -s err ] || { echo "seed $seed"; cat err; exit 1; }
  [ "$(grep -c '^ok' out)" -gt 20 ] || { echo "seed $seed: too few tests"; cat out; exit 1; }
done
