/* Faults. The first cause is recorded once for the whole job and printed by the rank that records it;
 * the others leave with the same exit status and no noise. Each rank runs a watchdog thread that
 * beats its heart, watches its peers (a pidfd tells at once when one has gone, a heart that stands
 * still when one is stopped), ends the job when nobody moves any more, or when a call that has a limit (pp_limit) doesn't
 * come back, and sees to it that this rank ends in time when the job fails.
 * Peers write only numbers at each action; their names for people were put on the board at start. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The one mutable global of the runtime: what a signal handler can reach. */
static struct {
  atomic_int caught;
  _Atomic(pp_slot *) slot; /* of this process's rank; null when ranks are threads */
} process;

/* --- words -------------------------------------------------------------------------------------- */

static const char *name_at(const pp_slot *slot, uint32_t index) {
  const char *at = slot->names;
  for (uint32_t i = 0; i < index && *at; i++) at += strlen(at) + 1;
  return *at ? at : NULL;
}

/* where: task + 1 in the low 16 bits, line in the next 16, microbatch + 1 above. */
void pp_describe_place(const pp_slot *slot, char *out_text, size_t text_bytes) {
  uint64_t where = atomic_load_explicit(&slot->where, memory_order_relaxed);
  uint32_t task = (uint32_t)(where & 0xffff), line = (uint32_t)(where >> 16 & 0xffff);
  int64_t microbatch = (int64_t)(where >> 32) - 1;
  uint64_t step = atomic_load_explicit(&slot->step, memory_order_relaxed);
  if (!step) {
    snprintf(out_text, text_bytes, "before step 1");
    return;
  }
  if (!task) {
    snprintf(out_text, text_bytes, "step %llu, between steps", (unsigned long long)step);
    return;
  }
  const char *task_name = name_at(slot, task - 1), *line_name = name_at(slot, slot->n_tasks + line);
  char microbatch_text[40] = "";
  if (microbatch >= 0) snprintf(microbatch_text, sizeof microbatch_text, ", microbatch %lld", (long long)microbatch);
  snprintf(out_text, text_bytes, "step %llu, %s%s, %s", (unsigned long long)step, task_name ? task_name : "an action",
           microbatch_text, line_name ? line_name : "line unknown");
}

static void describe_transfer(const pp_program *program, const pp_transfer *t, char *out_text, size_t text_bytes) {
  const char *value = program->values[t->value];
  if (t->microbatch >= 0) snprintf(out_text, text_bytes, "%s, microbatch %d", value, t->microbatch);
  else snprintf(out_text, text_bytes, "%s", value);
}

void pp_describe_wait(const pp_program *program, uint32_t transfer, int is_send, char *out_text, size_t text_bytes) {
  const pp_transfer *t = &program->transfers[transfer];
  char what[PP_WAITING_BYTES - 48];
  describe_transfer(program, t, what, sizeof what);
  snprintf(out_text, text_bytes, "waits until rank %d %s %s", t->peer, is_send ? "has taken" : "sends", what);
}

/* What ends the live line, if this terminal shows one. */
static const char *line_start(const pp_rank *rank) {
  return rank->board && isatty(STDERR_FILENO) && atomic_exchange(&rank->board->line_is_open, 0) ? "\n" : "";
}

/* One write, so that lines of several ranks don't mix. */
static void write_line(const pp_rank *rank, const char *text) {
  char line[PP_FAILURE_BYTES + 128];
  const char *start = line_start(rank);
  int n;
  if (rank->program->n_ranks > 1) {
    n = snprintf(line, sizeof line, "%sppc: rank %d: %s\n", start, rank->program->rank, text);
  } else {
    n = snprintf(line, sizeof line, "%sppc: %s\n", start, text);
  }
  if (n >= (int)sizeof line) n = (int)sizeof line - 1;
  ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
  (void)ignored;
}

void pp_warn(const pp_rank *rank, const char *format, ...) {
  char text[PP_FAILURE_BYTES];
  size_t used = (size_t)snprintf(text, sizeof text, "warning: ");
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, sizeof text - used, format, arguments);
  va_end(arguments);
  write_line(rank, text);
}

/* --- the record --------------------------------------------------------------------------------- */

static int claim(pp_rank *rank) {
  uint32_t none = 0;
  return atomic_compare_exchange_strong(&rank->failure->claimed, &none, 1);
}

static void record(pp_rank *rank, int exit_status, const char *text) {
  pp_failure *failure = rank->failure;
  struct stat st;
  if (fstat(STDERR_FILENO, &st) == 0) {
    failure->device = (uint64_t)st.st_dev;
    failure->inode = (uint64_t)st.st_ino;
  }
  snprintf(failure->text, sizeof failure->text, "%.*s", (int)sizeof failure->text - 1, text);
  failure->reporter = rank->program->rank;
  failure->exit_status = exit_status;
  atomic_store_explicit(&failure->claimed, 2, memory_order_release);
  pp_doorbell_ring_all(rank);
}

pp_status pp_fail(pp_rank *rank, int exit_status, const char *format, ...) {
  char text[PP_FAILURE_BYTES];
  va_list arguments;
  if (!claim(rank)) return PP_STOPPED;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  write_line(rank, text);
  record(rank, exit_status, text);
  return PP_STOPPED;
}

/* A peer's fault: the line begins with the rank at fault, not with the one that noticed. */
static void blame(pp_rank *rank, int culprit, const char *what) {
  char place[512], line[PP_FAILURE_BYTES];
  if (!claim(rank)) return;
  pp_describe_place(&rank->slots[culprit], place, sizeof place);
  int32_t pid = atomic_load(&rank->slots[culprit].pid);
  const char *start = line_start(rank);
  char text[PP_FAILURE_BYTES - 16];
  snprintf(text, sizeof text, "rank %d (pid %d) %s at %s", culprit, (int)pid, what, place);
  int n = snprintf(line, sizeof line, "%sppc: %s\n", start, text);
  ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
  (void)ignored;
  record(rank, PP_EXIT_FAILED, text);
}

int pp_failing(pp_rank *rank) {
  if (atomic_load_explicit(&rank->failure->claimed, memory_order_acquire)) return 1;
  int caught = pp_signal_caught();
  if (!caught) return 0;
  pp_fail(rank, 128 + caught, "ended by %s", caught == SIGINT ? "Ctrl-C" : caught == SIGTERM ? "SIGTERM" : "SIGHUP");
  return 1;
}

/* Whoever claimed writes for a few microseconds; if it dies in that time nobody learns the status. */
int pp_exit_status(pp_rank *rank) {
  pp_failure *failure = rank->failure;
  for (int i = 0; i < 200; i++) {
    uint32_t claimed = atomic_load_explicit(&failure->claimed, memory_order_acquire);
    if (claimed == 0) return PP_EXIT_FINE;
    if (claimed == 2) return failure->exit_status;
    usleep(1000);
  }
  return PP_EXIT_FAILED;
}

/* Launchers can give each rank a file of its own: then each file says why its rank ended. */
void pp_repeat_failure(pp_rank *rank) {
  const pp_failure *failure = rank->failure;
  struct stat st;
  char line[PP_FAILURE_BYTES + 64];
  if (atomic_load_explicit(&failure->claimed, memory_order_acquire) != 2 || failure->reporter == rank->program->rank) return;
  if (fstat(STDERR_FILENO, &st) != 0 || !S_ISREG(st.st_mode)) return;
  if ((uint64_t)st.st_dev == failure->device && (uint64_t)st.st_ino == failure->inode) return;
  int n = snprintf(line, sizeof line, "ppc: rank %d ended: %s\n", rank->program->rank, failure->text);
  ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
  (void)ignored;
}

void pp_leave(pp_rank *rank) {
  int status = pp_exit_status(rank);
  char *temporary = atomic_load(&rank->temporary);
  pp_log_close_line(rank);
  pp_repeat_failure(rank);
  if (temporary) unlink(temporary);
  if (rank->made_segment) unlink(rank->segment_path);
  if (rank->slot) atomic_store(&rank->slot->state, PP_STATE_FINISHED);
  _exit(status);
}

/* --- signals ------------------------------------------------------------------------------------ */

int pp_signal_caught(void) { return atomic_load_explicit(&process.caught, memory_order_relaxed); }

static void on_end_signal(int number) { atomic_store_explicit(&process.caught, number, memory_order_relaxed); }

/* Leaves the number for the peers' message, then lets the signal do what it does. */
static void on_crash(int number) {
  pp_slot *slot = atomic_load(&process.slot);
  if (slot) atomic_store(&slot->crash_signal, (uint32_t)number);
  raise(number);
}

static void on_exit_call(void) {
  pp_slot *slot = atomic_load(&process.slot);
  if (slot) atomic_store(&slot->state, PP_STATE_EXITED);
}

static void handle(int number, void (*handler)(int), int flags) {
  struct sigaction old, action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_DFL) sigaction(number, &action, NULL);
}

/* What the caller ignores (a job in the background) or a checker handles stays as it is. */
void pp_signals_install(void) {
  static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
  handle(SIGINT, on_end_signal, SA_RESTART);
  handle(SIGTERM, on_end_signal, SA_RESTART);
  handle(SIGHUP, on_end_signal, SA_RESTART);
  handle(SIGPIPE, SIG_IGN, 0);
  for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) handle(crashes[i], on_crash, (int)SA_RESETHAND);
}

/* --- the watchdog --------------------------------------------------------------------------------- */

enum { ABORT_MS = 1000 };

typedef struct {
  int pidfd;          /* -1: not open */
  uint64_t heartbeat; /* seen last */
  double silent_s;    /* on this watchdog's clock */
} Peer;

typedef struct {
  pp_rank *rank;
  Peer *peers;
  struct pollfd *polls; /* [n_ranks + 1]: peers, then the event that ends the sleep */
  uint64_t last_ns, last_moves, own_moves;
  double still_s, failing_s;
  pthread_t aborter;
  int aborts;             /* 1: the thread runs, or has run */
  atomic_int has_aborted;
} Watch;

static void open_pidfd(Watch *w, int r) {
  int32_t pid = atomic_load(&w->rank->slots[r].pid);
  if (w->peers[r].pidfd >= 0 || !pid || w->rank->in_threads || r == w->rank->program->rank) return;
  w->peers[r].pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
}

/* The fields of /proc/PID/stat from the state on; null: the process is gone. */
static const char *process_stat(pid_t pid, char *text, size_t text_bytes) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NULL;
  ssize_t n = read(fd, text, text_bytes - 1);
  close(fd);
  if (n <= 0) return NULL;
  text[n] = 0;
  const char *at = strrchr(text, ')'); /* the name before it may hold anything */
  return at && at[1] == ' ' ? at + 2 : NULL;
}

uint64_t pp_process_start(pid_t pid) {
  char text[1024];
  const char *at = process_stat(pid, text, sizeof text);
  for (int field = 3; at && field < 22; field++) {
    at = strchr(at, ' ');
    if (at) at++;
  }
  return at ? strtoull(at, NULL, 10) : 0;
}

static int is_stopped(pid_t pid) {
  char text[1024];
  const char *at = process_stat(pid, text, sizeof text);
  return at && (*at == 'T' || *at == 't');
}

static int has_left(const pp_slot *slot) { return atomic_load(&slot->state) == PP_STATE_FINISHED; }

static void blame_dead(Watch *w, int r) {
  pp_slot *slot = &w->rank->slots[r];
  uint32_t crash = atomic_load(&slot->crash_signal);
  char what[128];
  if (crash) {
    snprintf(what, sizeof what, "crashed (%s)", strsignal((int)crash));
  } else if (atomic_load(&slot->state) == PP_STATE_EXITED) {
    snprintf(what, sizeof what, "exited without finishing");
  } else {
    snprintf(what, sizeof what, "was killed");
  }
  blame(w->rank, r, what);
}

static void check_heart(Watch *w, int r, double elapsed_s) {
  const pp_rank *rank = w->rank;
  pp_slot *slot = &rank->slots[r];
  Peer *peer = &w->peers[r];
  uint64_t heartbeat = atomic_load_explicit(&slot->heartbeat, memory_order_relaxed);
  uint32_t state = atomic_load(&slot->state);
  if (heartbeat != peer->heartbeat || state == PP_STATE_ABSENT || !heartbeat) {
    peer->heartbeat = heartbeat;
    peer->silent_s = 0;
    return;
  }
  peer->silent_s += elapsed_s;
  if (peer->silent_s < 0.7 * rank->options->timeout_s) return;
  char what[128];
  snprintf(what, sizeof what, "%s for %.1f s",
           is_stopped(atomic_load(&slot->pid)) ? "has been stopped by a signal" : "has not answered", peer->silent_s);
  blame(w->rank, r, what);
  /* A stopped process can't leave with the others, and its launcher would wait for it for ever. */
  if (peer->pidfd >= 0) syscall(SYS_pidfd_send_signal, peer->pidfd, SIGKILL, NULL, 0);
}

static void check_peers(Watch *w, double elapsed_s) {
  for (int r = 0; r < w->rank->program->n_ranks; r++) {
    if (r == w->rank->program->rank || has_left(&w->rank->slots[r])) continue;
    if (w->peers[r].pidfd >= 0 && w->polls[r].revents & POLLIN) {
      /* It may have left in good order between the two looks. */
      if (!has_left(&w->rank->slots[r])) blame_dead(w, r);
    } else if (w->rank->options->timeout_s > 0) {
      check_heart(w, r, elapsed_s);
    }
  }
}

static void report_stall(Watch *w) {
  pp_rank *rank = w->rank;
  char text[PP_FAILURE_BYTES * 8];
  size_t used = (size_t)snprintf(text, sizeof text, "ppc: no rank has moved for %.1f s\n", w->still_s);
  if (!claim(rank)) return;
  for (int r = 0; r < rank->program->n_ranks && used < sizeof text; r++) {
    pp_slot *slot = &rank->slots[r];
    char place[512];
    pp_describe_place(slot, place, sizeof place);
    const char *what = has_left(slot) ? "has finished" : atomic_load(&slot->has_waiting_text) ? slot->waiting_text : "waits";
    used += (size_t)snprintf(text + used, sizeof text - used, "ppc:   rank %d %s; it is at %s\n", r, what, place);
  }
  if (used >= sizeof text) used = sizeof text - 1;
  ssize_t ignored = write(STDERR_FILENO, text, used);
  (void)ignored;
  record(rank, PP_EXIT_FAILED, "no rank has moved for the whole time-out");
}

/* A stall: every rank waits, issues or has left, at least one doesn't leave, and no count has changed for the whole time. */
static void check_stall(Watch *w, double elapsed_s) {
  const pp_rank *rank = w->rank;
  uint64_t moves = 0;
  int waiting = 0, all = 1;
  for (int r = 0; r < rank->program->n_ranks; r++) {
    pp_slot *slot = &rank->slots[r];
    moves += atomic_load_explicit(&slot->moves, memory_order_relaxed);
    if (has_left(slot)) continue;
    if (atomic_load_explicit(&slot->waiting, memory_order_relaxed) != PP_RUNS) waiting++;
    else all = 0;
  }
  w->still_s = all && waiting && moves == w->last_moves ? w->still_s + elapsed_s : 0;
  w->last_moves = moves;
  if (rank->options->timeout_s > 0 && w->still_s > rank->options->timeout_s) report_stall(w);
}

/* A call that has lasted from one look to the next may be the one that never comes back: what it is about. */
static void describe_issue(Watch *w) {
  pp_rank *rank = w->rank;
  pp_slot *slot = rank->slot;
  uint64_t moves = atomic_load_explicit(&slot->moves, memory_order_relaxed);
  uint32_t moving = atomic_load_explicit(&rank->moving, memory_order_relaxed);
  int stands = moves == w->own_moves && atomic_load_explicit(&slot->waiting, memory_order_relaxed) == PP_ISSUES;
  w->own_moves = moves;
  if (!stands) return;
  const pp_transfer *t = moving ? &rank->program->transfers[moving - 1] : NULL;
  char what[PP_WAITING_BYTES - 96] = "";
  if (t) describe_transfer(rank->program, t, what, sizeof what);
  if (t) snprintf(slot->waiting_text, sizeof slot->waiting_text, "is in a call that %s %s %s rank %d and doesn't come back", t->is_send ? "sends" : "receives",
                  what, t->is_send ? "to" : "from", t->peer);
  else snprintf(slot->waiting_text, sizeof slot->waiting_text, "is in a call of its device's libraries that doesn't come back");
  atomic_store(&slot->has_waiting_text, 1);
}

void pp_limit(pp_rank *rank, double seconds, const char *option, const char *format, ...) {
  size_t used = (size_t)snprintf(rank->limit_text, sizeof rank->limit_text, "(%s) for ", option);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(rank->limit_text + used, sizeof rank->limit_text - used, format, arguments);
  va_end(arguments);
  rank->limit_s = seconds;
  atomic_store(&rank->limit_ns, seconds > 0 ? pp_now_ns() + (uint64_t)(seconds * 1e9) : 0);
}

void pp_limit_end(pp_rank *rank) { atomic_store(&rank->limit_ns, 0); }

static void check_limit(Watch *w) {
  pp_rank *rank = w->rank;
  uint64_t limit_ns = atomic_load(&rank->limit_ns);
  if (limit_ns && pp_now_ns() > limit_ns) pp_fail(rank, PP_EXIT_FAILED, "waited %g s %s", rank->limit_s, rank->limit_text);
}

/* On a thread of its own: to give up a transport takes calls of a library too, and the watchdog doesn't wait for any. */
static void *abort_run(void *argument) {
  Watch *w = argument;
  w->rank->transport->abort(w->rank);
  atomic_store(&w->has_aborted, 1);
  return NULL;
}

static void start_abort(Watch *w) {
  if (w->aborts || !w->rank->transport->abort) return;
  w->aborts = pthread_create(&w->aborter, NULL, abort_run, w) == 0;
}

static void end_abort(Watch *w) {
  for (int ms = 0; w->aborts && !atomic_load(&w->has_aborted); ms++) {
    if (ms == ABORT_MS) pp_leave(w->rank);
    usleep(1000);
  }
  if (w->aborts) pthread_join(w->aborter, NULL);
}

/* A task may compute for long after the job has failed; the watchdog then ends the process itself. */
static void enforce_end(Watch *w, double elapsed_s) {
  double grace_s = w->rank->options->timeout_s > 0 ? 0.2 * w->rank->options->timeout_s : 1.0;
  pp_doorbell_ring(w->rank->slot);
  w->failing_s += elapsed_s;
  if (grace_s > 1.0) grace_s = 1.0;
  if (w->failing_s > 0.5 * grace_s) start_abort(w);
  if (w->failing_s > grace_s) pp_leave(w->rank);
}

static void tick(Watch *w) {
  pp_rank *rank = w->rank;
  uint64_t now = pp_now_ns();
  double elapsed_s = (double)(now - w->last_ns) * 1e-9;
  /* When this whole process (or machine) slept, its peers' silence in that time proves nothing. */
  if (elapsed_s > 3e-3 * PP_TICK_MS) elapsed_s = 3e-3 * PP_TICK_MS;
  w->last_ns = now;
  atomic_fetch_add_explicit(&rank->slot->heartbeat, 1, memory_order_relaxed);
  for (int r = 0; r < rank->program->n_ranks; r++) open_pidfd(w, r);
  if (pp_failing(rank)) {
    enforce_end(w, elapsed_s);
    return;
  }
  check_peers(w, elapsed_s);
  check_limit(w);
  describe_issue(w);
  if (rank->program->n_ranks > 1) check_stall(w, elapsed_s);
}

static void sleep_a_tick(Watch *w) {
  int n_ranks = w->rank->program->n_ranks;
  for (int r = 0; r < n_ranks; r++) {
    /* A peer that has left would end every sleep at once. */
    int watched = w->peers[r].pidfd >= 0 && !has_left(&w->rank->slots[r]) && !atomic_load(&w->rank->failure->claimed);
    w->polls[r] = (struct pollfd){.fd = watched ? w->peers[r].pidfd : -1, .events = POLLIN};
  }
  w->polls[n_ranks] = (struct pollfd){.fd = w->rank->wake_fd, .events = POLLIN};
  if (poll(w->polls, (nfds_t)n_ranks + 1, PP_TICK_MS) < 0) {
    for (int r = 0; r <= n_ranks; r++) w->polls[r].revents = 0;
  }
}

static void watch_destroy(Watch *w) {
  for (int r = 0; w->peers && r < w->rank->program->n_ranks; r++) {
    if (w->peers[r].pidfd >= 0) close(w->peers[r].pidfd);
  }
  free(w->peers);
  free(w->polls);
  free(w);
}

static void *watch_run(void *argument) {
  Watch *w = argument;
  w->last_ns = pp_now_ns();
  while (!atomic_load(&w->rank->watch_quit)) {
    tick(w);
    sleep_a_tick(w);
  }
  end_abort(w);
  watch_destroy(w);
  return NULL;
}

static Watch *watch_create(pp_rank *rank) {
  size_t n_ranks = (size_t)rank->program->n_ranks;
  Watch *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->rank = rank;
  w->peers = calloc(n_ranks, sizeof *w->peers);
  w->polls = calloc(n_ranks + 1, sizeof *w->polls);
  for (size_t r = 0; w->peers && r < n_ranks; r++) w->peers[r].pidfd = -1;
  if (w->peers && w->polls) return w;
  watch_destroy(w);
  return NULL;
}

/* Signals go to the rank's own thread, whose sleep they should not matter to; the flag is all that counts. */
pp_status pp_watch_start(pp_rank *rank) {
  sigset_t all, old;
  Watch *w = watch_create(rank);
  rank->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (!w || rank->wake_fd < 0) return pp_fail(rank, PP_EXIT_FAILED, "can't start the watchdog: %s", strerror(errno));
  if (!rank->in_threads) {
    atomic_store(&process.slot, rank->slot);
    atexit(on_exit_call);
  }
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int error = pthread_create(&rank->watcher, NULL, watch_run, w);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (error) {
    watch_destroy(w);
    return pp_fail(rank, PP_EXIT_FAILED, "can't start the watchdog: %s", strerror(error));
  }
  rank->watching = 1;
  return PP_OK;
}

void pp_watch_stop(pp_rank *rank) {
  uint64_t one = 1;
  if (rank->watching) {
    atomic_store(&rank->watch_quit, 1);
    ssize_t ignored = write(rank->wake_fd, &one, sizeof one);
    (void)ignored;
    pthread_join(rank->watcher, NULL);
    rank->watching = 0;
  }
  if (rank->wake_fd > 0) close(rank->wake_fd);
  rank->wake_fd = -1;
  if (!rank->in_threads) atomic_store(&process.slot, NULL);
}
