/* The log, printed once per job by the rank that has the loss: a live line on a terminal, plain
 * lines elsewhere, or JSON. Nothing here decides anything: a closed output only ends the printing. */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void pp_format_real(double value, int is_f32, char out_text[PP_REAL_BYTES]) {
  int low = is_f32 ? 6 : 15, high = is_f32 ? 9 : 17;
  if (!isfinite(value)) {
    snprintf(out_text, PP_REAL_BYTES, "null");
    return;
  }
  for (int digits = low; digits <= high; digits++) {
    snprintf(out_text, PP_REAL_BYTES, "%.*g", digits, is_f32 ? (double)(float)value : value);
    if (is_f32 ? strtof(out_text, NULL) == (float)value : strtod(out_text, NULL) == value) return;
  }
}

/* --- writing ------------------------------------------------------------------------------------ */

/* A reader that has gone away (head, a closed pager) is no fault; a full disk is, but the run goes on. */
static void write_out(pp_rank *rank, const char *text, size_t n) {
  pp_log *log = &rank->log;
  while (n > 0 && !log->closed) {
    ssize_t written = write(STDOUT_FILENO, text, n);
    if (written < 0 && errno == EINTR && !pp_failing(rank)) continue;
    if (written < 0) {
      log->closed = 1;
      log->failed = errno != EPIPE && errno != EINTR;
      if (log->failed) pp_warn(rank, "can't write the log to standard output: %s", strerror(errno));
      return;
    }
    text += written;
    n -= (size_t)written;
  }
}

/* The line under construction; what doesn't fit is cut. */
static void add(pp_log *log, const char *format, ...) PP_PRINTF(2, 3);
static void add(pp_log *log, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(log->line + log->used, log->line_bytes - log->used, format, arguments);
  va_end(arguments);
  if (n > 0) log->used += (size_t)n;
  if (log->used >= log->line_bytes) log->used = log->line_bytes - 1;
}

static void flush_line(pp_rank *rank) {
  write_out(rank, rank->log.line, rank->log.used);
  rank->log.used = 0;
}

static void add_real(pp_log *log, double value, int is_f32) {
  char text[PP_REAL_BYTES];
  pp_format_real(value, is_f32, text);
  add(log, "%s", text);
}

static void add_name(pp_log *log, const char *name) {
  add(log, "\"");
  for (; *name; name++) {
    if (*name == '"' || *name == '\\') add(log, "\\%c", *name);
    else if ((unsigned char)*name < 0x20) add(log, "\\u%04x", *name);
    else add(log, "%c", *name);
  }
  add(log, "\"");
}

/* --- outputs ------------------------------------------------------------------------------------ */

/* Folded in microbatch order. A mean is over equal parts, so it is the mean of their means. */
static double fold_output(const pp_output *o, const double *values, int n_microbatches) {
  double folded = values[0];
  for (int i = 1; i < n_microbatches; i++) {
    if (o->kind == PP_REDUCE_MAX) folded = values[i] > folded || isnan(values[i]) ? values[i] : folded;
    else folded += values[i];
  }
  return o->kind == PP_REDUCE_MEAN ? folded / n_microbatches : folded;
}

static int64_t output_length(const pp_rank *rank, int k) {
  const pp_output *o = &rank->program->outputs[k];
  return o->kind == PP_REDUCE_CONCAT ? o->n * rank->program->n_microbatches : 1;
}

static void add_output_json(pp_rank *rank, int k) {
  const pp_output *o = &rank->program->outputs[k];
  const double *values = rank->seen.outputs[k];
  add_name(&rank->log, o->name);
  add(&rank->log, ":");
  if (o->kind != PP_REDUCE_CONCAT) {
    add_real(&rank->log, fold_output(o, values, rank->program->n_microbatches), 0);
    return;
  }
  for (int64_t i = 0; i < output_length(rank, k); i++) {
    add(&rank->log, i ? "," : "[");
    add_real(&rank->log, values[i], 0);
  }
  add(&rank->log, "]");
}

/* --- a step ------------------------------------------------------------------------------------- */

static double steps_per_second(const pp_log *log, int64_t steps) {
  uint64_t now = pp_now_ns();
  return now > log->start_ns ? (double)steps * 1e9 / (double)(now - log->start_ns) : 0;
}

/* Work of one step: tokens, or samples where the data are no tokens. */
static double work_per_step(const pp_program *program) {
  if (program->tokens_per_step > 0) return (double)program->tokens_per_step;
  return (double)program->n_microbatches * program->microbatch;
}

static const char *unit_of_work(const pp_program *program) { return program->tokens_per_step > 0 ? "tokens" : "samples"; }

/* For text: a NaN has a sign, which says nothing. */
static double unsigned_nan(double value) { return isnan(value) ? (double)NAN : value; }

static int is_skipped(const double *control) { return control[PP_CONTROL_APPLY] == 0; }

static void step_json(pp_rank *rank, int64_t step, const double *control, double work_per_s) {
  pp_log *log = &rank->log;
  int is_f32 = rank->program->real != PP_F64;
  add(log, "{\"step\":%lld,\"loss\":", (long long)step);
  add_real(log, control[PP_CONTROL_LOSS], is_f32);
  add(log, ",\"lr\":");
  add_real(log, control[PP_CONTROL_RATE], 0);
  add(log, ",\"grad_norm\":");
  add_real(log, control[PP_CONTROL_NORM], 0);
  if (rank->seen.loss_scale) {
    add(log, ",\"loss_scale\":");
    add_real(log, rank->seen.loss_scale[PP_LOSS_SCALE_LAST], is_f32);
    add(log, ",\"skipped\":%s", is_skipped(control) ? "true" : "false");
  }
  add(log, ",\"%s_per_s\":%.0f", unit_of_work(rank->program), work_per_s);
  for (int k = 0; k < rank->program->n_outputs; k++) {
    add(log, k ? "," : ",\"outputs\":{");
    add_output_json(rank, k);
  }
  add(log, rank->program->n_outputs ? "}}\n" : "}\n");
}

static void add_rate(pp_log *log, double work_per_s, const char *unit) {
  if (work_per_s >= 1e6) add(log, "  %.2fM %s/s", work_per_s * 1e-6, unit);
  else if (work_per_s >= 1e4) add(log, "  %.1fk %s/s", work_per_s * 1e-3, unit);
  else add(log, "  %.0f %s/s", work_per_s, unit);
}

static void add_eta(pp_log *log, double seconds) {
  long long s = (long long)(seconds + 0.5);
  if (s >= 3600) add(log, "  ETA %lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else add(log, "  ETA %lld:%02lld", s / 60, s % 60);
}

/* A line that wraps can't be written over. The first byte is the carriage return. */
static void cut_to_terminal(pp_log *log) {
  struct winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return;
  if (log->used > size.ws_col) log->used = size.ws_col;
}

static void step_text(pp_rank *rank, int64_t step, const double *control, double work_per_s, double eta_s) {
  const pp_program *program = rank->program;
  pp_log *log = &rank->log;
  int width = snprintf(NULL, 0, "%lld", (long long)rank->options->steps);
  add(log, "%sstep %*lld/%lld  loss %.4f", log->live ? "\r" : "", width, (long long)step, (long long)rank->options->steps,
      unsigned_nan(control[PP_CONTROL_LOSS]));
  if (!isnan(control[PP_CONTROL_RATE])) add(log, "  lr %.3g", control[PP_CONTROL_RATE]);
  add(log, "  norm %.4g", unsigned_nan(control[PP_CONTROL_NORM]));
  if (rank->seen.loss_scale)
    add(log, "  scale %.6g%s", rank->seen.loss_scale[PP_LOSS_SCALE_LAST], is_skipped(control) ? " (skipped)" : "");
  for (int k = 0; k < program->n_outputs; k++) {
    const double *values = rank->seen.outputs[k];
    if (program->outputs[k].kind == PP_REDUCE_CONCAT) continue; /* many values: only in JSON */
    add(log, "  %s %.4g", program->outputs[k].name, unsigned_nan(fold_output(&program->outputs[k], values, program->n_microbatches)));
  }
  add_rate(log, work_per_s, unit_of_work(program));
  add_eta(log, eta_s);
  if (log->live) cut_to_terminal(log);
  add(log, log->live ? "\033[K" : "\n");
  if (log->live) atomic_store(&rank->board->line_is_open, 1);
}

/* On a terminal more than about ten lines a second only cost time; the last one is always shown. */
static int is_too_soon(pp_log *log, int last) {
  uint64_t now = pp_now_ns();
  if (!log->live || last || now - log->shown_ns > 100000000u) {
    log->shown_ns = now;
    return 0;
  }
  return 1;
}

void pp_log_step(pp_rank *rank, int64_t step) {
  pp_log *log = &rank->log;
  const double *control = rank->seen.control;
  double rate = steps_per_second(log, step);
  double work_per_s = rate * work_per_step(rank->program);
  rank->last_loss = control[PP_CONTROL_LOSS];
  if (log->json) {
    step_json(rank, step, control, work_per_s);
  } else if (!log->quiet && !is_too_soon(log, step == rank->options->steps)) {
    step_text(rank, step, control, work_per_s, rate > 0 ? (double)(rank->options->steps - step) / rate : 0);
  }
  flush_line(rank);
}

/* Whoever writes a message to the same terminal may have ended the line already. */
void pp_log_close_line(pp_rank *rank) {
  if (rank->log.live && atomic_exchange(&rank->board->line_is_open, 0)) write_out(rank, "\n", 1);
}

/* --- the end ------------------------------------------------------------------------------------ */

static uint64_t pinned_bytes(const pp_rank *rank) {
  uint64_t sum = 0;
  for (int r = 0; r < rank->program->n_ranks; r++) sum += rank->slots[r].pinned_bytes;
  return sum;
}

/* Which algorithms the products take, what the libraries have taken of each rank's device, what moves transfers. */
static void add_device(pp_rank *rank) {
  pp_log *log = &rank->log;
  add(log, ",\"products\":\"%016llx\",\"library_bytes\":[", (unsigned long long)rank->slot->device_digest);
  for (int r = 0; r < rank->program->n_ranks; r++)
    add(log, "%s%llu", r ? "," : "", (unsigned long long)rank->slots[r].library_bytes);
  add(log, "],\"transport\":\"%s\"", atomic_load(&rank->transport)->name);
  if (pinned_bytes(rank)) add(log, ",\"pinned_bytes\":%llu", (unsigned long long)pinned_bytes(rank));
}

void pp_log_done(pp_rank *rank) {
  pp_log *log = &rank->log;
  const pp_program *program = rank->program;
  pp_log_close_line(rank);
  if (!log->json) return;
  add(log, "{\"done\":true,\"steps\":%lld,\"loss\":", (long long)rank->steps_done);
  add_real(log, rank->steps_done ? rank->last_loss : NAN, program->real != PP_F64);
  add(log, ",\"parameters\":\"%s\",\"optimizer\":\"%s\",\"mapped_bytes\":[", rank->board->parameters_hash,
      rank->board->optimizer_hash);
  for (int r = 0; r < program->n_ranks; r++) {
    add(log, "%s%llu", r ? "," : "", (unsigned long long)program->all_mapped_bytes[r]);
  }
  add(log, "],\"peak_rss_bytes\":[");
  for (int r = 0; r < program->n_ranks; r++) {
    add(log, "%s%llu", r ? "," : "", (unsigned long long)atomic_load(&rank->slots[r].peak_rss_bytes));
  }
  add(log, "]");
  if (program->device->describe) add_device(rank);
  add(log, "}\n");
  flush_line(rank);
}

static size_t line_bytes(const pp_rank *rank) {
  size_t n = 1024 + 96 * (size_t)rank->program->n_ranks;
  for (int k = 0; k < rank->program->n_outputs; k++) {
    n += 2 * strlen(rank->program->outputs[k].name) + 32 * (size_t)output_length(rank, k) + 16;
  }
  return n;
}

pp_status pp_log_create(pp_rank *rank) {
  pp_log *log = &rank->log;
  const char *terminal = getenv("TERM");
  if (rank->program->rank != rank->program->loss_rank) return PP_OK;
  log->json = rank->options->json;
  log->quiet = rank->options->quiet;
  log->live = !log->json && !log->quiet && isatty(STDOUT_FILENO) && !(terminal && strcmp(terminal, "dumb") == 0);
  log->line_bytes = line_bytes(rank);
  log->line = malloc(log->line_bytes);
  if (!log->line) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  log->start_ns = pp_now_ns();
  if (log->json || log->quiet || rank->program->generate) return PP_OK;
  if (*rank->about) add(log, "rank %d is on %s\n", rank->program->rank, rank->about);
  if (pinned_bytes(rank)) add(log, "transfers go through the host's memory, of which %llu bytes are pinned\n", (unsigned long long)pinned_bytes(rank));
  if (log->used) flush_line(rank);
  return PP_OK;
}

void pp_log_destroy(pp_rank *rank) {
  pp_log_close_line(rank);
  free(rank->log.line);
  rank->log.line = NULL;
}
