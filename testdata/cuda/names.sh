#!/bin/sh
# names.sh PPC: names in a model that are macros, types or functions where its program is compiled: parameters, values
# and what is saved for the backward pass have them, and the host compiler takes the emitted text, for both targets.
set -eu
ppc=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
names="pp_launch pp_pack pp_half_sum PP_DEVICE product_2x2x16_nt launch_x kernel_x INT32_MAX SIZE_MAX CHAR_BIT M_PI HUGE_VAL
CUDART_VERSION NULL EOF __LINE__ __x86_64__ _Bool _ __restrict__ int32_t size_t double asm this c frame"
{ # each in kernels of its own size: equal kernels would be one, with the first one's names
  echo "use nn; use optim; use schedules;"
  uses= k=3
  for n in $names; do
    echo "module p$k() {"
    echo "  param $n: [1, $k] = normal(0.0, 1.0);"
    echo "  fn (s) { return max(sin(s * $n) * $n) + sum(values$k($n + s)); }"
    echo "}"
    echo "fn values$k(x) { let $n = softmax(sin(x)); return ($n @ transpose($n)) * exp($n * 2.0); }"
    uses="$uses  q$k: p$k();
"
    k=$((k + 1))
  done
  echo "module net() {"
  printf '%s' "$uses"
  echo "  fn (x: [b, 3]) {"
  echo "    let t = mean(x);"
  i=3
  while [ $i -lt $k ]; do echo "    t = t + q$i(t);"; i=$((i + 1)); done
  echo "    return t;"
  echo "  }"
  echo "}"
  echo "train { model m = net(); batch microbatch = 2, microbatches = 2; data x = synthetic(3); loss m(x); ranks 1; schedule gpipe;"
  echo "        optimizer adamw(lr = constant(0.01)); clip global_norm(1.0); steps 2; }"
} >names.pp
$ppc compile names.pp -o cpu
for f in stage_0.c kernels.c rank_0.c; do gcc -std=c11 -D_GNU_SOURCE -DPP_LEVEL=0 -fsyntax-only -Icpu cpu/$f; done
$ppc compile names.pp --target=cuda -o cuda
for f in stage_0.c kernels_launch.c rank_0.c; do gcc -std=c11 -D_GNU_SOURCE -fsyntax-only -Icuda cuda/$f; done
nvcc=$(command -v nvcc) || { echo "skipped: names in kernels.cu (no nvcc)"; exit 0; }
include=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include
g++ -std=c++17 -fsyntax-only -x c++ -isystem "$include" -include "$root/runtime/check/kernels_host.h" -Icuda -I"$root" -Wno-unknown-pragmas cuda/kernels.cu
