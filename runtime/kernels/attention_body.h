/* Attention for one type: REAL is float or double, T(name) adds the type's suffix.
 *
 * Query rows are taken PP_ATTENTION_ROWS at a time: scores = Q·Kᵀ for the keys that these rows may
 * see, a softmax in place, then out = P·V divided by the row's sum. Keys above the diagonal of a
 * causal block are neither multiplied nor read; so a workspace of rows × t_kv is enough. The gradient
 * makes P again from the log-sum-exp. Sums over keys have 16 fixed lanes; dK and dV are added up
 * over query heads ascending and, within a head, over blocks descending: one order, always.
 * With t != t_kv row i of a causal mask sees keys 0 … i + t_kv - t; a row that sees none gives 0.
 * Not here: masks other than causal, dropout, threads of its own. */

/* Columns 0 … n - 1 of a row: x = scale·x; returns the maximum. */
static REAL T(scale_row)(REAL *restrict x, int64_t n, REAL scale) {
  REAL lane[PP_LANES];
  for (int l = 0; l < PP_LANES; l++) lane[l] = -(REAL)INFINITY;
  int64_t j = 0;
  for (; j + PP_LANES <= n; j += PP_LANES) {
#pragma omp simd
    for (int l = 0; l < PP_LANES; l++) {
      REAL v = x[j + l] * scale;
      x[j + l] = v;
      lane[l] = T(pp_max)(v, lane[l]);
    }
  }
  for (int l = 0; j + l < n; l++) {
    x[j + l] *= scale;
    lane[l] = T(pp_max)(x[j + l], lane[l]);
  }
  return T(pp_fold_max)(lane, 1);
}

/* x = exp(x - shift); returns the sum. */
static REAL T(exp_row)(REAL *restrict x, int64_t n, REAL shift) {
  REAL lane[PP_LANES] = {0};
  int64_t j = 0;
  for (; j + PP_LANES <= n; j += PP_LANES) {
#pragma omp simd
    for (int l = 0; l < PP_LANES; l++) {
      REAL v = T(pp_exp)(x[j + l] - shift);
      x[j + l] = v;
      lane[l] += v;
    }
  }
  for (int l = 0; j + l < n; l++) {
    x[j + l] = T(pp_exp)(x[j + l] - shift);
    lane[l] += x[j + l];
  }
  return T(pp_fold_sum)(lane, 1);
}

static REAL T(dot_row)(const REAL *restrict x, const REAL *restrict y, int64_t n) {
  REAL lane[PP_LANES] = {0};
  int64_t j = 0;
  for (; j + PP_LANES <= n; j += PP_LANES) {
#pragma omp simd
    for (int l = 0; l < PP_LANES; l++) lane[l] += x[j + l] * y[j + l];
  }
  for (int l = 0; j + l < n; l++) lane[l] += x[j + l] * y[j + l];
  return T(pp_fold_sum)(lane, 1);
}

/* p: scores → probabilities; dp → scores' gradient: scale·p·(dp - d). */
static void T(grad_row)(REAL *restrict p, REAL *restrict dp, int64_t n, REAL scale, REAL lse, REAL d) {
#pragma omp simd
  for (int64_t j = 0; j < n; j++) {
    REAL v = T(pp_exp)(p[j] * scale - lse);
    p[j] = v;
    dp[j] = v * (dp[j] - d) * scale;
  }
}

/* Keys that query row i sees. */
static int64_t T(n_visible)(const pp_attention_shape *s, int64_t i) {
  if (!s->causal) return s->t_kv;
  int64_t n = i + 1 + s->t_kv - s->t;
  return n < 0 ? 0 : n > s->t_kv ? s->t_kv : n;
}

static void T(zero)(REAL *x, int64_t n) { memset(x, 0, (size_t)(n > 0 ? n : 0) * sizeof *x); }

/* Rows first … first + rows - 1 of one head; q, out, lse begin at the first of them. */
static void T(attention_block)(const pp_attention_shape *s, int64_t first, int64_t rows, const REAL *q,
                               const REAL *k, const REAL *v, REAL *out, REAL *lse, REAL *scores) {
  REAL factor[PP_ATTENTION_ROWS];
  int64_t keys = T(n_visible)(s, first + rows - 1);
  T(pp_matmul)(0, 1, 1, rows, keys, s->d, q, k, scores, 0);
  for (int64_t i = 0; i < rows; i++) {
    int64_t n = T(n_visible)(s, first + i);
    REAL *row = scores + i * keys;
    REAL max = T(scale_row)(row, n, (REAL)s->scale);
    REAL sum = T(exp_row)(row, n, max);
    T(zero)(row + n, keys - n);
    lse[i] = n > 0 ? max + T(pp_log)(sum) : -(REAL)INFINITY;
    factor[i] = n > 0 ? (REAL)1 / sum : (REAL)0;
  }
  T(pp_matmul)(0, 0, 1, rows, s->d, keys, scores, v, out, 0);
  for (int64_t i = 0; i < rows; i++) {
#pragma omp simd
    for (int64_t c = 0; c < s->d; c++) out[i * s->d + c] *= factor[i];
  }
}

/* The same rows of the gradient: writes dq, adds to dk and dv (overwrites them when `accumulate` is
 * 0, which needs a block that sees all keys). p and dp: rows × keys each. */
static void T(attention_grad_block)(const pp_attention_shape *s, int64_t first, int64_t rows, const REAL *q,
                                    const REAL *k, const REAL *v, const REAL *out, const REAL *lse,
                                    const REAL *dout, REAL *dq, REAL *dk, REAL *dv, int accumulate, REAL *p) {
  int64_t keys = T(n_visible)(s, first + rows - 1), d = s->d;
  REAL *dp = p + PP_ATTENTION_ROWS * s->t_kv;
  T(pp_matmul)(0, 1, 1, rows, keys, d, q, k, p, 0);
  T(pp_matmul)(0, 1, 1, rows, keys, d, dout, v, dp, 0);
  for (int64_t i = 0; i < rows; i++) {
    int64_t n = T(n_visible)(s, first + i);
    REAL delta = T(dot_row)(dout + i * d, out + i * d, d);
    T(grad_row)(p + i * keys, dp + i * keys, n, (REAL)s->scale, lse[i], delta);
    T(zero)(p + i * keys + n, keys - n);
    T(zero)(dp + i * keys + n, keys - n);
  }
  T(pp_matmul)(0, 0, 1, rows, d, keys, dp, k, dq, 0);
  T(pp_matmul)(1, 0, 1, keys, d, rows, dp, q, dk, accumulate);
  T(pp_matmul)(1, 0, 1, keys, d, rows, p, dout, dv, accumulate);
}

static int64_t T(n_rows)(const pp_attention_shape *s, int64_t first) {
  return s->t - first < PP_ATTENTION_ROWS ? s->t - first : PP_ATTENTION_ROWS;
}

void PP_LEVELED(T(pp_attention))(const pp_attention_shape *s, const REAL *q, const REAL *k, const REAL *v,
                                 REAL *out, REAL *lse, void *workspace) {
  for (int64_t h = 0; h < s->batch * s->heads; h++) {
    int64_t kv = h / s->heads * s->kv_heads + h % s->heads / (s->heads / s->kv_heads);
    const REAL *key = k + kv * s->t_kv * s->d, *value = v + kv * s->t_kv * s->d;
    for (int64_t first = 0; first < s->t; first += PP_ATTENTION_ROWS) {
      int64_t at = h * s->t + first;
      T(attention_block)(s, first, T(n_rows)(s, first), q + at * s->d, key, value, out + at * s->d, lse + at, workspace);
    }
  }
}

void PP_LEVELED(T(pp_attention_grad))(const pp_attention_shape *s, const REAL *q, const REAL *k, const REAL *v,
                                      const REAL *out, const REAL *lse, const REAL *dout, REAL *dq, REAL *dk,
                                      REAL *dv, void *workspace) {
  int64_t group = s->heads / s->kv_heads, size = s->t_kv * s->d;
  for (int64_t h = 0; h < s->batch * s->heads; h++) {
    int64_t kv = h / s->heads * s->kv_heads + h % s->heads / group;
    int64_t last = (s->t - 1) / PP_ATTENTION_ROWS * PP_ATTENTION_ROWS;
    for (int64_t first = last; first >= 0; first -= PP_ATTENTION_ROWS) {
      int64_t at = h * s->t + first, row = at * s->d;
      /* the last block sees every key, so the first to write a head's dk and dv covers them */
      int accumulate = h % group != 0 || first != last;
      T(attention_grad_block)(s, first, T(n_rows)(s, first), q + row, k + kv * size, v + kv * size, out + row, lse + at,
                              dout + row, dq + row, dk + kv * size, dv + kv * size, accumulate, workspace);
    }
  }
}
