// Tests of arenas, vectors, strings, maps and diagnostics.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "compiler/base/diag.h"
#include "compiler/base/map.h"
#include "compiler/base/sort.h"
#include "compiler/base/str.h"
#include "compiler/base/test.h"
#include "compiler/base/vec.h"

static void arena_gives_zeroed_aligned_memory(void) {
  Arena *arena = arena_create();
  for (size_t size = 0; size < 200000; size = size * 2 + 1) {
    unsigned char *p = arena_alloc(arena, size);
    CHECK((uintptr_t)p % 16 == 0);
    for (size_t i = 0; i < size; i++)
      if (p[i] != 0) CHECK(!"zeroed");
    memset(p, 0xff, size);
  }
  arena_reset(arena);
  CHECK(arena_used_bytes(arena) == 0);
  unsigned char *again = arena_alloc(arena, 1000);
  CHECK(again[0] == 0 && again[999] == 0);
  CHECK_TEXT(arena_printf(arena, "%d-%s", 7, "x"), "7-x");
  CHECK_TEXT(arena_strndup(arena, "hello", 2), "he");
  arena_destroy(arena);
  arena_destroy(NULL);
}

static void vec_grows(void) {
  Arena *arena = arena_create();
  VEC(int) v = {0};
  for (int i = 0; i < 1000; i++) VEC_PUSH(arena, &v, i * i);
  CHECK(v.n == 1000 && v.at[999] == 999 * 999 && v.at[0] == 0);
  CHECK(VEC_POP(&v) == 999 * 999 && VEC_LAST(&v) == 998 * 998);
  arena_destroy(arena);
}

static void str_appends(void) {
  Str s = {0};
  CHECK_TEXT(str_text(&s), "");
  str_puts(&s, "ab");
  str_putc(&s, 'c');
  str_printf(&s, "%05d", 42);
  str_pad(&s, '.', 3);
  CHECK_TEXT(str_text(&s), "abc00042...");
  for (int i = 0; i < 1000; i++) str_printf(&s, "%d", i % 10);
  CHECK(s.length == 1011);
  str_truncate(&s, 3);
  CHECK_TEXT(str_text(&s), "abc");
  str_clear(&s);
  str_put_grouped(&s, 999, 0);
  str_put_grouped(&s, 1234567, 11);
  str_put_grouped(&s, -100000, 9);
  str_put_grouped(&s, INT64_MIN, 0);
  CHECK_TEXT(str_text(&s), "999  1,234,567 -100,000-9,223,372,036,854,775,808");
  str_free(&s);
  CHECK(str_starts_with("gpt2.pp", "gpt") && str_ends_with("gpt2.pp", ".pp"));
  CHECK(!str_ends_with("p", ".pp"));
}

static void str_measures_edits(void) {
  CHECK(str_edit_distance("width", "width", 3) == 0);
  CHECK(str_edit_distance("lenght", "length", 3) == 1);
  CHECK(str_edit_distance("kitten", "sitting", 5) == 3);
  CHECK(str_edit_distance("a", "abcdef", 2) == 3);
  StrGuess guess = str_guess_start("microbatchs");
  str_guess_try(&guess, "microbatch");
  str_guess_try(&guess, "microbatches");
  CHECK_TEXT(guess.best, "microbatch");
  guess = str_guess_start("q");
  str_guess_try(&guess, "r");
  CHECK(guess.best == NULL);
}

static void str_formats_doubles(void) {
  const double values[] = {0.1, 1.0 / 3, 1e-3, 1e300, 5e-324, 3, -0.0, 1e22};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    char text[32];
    double back = 1;
    str_format_double(values[i], text);
    CHECK(str_to_double(text, &back) && back == values[i]);
    CHECK(signbit(back) == signbit(values[i]));
  }
  char text[32];
  str_format_double(3, text);
  CHECK_TEXT(text, "3.0");
  double value;
  CHECK(!str_to_double("1e999", &value) && !str_to_double("1x", &value));
}

static void map_keeps_order(void) {
  Arena *arena = arena_create();
  Map map = {0};
  CHECK(map_get(&map, "a") == NULL);
  static int values[500];
  for (int i = 0; i < 500; i++)
    map_put(arena, &map, arena_printf(arena, "k%d", i), &values[i]);
  CHECK(map.n == 500);
  for (int i = 0; i < 500; i++) {
    CHECK(map_get(&map, arena_printf(arena, "k%d", i)) == &values[i]);
    CHECK(map.entries[i].value == &values[i]);
  }
  CHECK(map_put(arena, &map, "k7", &values[8]) == &values[7]);
  CHECK(map.n == 500 && map_get(&map, "k7") == &values[8]);
  PtrMap pointers = {0};
  for (int i = 0; i < 500; i++)
    ptrmap_put(arena, &pointers, &values[i], &values[499 - i]);
  for (int i = 0; i < 500; i++)
    CHECK(ptrmap_get(&pointers, &values[i]) == &values[499 - i]);
  CHECK(ptrmap_find(&pointers, &map) == NULL);
  arena_destroy(arena);
}

static const char *flushed(Diag *diag, Str *text) {
  str_clear(text);
  diag_flush_to(diag, text);
  return str_text(text);
}

static void diag_prints_carets(void) {
  Diag *diag = diag_create();
  Str text = {0};
  int file = diag_add_source(diag, "m.pp", "let a = 1;\n\tlet b = c;\n");
  diag_error(diag, (Loc){file, 2, 10}, "unknown name '%s'", "c");
  diag_note(diag, (Loc){file, 1, 5}, "did you mean '%s'?", "a");
  diag_warning(diag, (Loc){0}, "no place");
  CHECK_TEXT(flushed(diag, &text),
             "m.pp:2:10: error: unknown name 'c'\n"
             "          let b = c;\n"
             "                  ^\n"
             "m.pp:1:5: note: did you mean 'a'?\n"
             "  let a = 1;\n"
             "      ^\n"
             "ppc: warning: no place\n");
  CHECK_TEXT(flushed(diag, &text), "");
  CHECK(diag_error_count(diag) == 1 && diag_warning_count(diag) == 1);
  CHECK_TEXT(diag_loc_name(diag, (Loc){file, 12, 1}), "m.pp:12");
  str_free(&text);
  diag_destroy(diag);
}

static void diag_shortens_long_lines(void) {
  Diag *diag = diag_create();
  Str line = {0}, text = {0};
  str_pad(&line, 'x', 5000);
  int file = diag_add_source(diag, "m.pp", str_text(&line));
  diag_error(diag, (Loc){file, 1, 3000}, "here");
  diag_error(diag, (Loc){file, 1, 9999}, "beyond the end");
  flushed(diag, &text);
  CHECK(text.length < 600);
  str_free(&line);
  str_free(&text);
  diag_destroy(diag);
}

typedef struct {
  int32_t second;
  int64_t key;
} Pair;

static int by_key_and_second(const void *px, const void *py) {
  const Pair *x = px, *y = py;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return x->second - y->second;
}

// Against qsort: close keys, far ones, equal ones, and none to sort.
static void sort_by_key_sorts(void) {
  uint64_t state = 1;
  for (int round = 0; round < 300; round++) {
    Pair a[100], b[100];
    int n = round % 100;
    uint64_t range = round % 3 == 0 ? 5 : round % 3 == 1 ? 1200 : UINT64_MAX >> 2;
    for (int i = 0; i < n; i++) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      a[i] = (Pair){(int32_t)(state >> 40), (int64_t)((state >> 1) % range) - 3};
      if (round % 7 == 0) a[i].key = i; // sorted already
      b[i] = a[i];
    }
    sort_by_key(a, (size_t)n, sizeof *a, offsetof(Pair, key), by_key_and_second);
    qsort(b, (size_t)n, sizeof *b, by_key_and_second);
    for (int i = 0; i < n; i++) CHECK(a[i].key == b[i].key && a[i].second == b[i].second);
  }
  Pair far[] = {{0, INT64_MAX}, {0, INT64_MIN}, {1, 0}, {0, 0}};
  sort_by_key(far, 4, sizeof *far, offsetof(Pair, key), by_key_and_second);
  CHECK(far[0].key == INT64_MIN && far[1].second == 0 && far[2].second == 1 && far[3].key == INT64_MAX);
}

static void diag_stops_after_20(void) {
  Diag *diag = diag_create();
  Str text = {0};
  for (int i = 0; i < 30; i++) {
    diag_error(diag, (Loc){0}, "error %d", i);
    diag_note(diag, (Loc){0}, "note %d", i);
  }
  CHECK(diag_is_full(diag) && diag_error_count(diag) == 30);
  flushed(diag, &text);
  CHECK(strstr(str_text(&text), "note 19") != NULL);
  CHECK(strstr(str_text(&text), "20") == NULL);
  CHECK(strstr(str_text(&text), "too many errors") != NULL);
  diag_start_phase(diag);
  diag_error(diag, (Loc){0}, "again");
  CHECK_TEXT(flushed(diag, &text), "ppc: error: again\n");
  str_free(&text);
  diag_destroy(diag);
}

int main(void) {
  TEST(arena_gives_zeroed_aligned_memory);
  TEST(vec_grows);
  TEST(str_appends);
  TEST(str_measures_edits);
  TEST(str_formats_doubles);
  TEST(map_keeps_order);
  TEST(sort_by_key_sorts);
  TEST(diag_prints_carets);
  TEST(diag_shortens_long_lines);
  TEST(diag_stops_after_20);
  return test_end();
}
