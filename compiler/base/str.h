// A growing string buffer, and small helpers on strings.
//
// A Str owns heap memory (emitted text can be long, and an arena would keep
// every old copy): str_free it. `{0}` is an empty, valid Str. `text` is NULL
// until the first append; str_text() never is.
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  char *text;  // NUL-terminated once anything was appended
  size_t length;
  size_t capacity;
} Str;

void str_putc(Str *str, char c);
void str_puts(Str *str, const char *text);
void str_append(Str *str, const char *text, size_t length);
void str_printf(Str *str, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void str_vprintf(Str *str, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

// 1234567 as 1,234,567, right-aligned to `width`.
void str_put_grouped(Str *str, int64_t number, int width);

// `count` copies of c.
void str_pad(Str *str, char c, int count);

// The text so far, "" when empty; valid until the next append.
const char *str_text(const Str *str);

// Keeps the memory.
void str_clear(Str *str);

void str_free(Str *str);

// Shortens to `length` bytes; does nothing when it is shorter already.
void str_truncate(Str *str, size_t length);

// FNV-1a over the bytes, 64 bits.
uint64_t str_hash(const char *text, size_t length);

bool str_starts_with(const char *text, const char *prefix);
bool str_ends_with(const char *text, const char *suffix);

// Edits (insert, delete, replace, swap of neighbours) from a to b, or
// `limit` + 1 when there are more. Names over 63 bytes count as far apart.
int str_edit_distance(const char *a, const char *b, int limit);

// "Did you mean": keeps the best of the candidates it is shown.
//
//   StrGuess guess = str_guess_start("lenght");
//   for each name: str_guess_try(&guess, name);
//   if (guess.best) diag_note(d, loc, "did you mean '%s'?", guess.best);
typedef struct {
  const char *wanted;
  const char *best;  // NULL: nothing near enough
  int distance;
} StrGuess;

StrGuess str_guess_start(const char *wanted);
// Ties keep the candidate that came first. True when `candidate` is the best.
bool str_guess_try(StrGuess *guess, const char *candidate);

// Parses a whole string as a double, regardless of the locale's decimal
// point. False when it is no number or out of range.
bool str_to_double(const char *text, double *out_value);

// The shortest decimal text that reads back as the same double; always has a
// '.' or an exponent, or is inf, -inf, nan. Writes at most 32 bytes.
void str_format_double(double value, char out_text[32]);
