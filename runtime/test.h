/* What the runtime's tests share: checks that count, and ranks as child processes. Each test's main
 * prints "ok N name" or "FAIL …" lines and returns 1 when something failed. */
#ifndef PP_TEST_H
#define PP_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int test_failures, test_count;

#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      printf("FAIL %s:%d: %s\n", __FILE__, __LINE__, #condition);           \
      test_failures++;                                                      \
    }                                                                       \
  } while (0)

#define CHECK_TEXT(text, part)                                              \
  do {                                                                      \
    if (!strstr((text), (part))) {                                          \
      printf("FAIL %s:%d: \"%s\" not in \"%s\"\n", __FILE__, __LINE__, (part), (text)); \
      test_failures++;                                                      \
    }                                                                       \
  } while (0)

#define TEST(function)                                                      \
  do {                                                                      \
    int before = test_failures;                                             \
    function();                                                             \
    test_count++;                                                           \
    if (test_failures == before) printf("ok %d %s\n", test_count, #function); \
    else printf("FAIL %s\n", #function);                                    \
    fflush(stdout);                                                         \
  } while (0)

/* --- ranks as processes -------------------------------------------------------------------------- */

enum { TEST_MAX_RANKS = 8, TEST_TEXT_BYTES = 1 << 16 };

typedef struct {
  int n;
  pid_t pids[TEST_MAX_RANKS];
  int status[TEST_MAX_RANKS]; /* exit status, or 128 + signal; -1: still running */
  char directory[64];         /* holds out.R and err.0, or err.R with own_errors */
  int own_errors;             /* each rank's stderr is a file of its own */
  char out[TEST_TEXT_BYTES], err[TEST_TEXT_BYTES]; /* of all ranks, rank 0 first */
} test_job;

static inline double test_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void test_nap(double seconds) {
  struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&t, NULL);
}

static inline void test_redirect(const test_job *job, const char *name, int r, int fd) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s.%d", job->directory, name, r);
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (file < 0 || dup2(file, fd) < 0) _exit(99);
  close(file);
}

/* Runs this program again as rank r: TEST_RANK and TEST_RANKS tell its main. Arguments end with NULL. */
static inline void test_start_rank(test_job *job, int r, const char *const *arguments) {
  char *argv[32] = {(char *)(size_t)"/proc/self/exe"};
  char number[16], count[16];
  int n = 1;
  for (; arguments[n - 1] && n < 31; n++) argv[n] = (char *)(size_t)arguments[n - 1];
  fflush(stdout);
  job->status[r] = -1;
  job->pids[r] = fork();
  if (job->pids[r] != 0) return;
  snprintf(number, sizeof number, "%d", r);
  snprintf(count, sizeof count, "%d", job->n);
  setenv("TEST_RANK", number, 1);
  setenv("TEST_RANKS", count, 1);
  setenv("PPC_RANK", number, 1);
  setenv("PPC_RANKS", count, 1);
  setenv("PPC_JOB", job->directory + 5, 1);
  signal(SIGINT, SIG_DFL);
  test_redirect(job, "out", r, STDOUT_FILENO);
  test_redirect(job, "err", job->own_errors ? r : 0, STDERR_FILENO);
  execv("/proc/self/exe", argv);
  _exit(98);
}

static inline void test_open_job(test_job *job, int n) {
  memset(job, 0, sizeof *job);
  job->n = n;
  strcpy(job->directory, "/tmp/pp-test-XXXXXX");
  if (!mkdtemp(job->directory)) abort();
}

static inline void test_start(test_job *job, int n, const char *const *arguments) {
  test_open_job(job, n);
  for (int r = 0; r < n; r++) test_start_rank(job, r, arguments);
}

static inline void test_append_file(const char *path, char *text) {
  size_t used = strlen(text);
  int fd = open(path, O_RDONLY);
  ssize_t n = fd < 0 ? 0 : read(fd, text + used, TEST_TEXT_BYTES - 1 - used);
  if (n > 0) text[used + (size_t)n] = 0;
  if (fd >= 0) close(fd);
}

/* Waits for the ranks that were started; those that still run at the deadline are killed and keep -1.
 * Returns the seconds that it took. */
static inline double test_wait(test_job *job, double deadline_s) {
  double start = test_now();
  for (int left = 1; left && test_now() - start < deadline_s;) {
    left = 0;
    for (int r = 0; r < job->n; r++) {
      int status;
      if (job->status[r] != -1 || job->pids[r] <= 0) continue;
      if (waitpid(job->pids[r], &status, WNOHANG) == job->pids[r]) {
        job->status[r] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      } else {
        left = 1;
      }
    }
    if (left) test_nap(0.002);
  }
  return test_now() - start;
}

static inline void test_close(test_job *job) {
  char path[128];
  for (int r = 0; r < job->n; r++) {
    if (job->status[r] == -1 && job->pids[r] > 0) {
      kill(job->pids[r], SIGKILL);
      waitpid(job->pids[r], NULL, 0);
    }
    snprintf(path, sizeof path, "%s/out.%d", job->directory, r);
    test_append_file(path, job->out);
    unlink(path);
    snprintf(path, sizeof path, "%s/err.%d", job->directory, r);
    test_append_file(path, job->err);
    unlink(path);
  }
  rmdir(job->directory);
}

/* The whole of it; returns the largest exit status, -1 when a rank hung. */
static inline int test_run(test_job *job, int n, const char *const *arguments) {
  int worst = 0;
  test_start(job, n, arguments);
  test_wait(job, 60);
  for (int r = 0; r < n; r++) {
    if (job->status[r] == -1) worst = -1;
    if (worst >= 0 && job->status[r] > worst) worst = job->status[r];
  }
  test_close(job);
  return worst;
}

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
