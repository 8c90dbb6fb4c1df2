/* Generation with a forward-only program: the text so far, right-padded, goes through the model; the
 * logits at its last place give the next token. When the text is longer than the model's context,
 * its end is taken. One rank. */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLE_STREAM = 0x73616d70, MAX_TOKEN_TEXT = 24 };

typedef struct {
  pp_rank *rank;
  int32_t *tokens; /* prompt, then what was generated */
  int64_t n;
  int32_t *context;         /* [length] what the model is shown of them */
  void *row;                /* [vocabulary] logits as the model has them */
  double *logits, *scratch; /* [vocabulary] */
  int is_text;              /* a token is a byte */
} Generator;

/* --- choosing a token ------------------------------------------------------------------------------ */

static int64_t first_largest(const double *values, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; i++) {
    if (values[i] > values[best]) best = i;
  }
  return best;
}

static int descending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x < y) - (x > y);
}

/* Weights of the tokens that may be drawn, exp((logit - max) / temperature); among equals at the limit
 * the first ones count. Returns their sum. */
static double weigh(const double *logits, int64_t n, double temperature, int64_t top_k, double *out_weights) {
  double limit = -INFINITY, largest = logits[first_largest(logits, n)], sum = 0;
  int64_t equals = n;
  if (top_k > 0 && top_k < n) {
    memcpy(out_weights, logits, (size_t)n * sizeof *logits);
    qsort(out_weights, (size_t)n, sizeof *out_weights, descending);
    limit = out_weights[top_k - 1];
    equals = top_k;
    for (int64_t i = 0; i < n; i++) equals -= logits[i] > limit;
  }
  for (int64_t i = 0; i < n; i++) {
    int counts = logits[i] > limit || (logits[i] == limit && equals-- > 0);
    out_weights[i] = counts ? exp((logits[i] - largest) / temperature) : 0;
    sum += out_weights[i];
  }
  return sum;
}

int64_t pp_sample(const double *logits, int64_t n, double temperature, int64_t top_k, double uniform, double *scratch) {
  if (temperature == 0 || top_k == 1) return first_largest(logits, n);
  double left = uniform * weigh(logits, n, temperature, top_k, scratch);
  int64_t last = 0;
  for (int64_t i = 0; i < n; i++) {
    if (scratch[i] == 0) continue;
    last = i;
    left -= scratch[i];
    if (left < 0) return i;
  }
  return last; /* rounding */
}

/* --- the prompt ------------------------------------------------------------------------------------ */

static pp_status append_token(Generator *g, int64_t token) {
  int64_t vocabulary = g->rank->program->vocabulary;
  if (token >= vocabulary) {
    return pp_fail(g->rank, PP_EXIT_INPUT, "--prompt: token %lld is outside the vocabulary of %lld", (long long)token,
                   (long long)vocabulary);
  }
  g->tokens[g->n++] = (int32_t)token;
  return PP_OK;
}

/* Numbers apart by blanks or commas. */
static pp_status read_numbers(Generator *g, const char *text) {
  static const char blanks[] = " \t\n,";
  for (text += strspn(text, blanks); *text; text += strspn(text, blanks)) {
    char number[MAX_TOKEN_TEXT];
    size_t n = strcspn(text, blanks);
    int64_t token = 0;
    snprintf(number, sizeof number, "%.*s", (int)(n < 40 ? n : 40), text);
    if (n >= sizeof number || !pp_parse_i64(number, &token)) {
      return pp_fail(g->rank, PP_EXIT_INPUT, "--prompt: %s is no token's number", number);
    }
    PP_TRY(append_token(g, token));
    text += n;
  }
  return PP_OK;
}

/* Without a prompt the text begins after a line's end, or with token 0. */
static pp_status read_prompt(Generator *g) {
  const char *prompt = g->rank->options->prompt;
  if (prompt && !g->is_text) PP_TRY(read_numbers(g, prompt));
  for (size_t i = 0; prompt && g->is_text && prompt[i]; i++) PP_TRY(append_token(g, (unsigned char)prompt[i]));
  if (g->n > 0) return PP_OK;
  return append_token(g, g->is_text && g->rank->program->vocabulary > '\n' ? '\n' : 0);
}

/* --- the loop -------------------------------------------------------------------------------------- */

static pp_status write_context(const Generator *g) {
  const pp_program *program = g->rank->program;
  size_t size_bytes = (size_t)program->length * sizeof *g->context;
  int64_t used = g->n < program->length ? g->n : program->length;
  memset(g->context, 0, size_bytes);
  memcpy(g->context, g->tokens + (g->n - used), (size_t)used * sizeof *g->context);
  return program->device->write(g->rank, pp_address(g->rank, program->prompt), g->context, size_bytes);
}

static pp_status read_logits(Generator *g) {
  const pp_program *program = g->rank->program;
  const unsigned char *all = pp_address(g->rank, program->logits);
  size_t row_bytes = (size_t)program->vocabulary * (size_t)pp_dtype_bytes((pp_dtype)program->real);
  int64_t place = (g->n < program->length ? g->n : program->length) - 1;
  PP_TRY(program->device->read(g->rank, g->row, all + (size_t)place * row_bytes, row_bytes));
  for (int64_t i = 0; i < program->vocabulary; i++) {
    g->logits[i] = program->real == PP_F64 ? ((const double *)g->row)[i] : (double)((const float *)g->row)[i];
    if (isnan(g->logits[i])) return pp_fail(g->rank, PP_EXIT_FAILED, "the logit of token %lld is not a number", (long long)i);
  }
  return PP_OK;
}

/* 0: nobody reads. */
static int print_token(Generator *g, int32_t token) {
  char text[MAX_TOKEN_TEXT];
  int n = g->is_text ? snprintf(text, sizeof text, "%c", (char)token) : snprintf(text, sizeof text, "%d ", token);
  for (int at = 0; at < n;) {
    ssize_t written = write(STDOUT_FILENO, text + at, (size_t)(n - at));
    if (written < 0 && errno != EINTR) return 0;
    if (written > 0) at += (int)written;
  }
  return 1;
}

static pp_status generate_one(Generator *g, int64_t k) {
  pp_rank *rank = g->rank;
  double uniform;
  int issued = 0;
  rank->step = (uint64_t)k + 1;
  atomic_store_explicit(&rank->slot->step, rank->step, memory_order_relaxed);
  PP_TRY(write_context(g));
  PP_TRY(rank->program->device->begin_step(rank, &issued));
  if (!issued) PP_TRY(pp_run_actions(rank));
  PP_TRY(rank->program->device->end_step(rank, 1));
  PP_TRY(read_logits(g));
  pp_random_fill_unit(rank->options->seed, SAMPLE_STREAM, (uint64_t)k, &uniform, 1);
  int64_t token = pp_sample(g->logits, rank->program->vocabulary, rank->options->temperature, rank->options->top_k, uniform, g->scratch);
  g->tokens[g->n++] = (int32_t)token;
  return PP_OK;
}

static pp_status generate_all(Generator *g) {
  PP_TRY(read_prompt(g));
  for (int64_t k = 0; k < g->rank->options->generate; k++) {
    PP_TRY(generate_one(g, k));
    if (!print_token(g, g->tokens[g->n - 1])) {
      return errno == EPIPE ? PP_OK : pp_fail(g->rank, PP_EXIT_FAILED, "can't write to standard output: %s", strerror(errno));
    }
  }
  if (!g->is_text && write(STDOUT_FILENO, "\n", 1) < 0 && errno != EPIPE) {
    return pp_fail(g->rank, PP_EXIT_FAILED, "can't write to standard output: %s", strerror(errno));
  }
  return PP_OK;
}

pp_status pp_generate(pp_rank *rank) {
  const pp_program *program = rank->program;
  size_t n_prompt = rank->options->prompt ? strlen(rank->options->prompt) : 0;
  Generator g = {.rank = rank, .is_text = program->vocabulary <= 256};
  if (program->n_ranks != 1) return pp_fail(rank, PP_EXIT_BUG, "a program that generates has one rank");
  if (rank->options->generate > INT32_MAX) return pp_fail(rank, PP_EXIT_INPUT, "--generate: too many");
  g.tokens = malloc((n_prompt + (size_t)rank->options->generate + 1) * sizeof *g.tokens);
  g.context = malloc(((size_t)program->length + 1) * sizeof *g.context);
  g.row = malloc((size_t)program->vocabulary * sizeof(double));
  g.logits = malloc((size_t)program->vocabulary * sizeof *g.logits);
  g.scratch = malloc((size_t)program->vocabulary * sizeof *g.scratch);
  int fine = g.tokens && g.context && g.row && g.logits && g.scratch;
  pp_status status = fine ? generate_all(&g) : pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  free(g.tokens);
  free(g.context);
  free(g.row);
  free(g.logits);
  free(g.scratch);
  return status;
}
