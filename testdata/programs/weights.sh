. "$(dirname "$0")/lib.sh"
gpt2=("$ppc" run "$models/gpt2.pp" -D layers=4 -D width=32 -D length=16)

# --- the initial state depends on the seed and the names alone ---------------------------------------------
must "${gpt2[@]}" -D stages=4 --ranks=1 --steps=0 --save=start.st
for cut in "1 1" "2 2" "4 2" "4 4"; do
  set -- $cut
  must "${gpt2[@]}" -D stages=$1 --ranks=$2 --steps=0 --save=other.st
  cmp start.st other.st || fail "other initial values with $1 stages on $2 ranks"
done
must "${gpt2[@]}" -D stages=4 --ranks=2 --steps=0 --seed=2 --save=seed.st
! cmp -s start.st seed.st || fail "the seed changes nothing"
must "${gpt2[@]}" -D stages=4 -D layers=5 --ranks=1 --steps=0 --save=five.st
python3 - <<'PY' || fail "$(cat said)"
import json, struct, sys
sys.stdout = open("said", "w")
def read(path):
    b = open(path, "rb").read()
    n, = struct.unpack("<Q", b[:8])
    head = json.loads(b[8:8 + n])
    return {k: b[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]] for k, t in head.items() if k != "__metadata__"}
a, five = read("start.st"), read("five.st")
w = [v for k, v in a.items() if k.endswith("attn.c_attn.weight")]
assert len(w) == 4 and len(set(w)) == 4, "two blocks of one shape start alike"
assert all(five[k] == v for k, v in a.items()), "a block more changes the others"
assert len([k for k in a if k == "wte.weight"]) == 1
PY

# --- what was saved is what is read --------------------------------------------------------------------------
must "${gpt2[@]}" -D stages=4 --ranks=2 --steps=3 --json --save=three.st && cp out three.json
must "${gpt2[@]}" -D stages=4 --ranks=2 --steps=3 --json --init=start.st && same out three.json
must "${gpt2[@]}" -D stages=4 --ranks=4 --steps=3 --json --init=start.st --save=three_4.st && same out three.json
cmp three.st three_4.st || fail "4 ranks save another file"
must "${gpt2[@]}" -D stages=4 --ranks=4 --steps=0 --init=three.st --save=again.st
cmp three.st again.st || fail "read and saved again, the file is another"
must "${gpt2[@]}" -D stages=4 --ranks=1 --steps=2 --json --init=three.st && cp out one.json
must "${gpt2[@]}" -D stages=4 --ranks=4 --steps=2 --json --init=three.st && same out one.json

# --- refused, before step 1, by one line ------------------------------------------------------------------------
python3 - <<'PY'
import json, struct
b = open("start.st", "rb").read()
n, = struct.unpack("<Q", b[:8])
head, body = json.loads(b[8:8 + n]), b[8 + n:]
def write(name, change=None, raw=None, data=body, length=None):
    h = json.loads(json.dumps(head))
    if change: change(h)
    text = raw if raw is not None else json.dumps(h).encode()
    open(name, "wb").write(struct.pack("<Q", len(text) if length is None else length) + text + data)
W = "h.1.attn.c_attn.weight"
def shape(h): h[W]["shape"].reverse()
def begin(h): h[W]["data_offsets"].reverse()
def beyond(h): h[W]["data_offsets"] = [len(body), len(body) + 12288]
def size(h): h[W]["shape"] = [32, 95]
def overflow(h): h[W]["shape"] = [2 ** 32, 2 ** 32, 96]
def integer(h): h[W]["dtype"] = "I32"
def gone(h): del h[W]
def wide(h): h["wpe.weight"]["shape"] = [32, 16]
def more(h): h["h.0.attn.bias"] = {"dtype": "F32", "shape": [0], "data_offsets": [len(body), len(body)]}
for f in (shape, begin, beyond, size, overflow, integer, wide, more): write(f.__name__ + ".st", f)
# without W the body has a gap, so close it

lo, hi = head[W]["data_offsets"]
h2 = json.loads(json.dumps(head)); del h2[W]
for t in h2.values():
    if "data_offsets" in t and t["data_offsets"][0] >= hi: t["data_offsets"] = [x - (hi - lo) for x in t["data_offsets"]]
text = json.dumps(h2).encode()
open("gone.st", "wb").write(struct.pack("<Q", len(text)) + text + body[:lo] + body[hi:])
write("long.st", length=2 ** 63)
write("short.st", data=body[:-100])
write("depth.st", raw=b"[" * 100000)
write("twice.st", raw=json.dumps(head).encode()[:-1] + b', "' + W.encode() + b'": ' + json.dumps(head[W]).encode() + b"}")
open("pickle.st", "wb").write(b"\x80\x02}q\x00(X\x05\x00\x00\x00" + bytes(100))
open("tiny.st", "wb").write(b"abc")
PY
W=h.1.attn.c_attn.weight
no_start() { # PATTERN FILE
  refused 1 "$1" "${gpt2[@]}" -D stages=4 --ranks=2 --steps=1 --init=$2
  [ ! -s out ] && [ $(grep -c . err) = 1 ] || fail "$2: one line and no step expected"
  ! grep -qi 'killed\|crashed' err || fail "$2: a crash"
}
no_start "shape.st: $W is \[96, 32\] in the file and \[32, 96\] in the model; transposed\?" shape.st
no_start "begin.st: .*$W" begin.st
no_start "beyond.st: .*$W" beyond.st
no_start "size.st: .*$W" size.st
no_start "overflow.st: .*$W" overflow.st
no_start "integer.st: $W has elements of type I32" integer.st
no_start "gone.st: 1 of [0-9]* parameters are missing: $W" gone.st
no_start "wpe.weight is \[32, 16\] in the file and \[16, 32\] in the model" wide.st
no_start "twice.st: .*duplicate" twice.st
no_start long.st long.st
no_start short.st short.st
no_start depth.st depth.st
no_start pickle.st pickle.st
no_start tiny.st tiny.st
no_start 'nothing.st: No such file' nothing.st
must "${gpt2[@]}" -D stages=4 --ranks=2 --steps=1 --init=more.st
grep -q 'warning: more.st: 1 tensors are not in the model and not read: h.0.attn.bias' err || fail "what is not read is to be told"
