. "$(dirname "$0")/lib.sh"
gpt2=("$ppc" run "$models/gpt2.pp" "${tiny[@]}")
must "${gpt2[@]}" --ranks=2 --steps=5 --quiet --save=w.st
text() { # FILE options…
  local file=$1
  shift
  must "${gpt2[@]}" --ranks=1 --init=w.st "$@"
  cp out $file
}
for n in 1 100; do
  text some --generate=$n --seed=3
  [ $(stat -c %s some) = $n ] || fail "--generate=$n printed $(stat -c %s some) bytes"
done
text again --generate=100 --seed=3 && cmp some again || fail "one seed, two texts"
text other --generate=100 --seed=4 && ! cmp -s some other || fail "two seeds, one text"
text cold --generate=40 --temperature=0 --seed=3
text colder --generate=40 --temperature=0 --seed=4 && cmp cold colder || fail "temperature 0 depends on the seed"
text top --generate=40 --top-k=1 --seed=5 && cmp cold top || fail "the likeliest of one is the likeliest"
# More than a context, with a prompt that is longer than one.
text long --generate=60 --seed=3 --prompt='In the beginning God created the heaven and the earth.'
[ $(stat -c %s long) = 60 ] || fail "after a prompt: $(stat -c %s long) bytes"
text two --generate=40 --temperature=0 --ranks=2 && cmp cold two || fail "2 ranks generate another text"
refused 2 'generate' "${gpt2[@]}" --generate=x
refused 2 'generate=0: expected a number' "${gpt2[@]}" --generate=0
refused 1 'nothing.st' "${gpt2[@]}" --ranks=1 --generate=5 --init=nothing.st

# More tokens than bytes: numbers.
must "${gpt2[@]}" -D vocab=300 --ranks=1 --generate=12 --seed=3 --prompt='7 299 0'
[ $(wc -w <out) = 12 ] && ! grep -q '[^0-9 ]' out || fail "12 numbers expected"
for t in $(cat out); do [ $t -lt 300 ] || fail "token $t"; done
refused 1 '300' "${gpt2[@]}" -D vocab=300 --ranks=1 --generate=12 --prompt='7 300'
refused 1 '' "${gpt2[@]}" -D vocab=300 --ranks=1 --generate=12 --prompt='abc'
