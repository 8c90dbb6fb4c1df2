#!/bin/bash
# stale.sh PPC DIR: a folder that was emitted again, or is built with other settings: nothing old is used without a word. Nor
# are kernels that the device is too small for.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
ppc=$1 folder=$2/gpu
command -v nvcc >/dev/null || { echo "skipped: nvcc is not installed"; exit 0; }
flock "$root/build/check.lock" make -s -C "$root" check-libs >/dev/null
build() { make -s -C "$folder" ARCH=80 "$@" >/dev/null; }
refused() { # refused TEXT: one line, and no step
  ! PPC_CHECK=1 "$folder/launch.sh" --steps=1 >out 2>err || { echo "a stale program runs"; exit 1; }
  grep -qF "$1" err && ! grep -q step out || { echo "no message like '$1':"; cat err; exit 1; }
}
cd "$2"
"$ppc" compile "$root/testdata/models/mlp.pp" --target=cuda -o "$folder"
ln -s "$root/build/check" "$folder/check"
build all kernels.host.so
PPC_CHECK=1 "$folder/launch.sh" --steps=1 | grep -q 'step 1/1'

sed 's/constant(0.05)/constant(0.01)/' "$root/testdata/models/mlp.pp" >mlp.pp
"$ppc" compile mlp.pp --target=cuda -o "$folder"
refused 'was built from another plan than launch.sh: run make'
build rank_0
refused 'rank_1 was built from another plan than launch.sh: run make'
build rank_1
refused 'kernels.fatbin: these are not the kernels of this program: run make (under the checking libraries: make check)'
build all kernels.host.so
PPC_CHECK=1 "$folder/launch.sh" --steps=1 | grep -q 'lr 0.01 '

cp "$folder/kernels.fatbin" old
build kernels.fatbin
cmp -s old "$folder/kernels.fatbin"
make -s -C "$folder" ARCH=90 kernels.fatbin >/dev/null
! cmp -s old "$folder/kernels.fatbin" || { echo "make ARCH=90 leaves what was built for 80"; exit 1; }
echo broken >"$folder/kernels.fatbin"
refused "kernels.fatbin can't be loaded: device kernel image is invalid: run make again"

cp old "$folder/kernels.fatbin"
sed -i 's/^\(  {"gelu_[^}]*}, [0-9]*, \)0}/\1170000}/' "$folder/kernels_launch.c"
build rank_0 rank_1
refused 'is too small for kernel gelu_'
