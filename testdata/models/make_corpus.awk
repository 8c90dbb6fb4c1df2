# Prints the text that gpt2.pp learns: sentences from a small grammar, the same on every machine.
#   awk -f make_corpus.awk > corpus.txt
function pick(list,   n, words) {
  n = split(list, words, "|")
  seed = (seed * 1103515245 + 12345) % 2147483648
  return words[int(seed / 65536) % n + 1]
}
function thing() {
  return pick("the|a|every|one|this") " " pick("old|small|quiet|bright|green|heavy|lost") " " \
         pick("boat|garden|letter|river|teacher|window|clock|bird|bridge|lamp")
}
BEGIN {
  seed = 42
  for (i = 0; i < 1000; i++) {
    line = thing() " " pick("sees|finds|follows|leaves|keeps|waits for|looks like") " " thing()
    if (pick("a|b|c") == "a") line = line " " pick("and|but|while") " " thing() " " \
      pick("sleeps|sings|falls|turns|comes home|shines")
    print toupper(substr(line, 1, 1)) substr(line, 2) "."
  }
}
