/* Random numbers are functions, not streams with a state: Philox4x32-10 (Salmon et al., SC'11) of a
 * counter. Element e of a parameter, a mask or a data sample depends on nothing else that is drawn.
 * Logarithm, sine and cosine are computed here with additions and products alone, so that initial
 * values are the same bits on every machine. */
#include "internal.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, WORDS = 4, GROUP = LANES * WORDS };

#define M0 0xD2511F53u
#define M1 0xCD9E8D57u
#define W0 0x9E3779B9u
#define W1 0xBB67AE85u

void pp_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
  uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)M0 * c0, p1 = (uint64_t)M1 * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += W0;
    k1 += W1;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

uint64_t pp_hash_name(const char *name) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
  return hash;
}

/* The 128 bits of (seed, stream, index). */
static void draw(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]) {
  uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
  uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  pp_philox(counter, key, out);
}

static uint64_t draw_u64(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t words[4];
  draw(seed, stream, index, words);
  return (uint64_t)words[0] << 32 | words[1];
}

uint64_t pp_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n) {
  return (uint64_t)(((unsigned __int128)draw_u64(seed, stream, index) * n) >> 64);
}

/* --- dropout's uniforms -------------------------------------------------------------------------- */

/* Ten rounds on 16 counters at a time, lane by lane, so that the compiler uses vectors. */
static void philox_lanes(uint32_t c[WORDS][LANES], uint32_t k0, uint32_t k1) {
  for (int round = 0; round < 10; round++) {
    for (int l = 0; l < LANES; l++) {
      uint64_t p0 = (uint64_t)M0 * c[0][l], p1 = (uint64_t)M1 * c[2][l];
      c[0][l] = (uint32_t)(p1 >> 32) ^ c[1][l] ^ k0;
      c[2][l] = (uint32_t)(p0 >> 32) ^ c[3][l] ^ k1;
      c[1][l] = (uint32_t)p1;
      c[3][l] = (uint32_t)p0;
    }
    k0 += W0;
    k1 += W1;
  }
}

/* Elements 64 g … 64 g + 63: counter 16 g + l gives elements l, 16 + l, 32 + l, 48 + l of the group. */
static void uniform_group(const uint32_t stream[4], uint64_t group, float out[GROUP]) {
  uint32_t c[WORDS][LANES];
  for (int l = 0; l < LANES; l++) {
    uint64_t index = group * LANES + (uint64_t)l;
    c[0][l] = (uint32_t)index;
    c[1][l] = (uint32_t)(index >> 32);
    c[2][l] = stream[2];
    c[3][l] = stream[3];
  }
  philox_lanes(c, stream[0], stream[1]);
  for (int w = 0; w < WORDS; w++) {
    for (int l = 0; l < LANES; l++) out[w * LANES + l] = (float)(int32_t)(c[w][l] >> 8) * 0x1p-24f;
  }
}

void pp_random_fill_uniform(uint64_t seed, uint64_t step, uint32_t microbatch, uint64_t key, float *dst, int64_t n) {
  uint32_t counter[4] = {(uint32_t)key, (uint32_t)(key >> 32), (uint32_t)step, microbatch};
  uint32_t seed_words[2] = {(uint32_t)seed, (uint32_t)(seed >> 32) ^ (uint32_t)(step >> 32) ^ 0x756e6966u};
  uint32_t stream[4];
  float group[GROUP];
  int64_t done = 0;
  pp_philox(counter, seed_words, stream);
  for (; done + GROUP <= n; done += GROUP) uniform_group(stream, (uint64_t)(done / GROUP), dst + done);
  if (done == n) return;
  uniform_group(stream, (uint64_t)(done / GROUP), group);
  memcpy(dst + done, group, (size_t)(n - done) * sizeof *dst);
}

/* --- initial values ------------------------------------------------------------------------------ */

static double unit_of(uint32_t high, uint32_t low) {
  return (double)(int64_t)(((uint64_t)high << 32 | low) >> 11) * 0x1p-53;
}

/* ln x for x in (0, 1], from x = m 2^e, m in [sqrt 1/2, sqrt 2), and the series of artanh; about 1 ulp. */
static double ln(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  int64_t e = (int64_t)((bits - UINT64_C(0x3fe6a09e667f3bcd)) >> 52);
  if (e > 1024) e -= 4096;
  bits -= (uint64_t)e << 52;
  double m;
  memcpy(&m, &bits, 8);
  double s = (m - 1) / (m + 1), z = s * s;
  double series = 1.0 / 23;
  series = series * z + 1.0 / 21;
  series = series * z + 1.0 / 19;
  series = series * z + 1.0 / 17;
  series = series * z + 1.0 / 15;
  series = series * z + 1.0 / 13;
  series = series * z + 1.0 / 11;
  series = series * z + 1.0 / 9;
  series = series * z + 1.0 / 7;
  series = series * z + 1.0 / 5;
  series = series * z + 1.0 / 3;
  double f = (double)e;
  return f * 6.93147180369123816490e-01 + (2 * s + (2 * s * z * series + f * 1.90821492927058770002e-10));
}

/* cos and sin of 2 pi u for u in [0, 1): the nearest quarter turn, then Taylor on [-pi/4, pi/4]. */
static void turn(double u, double *out_cos, double *out_sin) {
  int quarter = (int)(4 * u + 0.5);
  double t = (u - 0.25 * quarter) * 6.283185307179586476925, z = t * t;
  double c = 1 + z * (-1.0 / 2 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 +
             z * (1.0 / 479001600 + z * (-1.0 / 87178291200.0 + z * (1.0 / 20922789888000.0))))))));
  double s = t * (1 + z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800 +
             z * (1.0 / 6227020800.0 + z * (-1.0 / 1307674368000.0 + z * (1.0 / 355687428096000.0)))))))));
  *out_cos = quarter & 1 ? (quarter & 2 ? s : -s) : (quarter & 2 ? -c : c);
  *out_sin = quarter & 1 ? (quarter & 2 ? -c : c) : (quarter & 2 ? -s : s);
}

/* Box and Muller: one draw gives elements 2 i and 2 i + 1. */
static void normal_pair(uint64_t seed, uint64_t stream, uint64_t index, double out[2]) {
  uint32_t words[4];
  double c, s;
  draw(seed, stream, index, words);
  double radius = sqrt(-2 * ln(unit_of(words[0], words[1]) + 0x1p-53));
  turn(unit_of(words[2], words[3]), &c, &s);
  out[0] = radius * c;
  out[1] = radius * s;
}

void pp_random_fill_normal(uint64_t seed, uint64_t stream, uint64_t first, double *dst, int64_t n) {
  double pair[2];
  for (int64_t i = 0; i < n; i++) {
    uint64_t e = first + (uint64_t)i;
    if (i == 0 || e % 2 == 0) normal_pair(seed, stream, e / 2, pair);
    dst[i] = pair[e % 2];
  }
}

void pp_random_fill_unit(uint64_t seed, uint64_t stream, uint64_t first, double *dst, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    uint32_t words[4];
    draw(seed, stream, first + (uint64_t)i, words);
    dst[i] = unit_of(words[0], words[1]);
  }
}

/* --- permutations --------------------------------------------------------------------------------- */

/* A balanced Feistel network on the least even number of bits that holds n; results of n or more go
 * round again (cycle walking), on average less than four times. */
uint64_t pp_permute(uint64_t key, uint64_t n, uint64_t index) {
  int half = 1;
  while (half < 32 && (UINT64_C(1) << (2 * half)) < n) half++;
  uint64_t mask = (UINT64_C(1) << half) - 1;
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint64_t round = 0; round < 6; round++) {
      uint64_t mixed = draw_u64(key, round, right) & mask;
      uint64_t next = left ^ mixed;
      left = right;
      right = next;
    }
    index = left << half | right;
  } while (index >= n);
  return index;
}
