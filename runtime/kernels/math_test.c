/* math.h against long double libm: every value of a stride over all f32 bit patterns, random and
 * structured f64 values, and the special cases. Prints the largest error of each function in ulps
 * and fails when one is over its stated bound. Links -lm; the functions under test do not use it. */
#include "runtime/kernels/math.h"

#include <stdio.h>
#include <stdlib.h>

static int n_failed;

static void check(int ok, const char *what) {
  if (ok) return;
  n_failed++;
  printf("FAIL %s\n", what);
}

/* Distance of got from the exact value in ulps of the format (bits of precision, least exponent). */
static double ulps(long double exact, long double got, int precision, int min_exponent, long double largest) {
  if (isnan((double)exact) || isnan((double)got)) return isnan((double)exact) && isnan((double)got) ? 0 : 1e30;
  if (fabsl(exact) > largest) {
    if (isinf((double)got)) return (exact > 0) == (got > 0) ? 0 : 1e30;
    if (isinf((double)exact)) return 1e30;
  }
  if (isinf((double)got)) return fabsl(exact) >= largest * (1 - 0x1p-24L) ? 1 : 1e30;
  int e;
  frexpl(exact, &e);
  if (exact == 0 || e < min_exponent) e = min_exponent;
  return (double)(fabsl(exact - got) / ldexpl(1, e - precision));
}
static double ulps_f32(long double exact, float got) { return ulps(exact, (long double)got, 24, -125, 0x1.fffffep127L); }
static double ulps_f64(long double exact, double got) { return ulps(exact, (long double)got, 53, -1021, 0x1.fffffffffffffp1023L); }

static uint64_t state = 88172645463325252ull;
static uint64_t next(void) {
  state ^= state << 13; state ^= state >> 7; state ^= state << 17;
  return state;
}
static double uniform(double lo, double hi) { return lo + (hi - lo) * (double)(next() >> 11) * 0x1p-53; }

static long double rsqrtl(long double x) { return 1 / sqrtl(x); }

typedef struct {
  const char *name;
  float (*f32)(float);
  double (*f64)(double);
  long double (*exact)(long double);
  double bound32, bound64, domain32, domain64; /* |x| up to which the bound holds */
  double lo, hi;                               /* where random f64 values lie densely */
} Function;

static const Function functions[] = {
    {"exp", pp_exp_f32, pp_exp_f64, expl, 1.0, 1.0, INFINITY, INFINITY, -750, 711},
    {"log", pp_log_f32, pp_log_f64, logl, 1.0, 1.0, INFINITY, INFINITY, 0, 4},
    {"tanh", pp_tanh_f32, pp_tanh_f64, tanhl, 1.5, 1.5, INFINITY, INFINITY, -2, 2},
    {"erf", pp_erf_f32, pp_erf_f64, erfl, 2.0, 3.0, INFINITY, INFINITY, -3, 3},
    {"sin", pp_sin_f32, pp_sin_f64, sinl, 1.0, 1.0, 1e5, 1e6, -100, 100},
    {"cos", pp_cos_f32, pp_cos_f64, cosl, 1.0, 1.0, 1e5, 1e6, -100, 100},
    {"sqrt", pp_sqrt_f32, pp_sqrt_f64, sqrtl, 0.501, 0.501, INFINITY, INFINITY, 0, 4},
    {"rsqrt", pp_rsqrt_f32, pp_rsqrt_f64, rsqrtl, 1.5, 1.5, INFINITY, INFINITY, 0, 4},
};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0] };

static void test_f32(const Function *f, uint32_t stride) {
  double worst = 0;
  float at = 0;
  for (uint64_t u = 0; u < 0x100000000ull; u += stride) {
    float x = pp_from_bits_f32((uint32_t)u);
    if ((double)pp_abs_f32(x) > f->domain32 && pp_abs_f32(x) < INFINITY) continue;
    double e = ulps_f32(f->exact((long double)x), f->f32(x));
    if (e > worst) worst = e, at = x;
  }
  printf("  %-6s f32 %.3f ulp at %a\n", f->name, worst, (double)at);
  check(worst <= f->bound32, f->name);
}

static void test_f64(const Function *f, int n) {
  double worst = 0, at = 0;
  for (int i = 0; i < n; i++) {
    double x = i % 3 == 0 ? pp_from_bits_f64(next()) : uniform(f->lo, f->hi);
    if (i % 3 == 1) x *= ldexp(1, -(int)(next() % 12));
    if (pp_abs_f64(x) > f->domain64 && pp_abs_f64(x) < (double)INFINITY) continue;
    double e = ulps_f64(f->exact((long double)x), f->f64(x));
    if (e > worst) worst = e, at = x;
  }
  printf("  %-6s f64 %.3f ulp at %a\n", f->name, worst, at);
  check(worst <= f->bound64, f->name);
}

static const double specials[] = {0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 1e300, -1e300, 1e-300,
                                  0x1p-1074, -0x1p-1074, 0x1p-149, 89.0, -104.0, 1e308, 0x1.8p1, 0x1p53, 0x1p63,
                                  (double)INFINITY, -(double)INFINITY, (double)NAN};
enum { N_SPECIALS = sizeof specials / sizeof specials[0] };

static int same(long double exact, double got) {
  if (isnan((double)exact)) return isnan(got);
  return (double)exact == got && signbit((double)exact) == signbit(got);
}

/* Zeros, infinities and NaN come out exactly, with their signs. */
static void test_specials(const Function *f) {
  for (int i = 0; i < N_SPECIALS; i++) {
    double x = specials[i];
    if (x != 0 && pp_abs_f64(x) < (double)INFINITY) continue;
    char what[64];
    snprintf(what, sizeof what, "%s(%g) f64: %g", f->name, x, f->f64(x));
    check(same(f->exact((long double)x), f->f64(x)), what);
    snprintf(what, sizeof what, "%s(%g) f32: %g", f->name, x, (double)f->f32((float)x));
    check(same(f->exact((long double)x), (double)f->f32((float)x)), what);
  }
}

static void test_pow(int n) {
  double worst32 = 0, worst64 = 0, at32[2] = {0}, at64[2] = {0};
  for (int i = 0; i < n; i++) {
    double x = i % 2 ? exp(uniform(-5, 5)) : pp_from_bits_f64(next() >> 1);
    double y = i % 3 ? uniform(-300, 300) : uniform(-3, 3);
    if (i % 7 == 0) x = uniform(0.9, 1.1), y = uniform(-7000, 7000);
    if (!(x > 0)) continue;
    double e = ulps_f64(powl((long double)x, (long double)y), pp_pow_f64(x, y));
    if (e > worst64) worst64 = e, at64[0] = x, at64[1] = y;
    float a = i % 2 ? (float)x : pp_from_bits_f32((uint32_t)next() >> 1), b = (float)(y / 4);
    if (!(a > 0)) continue;
    e = ulps_f32(powl((long double)a, (long double)b), pp_pow_f32(a, b));
    if (e > worst32) worst32 = e, at32[0] = (double)a, at32[1] = (double)b;
  }
  printf("  pow    f32 %.3f ulp at (%a, %a)\n", worst32, at32[0], at32[1]);
  printf("  pow    f64 %.3f ulp at (%a, %a)\n", worst64, at64[0], at64[1]);
  check(worst32 <= 1.0, "pow f32");
  check(worst64 <= 1.0, "pow f64");
  for (int i = 0; i < N_SPECIALS; i++)
    for (int j = 0; j < N_SPECIALS; j++) {
      double x = specials[i], y = specials[j];
      long double exact = powl((long double)x, (long double)y);
      char what[96];
      snprintf(what, sizeof what, "pow(%g, %g) f64: %g", x, y, pp_pow_f64(x, y));
      check(ulps_f64(exact, pp_pow_f64(x, y)) <= 1.0 && (isnan((double)exact) || signbit((double)exact) == signbit(pp_pow_f64(x, y))), what);
      float fx = (float)x, fy = (float)y, got = pp_pow_f32(fx, fy);
      exact = powl((long double)fx, (long double)fy);
      snprintf(what, sizeof what, "pow(%g, %g) f32: %g", (double)fx, (double)fy, (double)got);
      check(ulps_f32(exact, got) <= 1.0 && (isnan((double)exact) || signbit((double)exact) == signbit((double)got)), what);
    }
}

static void test_bounds(void) {
  int ok = 1;
  for (int i = 0; i < 100000; i++) {
    double x = pp_from_bits_f64(next());
    if (!(pp_abs_f64(x) < (double)INFINITY)) continue;
    ok &= pp_abs_f64(pp_sin_f64(x)) <= 1 && pp_abs_f64(pp_cos_f64(x)) <= 1;
    ok &= pp_abs_f32(pp_sin_f32((float)x)) <= 1 || pp_abs_f64(x) > 3e38;
  }
  check(ok, "sin, cos within [-1, 1]");
}

static void test_integers(void) {
  check(pp_div_i32(7, 2) == 3 && pp_div_i32(-7, 2) == -4 && pp_div_i32(7, -2) == -4 && pp_div_i32(-7, -2) == 3, "div_i32");
  check(pp_div_i32(INT32_MIN, -1) == INT32_MIN && pp_div_i32(5, 0) == 0, "div_i32 edges");
  check(pp_i32_from_f32(-1.9f) == -1 && pp_i32_from_f32(3e9f) == INT32_MAX && pp_i32_from_f32(-3e9f) == INT32_MIN &&
        pp_i32_from_f32(NAN) == 0, "i32 from f32");
  check(pp_i32_from_f64(2147483647.9) == INT32_MAX && pp_i32_from_f64(-1e300) == INT32_MIN, "i32 from f64");
  check(pp_max_f32(NAN, 1) != pp_max_f32(NAN, 1) && pp_max_f32(1, NAN) != pp_max_f32(1, NAN) && pp_max_f32(2, 1) == 2, "max");
  check(pp_min_f64(1, (double)NAN) != 1 && pp_min_f64(2, 1) == 1, "min");
}

static void report(const char *what, int failures_before) {
  if (n_failed == failures_before) printf("ok %s\n", what);
}

int main(int argc, char **argv) {
  uint32_t stride = argc > 1 ? (uint32_t)atoi(argv[1]) : 4999; /* 1: every f32 */
  for (int i = 0; i < N_FUNCTIONS; i++) {
    int before = n_failed;
    test_f32(&functions[i], stride);
    test_f64(&functions[i], 1000000);
    test_specials(&functions[i]);
    report(functions[i].name, before);
  }
  int before = n_failed;
  test_pow(1000000);
  report("pow", before);
  before = n_failed;
  test_bounds();
  test_integers();
  report("bounds, integers", before);
  return n_failed != 0;
}
