# A cut moved: the same masks and bits (docs/programs.md, "Same bits"). Field case: pytorch#55036.
. "$(dirname "$0")/lib.sh"
model() { $ppc run "$@" -D layers=4 -D width=32 -D length=16 -D rate=0.5 --microbatches=4 --steps=4 --json; }
compare() { python3 $root/testdata/compare.py same "$@" >out 2>err || fail "$*"; }

# The tied head and table lie in different stages in both.
must model $models/gpt2.pp -D stages=2 --ranks=2 && cp out tied_2.json
must model $models/gpt2.pp -D stages=4 --ranks=4 --schedule=gpipe && cp out tied_4.json
compare tied_2.json tied_4.json

# With a head of its own any cut will do.
cp $models/corpus.txt .
sed 's/ln_f: layer_norm(d);/& head: embedding(vocab, d, std = 0.02);/; s/transpose(wte.weight)/transpose(head.weight)/' $models/gpt2.pp >own.pp
must model own.pp -D stages=1 --ranks=1 && cp out own_1.json
must model own.pp -D stages=2 --ranks=2 && cp out own_2.json
must model own.pp -D stages=4 --ranks=4 && cp out own_4.json
must model own.pp -D stages=4 --ranks=2 --schedule=interleaved_1f1b && cp out own_4_2.json
compare own_1.json own_2.json own_4.json own_4_2.json

# The masks are those of the seed and the step, and are there at all.
must model own.pp -D stages=1 --ranks=1 --seed=8 && ! cmp -s out own_1.json || fail "the seed changes nothing"
must $ppc run own.pp -D layers=4 -D width=32 -D length=16 -D stages=1 --ranks=1 --microbatches=4 --steps=4 --json
[ "$(hashes out)" != "$(hashes own_1.json)" ] || fail "no dropout"
