/* Reports, settings, random numbers, and the lock that lets one call of a program into the libraries at a time. A program
 * is set up when libcudart is loaded and judged when it ends: what still runs, what it never gave back. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"

enum { MAX_TOLD = 256, MAX_REPORT = 1024 };

CheckHooks check_hooks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int depth; /* of this thread's calls into the libraries */
static char *told[MAX_TOLD];
static int n_told, rank;
static uint64_t random_state;
static cudaError_t last_error;

/* ---- the lock ---- */

int check_call_begin(void) {
  if (depth++ > 0) return 0;
  pthread_mutex_lock(&lock);
  check_host_function_calls();
  return 0;
}

void check_call_end(int *guard) {
  (void)guard;
  if (--depth == 0) pthread_mutex_unlock(&lock);
}

int check_lock_give(void) {
  int had = depth;
  depth = 0;
  if (had) pthread_mutex_unlock(&lock);
  return had;
}

void check_lock_take(int had) {
  if (had) pthread_mutex_lock(&lock);
  depth = had;
}

/* ---- settings and random numbers ---- */

long check_setting(const char *name, const char *second, long otherwise) {
  const char *text = getenv(name);
  char *end;
  if (!text && second) text = getenv(name = second);
  if (!text) return otherwise;
  long value = strtol(text, &end, 10);
  if (end == text || *end) check_fatal("internal", "%s=%s is no number", name, text);
  return value;
}

uint32_t check_random(uint32_t limit) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (uint32_t)((random_state >> 32) % limit);
}

int check_rank(void) { return rank; }
const char *check_program(void) { return program_invocation_short_name; }

/* ---- reports ---- */

/* Equal but for "+offset": one report. */
static bool is_told(const char *text) {
  char key[MAX_REPORT];
  size_t n = 0;
  for (const char *c = text; *c && n < sizeof key - 1; c++) {
    if (*c == '+' && c[1] >= '0' && c[1] <= '9') c += 1 + strspn(c + 1, "0123456789");
    if (!*c) break;
    key[n++] = *c;
  }
  key[n] = 0;
  for (int i = 0; i < n_told; i++)
    if (strcmp(told[i], key) == 0) return true;
  if (n_told == MAX_TOLD) return true;
  told[n_told++] = strdup(key);
  return false;
}

/* One write, so that lines of several ranks don't mix. */
static void report(const char *kind, const char *format, va_list arguments) {
  char text[MAX_REPORT], line[MAX_REPORT + 128];
  int n = snprintf(text, sizeof text, "%s: ", kind);
  vsnprintf(text + n, sizeof text - (size_t)n, format, arguments);
  if (is_told(text)) return;
  n = snprintf(line, sizeof line, "ppc-check: %s: %s\n", check_program(), text);
  ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
  (void)ignored;
}

void check_report(const char *kind, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report(kind, format, arguments);
  va_end(arguments);
}

void check_fatal(const char *kind, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report(kind, format, arguments);
  va_end(arguments);
  if (check_hooks.finish) check_hooks.finish();
  fflush(NULL);
  _exit(CHECK_EXIT);
}

bool check_has_reports(void) { return n_told > 0; }

cudaError_t check_error(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t check_misuse(cudaError_t error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  report("misuse", format, arguments);
  va_end(arguments);
  return check_error(error);
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

/* ---- start and end ---- */

/* A program that fails needn't give everything back, but its peers would wait for ever on a communicator. */
static void judge(int status, void *unused) {
  char pending[MAX_REPORT];
  (void)unused;
  if (depth == 0) check_call_begin();
  check_list_pending(pending, sizeof pending);
  if (status == 0 && pending[0]) check_report("unfinished", "the program ends before %s", pending);
  check_objects_list(status == 0 ? NULL : "communicator");
  if (check_hooks.finish) check_hooks.finish();
  fflush(NULL);
  if (check_has_reports()) _exit(CHECK_EXIT);
}

__attribute__((constructor(101))) static void set_up(void) {
  long seed = check_setting("PPC_CHECK_SEED", NULL, 0);
  rank = (int)check_setting("PPC_CHECK_RANK", "PPC_RANK", 0);
  if (rank < 0 || rank >= MAX_RANKS) check_fatal("unsupported", "more than %d ranks", MAX_RANKS);
  random_state = 0x9e3779b97f4a7c15u * (uint64_t)(seed * MAX_RANKS + rank + 1);
  for (int i = 0; i < 8; i++) check_random(2);
  on_exit(judge, NULL);
}
