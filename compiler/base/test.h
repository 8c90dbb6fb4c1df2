// What unit tests (x_test.c) share: CHECK, and a main that runs named tests.
//
//   static void test_push(void) { CHECK(1 + 1 == 2); }
//   int main(void) { TEST(test_push); return test_end(); }
//
// Prints "ok name" or "FAIL name" for each; testdata/run counts those lines.
#pragma once

#include <stdio.h>
#include <string.h>

static int test_failures;  // of the running test
static int test_n_failed;

#define CHECK(condition)                                          \
  do {                                                            \
    if (!(condition)) {                                           \
      test_failures++;                                            \
      printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
    }                                                             \
  } while (0)

// The two texts, shown when they differ.
#define CHECK_TEXT(got, wanted)                                          \
  do {                                                                   \
    const char *check_got = (got), *check_wanted = (wanted);             \
    if (strcmp(check_got, check_wanted) != 0) {                          \
      test_failures++;                                                   \
      printf("%s:%d: got:\n%s\nwanted:\n%s\n", __FILE__, __LINE__,       \
             check_got, check_wanted);                                   \
    }                                                                    \
  } while (0)

#define TEST(function)                                                 \
  do {                                                                 \
    test_failures = 0;                                                 \
    function();                                                        \
    printf("%s %s\n", test_failures ? "FAIL" : "ok", #function);       \
    test_n_failed += test_failures > 0;                                \
  } while (0)

static inline int test_end(void) { return test_n_failed > 0; }
