. "$(dirname "$0")/lib.sh"
must $ppc dump --irdl && cp out irdl.mlir
for m in mlp gpt2 llama skip encdec parity_gpt2 parity_llama; do
  for pass in elaborate simplify autodiff stages epilogues split schedule transfers fuse memory progress; do
    must $ppc dump $models/$m.pp --ranks=2 --after=$pass
    [ -s out ] || fail "$m after $pass: nothing"
    cp out $m.mlir
    must mlir-opt-19 --irdl-file=irdl.mlir $m.mlir
  done
  must $ppc dump $models/$m.pp --ranks=2 --after=split --stage=1 --pretty
  grep -q '# [a-z0-9_]*\.pp:[0-9]' out || fail "$m: no file and line"
  must $ppc dump $models/$m.pp --ranks=2 --rank=0 --pretty
  [ -s out ] || fail "$m: nothing of rank 0"
done
for f in $models/*.pp $root/dsl/lib/*.pp $root/testdata/programs/*.pp; do
  must $ppc fmt $f && cp out once.pp
  must $ppc fmt once.pp && cmp out once.pp || fail "fmt is not idempotent on $f"
done
