// String buffer, FNV-1a hash, bounded edit distance, number text.
#include "compiler/base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reserve(Str *str, size_t more) {
  if (str->capacity - str->length > more) return;
  size_t capacity = str->capacity ? str->capacity * 2 : 256;
  if (capacity < str->length + more + 1) capacity = str->length + more + 1;
  char *text = realloc(str->text, capacity);
  if (!text) {
    fprintf(stderr, "ppc: out of memory (%zu bytes of text)\n", capacity);
    exit(3);
  }
  str->text = text;
  str->capacity = capacity;
}

void str_append(Str *str, const char *text, size_t length) {
  reserve(str, length);
  if (length > 0) memcpy(str->text + str->length, text, length);
  str->length += length;
  str->text[str->length] = '\0';
}

void str_putc(Str *str, char c) { str_append(str, &c, 1); }

void str_puts(Str *str, const char *text) {
  str_append(str, text, strlen(text));
}

void str_vprintf(Str *str, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  if (length > 0) {
    reserve(str, (size_t)length);
    vsnprintf(str->text + str->length, (size_t)length + 1, format, again);
    str->length += (size_t)length;
  }
  va_end(again);
}

void str_printf(Str *str, const char *format, ...) {
  va_list args;
  va_start(args, format);
  str_vprintf(str, format, args);
  va_end(args);
}

void str_pad(Str *str, char c, int count) {
  for (int i = 0; i < count; i++) str_putc(str, c);
}

void str_put_grouped(Str *str, int64_t number, int width) {
  char digits[32], text[48];
  int n = snprintf(digits, sizeof digits, "%lld", (long long)number), k = 0;
  for (int i = 0; i < n; i++) {
    if (i && digits[i - 1] != '-' && (n - i) % 3 == 0) text[k++] = ',';
    text[k++] = digits[i];
  }
  str_pad(str, ' ', width - k);
  str_append(str, text, (size_t)k);
}

const char *str_text(const Str *str) { return str->text ? str->text : ""; }

void str_truncate(Str *str, size_t length) {
  if (length >= str->length) return;
  str->length = length;
  str->text[length] = '\0';
}

void str_clear(Str *str) { str_truncate(str, 0); }

void str_free(Str *str) {
  free(str->text);
  *str = (Str){0};
}

uint64_t str_hash(const char *text, size_t length) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < length; i++) {
    hash ^= (unsigned char)text[i];
    hash *= 0x100000001b3u;
  }
  return hash;
}

bool str_starts_with(const char *text, const char *prefix) {
  return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool str_ends_with(const char *text, const char *suffix) {
  size_t n = strlen(text), m = strlen(suffix);
  return n >= m && memcmp(text + n - m, suffix, m) == 0;
}

static int min2(int a, int b) { return a < b ? a : b; }

int str_edit_distance(const char *a, const char *b, int limit) {
  enum { MAX = 63 };
  size_t long_a = strlen(a), long_b = strlen(b);
  if (long_a > MAX || long_b > MAX) return limit + 1;
  int n = (int)long_a, m = (int)long_b;
  if (abs(n - m) > limit) return limit + 1;
  // Optimal string alignment: three rows are enough.
  int rows[3][MAX + 1];
  for (int j = 0; j <= m; j++) rows[0][j] = j;
  for (int i = 1; i <= n; i++) {
    int *row = rows[i % 3], *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
    row[0] = i;
    for (int j = 1; j <= m; j++) {
      int cost = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = min2(min2(up[j] + 1, row[j - 1] + 1), up[j - 1] + cost);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = min2(row[j], up2[j - 2] + 1);
    }
  }
  return min2(rows[n % 3][m], limit + 1);
}

StrGuess str_guess_start(const char *wanted) {
  // A third of the name may differ; one-letter names have no near ones.
  int limit = (int)(strlen(wanted) + 1) / 3;
  return (StrGuess){wanted, NULL, limit + 1};
}

bool str_guess_try(StrGuess *guess, const char *candidate) {
  if (guess->distance <= 1) return false;
  int distance =
      str_edit_distance(guess->wanted, candidate, guess->distance - 1);
  if (distance >= guess->distance) return false;
  guess->distance = distance;
  guess->best = candidate;
  return true;
}

bool str_to_double(const char *text, double *out_value) {
  char *end;
  double value = strtod(text, &end);
  if (end == text || *end != '\0' || !isfinite(value)) return false;
  *out_value = value;
  return true;
}

void str_format_double(double value, char out_text[32]) {
  if (isnan(value)) {
    strcpy(out_text, "nan");
    return;
  }
  if (isinf(value)) {
    strcpy(out_text, value < 0 ? "-inf" : "inf");
    return;
  }
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(out_text, 32, "%.*g", digits, value);
    if (strtod(out_text, NULL) == value) break;
  }
  if (!strpbrk(out_text, ".e")) strcat(out_text, ".0");
}
