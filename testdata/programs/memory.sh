. "$(dirname "$0")/lib.sh"
for m in mlp gpt2 llama skip encdec; do
  must $ppc check $models/$m.pp "${tiny[@]}" --ranks=2 --json && cp out check.json
  must $ppc run $models/$m.pp "${tiny[@]}" --ranks=2 --steps=2 --json && cp out run.json
  python3 $root/testdata/compare.py memory run.json check.json >out 2>err || fail "$m"
done

# Its regions as the kernel sees them, while it runs.
must $ppc compile $models/gpt2.pp "${tiny[@]}" --ranks=2 -o made
must make -s -C made -j2
made/launch.sh --steps=1000000 >out 2>err &
job=$!
for i in $(seq 200); do [ -s out ] && break || sleep 0.1; done
arenas=0
for p in $(pgrep -P $job); do ! grep -q 'ppc-arena' /proc/$p/smaps || arenas=$((arenas + 1)); done
kill -TERM $job
wait $job
[ "$arenas" = 2 ] || fail "regions named ppc-arena: $arenas"

# Calls of the allocator in runs of 3 and of 33 steps.
must cc -shared -fPIC -O1 -o count.so $root/testdata/programs/count_malloc.c -ldl
for steps in 3 33; do
  for kind in plain json trace; do
    case $kind in plain) with=() ;; json) with=(--json) ;; trace) with=(--trace=t.json --trace-steps=1:3) ;; esac
    LD_PRELOAD=$PWD/count.so COUNT_MALLOC=$PWD/calls.$steps.$kind must made/launch.sh --steps=$steps "${with[@]}"
    sort -o calls.$steps.$kind calls.$steps.$kind
  done
done
# Threads and peers come in no fixed order at the start, so a few calls may differ, but less than one for a step.
python3 - <<'PY' || fail "steps allocate: $(paste calls.3.* calls.33.*)"
for kind in ("plain", "json", "trace"):
    few, many = ([int(l.split()[1]) for l in open(f"calls.{n}.{kind}")] for n in (3, 33))
    assert len(few) == len(many) == 2 and min(few) > 5 and all(b - a < 10 for a, b in zip(few, many))
PY
