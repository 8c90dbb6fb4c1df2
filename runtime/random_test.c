#include <math.h>

#include "internal.h"
#include "test.h"

/* Known answers of Random123 1.14 for philox4x32-10. */
static void philox_known_answers(void) {
  static const struct { uint32_t counter[4], key[2], out[4]; } known[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < 3; i++) {
    uint32_t out[4];
    pp_philox(known[i].counter, known[i].key, out);
    CHECK(memcmp(out, known[i].out, sizeof out) == 0);
  }
}

static void permutations_are_bijections(void) {
  static unsigned char seen[70000];
  static const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 16, 17, 100, 1023, 1024, 1025, 65537, 70000};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    memset(seen, 0, sizeof seen);
    for (uint64_t i = 0; i < sizes[s]; i++) {
      uint64_t j = pp_permute(99, sizes[s], i);
      CHECK(j < sizes[s] && !seen[j]);
      seen[j] = 1;
    }
  }
  int differ = 0;
  for (uint64_t i = 0; i < 100; i++) differ += pp_permute(1, 100, i) != pp_permute(2, 100, i);
  CHECK(differ > 80);
}

static void uniforms_do_not_depend_on_the_length(void) {
  static float a[1000], b[1000];
  pp_random_fill_uniform(1, 2, 3, 4, a, 1000);
  for (int64_t n = 0; n < 200; n += 7) {
    pp_random_fill_uniform(1, 2, 3, 4, b, n);
    CHECK(memcmp(a, b, (size_t)n * sizeof *a) == 0);
  }
  double sum = 0, low = 1, high = 0;
  for (int i = 0; i < 1000; i++) {
    sum += (double)a[i];
    low = fmin(low, (double)a[i]);
    high = fmax(high, (double)a[i]);
  }
  CHECK(low >= 0 && high < 1 && fabs(sum / 1000 - 0.5) < 0.04);
  pp_random_fill_uniform(1, 2, 4, 4, b, 1000);
  CHECK(memcmp(a, b, sizeof a) != 0);
  pp_random_fill_uniform(1, 3, 3, 4, b, 1000);
  CHECK(memcmp(a, b, sizeof a) != 0);
  pp_random_fill_uniform(1, 2, 3, 5, b, 1000);
  CHECK(memcmp(a, b, sizeof a) != 0);
  pp_random_fill_uniform(2, 2, 3, 4, b, 1000);
  CHECK(memcmp(a, b, sizeof a) != 0);
}

/* The three functions of libm that are replaced, by way of Box and Muller's formula. */
static void normals_match_the_formula(void) {
  enum { N = 20000 };
  static double x[N];
  double sum = 0, square = 0, worst = 0;
  pp_random_fill_normal(7, 8, 0, x, N);
  for (uint64_t i = 0; i < N / 2; i++) {
    uint32_t counter[4] = {(uint32_t)i, 0, 8, 0}, key[2] = {7, 0}, w[4];
    pp_philox(counter, key, w);
    double u = (double)(((uint64_t)w[0] << 32 | w[1]) >> 11) * 0x1p-53 + 0x1p-53;
    double v = (double)(((uint64_t)w[2] << 32 | w[3]) >> 11) * 0x1p-53;
    double r = sqrt(-2 * log(u)), t = 6.283185307179586476925 * v;
    worst = fmax(worst, fabs(x[2 * i] - r * cos(t)));
    worst = fmax(worst, fabs(x[2 * i + 1] - r * sin(t)));
    sum += x[2 * i] + x[2 * i + 1];
    square += x[2 * i] * x[2 * i] + x[2 * i + 1] * x[2 * i + 1];
  }
  CHECK(worst < 1e-14);
  CHECK(fabs(sum / N) < 0.03 && fabs(square / N - 1) < 0.04);
}

static void normals_do_not_depend_on_where_one_begins(void) {
  double all[40], part[40];
  pp_random_fill_normal(1, 2, 0, all, 40);
  for (uint64_t first = 0; first < 20; first++) {
    pp_random_fill_normal(1, 2, first, part, 20);
    CHECK(memcmp(all + first, part, 20 * sizeof *all) == 0);
  }
}

static void below_stays_below(void) {
  int seen[7] = {0};
  for (uint64_t i = 0; i < 1000; i++) seen[pp_random_below(3, 4, i, 7)]++;
  for (int k = 0; k < 7; k++) CHECK(seen[k] > 90);
  CHECK(pp_random_below(3, 4, 5, 1) == 0);
}

int main(void) {
  TEST(philox_known_answers);
  TEST(permutations_are_bijections);
  TEST(uniforms_do_not_depend_on_the_length);
  TEST(normals_match_the_formula);
  TEST(normals_do_not_depend_on_where_one_begins);
  TEST(below_stays_below);
  return test_failures != 0;
}
