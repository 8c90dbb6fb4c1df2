# Pictures as files: what they hold, what is refused, and that nothing is half written.
. "$(dirname "$0")/../programs/lib.sh"
here=$root/testdata/simulate
simulate() { must $ppc simulate "$@"; }

simulate --schedule=gpipe --ranks=3 --microbatches=4 --svg=a.svg --html=a.html
must python3 $here/svg.py a.svg 24 16
simulate --schedule=zb_h1 --ranks=8 --microbatches=24 --svg=a.svg
must python3 $here/svg.py a.svg 576 336
simulate --schedule='interleaved_1f1b(2)' --ranks=2 --microbatches=4 --cost F=1,B=2,transfer=0.1 --svg=a.svg
must python3 $here/svg.py a.svg 32 24
simulate --schedule=dualpipe_v --ranks=4 --microbatches=8 --cost pair=1.5 --svg=a.svg
must python3 $here/svg.py a.svg - 96
# Thousands of boxes: no titles; what is narrower than a pixel is merged.
simulate --schedule='interleaved_zero_bubble(4)' --ranks=16 --microbatches=256 --svg=a.svg --html=a.html
must python3 $here/svg.py a.svg - 0 2500000
[ "$(stat -c %s a.html)" -lt 3000000 ] || fail "the page has $(stat -c %s a.html) bytes"
! grep -qE '(src|href)=|url\(|https?:|import' a.html || fail "the page names something outside"
# The same picture each time.
simulate --schedule=zb_v --ranks=2 --microbatches=4 --svg=1.svg --html=1.html
simulate --schedule=zb_v --ranks=2 --microbatches=4 --svg=2.svg --html=2.html
cmp 1.svg 2.svg && cmp 1.html 2.html || fail "two pictures of one schedule"

# --- a model, predicted and measured ------------------------------------------------------------------------
mlp=($models/mlp.pp --ranks=2)
must $ppc run "${mlp[@]}" --steps=4 --quiet --trace=t.json
simulate "${mlp[@]}" --trace=t.json --svg=b.svg --html=b.html
must python3 $here/svg.py b.svg - "$(grep -o 'class="a"' b.svg | wc -l)"
grep -q 'predicted: step' b.svg && grep -q 'measured: step' b.svg || fail "not both in b.svg"
grep -q '<h1>A step, predicted and measured</h1>' b.html || fail "not both in b.html"

# A sender's clock that is a second ahead: a warning, once for the file that gives the costs and is drawn too.
sed -E '/"ph":"b"/s/"ts":([0-9]+)/"ts":1\1\1/' t.json >skew.json
must $ppc simulate "${mlp[@]}" --costs=skew.json --trace=skew.json --svg=c.svg
[ "$(grep -cE 'warning: skew.json: the clocks of the ranks differ by [0-9.e+]+ µs or more: [0-9]+ transfers end before they begin' err)" -eq 1 ] ||
  fail "no warning of the clocks: $(cat err)"
must $ppc simulate "${mlp[@]}" --trace=skew.json --svg=c.svg
grep -q 'the clocks of the ranks differ' err || fail "no warning of the clocks of what is drawn"

# --- refused ----------------------------------------------------------------------------------------------------
same=(--svg=old.svg)
echo old >old.svg
mkdir there
whole() { [ "$(cat old.svg)" = old ] && [ -z "$(ls | grep tmp)" ] && ! [ -s out ] || fail "something was written"; }
bare=(simulate --schedule=gpipe --ranks=2 --microbatches=2)
refused 1 "cannot read 'none.json': No such file" $ppc "${bare[@]}" "${same[@]}" --trace=none.json && whole
refused 1 't.json: a trace of [0-9]+ microbatches; simulated are 2' $ppc "${bare[@]}" "${same[@]}" --trace=t.json && whole
refused 1 't.json: a trace of 2 ranks; simulated are 1' $ppc simulate $models/mlp.pp --ranks=1 "${same[@]}" --trace=t.json && whole
head -c 3000 t.json >cut.json
refused 1 'cut.json: line [0-9]+: .*: no JSON' $ppc simulate "${mlp[@]}" "${same[@]}" --trace=cut.json && whole
echo '{"traceEvents":[]}' >other.json
refused 1 'other.json: not written by a program of ppc' $ppc simulate "${mlp[@]}" "${same[@]}" --trace=other.json && whole
refused 1 "cannot write 'nowhere/a.svg': No such file" $ppc "${bare[@]}" --svg=nowhere/a.svg && whole
refused 1 "cannot write 'nowhere/a.html': No such file" $ppc "${bare[@]}" "${same[@]}" --html=nowhere/a.html && whole
refused 1 "cannot write 'there': not a plain file" $ppc "${bare[@]}" "${same[@]}" --html=there && whole
refused 2 '--svg and --html name one file: a' $ppc "${bare[@]}" --svg=a --html=a
refused 2 '--trace draws nothing without --svg or --html' $ppc simulate "${mlp[@]}" --trace=t.json
# Never in the place of an input, of each other, or of what is no plain file; both or none.
echo 0F0,0B0 >t.csv
cp $models/mlp.pp m.pp
cp t.json u.json
ln -s t.csv link
ln -s old.svg link2
refused 1 '--html=t.csv: this file is read' $ppc simulate --schedule=t.csv --html=t.csv
refused 1 '--svg=link: this file is read' $ppc simulate --schedule=t.csv --svg=link --html=new.html
refused 1 '--svg=./m.pp: this file is read' $ppc simulate m.pp --svg=./m.pp
refused 1 '--svg=u.json: this file is read' $ppc simulate "${mlp[@]}" --trace=u.json --svg=u.json
refused 1 '--svg=u.json: this file is read' $ppc simulate "${mlp[@]}" --costs=u.json --svg=u.json
refused 1 "--svg and --html name one file, 'link2'" $ppc "${bare[@]}" --svg=old.svg --html=link2
refused 1 "cannot write 'nowhere/a.html': No such file" $ppc "${bare[@]}" --svg=new.svg --html=nowhere/a.html
mkfifo pipe
refused 1 "cannot write 'pipe': not a plain file" $ppc "${bare[@]}" --svg=new.svg --html=pipe
[ -p pipe ] && [ ! -e new.svg ] && [ ! -e new.html ] && [ -z "$(ls | grep tmp)" ] || fail "something was written"
[ "$(cat t.csv)" = 0F0,0B0 ] && cmp m.pp $models/mlp.pp && cmp t.json u.json || fail "an input was written over"
