/* Elementary functions for kernels: inline, without branches, tables or calls, so that loops over
 * them vectorise. In: any value, NaN and infinities included. Out: the same bits on every CPU and at
 * every vector width, because only + - * / sqrt, comparisons and bit operations are used and nothing
 * is contracted (compile with -ffp-contract=off -fno-trapping-math -fno-math-errno, never with
 * -ffast-math).
 *
 * Largest errors, in units of the last place, seen by math_test.c over the whole range:
 *             f32    f64                                      f32    f64
 *   exp       1.0    1.0      (subnormal results too)  sin   1.0    1.0    |x| <= 1e5 (f64: 1e6)
 *   log       1.0    1.0                               cos   1.0    1.0
 *   tanh      1.5    1.5                               pow   1.0    1.0
 *   erf       2.0    3.0                               rsqrt 1.5    1.5    (two roundings)
 * Further out sin and cos lose accuracy slowly (reduction in three parts of pi/2) but stay in
 * [-1, 1]. Forms and coefficients are those of fdlibm and Cephes where not said otherwise. */
#ifndef PP_KERNELS_MATH_H
#define PP_KERNELS_MATH_H

#include <math.h> /* sqrt and sqrtf, which are one instruction; INFINITY, NAN */
#include <stdint.h>
#include <string.h>

#ifndef PP_INLINE
#define PP_INLINE static inline /* device code (cuda/math.cuh) says otherwise */
#endif
#include "runtime/kernels/bf16.h"

/* --- bits ---------------------------------------------------------------------------------------- */

PP_INLINE uint32_t pp_bits_f32(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

PP_INLINE float pp_from_bits_f32(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

PP_INLINE uint64_t pp_bits_f64(double x) {
  uint64_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

PP_INLINE double pp_from_bits_f64(uint64_t u) {
  double x;
  memcpy(&x, &u, sizeof x);
  return x;
}

PP_INLINE float pp_abs_f32(float x) { return pp_from_bits_f32(pp_bits_f32(x) & 0x7fffffffu); }
PP_INLINE double pp_abs_f64(double x) {
  return pp_from_bits_f64(pp_bits_f64(x) & 0x7fffffffffffffffull);
}

/* |x| with the sign of s. */
PP_INLINE float pp_copysign_f32(float x, float s) {
  return pp_from_bits_f32((pp_bits_f32(x) & 0x7fffffffu) | (pp_bits_f32(s) & 0x80000000u));
}
PP_INLINE double pp_copysign_f64(double x, double s) {
  return pp_from_bits_f64((pp_bits_f64(x) & 0x7fffffffffffffffull) |
                          (pp_bits_f64(s) & 0x8000000000000000ull));
}

/* Adding this and taking it away rounds to an integer; the integer is in the low bits meanwhile. */
#define PP_MAGIC_F32 0x1.8p23f
#define PP_MAGIC_F64 0x1.8p52

/* 2^n of an integral n, -1022 <= n <= 1023. */
PP_INLINE double pp_pow2_f64(double n) {
  return pp_from_bits_f64(pp_bits_f64(n + (PP_MAGIC_F64 + 1023.0)) << 52);
}

/* --- exp ----------------------------------------------------------------------------------------- */

PP_INLINE float pp_exp_f32(float x) {
  float c = x < -104.0f ? -104.0f : x;
  c = c > 89.0f ? 89.0f : c;
  float shifted = c * 0x1.715476p0f + PP_MAGIC_F32;
  float n = shifted - PP_MAGIC_F32;
  float r = (c - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  float y = 1.0f + (r + r * r * p);
  /* 2^n in two factors, so that subnormal results are rounded once and large ones overflow late */
  int32_t i = (int32_t)(pp_bits_f32(shifted) - pp_bits_f32(PP_MAGIC_F32));
  int32_t half = i >> 1;
  float s = pp_from_bits_f32((uint32_t)(half + 127) << 23);
  float t = pp_from_bits_f32((uint32_t)(i - half + 127) << 23);
  return y * s * t;
}

/* exp(x + tail), |tail| far below an ulp of x. */
PP_INLINE double pp_exp_tail_f64(double x, double tail) {
  double c = x < -746.0 ? -746.0 : x;
  c = c > 710.0 ? 710.0 : c;
  double n = (c * 0x1.71547652b82fep0 + PP_MAGIC_F64) - PP_MAGIC_F64;
  double hi = c - n * 6.93147180369123816490e-01;
  double lo = n * 1.90821492927058770002e-10 - tail;
  double r = hi - lo;
  double z = r * r;
  double p = 4.13813679705723846039e-08;
  p = p * z - 1.65339022054652515390e-06;
  p = p * z + 6.61375632143793436117e-05;
  p = p * z - 2.77777777770155933842e-03;
  p = p * z + 1.66666666666666019037e-01;
  p = r - z * p;
  double y = 1.0 - ((lo - (r * p) / (2.0 - p)) - hi);
  double half = (n * 0.5 + PP_MAGIC_F64) - PP_MAGIC_F64;
  return y * pp_pow2_f64(half) * pp_pow2_f64(n - half);
}

PP_INLINE double pp_exp_f64(double x) { return pp_exp_tail_f64(x, 0.0); }

/* --- log ----------------------------------------------------------------------------------------- */

/* x = 2^k * m with m in [sqrt(1/2), sqrt(2)); for x > 0, subnormals too. */
PP_INLINE float pp_split_f32(float x, float *out_k) {
  int small = x < 0x1p-126f;
  float scaled = small ? x * 0x1p23f : x;
  uint32_t u = pp_bits_f32(scaled) + (0x3f800000u - 0x3f3504f3u);
  int32_t k = (int32_t)(u >> 23) - 127;
  *out_k = (float)k - (small ? 23.0f : 0.0f);
  return pp_from_bits_f32((u & 0x007fffffu) + 0x3f3504f3u);
}

PP_INLINE double pp_split_f64(double x, double *out_k) {
  int small = x < 0x1p-1022;
  double scaled = small ? x * 0x1p54 : x;
  uint64_t u = pp_bits_f64(scaled) + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull);
  double k = pp_from_bits_f64((u >> 52) | 0x4330000000000000ull) - (0x1p52 + 1023.0);
  *out_k = k - (small ? 54.0 : 0.0);
  return pp_from_bits_f64((u & 0x000fffffffffffffull) + 0x3fe6a09e667f3bcdull);
}

PP_INLINE float pp_log_f32(float x) {
  float k;
  float f = pp_split_f32(x, &k) - 1.0f;
  float s = f / (2.0f + f);
  float z = s * s;
  float w = z * z;
  float r = z * (0.66666662693f + w * 0.28498786688f) + w * (0.40000972152f + w * 0.24279078841f);
  float h = 0.5f * f * f;
  float y = s * (h + r) + k * 9.0580006145e-06f - h + f + k * 6.9313812256e-01f;
  y = x == 0.0f ? -INFINITY : y;
  y = x < 0.0f ? NAN : y;
  y = x == INFINITY ? x : y;
  return x != x ? x : y;
}

PP_INLINE double pp_log_f64(double x) {
  double k;
  double f = pp_split_f64(x, &k) - 1.0;
  double s = f / (2.0 + f);
  double z = s * s;
  double w = z * z;
  double t1 = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  double t2 = z * (6.666666666666735130e-01 +
                   w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  double h = 0.5 * f * f;
  double y = k * 6.93147180369123816490e-01 - ((h - (s * (h + (t1 + t2)) + k * 1.90821492927058770002e-10)) - f);
  y = x == 0.0 ? -(double)INFINITY : y;
  y = x < 0.0 ? (double)NAN : y;
  y = x == (double)INFINITY ? x : y;
  return x != x ? x : y;
}

/* --- sqrt ---------------------------------------------------------------------------------------- */

PP_INLINE float pp_sqrt_f32(float x) { return sqrtf(x); }
PP_INLINE double pp_sqrt_f64(double x) { return sqrt(x); }
PP_INLINE float pp_rsqrt_f32(float x) { return 1.0f / sqrtf(x); }
PP_INLINE double pp_rsqrt_f64(double x) { return 1.0 / sqrt(x); }

/* --- tanh ---------------------------------------------------------------------------------------- */

PP_INLINE float pp_tanh_f32(float x) {
  float a = pp_abs_f32(x);
  float z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  float near = x + x * (z * p);
  float far = 1.0f - 2.0f / (pp_exp_f32(a + a) + 1.0f);
  float y = pp_copysign_f32(a < 0.625f ? near : far, x);
  return x != x ? x : y;
}

PP_INLINE double pp_tanh_f64(double x) {
  double a = pp_abs_f64(x);
  double z = x * x;
  double p = -9.64399179425052238628e-1;
  p = p * z - 9.92877231001918586564e1;
  p = p * z - 1.61468768441708447952e3;
  double q = z + 1.12811678491632931402e2;
  q = q * z + 2.23548839060100448583e3;
  q = q * z + 4.84406305325125486048e3;
  double near = x + x * (z * (p / q));
  double far = 1.0 - 2.0 / (pp_exp_f64(a + a) + 1.0);
  double y = pp_copysign_f64(a < 0.625 ? near : far, x);
  return x != x ? x : y;
}

/* --- erf ------------------------------------------------------------------------------------------ */

/* Below 0.9 x + x·P(x²), above 1 - exp(-P(x)) with P ~ -log(erfc(x)): Chebyshev fits. */
PP_INLINE float pp_erf_f32(float x) {
  float a = pp_abs_f32(x);
  float z = x * x;
  float p = 8.387074194615707e-05f;
  p = p * z - 0.0008147081243805587f;
  p = p * z + 0.0052014561370015144f;
  p = p * z - 0.0268595889210701f;
  p = p * z + 0.11283699423074722f;
  p = p * z - 0.37612634897232056f;
  p = p * z + 0.128379225730896f;
  float near = x + x * p;
  float c = a > 4.0f ? 4.0f : a;
  float q = -1.6430636833320023e-06f;
  q = q * c + 4.616385922417976e-05f;
  q = q * c - 0.0005975857493467629f;
  q = q * c + 0.00476262578740716f;
  q = q * c - 0.02642763778567314f;
  q = q * c + 0.11008716374635696f;
  q = q * c + 0.6318238973617554f;
  q = q * c + 1.1302310228347778f;
  q = q * c - 0.0003185396490152925f;
  float far = 1.0f - pp_exp_f32(-q);
  float y = a < 0.9f ? near : pp_copysign_f32(far, x);
  return x != x ? x : y;
}

PP_INLINE double pp_erf_f64(double x) {
  double a = pp_abs_f64(x);
  double z = x * x;
  double p = 9.60497373987051638749e0;
  p = p * z + 9.00260197203842689217e1;
  p = p * z + 2.23200534594684319226e3;
  p = p * z + 7.00332514112805075473e3;
  p = p * z + 5.55923013010394962768e4;
  double q = z + 3.35617141647503099647e1;
  q = q * z + 5.21357949780152679795e2;
  q = q * z + 4.59432382970980127987e3;
  q = q * z + 2.26290000613890934246e4;
  q = q * z + 4.92673942608635921086e4;
  double near = x * (p / q);
  double c = a > 6.5 ? 6.5 : a;
  double n = 2.46196981473530512524e-10;
  n = n * c + 5.64189564831068821977e-1;
  n = n * c + 7.46321056442269912687e0;
  n = n * c + 4.86371970985681366614e1;
  n = n * c + 1.96520832956077098242e2;
  n = n * c + 5.26445194995477358631e2;
  n = n * c + 9.34528527171957607540e2;
  n = n * c + 1.02755188689515710272e3;
  n = n * c + 5.57535335369399327526e2;
  double d = c + 1.32281951154744992508e1;
  d = d * c + 8.67072140885989742329e1;
  d = d * c + 3.54937778887819891062e2;
  d = d * c + 9.75708501743205489753e2;
  d = d * c + 1.82390916687909736289e3;
  d = d * c + 2.24633760818710981792e3;
  d = d * c + 1.65666309194161350182e3;
  d = d * c + 5.57535340817727675546e2;
  double far = 1.0 - pp_exp_f64(-(c * c)) * n / d;
  double y = a < 1.0 ? near : pp_copysign_f64(far, x);
  return x != x ? x : y;
}

/* --- sin, cos --------------------------------------------------------------------------------------- */

/* sin(x + quadrant·pi/2): x less a multiple n of pi/2 in three parts of 33 bits, then fdlibm's
 * kernels on both sides and a choice by n mod 4. */
PP_INLINE double pp_sincos_f64(double x, uint64_t quadrant) {
  double shifted = x * 6.36619772367581382433e-01 + PP_MAGIC_F64;
  double n = shifted - PP_MAGIC_F64;
  uint64_t turn = pp_bits_f64(shifted) + quadrant;
  double a = x - n * 1.57079632673412561417e+00;
  double w = n * 6.07710050630396597660e-11;
  double b = a - w;
  double lost = (a - b) - w; /* of b */
  double w3 = n * 2.02226624871116645580e-21 - lost;
  double r = b - w3;
  double tail = (b - r) - w3;
  r = r > 0.8 ? 0.8 : r; /* only where n has lost its last bits */
  r = r < -0.8 ? -0.8 : r;
  tail = pp_abs_f64(x) < 0x1p40 ? tail : 0.0;
  double z = r * r;
  double ps = 1.58969099521155010221e-10;
  ps = ps * z - 2.50507602534068634195e-08;
  ps = ps * z + 2.75573137070700676789e-06;
  ps = ps * z - 1.98412698298579493134e-04;
  ps = ps * z + 8.33333333332248946124e-03;
  double v = z * r;
  double s = r - ((z * (0.5 * tail - v * ps) - tail) - v * -1.66666666666666324348e-01);
  double pc = -1.13596475577881948265e-11;
  pc = pc * z + 2.08757232129817482790e-09;
  pc = pc * z - 2.75573143513906633035e-07;
  pc = pc * z + 2.48015872894767294178e-05;
  pc = pc * z - 1.38888888888741095749e-03;
  pc = pc * z + 4.16666666666666019037e-02;
  double h = 0.5 * z;
  double u = 1.0 - h;
  double c = u + (((1.0 - u) - h) + (z * (z * pc) - r * tail));
  double y = (turn & 1) ? c : s;
  y = pp_from_bits_f64(pp_bits_f64(y) ^ ((turn & 2) << 62));
  return pp_abs_f64(x) < (double)INFINITY ? y : (double)NAN;
}

PP_INLINE double pp_sin_f64(double x) {
  double y = pp_sincos_f64(x, 0);
  return x == 0.0 ? x : y;
}
PP_INLINE double pp_cos_f64(double x) { return pp_sincos_f64(x, 1); }

/* f32: the reduction and the series in f64, shorter. */
PP_INLINE float pp_sincos_f32(float x, uint64_t quadrant) {
  double d = (double)x;
  double shifted = d * 6.36619772367581382433e-01 + PP_MAGIC_F64;
  double n = shifted - PP_MAGIC_F64;
  uint64_t turn = pp_bits_f64(shifted) + quadrant;
  double r = (d - n * 1.57079632673412561417e+00) - n * 6.07710050650619224932e-11;
  r = r > 0.8 ? 0.8 : r;
  r = r < -0.8 ? -0.8 : r;
  double z = r * r;
  double ps = 2.75573137070700676789e-06;
  ps = ps * z - 1.98412698298579493134e-04;
  ps = ps * z + 8.33333333332248946124e-03;
  ps = ps * z - 1.66666666666666324348e-01;
  double s = r + r * z * ps;
  double pc = -2.75573143513906633035e-07;
  pc = pc * z + 2.48015872894767294178e-05;
  pc = pc * z - 1.38888888888741095749e-03;
  pc = pc * z + 4.16666666666666019037e-02;
  double c = (1.0 - 0.5 * z) + z * (z * pc);
  double y = (turn & 1) ? c : s;
  y = pp_from_bits_f64(pp_bits_f64(y) ^ ((turn & 2) << 62));
  return pp_abs_f32(x) < INFINITY ? (float)y : NAN;
}

PP_INLINE float pp_sin_f32(float x) {
  float y = pp_sincos_f32(x, 0);
  return x == 0.0f ? x : y;
}
PP_INLINE float pp_cos_f32(float x) { return pp_sincos_f32(x, 1); }

/* --- pow -------------------------------------------------------------------------------------------- */

/* hi + *out_lo = a·b exactly (Dekker), for products that neither over- nor underflow. */
PP_INLINE double pp_product_f64(double a, double b, double *out_lo) {
  double ca = a * 0x1.0000002p27, cb = b * 0x1.0000002p27;
  double ah = ca - (ca - a), bh = cb - (cb - b);
  double al = a - ah, bl = b - bh;
  double p = a * b;
  *out_lo = ((ah * bh - p) + ah * bl + al * bh) + al * bl;
  return p;
}

/* hi + *out_lo = a + b exactly. */
PP_INLINE double pp_sum_f64(double a, double b, double *out_lo) {
  double s = a + b;
  double t = s - a;
  *out_lo = (a - (s - t)) + (b - t);
  return s;
}

/* log(x) of x > 0 to about 2^-66: 2s + 2s³/3 in two parts each, the rest of the series in one. */
PP_INLINE double pp_log_pair_f64(double x, double *out_lo) {
  double k;
  double f = pp_split_f64(x, &k) - 1.0;
  double d_lo, e1, e2, e3, e4, e5;
  double d = pp_sum_f64(2.0, f, &d_lo);
  double s = f / d;
  double p = pp_product_f64(s, d, &e1);
  double s_lo = (((f - p) - e1) - s * d_lo) / d;
  double z = pp_product_f64(s, s, &e2);
  e2 += 2.0 * s * s_lo;
  double v = pp_product_f64(z, s, &e3);
  e3 += z * s_lo + e2 * s;
  double t = pp_product_f64(v, 0x1.5555555555555p-1, &e4);
  e4 += v * 0x1.5555555555555p-55 + e3 * 0x1.5555555555555p-1;
  double r = 2.0 / 25;
  r = r * z + 2.0 / 23;
  r = r * z + 2.0 / 21;
  r = r * z + 2.0 / 19;
  r = r * z + 2.0 / 17;
  r = r * z + 2.0 / 15;
  r = r * z + 2.0 / 13;
  r = r * z + 2.0 / 11;
  r = r * z + 2.0 / 9;
  r = r * z + 2.0 / 7;
  r = r * z + 2.0 / 5;
  r = r * z * v;
  double a = pp_sum_f64(2.0 * s, t, &e5);
  double lo = e5 + (r + (e4 + 2.0 * s_lo));
  double e6, e7;
  double b = pp_sum_f64(k * 0x1.62e42fefa38p-1, a, &e6);
  double c = pp_sum_f64(b, lo + e6 + k * 0x1.ef35793c7673p-45, &e7);
  *out_lo = e7;
  return c;
}

/* What IEEE 754 says of a power besides its size: |x|^y given, zeros, infinities and signs. */
PP_INLINE double pp_pow_sign_f64(double x, double y, double magnitude) {
  double ay = pp_abs_f64(y);
  double whole = ay >= 0x1p52 ? ay : (ay + 0x1p52) - 0x1p52;
  double half = ay * 0.5;
  double whole_half = half >= 0x1p52 ? half : (half + 0x1p52) - 0x1p52;
  int is_integer = whole == ay;
  int is_odd = is_integer & (whole_half != half) & (ay < 0x1p53);
  int negative = (int)(pp_bits_f64(x) >> 63);
  double r = (negative & is_odd) ? -magnitude : magnitude;
  r = ((x < 0.0) & (is_integer == 0) & (x > -(double)INFINITY)) ? (double)NAN : r;
  r = (x != x) | (y != y) ? x + y : r;
  r = (x == 1.0) | (y == 0.0) ? 1.0 : r;
  return (x == -1.0) & (ay == (double)INFINITY) ? 1.0 : r;
}

/* |x|^y where |x| is 0 or infinite, or y infinite; `otherwise` else. */
PP_INLINE double pp_pow_edges_f64(double ax, double y, double otherwise) {
  double inf = (double)INFINITY;
  double r = ax == 0.0 ? (y > 0.0 ? 0.0 : inf) : otherwise;
  r = ax == inf ? (y > 0.0 ? inf : 0.0) : r;
  r = y == inf ? (ax > 1.0 ? inf : 0.0) : r;
  return y == -inf ? (ax > 1.0 ? 0.0 : inf) : r;
}

PP_INLINE double pp_pow_f64(double x, double y) {
  double ax = pp_abs_f64(x);
  double lo, e;
  double hi = pp_log_pair_f64(ax, &lo);
  /* |y| beyond 2^64 gives 0, 1 or infinity as 2^64 does, and Dekker's products stay finite */
  double cy = y > 0x1p64 ? 0x1p64 : y;
  cy = cy < -0x1p64 ? -0x1p64 : cy;
  double p = pp_product_f64(hi, cy, &e);
  double m = pp_exp_tail_f64(p, pp_abs_f64(p) < 800.0 ? e + lo * cy : 0.0);
  return pp_pow_sign_f64(x, y, pp_pow_edges_f64(ax, y, m));
}

PP_INLINE float pp_pow_f32(float x, float y) {
  double ax = pp_abs_f64((double)x);
  double m = pp_exp_f64((double)y * pp_log_f64(ax));
  return (float)pp_pow_sign_f64((double)x, (double)y, pp_pow_edges_f64(ax, (double)y, m));
}

/* --- what C leaves open -------------------------------------------------------------------------------- */

/* NaN wins; equal values give the first. */
PP_INLINE float pp_max_f32(float a, float b) { return (a >= b) | (a != a) ? a : b; }
PP_INLINE float pp_min_f32(float a, float b) { return (a <= b) | (a != a) ? a : b; }
PP_INLINE double pp_max_f64(double a, double b) { return (a >= b) | (a != a) ? a : b; }
PP_INLINE double pp_min_f64(double a, double b) { return (a <= b) | (a != a) ? a : b; }
PP_INLINE int32_t pp_max_i32(int32_t a, int32_t b) { return a >= b ? a : b; }
PP_INLINE int32_t pp_min_i32(int32_t a, int32_t b) { return a <= b ? a : b; }

/* i32 arithmetic wraps. */
PP_INLINE int32_t pp_add_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a + (uint32_t)b); }
PP_INLINE int32_t pp_sub_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a - (uint32_t)b); }
PP_INLINE int32_t pp_mul_i32(int32_t a, int32_t b) { return (int32_t)((uint32_t)a * (uint32_t)b); }
PP_INLINE int32_t pp_neg_i32(int32_t a) { return (int32_t)(0u - (uint32_t)a); }

/* Toward minus infinity; x / 0 is 0. */
PP_INLINE int32_t pp_div_i32(int32_t a, int32_t b) {
  int64_t d = b == 0 ? 1 : b;
  int64_t q = a / d;
  q -= (a % d != 0) & ((a < 0) != (d < 0));
  return b == 0 ? 0 : (int32_t)(uint32_t)(uint64_t)q;
}

/* Toward zero; out of range takes the nearest i32, NaN 0. */
PP_INLINE int32_t pp_i32_from_f32(float x) {
  float c = x < -0x1p31f ? -0x1p31f : x;
  c = c > 0x1.fffffep30f ? 0x1.fffffep30f : c;
  c = c != c ? 0.0f : c;
  int32_t i = (int32_t)c;
  return x >= 0x1p31f ? INT32_MAX : i;
}
PP_INLINE int32_t pp_i32_from_f64(double x) {
  double c = x < -2147483648.0 ? -2147483648.0 : x;
  c = c > 2147483647.0 ? 2147483647.0 : c;
  c = c != c ? 0.0 : c;
  return (int32_t)c;
}

#endif
