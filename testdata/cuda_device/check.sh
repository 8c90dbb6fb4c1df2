#!/bin/bash
# check.sh SEEDS BUILD: every kernel of kernels.cu gives under the checking library, for every seed, the report that the
# comment before it states, and no other kind. Prints what is wrong, and fails if anything is.
set -u
here=$(cd "$(dirname "$0")" && pwd)
seeds=$1 build=$2
. "$here/../cuda_libraries.sh"
export LD_LIBRARY_PATH=$lib LD_BIND_NOW=1 NVTX_INJECTION64_PATH=$lib/libcudart.so.13
cd "$build" || exit 1

# name|arguments|kind|pattern, with the numbers of the marked lines.
awk '
  function put() { if (name) print name "|" launch "|" kind "|" pattern }
  /^\/\/ LAUNCH / {
    put(); name = ""
    rest = substr($0, 11); launch = rest; sub(/:.*/, "", launch)
    kind = substr(rest, length(launch) + 3); pattern = ""
    at = index(kind, ": ")
    if (at) { pattern = substr(kind, at + 2); kind = substr(kind, 1, at - 1) }
  }
  /^extern "C" __global__/ { name = $0; sub(/\(float.*|\(const.*/, "", name); sub(/.* /, "", name) }
  / !$/ { sub(/!/, NR, pattern) }
  END { put() }' "$here/kernels.cu" >list
[ "$(wc -l <list)" -eq "$(grep -c '^extern "C" __global__' "$here/kernels.cu")" ] || { echo "a kernel without a LAUNCH"; exit 1; }

failed=0
wrong() { # wrong NAME SEED WHAT: and what was reported
  echo "FAIL $1, seed $2: $3"
  sed 's/^/  /' err | head -n 6
  failed=$((failed + 1))
  [ $failed -lt 10 ] || exit 1
}

while IFS='|' read -r name launch kind pattern; do
  for seed in $(seq 0 $((seeds - 1))); do
    # shellcheck disable=SC2086
    PPC_CHECK_SEED=$seed timeout 60 ./device "$name" $launch 2>err
    status=$?
    if [ "$kind" = clean ]; then
      { [ $status -eq 0 ] && [ ! -s err ]; } || wrong "$name" "$seed" "exit status $status, want no report"
    else
      [ $status -ne 0 ] || wrong "$name" "$seed" "exit status $status"
      grep -Eq "^ppc-check: device: $kind: .*$pattern" err || wrong "$name" "$seed" "no report like $kind: .*$pattern"
    fi
  done
done <list
[ $failed -eq 0 ]
