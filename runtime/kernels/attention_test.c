/* Attention against a plain f64 version, and its gradient against central differences of that and
 * against the derivative written out; causal and not, grouped heads, uneven blocks, t != t_kv; the
 * workspace's end is guarded; f32 within rounding of f64. Also pp_matmul against a triple loop. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/kernels/bf16.h"
#include "runtime/kernels/level.h"
#include "runtime/pp.h"

pp_attention_f32_fn PP_LEVELED(pp_attention_f32);
pp_attention_grad_f32_fn PP_LEVELED(pp_attention_grad_f32);
pp_attention_bf16_fn PP_LEVELED(pp_attention_bf16);
pp_attention_grad_bf16_fn PP_LEVELED(pp_attention_grad_bf16);
pp_attention_f64_fn PP_LEVELED(pp_attention_f64);
pp_attention_grad_f64_fn PP_LEVELED(pp_attention_grad_f64);

static int n_failed;
static void check(int ok, const char *format, int a, int b) {
  if (ok) return;
  n_failed++;
  printf("FAIL ");
  printf(format, a, b);
  printf("\n");
}

static uint64_t state = 1234567;
static double next(void) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (double)(state >> 11) * 0x1p-52 - 1;
}
static double *fill(int64_t n) {
  double *x = malloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++) x[i] = next();
  return x;
}
static float *narrow(const double *x, int64_t n) {
  float *y = malloc((size_t)n * sizeof *y);
  for (int64_t i = 0; i < n; i++) y[i] = (float)x[i];
  return y;
}
static double distance(const double *a, const double *b, int64_t n) {
  double d = 0, na = 0, nb = 0;
  for (int64_t i = 0; i < n; i++) d += (a[i] - b[i]) * (a[i] - b[i]), na += a[i] * a[i], nb += b[i] * b[i];
  double m = na > nb ? na : nb;
  return m > 0 ? sqrt(d / m) : 0;
}
static double distance_f32(const double *a, const float *b, int64_t n) {
  double *w = malloc((size_t)n * sizeof *w);
  for (int64_t i = 0; i < n; i++) w[i] = (double)b[i];
  double d = distance(a, w, n);
  free(w);
  return d;
}

/* p: [t_kv] probabilities of query row i of query head h. */
static void plain_row(const pp_attention_shape *s, const double *q, const double *k, int64_t b, int64_t h, int64_t i, double *p, double *lse) {
  int64_t g = h / (s->heads / s->kv_heads), n = s->causal ? i + 1 + s->t_kv - s->t : s->t_kv;
  double max = -INFINITY, sum = 0;
  for (int64_t j = 0; j < s->t_kv; j++) {
    p[j] = 0;
    for (int64_t c = 0; c < s->d; c++) p[j] += q[((b * s->heads + h) * s->t + i) * s->d + c] * k[((b * s->kv_heads + g) * s->t_kv + j) * s->d + c];
    p[j] = j < n ? p[j] * s->scale : -INFINITY;
    if (p[j] > max) max = p[j];
  }
  for (int64_t j = 0; j < s->t_kv; j++) p[j] = n > 0 ? exp(p[j] - max) : 0, sum += p[j];
  for (int64_t j = 0; j < s->t_kv; j++) p[j] = n > 0 ? p[j] / sum : 0;
  *lse = n > 0 ? max + log(sum) : -INFINITY;
}

static void plain(const pp_attention_shape *s, const double *q, const double *k, const double *v, const double *dout,
                  double *out, double *lse, double *dq, double *dk, double *dv) {
  int64_t nq = s->batch * s->heads * s->t * s->d, nk = s->batch * s->kv_heads * s->t_kv * s->d;
  memset(dq, 0, (size_t)nq * 8); memset(dk, 0, (size_t)nk * 8); memset(dv, 0, (size_t)nk * 8);
  double *p = malloc((size_t)s->t_kv * 8);
  for (int64_t b = 0; b < s->batch; b++)
    for (int64_t h = 0; h < s->heads; h++)
      for (int64_t i = 0; i < s->t; i++) {
        int64_t row = ((b * s->heads + h) * s->t + i) * s->d, head = (b * s->kv_heads + h / (s->heads / s->kv_heads)) * s->t_kv;
        plain_row(s, q, k, b, h, i, p, &lse[row / s->d]);
        double delta = 0;
        for (int64_t c = 0; c < s->d; c++) {
          out[row + c] = 0;
          for (int64_t j = 0; j < s->t_kv; j++) out[row + c] += p[j] * v[(head + j) * s->d + c];
          delta += out[row + c] * dout[row + c];
        }
        for (int64_t j = 0; j < s->t_kv; j++) {
          double dp = 0;
          for (int64_t c = 0; c < s->d; c++) dp += dout[row + c] * v[(head + j) * s->d + c];
          double ds = p[j] * (dp - delta) * s->scale;
          for (int64_t c = 0; c < s->d; c++) {
            dq[row + c] += ds * k[(head + j) * s->d + c];
            dk[(head + j) * s->d + c] += ds * q[row + c];
            dv[(head + j) * s->d + c] += p[j] * dout[row + c];
          }
        }
      }
  free(p);
}

static double objective(const pp_attention_shape *s, const double *q, const double *k, const double *v, const double *dout) {
  int64_t nq = s->batch * s->heads * s->t * s->d;
  double *out = malloc((size_t)nq * 8), *lse = malloc((size_t)nq * 8), sum = 0;
  void *w = malloc((size_t)pp_attention_workspace_bytes(s->t, s->t_kv, 8, 0));
  PP_LEVELED(pp_attention_f64)(s, q, k, v, out, lse, w);
  for (int64_t i = 0; i < nq; i++) sum += out[i] * dout[i];
  free(out); free(lse); free(w);
  return sum;
}

/* Central differences of a few elements of x against dx. */
static int differences(const pp_attention_shape *s, const double *q, const double *k, const double *v, const double *dout,
                       double *x, const double *dx, int64_t n) {
  int ok = 1;
  for (int trial = 0; trial < 6; trial++) {
    int64_t i = (int64_t)((next() + 1) * 0.4999 * (double)n);
    double saved = x[i], h = 1e-5;
    x[i] = saved + h;
    double up = objective(s, q, k, v, dout);
    x[i] = saved - h;
    double down = objective(s, q, k, v, dout);
    x[i] = saved;
    ok &= fabs((up - down) / (2 * h) - dx[i]) < 1e-7 * (1 + fabs(dx[i]));
  }
  return ok;
}

static char *workspace(size_t bytes) {
  char *w = aligned_alloc(64, (bytes + 64 + 63) / 64 * 64);
  memset(w, 0xff, bytes);
  memset(w + bytes, 0x5a, 64);
  return w;
}
static int intact(const char *w, size_t bytes) {
  for (int i = 0; i < 64; i++)
    if (w[bytes + (size_t)i] != 0x5a) return 0;
  return 1;
}

static void test_shape(pp_attention_shape s, int number) {
  int64_t nq = s.batch * s.heads * s.t * s.d, nk = s.batch * s.kv_heads * s.t_kv * s.d, nl = s.batch * s.heads * s.t;
  double *q = fill(nq), *k = fill(nk), *v = fill(nk), *dout = fill(nq);
  double *r[5], *x[5];
  int64_t sizes[5] = {nq, nl, nq, nk, nk};
  for (int i = 0; i < 5; i++) r[i] = fill(sizes[i]), x[i] = fill(sizes[i]);
  plain(&s, q, k, v, dout, r[0], r[1], r[2], r[3], r[4]);
  size_t bytes = (size_t)pp_attention_workspace_bytes(s.t, s.t_kv, 8, 0), grad_bytes = (size_t)pp_attention_workspace_bytes(s.t, s.t_kv, 8, 1);
  char *w = workspace(bytes), *wg = workspace(grad_bytes);
  PP_LEVELED(pp_attention_f64)(&s, q, k, v, x[0], x[1], w);
  PP_LEVELED(pp_attention_grad_f64)(&s, q, k, v, x[0], x[1], dout, x[2], x[3], x[4], wg);
  check(intact(w, bytes) && intact(wg, grad_bytes), "shape %d: workspace f64", number, 0);
  for (int i = 0; i < 5; i++)
    if (i != 1) check(distance(r[i], x[i], sizes[i]) < 1e-13, "shape %d: f64 result %d", number, i);
  for (int64_t i = 0; i < nl; i++)
    if (r[1][i] != x[1][i] && !(fabs(r[1][i] - x[1][i]) < 1e-13)) { check(0, "shape %d: lse %d", number, (int)i); break; }
  check(differences(&s, q, k, v, dout, q, x[2], nq), "shape %d: dq by differences", number, 0);
  check(differences(&s, q, k, v, dout, k, x[3], nk), "shape %d: dk by differences", number, 0);
  check(differences(&s, q, k, v, dout, v, x[4], nk), "shape %d: dv by differences", number, 0);

  float *fq = narrow(q, nq), *fk = narrow(k, nk), *fv = narrow(v, nk), *fd = narrow(dout, nq), *y[5], *z[5];
  for (int i = 0; i < 5; i++) y[i] = narrow(r[i], sizes[i]), z[i] = narrow(r[i], sizes[i]);
  bytes = (size_t)pp_attention_workspace_bytes(s.t, s.t_kv, 4, 0), grad_bytes = (size_t)pp_attention_workspace_bytes(s.t, s.t_kv, 4, 1);
  free(w); free(wg);
  w = workspace(bytes), wg = workspace(grad_bytes);
  PP_LEVELED(pp_attention_f32)(&s, fq, fk, fv, y[0], y[1], w);
  PP_LEVELED(pp_attention_grad_f32)(&s, fq, fk, fv, y[0], y[1], fd, y[2], y[3], y[4], wg);
  check(intact(w, bytes) && intact(wg, grad_bytes), "shape %d: workspace f32", number, 0);
  for (int i = 0; i < 5; i++)
    if (i != 1) check(distance_f32(r[i], y[i], sizes[i]) < 2e-6, "shape %d: f32 result %d", number, i);
  /* the same bits on every level, and in every run */
  for (int level = 2; level <= 4; level++) {
    char text[2] = {(char)('0' + level), 0};
    setenv("PP_CPU_LEVEL", text, 1);
    PP_LEVELED(pp_attention_f32)(&s, fq, fk, fv, z[0], z[1], w);
    PP_LEVELED(pp_attention_grad_f32)(&s, fq, fk, fv, z[0], z[1], fd, z[2], z[3], z[4], wg);
    for (int i = 0; i < 5; i++) check(!memcmp(y[i], z[i], (size_t)sizes[i] * 4), "shape %d: level %d", number, level);
  }
  unsetenv("PP_CPU_LEVEL");
  for (int i = 0; i < 5; i++) free(r[i]), free(x[i]), free(y[i]), free(z[i]);
  free(q); free(k); free(v); free(dout); free(fq); free(fk); free(fv); free(fd); free(w); free(wg);
}

static void test_matmul(int ta, int tb, int accumulate, int64_t batch, int64_t m, int64_t n, int64_t k) {
  double *a = fill(batch * m * k + 1), *b = fill(batch * k * n + 1), *c = fill(batch * m * n), *r = malloc((size_t)(batch * m * n) * 8);
  float *fa = narrow(a, batch * m * k + 1), *fb = narrow(b, batch * k * n + 1), *fc = narrow(c, batch * m * n);
  for (int64_t i = 0; i < batch * m * n; i++) {
    int64_t g = i / (m * n), row = i / n % m, col = i % n;
    r[i] = accumulate ? c[i] : 0;
    for (int64_t p = 0; p < k; p++)
      r[i] += a[g * m * k + (ta ? p * m + row : row * k + p)] * b[g * k * n + (tb ? col * k + p : p * n + col)];
  }
  pp_matmul_f64(ta, tb, batch, m, n, k, a, b, c, accumulate);
  pp_matmul_f32(ta, tb, batch, m, n, k, fa, fb, fc, accumulate);
  check(distance(r, c, batch * m * n) < 1e-14, "matmul f64 %d %d", ta * 2 + tb, (int)k);
  check(distance_f32(r, fc, batch * m * n) < 1e-5, "matmul f32 %d %d", ta * 2 + tb, (int)k);
  free(a); free(b); free(c); free(r); free(fa); free(fb); free(fc);
}

/* --- bf16 ------------------------------------------------------------------------------------------ */

static uint16_t *rounded(double *x, int64_t n) {
  uint16_t *y = malloc((size_t)n * sizeof *y);
  for (int64_t i = 0; i < n; i++) y[i] = pp_bf16_from_f32((float)x[i]), x[i] = (double)pp_f32_from_bf16(y[i]);
  return y;
}
static double distance_bf16(const double *a, const uint16_t *b, int64_t n) {
  double *w = malloc((size_t)n * sizeof *w);
  for (int64_t i = 0; i < n; i++) w[i] = (double)pp_f32_from_bf16(b[i]);
  double d = distance(a, w, n);
  free(w);
  return d;
}

/* Ties to even, infinities, NaN. */
static void test_rounding(void) {
  static const struct {
    uint32_t from;
    uint16_t to;
  } cases[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81}, {0x7f7fffff, 0x7f80},
               {0xff800000, 0xff80}, {0x80000000, 0x8000}, {0x00008001, 0x0001}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    float x;
    memcpy(&x, &cases[i].from, sizeof x);
    check(pp_bf16_from_f32(x) == cases[i].to, "bf16 rounding: case %d gives %x", (int)i, pp_bf16_from_f32(x));
  }
  check(isnan(pp_f32_from_bf16(pp_bf16_from_f32(NAN))), "bf16 NaN%d%d", 0, 0);
}

/* Against attention in f64 on the same rounded inputs; the workspace's end is guarded. */
static void test_attention_bf16(pp_attention_shape s) {
  int64_t nq = s.batch * s.heads * s.t * s.d, nk = s.batch * s.kv_heads * s.t_kv * s.d, nl = nq / s.d;
  double *x[4], *y[6];
  uint16_t *h[4], *g[5];
  for (int i = 0; i < 4; i++) {
    int64_t n = i == 1 || i == 2 ? nk : nq;
    x[i] = fill(n), h[i] = rounded(x[i], n);
  }
  for (int i = 0; i < 6; i++) y[i] = calloc((size_t)(nq + nk), sizeof **y);
  plain(&s, x[0], x[1], x[2], x[3], y[0], y[1], y[2], y[3], y[4]);
  for (int i = 0; i < 5; i++) g[i] = malloc((size_t)(nq + nk) * sizeof **g);
  float *lse = malloc((size_t)nl * sizeof *lse);
  for (int gradient = 0; gradient < 2; gradient++) {
    size_t bytes = (size_t)pp_attention_bf16_workspace_bytes(s.heads / s.kv_heads, s.t, s.t_kv, s.d, gradient);
    unsigned char *workspace = aligned_alloc(PP_ALIGNMENT, (bytes + 2 * PP_ALIGNMENT) / PP_ALIGNMENT * PP_ALIGNMENT);
    memset(workspace + bytes, 0x5a, PP_ALIGNMENT);
    if (gradient) PP_LEVELED(pp_attention_grad_bf16)(&s, h[0], h[1], h[2], g[0], lse, h[3], g[1], g[2], g[3], workspace);
    else PP_LEVELED(pp_attention_bf16)(&s, h[0], h[1], h[2], g[0], lse, workspace);
    for (int i = 0; i < PP_ALIGNMENT; i++) check(workspace[bytes + (size_t)i] == 0x5a, "bf16: written behind the workspace at %d (%d)", i, gradient);
    free(workspace);
  }
  check(distance_bf16(y[0], g[0], nq) < 4e-3 && distance_f32(y[1], lse, nl) < 1e-5, "bf16 attention, t %d, d %d", (int)s.t, (int)s.d);
  check(distance_bf16(y[2], g[1], nq) < 8e-3 && distance_bf16(y[3], g[2], nk) < 8e-3 && distance_bf16(y[4], g[3], nk) < 8e-3,
        "gradient of bf16 attention, t %d, d %d", (int)s.t, (int)s.d);
  for (int i = 0; i < 4; i++) free(x[i]), free(h[i]);
  for (int i = 0; i < 6; i++) free(y[i]);
  for (int i = 0; i < 5; i++) free(g[i]);
  free(lse);
}

/* Products of bf16 numbers are exact in f64: against a triple loop, added to what is there. */
static void test_matmul_bf16(int ta, int tb, int64_t m, int64_t n, int64_t k) {
  double *a = fill(2 * m * k), *b = fill(2 * k * n), *expected = calloc((size_t)(2 * m * n), sizeof *expected);
  uint16_t *x = rounded(a, 2 * m * k), *y = rounded(b, 2 * k * n);
  float *c = calloc((size_t)(2 * m * n), sizeof *c);
  for (int64_t p = 0; p < 2; p++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++)
        for (int64_t l = 0; l < k; l++)
          expected[(p * m + i) * n + j] += 2 * a[p * m * k + (ta ? l * m + i : i * k + l)] * b[p * k * n + (tb ? j * k + l : l * n + j)];
  pp_matmul_bf16(ta, tb, 2, m, n, k, x, y, c, 0);
  pp_matmul_bf16(ta, tb, 2, m, n, k, x, y, c, 1);
  check(distance_f32(expected, c, 2 * m * n) < 1e-6, "bf16 product of %d, %d transposed", ta, tb);
  free(a), free(b), free(expected), free(x), free(y), free(c);
}

static void test_bf16(void) {
  test_rounding();
  test_attention_bf16((pp_attention_shape){2, 4, 2, 70, 70, 8, 1, 0.35});
  test_attention_bf16((pp_attention_shape){1, 3, 1, 5, 9, 16, 0, 0.25});
  for (int i = 0; i < 4; i++) test_matmul_bf16(i & 1, i >> 1, 270, 33, 515);
}

int main(void) {
  pp_matmul_set_threads(1);
  for (int i = 0; i < 8; i++) {
    test_matmul(i & 1, i >> 1 & 1, i >> 2, 3, 17, 23, 9);
    test_matmul(i & 1, i >> 1 & 1, i >> 2, 2, 5, 1, 0);
    test_matmul(i & 1, i >> 1 & 1, i >> 2, 1, 64, 48, 80);
  }
  if (!n_failed) printf("ok matmul\n");
  static const pp_attention_shape shapes[] = {
      {2, 3, 3, 16, 16, 8, 1, 0.35}, {1, 2, 1, 130, 130, 16, 1, 0.25}, {2, 4, 2, 70, 70, 5, 0, 0.4}, {1, 4, 1, 128, 128, 32, 1, 0.17},
      {1, 1, 1, 3, 90, 4, 0, 0.5},   {1, 2, 2, 65, 100, 7, 1, 0.3},    {1, 2, 2, 100, 70, 6, 1, 0.3}, {1, 1, 1, 1, 1, 1, 1, 1.0},
  };
  for (int i = 0; i < (int)(sizeof shapes / sizeof shapes[0]); i++) {
    int before = n_failed;
    test_shape(shapes[i], i);
    if (n_failed == before) printf("ok attention shape %d\n", i);
  }
  int before = n_failed;
  test_bf16();
  if (n_failed == before) printf("ok bf16\n");
  return n_failed != 0;
}
