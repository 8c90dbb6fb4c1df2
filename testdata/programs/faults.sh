. "$(dirname "$0")/lib.sh"
must $ppc compile $models/gpt2.pp "${tiny[@]}" --ranks=4 -o made
must make -s -C made -j2
place='step [0-9]+, (stage_1_[a-z]+, stage 1(, microbatch [0-7])?, [a-z0-9]+\.pp:[0-9]+|between steps)'

start() { # options…: a run of 4 ranks that doesn't end; waits for its first step
  made_ranks=
  rm -f out
  $ppc run $models/gpt2.pp "${tiny[@]}" --ranks=4 --steps=1000000 "$@" >out 2>err &
  job=$!
  for i in $(seq 900); do [ ! -s out ] && kill -0 $job 2>&1 || break; sleep 0.1; done
  [ -s out ] || fail "no first step"
  made_ranks=$(pgrep -P $job | sort -n)
  [ $(echo "$made_ranks" | wc -l) = 4 ] || fail "not 4 ranks: $made_ranks"
  rank_1=$(for p in $made_ranks; do tr '\0' '\n' <"/proc/$p/environ" | grep -qx PPC_RANK=1 && echo $p; done)
  [ -n "$rank_1" ] || fail "no rank 1"
  sleep 0.$((RANDOM % 900 + 100)) # any action
}
ended() { # STATUS SECONDS: the job ends so, in time, and leaves nothing
  local status=0 begin=$EPOCHREALTIME
  timeout 30 tail --pid=$job -f /dev/null || { kill -9 $job $made_ranks; fail "still running after 30 s"; }
  took=$(awk "BEGIN { print $EPOCHREALTIME - $begin }")
  wait $job || status=$?
  [ $status = $1 ] || fail "status $status, expected $1"
  awk "BEGIN { exit !($took < $2) }" || fail "took $took s"
  for p in $made_ranks; do [ ! -e /proc/$p ] || grep -q 'State:.Z' /proc/$p/status || fail "rank $p is left"; done
  ! ls /dev/shm | grep "run-$job-" || fail "left in /dev/shm: $(ls /dev/shm)"
}
says() { head -n 1 err | grep -qE "$1" || fail "the first message is not like '$1'"; }

for i in 1 2 3; do
  start
  kill -KILL $rank_1
  ended 4 6
  says "^ppc: rank 1 \(pid $rank_1\) was killed at $place"
done
start
kill -STOP $rank_1
ended 4 8
says "^ppc: rank 1 \(pid $rank_1\) has been stopped by a signal for 3\.[0-9] s at $place"
start --timeout=2
kill -STOP $rank_1
ended 4 5
says "^ppc: rank 1 \(pid $rank_1\) has been stopped by a signal for 1\.[0-9] s at $place"
start --json
kill -INT $job
ended 130 4
says 'Ctrl-C'
! grep -vq '^{"step"' out || fail "something else than steps on standard output"
start
kill -SEGV $rank_1
ended 4 6
says "^ppc: rank 1 \(pid $rank_1\) crashed \(Segmentation fault\) at $place"

# Ctrl-C at a terminal goes to the whole group, launch.sh and all ranks.
python3 - <<'PY' || fail "Ctrl-C of a group: $(cat said)"
import os, signal, subprocess, sys, time
sys.stdout = open("said", "w")
p = subprocess.Popen(["made/launch.sh", "--steps=1000000"], stdout=subprocess.PIPE, stderr=open("err", "w"), start_new_session=True)
p.stdout.readline()
os.killpg(p.pid, signal.SIGINT)
begin = time.time()
p.communicate(timeout=20)
print(p.returncode, time.time() - begin)
assert p.returncode == 130 and time.time() - begin < 4
assert sum("ended by" in l for l in open("err")) == 1
PY

# Nobody reads, or nothing is open: the run goes on to its end.
set +o pipefail
made/launch.sh --steps=3 --json --save=piped.st 2>err | true
set -o pipefail
for i in $(seq 100); do [ -s piped.st ] && break || sleep 0.1; done
[ -s piped.st ] || fail "a reader that went away ended the run"
made/launch.sh --steps=3 --save=closed.st >&- 2>err || fail "closed output: status $?"
cmp piped.st closed.st || fail "a closed output changes the result"
made/launch.sh --steps=3 --save=all_closed.st >&- 2>&- <&- || fail "all closed: status $?"
cmp piped.st all_closed.st || fail "closed files change the result"
if [ -c /dev/full ]; then refused 4 "can't write the log to standard output: No space left" sh -c 'made/launch.sh --steps=2 >/dev/full'; fi
refused 1 'nowhere/x.*No such file' made/launch.sh --steps=2 --save=nowhere/x

# Small file systems, in a mount namespace of our own.
if unshare -m true 2>/dev/null; then
  refused 1 '/dev/shm is too small: the job needs [0-9]{7} bytes of shared memory and [0-9]+ are free.*--shm-dir=DIR' \
    unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm && exec made/launch.sh --steps=2'
  [ $(grep -c . err) = 1 ] && [ ! -s out ] || fail "one line and no step expected"
  must unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm && mkdir other && exec made/launch.sh --steps=2 --shm-dir=$PWD/other'
  # parameters take 0.25 MB; the second save doesn't fit beside the first
  mkdir full
  refused 4 'full/w.st.*No space left on device' unshare -m sh -c 'mount -t tmpfs -o size=400k none full &&
    made/launch.sh --steps=1 --quiet --save=full/w.st && cp full/w.st kept.st && made/launch.sh --steps=2 --save=full/w.st; status=$?
    cp full/w.st after.st; ls -A full >listing; exit $status'
  cmp kept.st after.st || fail "the old file is gone"
  [ "$(cat listing)" = w.st ] || fail "left behind: $(cat listing)"
else
  echo "small file systems are not tried: unshare -m is not allowed here"
fi
