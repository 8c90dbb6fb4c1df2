# bf16.sh STEPS: a GPT trains under bf16 to within 1 % of the f32 loss; its dumps are MLIR.
. "$(dirname "$0")/lib.sh"
steps=$1
for p in f32 bf16; do
  must $ppc run $models/gpt2.pp -D layers=4 -D width=64 -D length=32 -D stages=4 --ranks=2 --steps=$steps --precision=$p --json
  cp out $p.json
done
cat >compare.py <<'END'
import json, sys
losses = [[json.loads(line)["loss"] for line in open(f) if '"loss"' in line and '"step"' in line] for f in ("f32.json", "bf16.json")]
first, last = losses[0][0], [sum(x[-8:]) / 8 for x in losses]
assert len(losses[0]) == len(losses[1]) >= 40
assert losses[0] != losses[1], "nothing was rounded"
assert last[0] < 0.95 * first, f"nothing was learnt: {first} to {last[0]}"
assert abs(last[1] - last[0]) <= 0.01 * last[0], f"f32 {last[0]}, bf16 {last[1]}"
print(f"mean loss of the last 8 steps: f32 {last[0]:.5f}, bf16 {last[1]:.5f}")
END
must python3 compare.py
must $ppc dump --irdl && cp out irdl.mlir
for pass in elaborate autodiff stages split fuse memory; do
  must $ppc dump $models/gpt2.pp --ranks=2 --precision=bf16 --after=$pass --verify
  grep -q bf16 out || fail "no bf16 after $pass"
  cp out dump.mlir
  must mlir-opt-19 --irdl-file=irdl.mlir dump.mlir
done
