. "$(dirname "$0")/lib.sh"
here=$root/testdata/programs

# --- which samples a step reads ------------------------------------------------------------------------
cp $here/data.pp .
python3 - <<'PY'
from array import array
import struct
n, rows, windows = 3, 10, 7
array("i", [k for k in range(rows) for _ in range(n)]).tofile(open("rows.i32", "wb"))
array("f", [k for k in range(rows) for _ in range(n)]).tofile(open("rows.f32", "wb"))
tokens = array("H", [k for k in range(windows) for _ in range(n)] + [60000])  # a rest that is never read
tokens.tofile(open("tokens.u16", "wb"))
header = struct.pack("<3i", 20240520, 1, len(tokens)) + bytes(1024 - 12)
open("llmc.bin", "wb").write(header + tokens.tobytes())
open("llmc_short.bin", "wb").write(header + tokens.tobytes()[:-4])
open("llmc_7.bin", "wb").write(struct.pack("<3i", 20240520, 7, len(tokens)) + bytes(1024 - 12) + tokens.tobytes())
open("odd.u16", "wb").write(bytes(25))
open("half.i32", "wb").write(open("rows.i32", "rb").read()[:-4])
open("empty", "wb")
open("two", "wb").write(bytes(4))
PY
must $ppc run data.pp --json && cp out base.json
must $ppc run data.pp --json --data=t=llmc.bin && cp out llmc.json
must $ppc run data.pp --json --ranks=1 && cp out one.json
# The same 24 samples in other batch shapes, the later ones in other steps.
must $ppc run data.pp --json --microbatch=3 --microbatches=2 && cp out shape_3x2.json
must $ppc run data.pp --json --microbatch=1 --microbatches=4 --steps=6 && cp out shape_1x4.json
must $ppc run data.pp --json --microbatch=8 --microbatches=1 --steps=3 && cp out shape_8x1.json
must $ppc run data.pp --json --seed=5 && cp out seed.json
python3 - <<'PY' || fail "data order: $(cat said)"
import json, sys
sys.stdout = open("said", "w")
def read(name):
    rows, first, paired = [], [], 0
    for line in open(name + ".json"):
        o = json.loads(line).get("outputs")
        if o:
            rows += o["row"]; first += o["first"]; paired = max(paired, o["paired"])
    assert paired == 0, f"{name}: rows of the two files don't belong together"
    return rows, [-x for x in first]
rows, first = read("base")
assert len(rows) == 24 and sorted(rows[:10]) == list(range(10)) == sorted(rows[10:20]), f"an epoch is not all rows: {rows}"
assert rows[:10] != rows[10:20] and rows[:10] != list(range(10)), f"not shuffled anew: {rows}"
assert first == [k % 7 for k in range(24)], f"windows are not one after the other: {first}"
for other in ("llmc", "one", "shape_3x2", "shape_1x4", "shape_8x1"):
    assert read(other) == (rows, first), f"{other} read other samples: {read(other)} instead of {(rows, first)}"
assert read("seed")[0] != rows, "the seed changes nothing"
PY

# --- refused before step 1 --------------------------------------------------------------------------------
no_step() { # PATTERN options…: status 1, a line like PATTERN, no step
  local pattern=$1
  shift
  refused 1 "$pattern" $ppc run data.pp --json "$@"
  [ ! -s out ] || fail "a step was made: $*"
  [ $(grep -c . err) = 1 ] || fail "more than one line for one error: $*"
}
no_step 'nothing.u16: No such file.*--data=t=PATH' --data=t=nothing.u16
no_step 'empty: t needs at least 3 tokens.*has 0' --data=t=empty
no_step 'two: t needs at least 3 tokens.*has 2' --data=t=two
no_step 'odd.u16: 25 bytes are no whole number' --data=t=odd.u16
no_step 'llmc_short.bin: the header says 22 tokens, the file has room for 20' --data=t=llmc_short.bin
no_step 'llmc_7.bin: token file of version 7' --data=t=llmc_7.bin
no_step 'half.i32: 116 bytes are no whole number of rows of 3 numbers' --data=a=half.i32
no_step 'not a regular file' --data=a=/dev/zero
refused 1 'has no data of that name' $ppc run data.pp --data=nothing=rows.i32

# --- a text model: one window, and tokens outside the table --------------------------------------------------
printf 'sixteen bytes...' >16.txt && printf 'seventeen bytes..' >17.txt && printf 'plain and \xc3\xa9 tail' >high.txt
refused 1 '16.txt: text needs at least 17 bytes.*has 16' $ppc run $models/gpt2.pp "${tiny[@]}" --ranks=2 --data=text=16.txt
must $ppc run $models/gpt2.pp "${tiny[@]}" --ranks=2 --data=text=17.txt --steps=1
refused 1 'high.txt: token 10 is 195, outside the vocabulary of 128' $ppc run $models/gpt2.pp "${tiny[@]}" -D vocab=128 --ranks=2 --data=text=high.txt
[ ! -s out ] || fail "a step was made"

# --- an index that is no data: found when it is used, on the rank that uses it --------------------------------
cat >gather.pp <<'PP'
use nn;
use optim;
use schedules;
module picks() {
  first: linear(4, 4);
  table: embedding(5, 4);
  fn (x: [b, 4], rows: i32[b, 4]) {
    let y = first(x);
    stage_end;
    return mean((y + sum(table(rows), axis = 1)) * y);
  }
}
train {
  model     net = picks();
  batch     microbatch = 1, microbatches = 4;
  data      x = synthetic(4);
  data      r = i32_file("rows", 4);
  loss      net(x, r + 0);
  ranks     2;
  schedule  one_f_one_b;
  optimizer sgd(lr = constant(0.1));
  steps     3;
}
PP
python3 -c 'from array import array; array("i", [0, 1, 2, 3, 4, 4, 4, 4, 0, 0, 7, 0]).tofile(open("rows", "wb"))'
status=0
$ppc run gather.pp >out 2>err || status=$?
case $status in
1) grep -q 'rows: token 10 is 7, outside the vocabulary of 5' err || fail "the file, place and value are to be named" ;;
4) grep -q 'nn.pp:[0-9]*: index 7 .* outside 0 … 4, in step 1, stage_1_fwd, stage 1, microbatch 2' err || fail "stage and microbatch are to be named" ;;
*) fail "status $status for an index outside its table" ;;
esac
sed -i 's/r + 0)/r * 1 + x_zero(x))/' gather.pp
sed -i 's/^module picks/fn x_zero(x) { return cast(x * 0.0, i32); }\nmodule picks/' gather.pp
refused 4 'index 7 at place 2 is outside 0 … 4, in step 1, stage_1_fwd, stage 1, microbatch 2' $ppc run gather.pp
