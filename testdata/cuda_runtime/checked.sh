#!/bin/sh
# checked.sh BUILD: no call of CUDA, cuBLASLt or NCCL in the runtime, or in an emitted program, leaves its result
# unused. Each function that is called is declared once more, as one whose result must be used;
# cudaGetLastError is also called to forget an error that has been told.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
nvcc=$(command -v nvcc) || { echo "skipped: nvcc is not installed"; exit 0; }
cuda=$(dirname "$(dirname "$(realpath "$nvcc")")")
build=$1
"$root/bin/ppc" compile "$root/testdata/models/mlp.pp" --target=cuda -o "$build/program" >/dev/null
cd "$build/program"
{
  printf '#include <cuda_runtime_api.h>\n#include <cublasLt.h>\n#include <nccl.h>\n'
  cat ./*.c runtime/*.c runtime/cuda/*.[ch] | grep -oE '\b(cuda|cublasLt|nccl)[A-Z][A-Za-z0-9]*\(' | tr -d '(' | sort -u |
    grep -vx cudaGetLastError |
    sed 's/.*/__typeof__(&) & __attribute__((warn_unused_result));/'
} >used.h
n=$(grep -c typeof used.h)
[ "$n" -gt 40 ] || { echo "only $n functions found"; exit 1; }
check() { # what is unused shows when code is made
  for file; do gcc -std=c11 -D_GNU_SOURCE -c -o /dev/null -Werror=unused-result -include used.h -isystem "$cuda/include" -I. -Iruntime "$file" || bad=1; done
  [ -z "${bad:-}" ]
}
check ./*.c runtime/*.c runtime/cuda/*.c
# It does find one.
echo 'void f(void *p) { cudaFree(p); }' >unused.c
! check unused.c 2>unused.log || { echo "an unused result is not found"; exit 1; }
grep -q 'unused-result' unused.log
