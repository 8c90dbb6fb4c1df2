. "$(dirname "$0")/lib.sh"
here=$root/testdata/programs

# traced MODEL RANKS SCHEDULE [OPTION…]: the trace is whole, and the run's bits are those without it.
traced() {
  local model=$models/$1.pp ranks=$2 schedule=$3
  shift 3
  must $ppc compile "$model" "${tiny[@]}" --ranks=$ranks --schedule="$schedule" --steps=12 -o made
  must $ppc run "$model" "${tiny[@]}" --ranks=$ranks --schedule="$schedule" --steps=12 --json
  cp out plain.json
  must $ppc run "$model" "${tiny[@]}" --ranks=$ranks --schedule="$schedule" --steps=12 --json --trace=t.json "$@"
  same out plain.json
  [ "$(grep -o '"loss":[^,]*' out)" = "$(grep -o '"loss":[^,]*' plain.json)" ] || fail "the losses are others with --trace"
}
traced gpt2 4 one_f_one_b
must python3 $here/trace.py made/plan.json t.json 3 12
traced gpt2 2 interleaved_1f1b --trace-steps=2:4
must python3 $here/trace.py made/plan.json t.json 2 4
traced skip 2 one_f_one_b --transport=late --trace-steps=12:99
must python3 $here/trace.py made/plan.json t.json 12 12
traced mlp 1 one_f_one_b --trace-steps=5
must python3 $here/trace.py made/plan.json t.json 5 5

# Any name of a file makes a trace that can be read; long ones are cut between characters.
long=$(printf 'x\xe2\x82\xac%.0s' {1..50})
for name in $'a"\\\xff\xed\xa0\x80\xe2\x82\x01' "$long"; do
  sed 's/one_f_one_b;/mine;/' "$models/mlp.pp" >"$name.pp"
  echo 'schedule mine(ranks, stages, microbatches) { rank r { for i in 0..microbatches { fwd(r, i); bwd(r, i); } } }' >>"$name.pp"
  must $ppc run "$name.pp" --steps=2 --quiet --trace=t.json
  must python3 -c "import json; json.load(open('t.json', encoding='utf-8'))"
  must $ppc simulate "$name.pp" --costs=t.json --trace=t.json --svg=t.svg
done
! grep -q warning err || fail "the name was cut"

# --- refused before step 1, by one line; nothing is written ---------------------------------------------------
run=("$ppc" run "$models/mlp.pp" --steps=3 --json)
only() { [ "$(wc -l <err)" = 1 ] && ! [ -s out ] && ! ls new* >/dev/null 2>&1 || fail "more than a line, or something was written"; }
refused 1 '--trace=/nowhere/t.json: No such file or directory' "${run[@]}" --trace=/nowhere/t.json && only
refused 1 '--trace=\.: Is a directory' "${run[@]}" --trace=. && only
refused 1 '--trace=/dev/full: not a plain file' "${run[@]}" --trace=/dev/full && only
refused 2 '--trace-steps needs --trace=FILE' "${run[@]}" --trace-steps=1 && only
refused 2 '--trace-steps: the run ends before these steps' "${run[@]}" --trace=new --trace-steps=4:5 && only
refused 2 '--trace: no step is made' "$ppc" run "$models/mlp.pp" --steps=0 --trace=new && only
refused 2 '--trace-steps=2:1: expected A:B, steps from 1 up' "${run[@]}" --trace=new --trace-steps=2:1 && only
refused 2 'trace' "$ppc" run "$models/gpt2.pp" "${tiny[@]}" --generate=4 --trace=new && only
refused 1 '--trace: no room for 2000000000 steps of [0-9]+ bytes' "$ppc" run "$models/mlp.pp" --steps=2000000000 --trace=new --trace-steps=1:2000000000 && only
refused 2 '--save and --trace name one file: new' "${run[@]}" --save=new --trace=new && only
refused 2 '--save and --save-gradients name one file: new' "${run[@]}" --save=new --save-gradients=new && only
cp "$models/mlp.pp" new.pp
echo 0F0 >new.csv
for o in --trace --save --save-gradients; do
  refused 1 "$o=./new.pp: this file is read" "$ppc" run new.pp --steps=1 $o=./new.pp
  refused 1 "$o=new.csv: this file is read" "$ppc" run new.pp --steps=1 --schedule=new.csv $o=new.csv
done
cmp new.pp "$models/mlp.pp" && rm new.pp new.csv
# An older file stays whole when the run fails.
echo old >old.json
sed 's/constant(0.05)/constant(1e30)/' "$models/mlp.pp" >bad.pp
"$ppc" run bad.pp --steps=200 --trace=old.json >out 2>err && fail "a run that can't end well"
[ "$(cat old.json)" = old ] && ! ls old.json.* >/dev/null 2>&1 || fail "the older trace is gone"
