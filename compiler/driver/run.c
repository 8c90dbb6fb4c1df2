/* Runs all ranks of an emitted program on this host. In: a folder with rank_0 …, the arguments for them.
 * Out: one status. Each rank is a child that is told who it is by PPC_RANK, PPC_RANKS and PPC_JOB. The
 * ranks watch one another and report; ppc only names a rank that died of a signal, and after a grace
 * ends those that are left. SIGINT, SIGTERM and SIGHUP are handed on; a second one kills. */
#include "compiler/driver/run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seconds that ranks get to end by themselves: after one gave up, it has told the others; after one died,
 * their watch must find out, which takes up to 5 s by default. */
enum { EXIT_GRACE_S = 3, DEATH_GRACE_S = 7, TERM_GRACE_S = 1 };

typedef struct {
  const char *dir;
  int n_ranks, n_left;
  pid_t *pids;       /* [n_ranks], 0: has ended */
  int status;        /* for ppc: of the first that failed */
  bool told;         /* a rank gave up by itself: it has said why */
  int dead_rank, dead_signal; /* the first that died of a signal, 0: none did */
  int caught;        /* the first signal that ended the run, 0: none */
  double deadline_s; /* when the rest gets the next signal, 0: no deadline */
  int next_signal;
} Job;

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Under nohup a hangup stays ignored, by ppc and the ranks. */
static void watched_signals(sigset_t *out_set) {
  struct sigaction hangup;
  sigemptyset(out_set);
  sigaddset(out_set, SIGCHLD);
  sigaddset(out_set, SIGINT);
  sigaddset(out_set, SIGTERM);
  if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(out_set, SIGHUP);
}

/* --- starting -------------------------------------------------------------------------------------------- */

/* In the child; returns only on failure. */
static void become_rank(Arena *arena, const Job *job, int rank, const Texts *arguments, const char *name, const sigset_t *mask,
                        pid_t parent) {
  char *path = arena_printf(arena, "%s/rank_%d", job->dir, rank);
  char **argv = arena_alloc_array(arena, (size_t)arguments->n + 2, sizeof *argv);
  argv[0] = path;
  for (int i = 0; i < arguments->n; i++) argv[i + 1] = (char *)arguments->at[i];
  setenv("PPC_RANK", arena_printf(arena, "%d", rank), 1);
  setenv("PPC_RANKS", arena_printf(arena, "%d", job->n_ranks), 1);
  setenv("PPC_JOB", name, 1);
  setenv("PPC_SAME_OPTIONS", "1", 1);
  signal(SIGINT, SIG_DFL); /* a script's background jobs ignore it; what ppc hands on must count */
  signal(SIGTERM, SIG_DFL);
  sigprocmask(SIG_SETMASK, mask, NULL);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) return; /* ppc is gone already */
  execv(path, argv);
  fprintf(stderr, "ppc: cannot start '%s': %s\n", path, strerror(errno));
}

static void signal_all(const Job *job, int number) {
  for (int i = 0; i < job->n_ranks; i++)
    if (job->pids[i] > 0) kill(job->pids[i], number);
}

static void set_deadline(Job *job, double seconds, int number) {
  job->deadline_s = now_s() + seconds;
  job->next_signal = number;
}

static void start_ranks(Arena *arena, Job *job, const Texts *arguments, const sigset_t *mask) {
  pid_t parent = getpid();
  const char *name = arena_printf(arena, "run-%ld-%llx", (long)parent, (unsigned long long)(now_s() * 1e9));
  for (int i = 0; i < job->n_ranks; i++) {
    job->pids[i] = fork();
    if (job->pids[i] == 0) {
      become_rank(arena, job, i, arguments, name, mask, parent);
      _exit(STATUS_FAILED);
    }
    if (job->pids[i] > 0) {
      job->n_left++;
      continue;
    }
    fprintf(stderr, "ppc: cannot start rank %d: %s\n", i, strerror(errno));
    job->pids[i] = 0;
    job->status = STATUS_FAILED;
    signal_all(job, SIGTERM);
    set_deadline(job, TERM_GRACE_S, SIGKILL);
    return;
  }
}

/* --- ending ------------------------------------------------------------------------------------------------ */

static int status_of(Job *job, int rank, int status) {
  if (WIFSIGNALED(status)) {
    if (!job->dead_signal) job->dead_rank = rank;
    if (!job->dead_signal) job->dead_signal = WTERMSIG(status);
    return STATUS_FAILED;
  }
  int code = WEXITSTATUS(status);
  job->told |= code != 0;
  return code <= STATUS_FAILED ? code : STATUS_FAILED;
}

static void rank_ended(Job *job, int rank, int wait_status) {
  int status = status_of(job, rank, wait_status);
  job->pids[rank] = 0;
  job->n_left--;
  if (status == STATUS_FINE || job->status != STATUS_FINE) return;
  job->status = status;
  if (job->deadline_s == 0) set_deadline(job, WIFSIGNALED(wait_status) ? DEATH_GRACE_S : EXIT_GRACE_S, SIGTERM);
}

static void reap(Job *job) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
    for (int i = 0; i < job->n_ranks; i++)
      if (job->pids[i] == pid) rank_ended(job, i, status);
}

/* A stopped process takes a SIGTERM only when it goes on; SIGKILL ends it at once. */
static void deadline_passed(Job *job) {
  signal_all(job, job->next_signal);
  if (job->next_signal == SIGTERM) set_deadline(job, TERM_GRACE_S, SIGKILL);
  else job->deadline_s = 0;
}

static void end_signal(Job *job, int number) {
  if (job->caught) {
    signal_all(job, SIGKILL);
    return;
  }
  job->caught = number;
  signal_all(job, number);
  set_deadline(job, DEATH_GRACE_S, SIGKILL);
}

static void wait_for_event(Job *job, const sigset_t *set) {
  struct timespec timeout = {.tv_sec = 1};
  if (job->deadline_s > 0) {
    double left = job->deadline_s - now_s();
    if (left <= 0) {
      deadline_passed(job);
      return;
    }
    timeout = (struct timespec){.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
  }
  int number = sigtimedwait(set, NULL, &timeout);
  if (number == SIGINT || number == SIGTERM || number == SIGHUP) end_signal(job, number);
  reap(job);
}

int run_ranks(Arena *arena, const char *dir, int n_ranks, const Texts *arguments) {
  Job job = {.dir = dir, .n_ranks = n_ranks};
  job.pids = arena_alloc_array(arena, (size_t)n_ranks, sizeof *job.pids);
  sigset_t watched, before;
  watched_signals(&watched);
  fflush(stdout);
  sigprocmask(SIG_BLOCK, &watched, &before);
  start_ranks(arena, &job, arguments, &before);
  while (job.n_left > 0) wait_for_event(&job, &watched);
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (job.dead_signal && !job.told && !job.caught)
    fprintf(stderr, "ppc: rank %d was ended by signal %d (%s)\n", job.dead_rank, job.dead_signal, strsignal(job.dead_signal));
  return job.caught && job.status != STATUS_FINE ? 128 + job.caught : job.status;
}
