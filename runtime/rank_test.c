/* Ranks as users run them: processes of the chain program (chain.h), their output, files and exit
 * statuses, and what happens when one of them is killed, stopped, starved or given bad input. */
#include <pty.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mount.h>

#include "chain.h"
#include "test.h"

static test_job job; /* large */

static int run(int n, const char *const *arguments) { return test_run(&job, n, arguments); }

/* The value of a key in the last JSON line, up to the next comma. */
static const char *last_value(const char *key) {
  static char value[128];
  const char *line = strstr(job.out, "{\"done\":true");
  const char *at = line ? strstr(line, key) : NULL;
  snprintf(value, sizeof value, "%.*s", at ? (int)strcspn(at + strlen(key), ",}") : 0, at ? at + strlen(key) : "");
  return value;
}

static int count_lines(const char *text, const char *part) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, part)); at++) n++;
  return n;
}

/* --- results ------------------------------------------------------------------------------------- */

static void ranks_and_transports_give_the_same_bits(void) {
  static const struct { int n; const char *transport; } cases[] = {{1, "self"}, {2, "shm"}, {4, "shm"}, {2, "late"}, {4, "late"}};
  char parameters[128] = "", optimizer[128] = "", steps[4096] = "";
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    CHECK(run(cases[i].n, ARGUMENTS("--json", "--steps=20", "--transport", cases[i].transport)) == 0);
    if (i == 0) {
      snprintf(parameters, sizeof parameters, "%s", last_value("\"parameters\":"));
      snprintf(optimizer, sizeof optimizer, "%s", last_value("\"optimizer\":"));
    }
    CHECK(strlen(parameters) == 66 && strcmp(parameters, last_value("\"parameters\":")) == 0);
    CHECK(strlen(optimizer) == 66 && strcmp(optimizer, last_value("\"optimizer\":")) == 0);
    CHECK(count_lines(job.out, "{\"step\":") == 20);
    CHECK(job.err[0] == 0);
    const char *first = strstr(job.out, "\"loss\"");
    if (i == 0 && first) snprintf(steps, sizeof steps, "%.*s", (int)strcspn(first, ","), first);
    CHECK_TEXT(job.out, steps);
  }
}

static void the_log_is_printed_once(void) {
  CHECK(run(4, ARGUMENTS("--steps=3")) == 0);
  CHECK(count_lines(job.out, "step ") == 3 && count_lines(job.out, "\n") == 3);
  CHECK(run(2, ARGUMENTS("--steps=3", "--quiet")) == 0);
  CHECK(job.out[0] == 0);
  CHECK(run(2, ARGUMENTS("--steps=8", "--log-every=3")) == 0);
  CHECK(count_lines(job.out, "step ") == 3 && strstr(job.out, "step 3/8") && strstr(job.out, "step 6/8") && strstr(job.out, "step 8/8"));
  CHECK(run(1, ARGUMENTS("--log-every=0")) == 2);
  CHECK_TEXT(job.err, "--log-every=0: expected a number from 1 up");
}

static char saved[2][64];

static int same_files(const char *a, const char *b) {
  static char x[TEST_TEXT_BYTES], y[TEST_TEXT_BYTES];
  x[0] = y[0] = 0;
  memset(x, 0, sizeof x);
  memset(y, 0, sizeof y);
  int fds[2] = {open(a, O_RDONLY), open(b, O_RDONLY)};
  ssize_t n = read(fds[0], x, sizeof x), m = read(fds[1], y, sizeof y);
  close(fds[0]);
  close(fds[1]);
  return n > 0 && n == m && memcmp(x, y, (size_t)n) == 0;
}

static const char *option(char *out, const char *name, const char *path) {
  sprintf(out, "%s=%s", name, path);
  return out;
}

static void files_do_not_depend_on_the_ranks(void) {
  char save[128], gradients[128], init[128];
  static const char *const kinds[] = {"--save", "--save-gradients"};
  for (int k = 0; k < 2; k++) {
    const char *steps = k ? "--steps=2" : "--steps=0";
    CHECK(run(1, ARGUMENTS(steps, option(save, kinds[k], saved[0]))) == 0);
    CHECK(run(4, ARGUMENTS(steps, option(gradients, kinds[k], saved[1]))) == 0);
    CHECK(same_files(saved[0], saved[1]));
  }
  CHECK(run(2, ARGUMENTS("--steps=3", option(save, "--save", saved[0]))) == 0);
  CHECK(run(4, ARGUMENTS("--steps=0", option(init, "--init", saved[0]), option(save, "--save", saved[1]))) == 0);
  CHECK(same_files(saved[0], saved[1]));
}

/* The gradient of the loss: one step of plain descent, p' = p - 0.5 g. */
static void saved_gradients_are_those_of_the_loss(void) {
  char a[128], b[128];
  enum { N = 4 * 64 };
  float before[N], after[N], gradient[N];
  CHECK(run(2, ARGUMENTS("--steps=0", option(a, "--save", saved[0]))) == 0);
  int fd = open(saved[0], O_RDONLY);
  CHECK(pread(fd, before, sizeof before, lseek(fd, 0, SEEK_END) - (off_t)sizeof before) == (ssize_t)sizeof before);
  close(fd);
  CHECK(run(2, ARGUMENTS("--steps=1", option(a, "--save", saved[0]), option(b, "--save-gradients", saved[1]))) == 0);
  fd = open(saved[0], O_RDONLY);
  CHECK(pread(fd, after, sizeof after, lseek(fd, 0, SEEK_END) - (off_t)sizeof after) == (ssize_t)sizeof after);
  close(fd);
  fd = open(saved[1], O_RDONLY);
  CHECK(pread(fd, gradient, sizeof gradient, lseek(fd, 0, SEEK_END) - (off_t)sizeof gradient) == (ssize_t)sizeof gradient);
  close(fd);
  for (int i = 0; i < N; i++) CHECK(after[i] == before[i] - 0.5f * gradient[i]);
}

/* --- wrong input ---------------------------------------------------------------------------------- */

static void write_text(const char *path, const char *text, size_t n) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, text, n) != (ssize_t)n) abort();
  close(fd);
}

static void wrong_data_end_all_ranks_before_step_1(void) {
  char data[128];
  setenv("PP_TEST_DATA_KIND", "0", 1);
  setenv("PP_TEST_DATA", saved[0], 1);
  write_text(saved[0], "short", 5);
  CHECK(run(4, ARGUMENTS("--steps=2")) == 1);
  for (int r = 0; r < 4; r++) CHECK(job.status[r] == 1);
  CHECK(count_lines(job.err, "\n") == 1);
  CHECK_TEXT(job.err, "at least 64 bytes for one sample, the file has 5");
  CHECK(job.out[0] == 0);
  option(data, "--data", "text=/nowhere");
  CHECK(run(2, ARGUMENTS("--steps=2", data)) == 1);
  CHECK_TEXT(job.err, "/nowhere: No such file");
  unsetenv("PP_TEST_DATA_KIND");
}

static void wrong_weights_end_all_ranks_before_step_1(void) {
  char init[128], wide[8];
  option(init, "--init", saved[0]);
  write_text(saved[0], "\x80\x02}q", 4);
  CHECK(run(2, ARGUMENTS(init)) == 1 && job.status[0] == 1 && job.status[1] == 1);
  CHECK(count_lines(job.err, "\n") == 1);
  char save[128];
  snprintf(wide, sizeof wide, "128");
  setenv("PP_TEST_WIDTH", wide, 1);
  CHECK(run(1, ARGUMENTS("--steps=0", option(save, "--save", saved[1]))) == 0);
  unsetenv("PP_TEST_WIDTH");
  option(init, "--init", saved[1]);
  CHECK(run(2, ARGUMENTS(init)) == 1);
  CHECK_TEXT(job.err, "w.0 is [2, 64] in the file and [2, 32] in the model");
  setenv("PP_TEST_WIDTH", "4", 1);
  static const char transposed[] = "{\"w.0\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}";
  char file[256] = {0};
  file[0] = (char)(sizeof transposed - 1);
  memcpy(file + 8, transposed, sizeof transposed - 1);
  write_text(saved[1], file, 8 + sizeof transposed - 1 + 8);
  CHECK(run(2, ARGUMENTS(init)) == 1);
  CHECK_TEXT(job.err, "3 of 4 parameters are missing: w.1, w.2, w.3; 1 of its tensors are not in the model: x");
  unsetenv("PP_TEST_WIDTH");
}

/* Names and types as other programs write them: converted exactly, and a buffer too many is told, not an error. */
static void other_float_types_are_read(void) {
  static const char header[] =
      "{\"w.0\":{\"dtype\":\"F16\",\"shape\":[2,2],\"data_offsets\":[0,8]},\"w.1\":{\"dtype\":\"BF16\",\"shape\":[2,2],"
      "\"data_offsets\":[8,16]},\"w.2\":{\"dtype\":\"F64\",\"shape\":[2,2],\"data_offsets\":[16,48]},\"w.3\":{\"dtype\":\"F32\","
      "\"shape\":[2,2],\"data_offsets\":[48,64]},\"attn.bias\":{\"dtype\":\"BOOL\",\"shape\":[8],\"data_offsets\":[64,72]}}";
  static const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff}, brains[] = {0x3f80, 0xc040, 0x0001, 0x7f7f};
  static const double wide[] = {1, -0.1, 1e-50, 3};
  static const float plain[] = {5, 6, 7, 8};
  static const float expected[16] = {1, -2, 0x1p-24f, 65504, 1, -3, 0x1p-133f, 0x1.fep127f, 1, -0.1f, 0, 3, 5, 6, 7, 8};
  char file[1024] = {0}, init[128], save[128];
  size_t n = sizeof header - 1, at = 8 + n;
  file[0] = (char)(n & 255);
  file[1] = (char)(n >> 8);
  memcpy(file + 8, header, n);
  memcpy(file + at, halves, 8);
  memcpy(file + at + 8, brains, 8);
  memcpy(file + at + 16, wide, 32);
  memcpy(file + at + 48, plain, 16);
  write_text(saved[0], file, at + 72);
  setenv("PP_TEST_WIDTH", "4", 1);
  CHECK(run(2, ARGUMENTS("--steps=0", option(init, "--init", saved[0]), option(save, "--save", saved[1]))) == 0);
  CHECK(count_lines(job.err, "\n") == 1);
  CHECK_TEXT(job.err, "warning: ");
  CHECK_TEXT(job.err, "1 tensors are not in the model and not read: attn.bias");
  unsetenv("PP_TEST_WIDTH");
  float values[16];
  int fd = open(saved[1], O_RDONLY);
  CHECK(pread(fd, values, sizeof values, lseek(fd, 0, SEEK_END) - (off_t)sizeof values) == (ssize_t)sizeof values);
  close(fd);
  CHECK(memcmp(values, expected, sizeof values) == 0);
}

static void wrong_options_and_launches_are_refused(void) {
  CHECK(run(1, ARGUMENTS("--nonsense")) == 2);
  CHECK(run(1, ARGUMENTS("--help")) == 0);
  CHECK_TEXT(job.out, "--save-gradients");
  CHECK(run(2, ARGUMENTS("--save=/nowhere/x", "--steps=1")) == 1);
  CHECK_TEXT(job.err, "--save=/nowhere/x: No such file");
}

static void missing_ranks_are_named(void) {
  test_open_job(&job, 4);
  for (int r = 0; r < 4; r += 2) test_start_rank(&job, r, ARGUMENTS("--start-timeout=0.5"));
  test_wait(&job, 20);
  CHECK(job.status[0] == 4 && job.status[2] == 4);
  test_close(&job);
  CHECK_TEXT(job.err, "of 4 ranks these did not start: 1, 3");
  CHECK(count_lines(job.err, "\n") == 1);
}

/* Only some were told to save, or to make more steps: they would wait for the others for ever. */
static void different_options_are_refused(void) {
  test_open_job(&job, 2);
  test_start_rank(&job, 0, ARGUMENTS("--steps=3", "--json", "--quiet"));
  test_start_rank(&job, 1, ARGUMENTS("--steps=3"));
  test_wait(&job, 20);
  CHECK(job.status[0] == 2 && job.status[1] == 2);
  test_close(&job);
  CHECK_TEXT(job.err, "ranks 0 and 1 were started with different --json");
  CHECK(count_lines(job.err, "\n") == 1 && job.out[0] == 0);
}

/* --- numbers that are not finite ---------------------------------------------------------------------- */

static void a_bad_norm_stops_all_ranks(void) {
  setenv("PP_TEST_BAD_STEP", "3", 1);
  CHECK(run(4, ARGUMENTS("--steps=9")) == 4);
  for (int r = 0; r < 4; r++) CHECK(job.status[r] == 4);
  CHECK(count_lines(job.err, "\n") == 1);
  CHECK_TEXT(job.err, "step 3: the gradient of w.2 (stage 2)");
  setenv("PP_TEST_SKIP", "1", 1);
  CHECK(run(4, ARGUMENTS("--steps=9")) == 0);
  CHECK_TEXT(job.err, "step 3 skipped: the gradient of w.2 (stage 2)");
  CHECK(count_lines(job.out, "\n") == 9);
  CHECK(run(4, ARGUMENTS("--steps=9", "--log-every=9")) == 0); /* a step without a line is judged too */
  CHECK_TEXT(job.err, "step 3 skipped: the gradient of w.2 (stage 2)");
  unsetenv("PP_TEST_SKIP");
  unsetenv("PP_TEST_BAD_STEP");
}

static void a_bad_loss_is_named_with_its_microbatch(void) {
  setenv("PP_TEST_BAD_LOSS_STEP", "2", 1);
  CHECK(run(2, ARGUMENTS("--steps=9")) == 4);
  CHECK_TEXT(job.err, "step 2: the loss of microbatch 1 is nan");
  unsetenv("PP_TEST_BAD_LOSS_STEP");
}

static void a_step_without_targets_is_skipped(void) {
  char init[128], after[128];
  setenv("PP_TEST_NO_COUNT_STEP", "1", 1);
  CHECK(run(2, ARGUMENTS("--steps=0", option(init, "--save", saved[0]))) == 0);
  CHECK(run(2, ARGUMENTS("--steps=1", option(after, "--save", saved[1]))) == 0);
  CHECK(same_files(saved[0], saved[1]));
  setenv("PP_TEST_NO_COUNT_STEP", "2", 1);
  CHECK(run(2, ARGUMENTS("--steps=3")) == 0);
  CHECK_TEXT(job.err, "step 2: no target is counted");
  unsetenv("PP_TEST_NO_COUNT_STEP");
}

/* --- faults ------------------------------------------------------------------------------------------ */

/* Signals a rank in the middle of a long run; returns the seconds until the others have ended. */
static double disturb(int n, int rank, int number) {
  setenv("PP_TEST_SLEEP_US", "1500", 1);
  test_start(&job, n, ARGUMENTS("--steps=1000000"));
  unsetenv("PP_TEST_SLEEP_US");
  test_nap(0.4);
  for (int r = 0; r < n; r++) {
    if ((rank < 0 || r == rank) && job.pids[r] > 0) kill(job.pids[r], number);
  }
  double seconds = test_wait(&job, 20);
  test_close(&job);
  return seconds;
}

static void only_one_line_names(const char *start) {
  CHECK(strncmp(job.err, start, strlen(start)) == 0 || (printf("got: %s", job.err), 0));
  CHECK(count_lines(job.err, "\n") == 1);
}

static void a_killed_rank_ends_the_others(void) {
  for (int rank = 0; rank < 4; rank++) {
    char start[64];
    CHECK(disturb(4, rank, SIGKILL) < 5);
    for (int r = 0; r < 4; r++) CHECK(job.status[r] == (r == rank ? 137 : 4));
    snprintf(start, sizeof start, "ppc: rank %d (pid ", rank);
    only_one_line_names(start);
    CHECK_TEXT(job.err, "was killed at step ");
    if (strstr(job.err, "between steps")) continue; /* there is no action to name */
    CHECK_TEXT(job.err, "stage ");
    CHECK_TEXT(job.err, "chain.pp:1");
  }
}

static void a_stopped_rank_ends_the_others(void) {
  CHECK(disturb(4, 1, SIGSTOP) < 5);
  for (int r = 0; r < 4; r++) CHECK(job.status[r] == (r == 1 ? 137 : 4));
  only_one_line_names("ppc: rank 1 (pid ");
  CHECK_TEXT(job.err, "stopped by a signal");
  if (!strstr(job.err, "between steps")) CHECK_TEXT(job.err, "chain.pp:1");
}

static void signals_end_all_ranks(void) {
  CHECK(disturb(4, -1, SIGINT) < 2);
  for (int r = 0; r < 4; r++) CHECK(job.status[r] == 130);
  CHECK_TEXT(job.err, "ended by Ctrl-C");
  CHECK(count_lines(job.err, "\n") == 1);
  CHECK(disturb(4, 2, SIGTERM) < 2);
  for (int r = 0; r < 4; r++) CHECK(job.status[r] == 143);
  CHECK(disturb(1, 0, SIGINT) < 2);
  CHECK(job.status[0] == 130);
}

static void crashes_and_exits_are_told_apart(void) {
  setenv("PP_TEST_CRASH_STEP", "3", 1);
  CHECK(run(4, ARGUMENTS("--steps=9")) == 139);
  CHECK_TEXT(job.err, "crashed (Segmentation fault) at step 3, stage_2_fwd, stage 2, microbatch 0, chain.pp:10");
  unsetenv("PP_TEST_CRASH_STEP");
  setenv("PP_TEST_EXIT_STEP", "3", 1);
  CHECK(run(4, ARGUMENTS("--steps=9")) == 4);
  CHECK_TEXT(job.err, "exited without finishing at step 3");
  unsetenv("PP_TEST_EXIT_STEP");
}

static void each_file_of_errors_says_why(void) {
  test_open_job(&job, 3);
  job.own_errors = 1;
  setenv("PP_TEST_BAD_STEP", "3", 1);
  for (int r = 0; r < 3; r++) test_start_rank(&job, r, ARGUMENTS("--steps=9"));
  unsetenv("PP_TEST_BAD_STEP");
  test_wait(&job, 20);
  test_close(&job);
  CHECK(count_lines(job.err, "\n") == 3 && count_lines(job.err, "step 3: the gradient of w.2 (stage 2)") == 3);
}

static void a_stall_says_who_waits_for_what(void) {
  setenv("PP_TEST_LOST_RECEIVE", "1", 1);
  CHECK(run(2, ARGUMENTS("--steps=9", "--timeout=1")) == 4);
  CHECK(job.status[0] == 4 && job.status[1] == 4);
  CHECK_TEXT(job.err, "no rank has moved");
  CHECK_TEXT(job.err, "rank 0 waits until rank 1 has taken x (chain.pp:3), microbatch 2");
  unsetenv("PP_TEST_LOST_RECEIVE");
}

static void a_bad_index_stops_the_run(void) {
  setenv("PP_TEST_DATA_KIND", "5", 1);
  setenv("PP_TEST_VOCABULARY", "100", 1);
  setenv("PP_TEST_BAD_INDEX_STEP", "2", 1);
  CHECK(run(2, ARGUMENTS("--steps=9")) == 4);
  CHECK(job.status[0] == 4 && job.status[1] == 4);
  CHECK_TEXT(job.err, "wte: index 70000 at place 3 is outside 0 … 65535, in step 2, stage_0_fwd, stage 0, microbatch 0");
  unsetenv("PP_TEST_BAD_INDEX_STEP");
  CHECK(run(2, ARGUMENTS("--steps=2")) == 0);
  unsetenv("PP_TEST_VOCABULARY");
  unsetenv("PP_TEST_DATA_KIND");
}

static void a_closed_output_hangs_nobody(void) {
  int pipes[2];
  test_open_job(&job, 2);
  if (pipe(pipes) != 0) abort();
  test_start_rank(&job, 0, ARGUMENTS("--steps=500"));
  int saved_out = dup(STDOUT_FILENO);
  (void)saved_out;
  setenv("TEST_CLOSED", "1", 1);
  test_start_rank(&job, 1, ARGUMENTS("--steps=500"));
  unsetenv("TEST_CLOSED");
  close(pipes[0]);
  close(pipes[1]);
  close(saved_out);
  test_wait(&job, 20);
  CHECK(job.status[0] == 0 && job.status[1] == 0);
  test_close(&job);
}

/* --- a terminal ---------------------------------------------------------------------------------------- */

/* One rank on a terminal of 40 columns; what it wrote there. number: a signal after a while, or 0. */
static const char *on_a_terminal(const char *steps, int number, int *out_status) {
  static char text[TEST_TEXT_BYTES];
  struct winsize size = {.ws_row = 20, .ws_col = 40};
  size_t used = 0;
  int terminal, status;
  pid_t pid = forkpty(&terminal, NULL, NULL, &size);
  if (pid < 0) return NULL; /* no /dev/pts here; and kill(-1) would reach every process */
  if (pid == 0) {
    setenv("TEST_RANK", "0", 1);
    setenv("TEST_RANKS", "1", 1);
    setenv("PP_TEST_SLEEP_US", "1000", 1);
    setenv("TERM", "xterm", 1);
    execl("/proc/self/exe", "rank", steps, (char *)NULL);
    _exit(98);
  }
  if (number) test_nap(0.4);
  if (number) kill(pid, number);
  for (ssize_t n; (n = read(terminal, text + used, sizeof text - 1 - used)) > 0;) used += (size_t)n;
  text[used] = 0;
  close(terminal);
  waitpid(pid, &status, 0);
  *out_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return text;
}

static void a_terminal_has_a_live_line(void) {
  int status;
  const char *text = on_a_terminal("--steps=60", 0, &status);
  if (!text) {
    puts("no pseudo-terminal here: not tested");
    return;
  }
  CHECK(status == 0);
  CHECK(count_lines(text, "\n") == 1 && text[strlen(text) - 1] == '\n');
  CHECK(count_lines(text, "\rstep ") >= 2 && count_lines(text, "\rstep ") < 60);
  CHECK_TEXT(text, "step 60/60");
  for (const char *at = text; (at = strstr(at, "\rstep ")); at++) CHECK(strcspn(at + 1, "\033") <= 39);
}

static void a_signal_ends_the_live_line(void) {
  int status;
  const char *text = on_a_terminal("--steps=100000", SIGINT, &status);
  if (!text) {
    puts("no pseudo-terminal here: not tested");
    return;
  }
  CHECK(status == 130);
  const char *message = strstr(text, "\033[K\r\nppc: ended by Ctrl-C\r\n");
  CHECK(message != NULL && message[strlen("\033[K\r\nppc: ended by Ctrl-C\r\n")] == 0);
}

/* --- small file systems (root only) ------------------------------------------------------------------- */

static char small[64] = "/tmp/pp-small-XXXXXX";

static int mount_small(const char *size) { return mount("none", small, "tmpfs", 0, size) == 0; }

static void small_shared_memory_is_an_error(void) {
  char dir[96];
  setenv("PP_TEST_WIDTH", "20000", 1);
  snprintf(dir, sizeof dir, "--shm-dir=%s", small);
  CHECK(run(2, ARGUMENTS("--steps=2", dir)) == 1);
  CHECK(job.status[0] == 1 && job.status[1] == 1);
  CHECK_TEXT(job.err, "bytes of shared memory and ");
  CHECK_TEXT(job.err, "--shm-dir=DIR");
  unsetenv("PP_TEST_WIDTH");
}

static void a_full_disk_leaves_the_old_file(void) {
  char save[128], path[96];
  snprintf(path, sizeof path, "%s/old", small);
  option(save, "--save", path);
  CHECK(run(2, ARGUMENTS("--steps=1", save)) == 0);
  CHECK(run(2, ARGUMENTS("--steps=1", option(save, "--save", saved[0]))) == 0);
  option(save, "--save", path);
  setenv("PP_TEST_WIDTH", "200000", 1);
  CHECK(run(2, ARGUMENTS("--steps=1", save)) == 4);
  CHECK(job.status[0] == 4 && job.status[1] == 4);
  CHECK_TEXT(job.err, path);
  CHECK_TEXT(job.err, "No space left on device");
  unsetenv("PP_TEST_WIDTH");
  CHECK(same_files(path, saved[0]));
  char listing[128];
  snprintf(listing, sizeof listing, "test \"$(ls %s)\" = old", small);
  CHECK(system(listing) == 0);
}

/* 1 MB holds the trace of a few steps, and not that of thousands: which is known before step 1. */
static void a_trace_that_does_not_fit_is_refused_at_the_start(void) {
  char trace[128], listing[256];
  sprintf(trace, "--trace=%s/trace", small);
  CHECK(run(2, ARGUMENTS("--steps=5000", trace, "--trace-steps=1:5000", "--quiet")) == 1);
  CHECK_TEXT(job.err, "needs about");
  CHECK(count_lines(job.err, "\n") == 1);
  snprintf(listing, sizeof listing, "! ls %s | grep -q trace", small);
  CHECK(system(listing) == 0);
  CHECK(run(2, ARGUMENTS("--steps=5000", trace, "--trace-steps=4999:5000", "--quiet")) == 0);
  snprintf(listing, sizeof listing, "grep -q '\"step 5000\"' %s/trace && test $(ls %s | grep -c trace) = 1", small, small);
  CHECK(system(listing) == 0);
}

/* The weights that are saved first take the room: the older trace stays. */
static void a_disk_that_fills_up_leaves_the_old_trace(void) {
  char trace[128], save[128], path[96];
  snprintf(path, sizeof path, "%s/trace", small);
  option(trace, "--trace", path);
  option(save, "--save", small);
  strcat(save, "/old");
  write_text(path, "old", 3);
  write_text(saved[0], "old", 3);
  setenv("PP_TEST_WIDTH", "32768", 1);
  CHECK(run(2, ARGUMENTS("--steps=40", trace, "--trace-steps=1:40", save, "--quiet")) == 4);
  unsetenv("PP_TEST_WIDTH");
  CHECK_TEXT(job.err, path);
  CHECK_TEXT(job.err, "No space left on device");
  CHECK(count_lines(job.err, "\n") == 1);
  CHECK(same_files(path, saved[0]));
  char listing[128];
  snprintf(listing, sizeof listing, "test \"$(ls %s | xargs)\" = 'old trace'", small);
  CHECK(system(listing) == 0);
}

static void nothing_is_left_behind(void) { CHECK(system("! ls /dev/shm | grep -q '^ppc-[0-9]*-pp-test'") == 0); }

/* --- main ---------------------------------------------------------------------------------------------- */

static int be_a_rank(int argc, char **argv) {
  chain_options options = chain_options_read();
  if (getenv("TEST_CLOSED")) { /* a pipe that nobody reads */
    int pipes[2];
    if (pipe(pipes) != 0) return 97;
    dup2(pipes[1], STDOUT_FILENO);
    close(pipes[0]);
    close(pipes[1]);
  }
  return pp_main(chain_create(&options, atoi(getenv("TEST_RANK")), atoi(getenv("TEST_RANKS"))), argc, argv);
}

static void test_files(void) {
  for (int i = 0; i < 2; i++) {
    strcpy(saved[i], "/tmp/pp-saved-XXXXXX");
    int fd = mkstemp(saved[i]);
    if (fd < 0) abort();
    close(fd);
  }
}

int main(int argc, char **argv) {
  if (getenv("TEST_RANK")) return be_a_rank(argc, argv);
  test_files();
  TEST(ranks_and_transports_give_the_same_bits);
  TEST(the_log_is_printed_once);
  TEST(files_do_not_depend_on_the_ranks);
  TEST(saved_gradients_are_those_of_the_loss);
  TEST(wrong_data_end_all_ranks_before_step_1);
  TEST(wrong_weights_end_all_ranks_before_step_1);
  TEST(other_float_types_are_read);
  TEST(wrong_options_and_launches_are_refused);
  TEST(missing_ranks_are_named);
  TEST(different_options_are_refused);
  TEST(a_bad_norm_stops_all_ranks);
  TEST(a_bad_loss_is_named_with_its_microbatch);
  TEST(a_step_without_targets_is_skipped);
  TEST(a_killed_rank_ends_the_others);
  TEST(a_stopped_rank_ends_the_others);
  TEST(signals_end_all_ranks);
  TEST(crashes_and_exits_are_told_apart);
  TEST(each_file_of_errors_says_why);
  TEST(a_stall_says_who_waits_for_what);
  TEST(a_bad_index_stops_the_run);
  TEST(a_closed_output_hangs_nobody);
  TEST(a_terminal_has_a_live_line);
  TEST(a_signal_ends_the_live_line);
  if (!mkdtemp(small)) return 1;
  if (mount_small("size=1m")) {
    TEST(small_shared_memory_is_an_error);
    TEST(a_full_disk_leaves_the_old_file);
    TEST(a_trace_that_does_not_fit_is_refused_at_the_start);
    TEST(a_disk_that_fills_up_leaves_the_old_trace);
    umount(small);
  } else {
    printf("skipped: small file systems (mounting needs root)\n");
  }
  rmdir(small);
  TEST(nothing_is_left_behind);
  for (int i = 0; i < 2; i++) unlink(saved[i]);
  return test_failures != 0;
}
