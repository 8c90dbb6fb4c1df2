# Sourced by the check.sh of a folder `here` whose Makefile builds CUDA programs in the folder `build`: makes them and the
# checking libraries, whose folder is then `lib`. Skips the test where nvcc is not installed.
root=$(cd "$here/../.." && pwd)
if ! command -v nvcc >/dev/null; then
  echo "skipped: nvcc is not installed"
  exit 0
fi
# Several tests may want the libraries at a time.
mkdir -p "$root/build" "$build"
flock "$root/build/check.lock" make -s -C "$root" check-libs >/dev/null || exit 1
make -s -C "$here" BUILD="$(realpath "$build")" || exit 1
lib=$root/build/check/lib
