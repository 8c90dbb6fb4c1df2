/* Attention against a plain f64 version, and its gradient against central differences of that and
 * against the derivative written out; causal and not, grouped heads, uneven blocks, t != t_kv; the
 * workspace's end is guarded; f32 within rounding of f64. Also pp_matmul against a triple loop. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/kernels/level.h"
#include "runtime/pp.h"

pp_attention_f32_fn PP_LEVELED(pp_attention_f32);
pp_attention_grad_f32_fn PP_LEVELED(pp_attention_grad_f32);
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
  return n_failed != 0;
}
