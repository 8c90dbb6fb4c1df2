// Fuzzes scanner, parser, resolver and printer with mutated programs.
//
//   fuzz_parse RUNS [SEED [FILE…]]
//
// Each run takes a seed text (a FILE or one of the embedded library), changes
// it a few times by bytes or by words, and loads it. What still parses must
// print to a text that parses to the same tree and prints the same again.
// Deterministic; meant to be built with -fsanitize=address,undefined.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dsl/load.h"

typedef struct {
  const char *text;
  size_t length;
} Seed;

typedef VEC(Seed) Seeds;

static uint64_t random_state;

static uint32_t random_below(uint32_t n) {
  // splitmix64
  uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return n ? (uint32_t)((z ^ (z >> 31)) % n) : 0;
}

// Words of the grammar, and bits that are wrong by themselves.
static const char *const words[] = {
    "let", "fn", "(", ")", "{", "}", "[", "]", ";", ",", "..", "=", "==", "<",
    "+", "-", "*", "/", "@", "?", ":", ".", "not", "and", "or", "if", "else",
    "for", "i", "in", "0", "1.5", "1e9", "\"text\"", "\"", "// note\n",
    "/* note */", "/*", "\n", "\n\n", "return", "param", "state", "output",
    "rank", "overlap", "train", "schedule", "derivative (y, dy) { return dy; }",
    "fn (x) { return x; }", "{ }", "{ /* a */ }", "module m(a) { }",
    "x[.., 0..n]", "else if a { b(); }", "9223372036854775808", "1e999", "\t",
    "\x80", "while", "break;", "f(a, b = 1);", "infinity", "true",
};
enum { N_WORDS = sizeof words / sizeof *words };

static bool is_word_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_';
}

// The place of a random word, sign or blank of the text.
static void pick_token(const Str *text, size_t *out_start, size_t *out_end) {
  size_t start = random_below((uint32_t)text->length);
  while (start > 0 && is_word_byte(text->text[start]) &&
         is_word_byte(text->text[start - 1]))
    start--;
  size_t end = start + 1;
  while (end < text->length && is_word_byte(text->text[start]) &&
         is_word_byte(text->text[end]))
    end++;
  *out_start = start;
  *out_end = end;
}

// text[start, end) becomes `with`.
static void splice(Str *text, size_t start, size_t end, const char *with,
                   size_t length) {
  Str result = {0};
  str_append(&result, text->text, start);
  str_append(&result, with, length);
  str_append(&result, text->text + end, text->length - end);
  str_free(text);
  *text = result;
}

static void mutate(Str *text) {
  if (text->length == 0) str_putc(text, ';');
  size_t start, end, other_start, other_end;
  pick_token(text, &start, &end);
  pick_token(text, &other_start, &other_end);
  const char *word = words[random_below(N_WORDS)];
  char byte = (char)random_below(256);
  char copy[64];
  size_t length = other_end - other_start;
  if (length > sizeof copy) length = sizeof copy;
  memcpy(copy, text->text + other_start, length);
  switch (random_below(8)) {
    case 0:
      splice(text, start, end, "", 0);
      break;
    case 1:
      splice(text, start, end, word, strlen(word));
      break;
    case 2:
    case 3:
      splice(text, start, start, word, strlen(word));
      break;
    case 4:
      splice(text, start, end, copy, length);
      break;
    case 5:
      splice(text, start, start, copy, length);
      break;
    case 6:
      splice(text, start, start + 1, &byte, 1);
      break;
    default:
      if (start > other_start && start - other_start < 400)
        splice(text, other_start, start, "", 0);
      break;
  }
}

// Nested or long inputs that no mutation finds.
static void make_deep(Str *text) {
  static const char *const parts[] = {"(", "-", "[", "f(", "not ", "a + ",
                                      "a ? ", "x[", "fn () { return "};
  int n = 1 << random_below(16);
  const char *part = parts[random_below(sizeof parts / sizeof *parts)];
  str_puts(text, "const a = ");
  for (int i = 0; i < n; i++) str_puts(text, part);
  str_puts(text, "1;");
}

static void make_deep_blocks(Str *text) {
  int n = 1 << random_below(14);
  const char *part = random_below(2) ? "if a {" : "if a { } else ";
  str_puts(text, "fn f(a) {");
  for (int i = 0; i < n; i++) str_puts(text, part);
  for (int i = 0; i < n + 1; i++) str_puts(text, "}");
}

static AstFile *parse_text(Arena *arena, Diag *diag, const Str *text) {
  int source =
      diag_add_source_bytes(diag, "fuzz.pp", str_text(text), text->length);
  return dsl_parse(arena, diag, source);
}

static void fail(const char *what, const Str *text, const Str *printed) {
  fprintf(stderr, "FAIL %s\n--- input\n%s\n--- printed\n%s\n", what,
          str_text(text), str_text(printed));
  exit(1);
}

static void check_print(Arena *arena, Diag *diag, const AstFile *file,
                        const Str *text) {
  Str printed = {0}, again = {0}, dump = {0}, dump_again = {0};
  dsl_print(file, &printed);
  dsl_dump(file, &dump);
  const AstFile *reread = parse_text(arena, diag, &printed);
  if (!reread) fail("the printed text has errors", text, &printed);
  dsl_dump(reread, &dump_again);
  if (strcmp(str_text(&dump), str_text(&dump_again)) != 0)
    fail("the printed text is another program", text, &printed);
  if (file->comments.n > reread->comments.n)
    fail("a comment was lost", text, &printed);
  dsl_print(reread, &again);
  if (strcmp(str_text(&printed), str_text(&again)) != 0)
    fail(str_text(&again), text, &printed);
  str_free(&printed);
  str_free(&again);
  str_free(&dump);
  str_free(&dump_again);
}

// True when the text parses.
static bool try_text(Arena *arena, const Str *text) {
  arena_reset(arena);
  Diag *diag = diag_create();
  const AstFile *file = parse_text(arena, diag, text);
  if (file) {
    check_print(arena, diag, file, text);
    dsl_load_text(arena, diag, "fuzz.pp", str_text(text));
  } else if (diag_error_count(diag) == 0) {
    fail("no tree and no error", text, text);
  }
  Str messages = {0};
  diag_flush_to(diag, &messages);
  str_free(&messages);
  diag_destroy(diag);
  return file != NULL;
}

static void read_seed(Arena *arena, Seeds *seeds, const char *path) {
  FILE *stream = fopen(path, "rb");
  if (!stream) {
    perror(path);
    exit(2);
  }
  enum { MAX = 1 << 20 };
  char *text = arena_alloc(arena, MAX);
  size_t length = fread(text, 1, MAX, stream);
  fclose(stream);
  VEC_PUSH(arena, seeds, (Seed){text, length});
}

static void make_input(const Seeds *seeds, Str *text) {
  uint32_t kind = random_below(100);
  if (kind == 0) {
    make_deep(text);
  } else if (kind == 1) {
    make_deep_blocks(text);
  } else {
    const Seed *seed = &seeds->at[random_below((uint32_t)seeds->n)];
    str_append(text, seed->text, seed->length);
    uint32_t n = random_below(4);
    for (uint32_t i = 0; i < n; i++) mutate(text);
  }
}

int main(int argc, char **argv) {
  long runs = argc > 1 ? strtol(argv[1], NULL, 10) : 1000;
  random_state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  Arena *perm = arena_create(), *arena = arena_create();
  Seeds seeds = {0};
  for (int i = 0; i < dsl_library_count; i++) {
    const char *text = dsl_library[i].text;
    VEC_PUSH(perm, &seeds, (Seed){text, strlen(text)});
  }
  for (int i = 3; i < argc; i++) read_seed(perm, &seeds, argv[i]);
  long valid = 0;
  for (long run = 0; run < runs; run++) {
    Str text = {0};
    make_input(&seeds, &text);
    valid += try_text(arena, &text);
    str_free(&text);
  }
  printf("ok %ld runs, %ld of them parsed\n", runs, valid);
  arena_destroy(arena);
  arena_destroy(perm);
  return 0;
}
