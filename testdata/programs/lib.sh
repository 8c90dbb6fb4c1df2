# For the scripts in this folder: names, and how a command's end is judged. They run in a folder of
# their own, with the models in one small size that they share, so that objects come from the cache.
set -u -o pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
ppc=${PPC:-$root/bin/ppc} models=$root/testdata/models
tiny=(-D layers=4 -D width=32 -D length=16 -D stages=4)
[ ! -t 0 ] || exec </dev/null

fail() {
  echo "FAILED: $*"
  for f in err out; do [ ! -s $f ] || { echo "--- $f:" && tail -n 12 $f; }; done
  exit 1
}

# must COMMAND…: ends with status 0. Its output lies in out and err.
must() {
  local status=0
  "$@" >out 2>err || status=$?
  [ $status = 0 ] || fail "status $status: $*"
}

# refused STATUS PATTERN COMMAND…: ends with that status and says so in a line like PATTERN.
refused() {
  local expected=$1 pattern=$2 status=0
  shift 2
  "$@" >out 2>err || status=$?
  [ $status = "$expected" ] || fail "status $status, expected $expected: $*"
  grep -qE -- "$pattern" err || fail "no message like '$pattern': $*"
}

# The two hashes at the end of a run's JSON.
hashes() { tail -n 1 "$1" | grep -oE '"(parameters|optimizer)":"[0-9a-f]{64}"' || fail "no hashes in $1"; }

# same A B: two runs ended with the same bits.
same() { [ "$(hashes "$1")" = "$(hashes "$2")" ] || fail "$1 and $2 ended with other parameters"; }
