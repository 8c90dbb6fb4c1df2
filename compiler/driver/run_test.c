/* The launcher, with shell scripts as ranks: statuses, signals, ranks that don't end by themselves. */
#include "compiler/driver/run.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "compiler/driver/output.h"

static int failures;
static void result(bool fine, const char *name) {
  printf("%s %s\n", fine ? "ok" : "FAIL", name);
  failures += !fine;
}

static Arena *arena;
static char root[] = "/tmp/run_test.XXXXXX";

static void put_rank(int rank, const char *script) {
  Str error = {0};
  const char *path = arena_printf(arena, "%s/rank_%d", root, rank), *text = arena_printf(arena, "#!/bin/sh\n%s\n", script);
  output_write_file(path, text, strlen(text), &error);
  chmod(path, 0777);
  str_free(&error);
}

/* Runs two ranks with these scripts in a child; a signal may be sent to it after a while. */
static int run_with(const char *first, const char *second, int number, double *out_seconds) {
  put_rank(0, first);
  put_rank(1, second);
  fflush(stdout);
  struct timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  pid_t pid = fork();
  if (pid == 0) {
    if (!freopen("/dev/null", "w", stderr)) _exit(99);
    Texts arguments = {0};
    VEC_PUSH(arena, &arguments, "--steps=7");
    _exit(run_ranks(arena, root, 2, &arguments));
  }
  int status;
  if (number && pid > 0) {
    usleep(700000);
    kill(pid, number);
  }
  waitpid(pid, &status, 0);
  clock_gettime(CLOCK_MONOTONIC, &after);
  if (out_seconds) *out_seconds = (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A zombie is not: nobody may reap orphans here. */
static bool is_alive(const char *name) {
  return system(arena_printf(arena, "grep -q '^State:.[^Z]' /proc/$(cat %s/%s)/status 2>/dev/null", root, name)) == 0;
}

int main(void) {
  arena = arena_create();
  double seconds;
  if (!mkdtemp(root)) return 1;
  result(run_with("exit 0", "exit 0", 0, NULL) == 0, "all fine");
  result(run_with("test \"$PPC_RANK-$PPC_RANKS-$1\" = 0-2---steps=7", "test -n \"$PPC_JOB\" && test \"$PPC_RANK\" = 1", 0, NULL) == 0,
         "ranks are told who they are, and get the arguments");
  result(run_with("exit 1", "exit 1", 0, NULL) == 1, "wrong input is passed on");
  result(run_with("exit 0", "exit 4", 0, NULL) == 4, "a failed run");
  result(run_with("exit 0", "exit 77", 0, NULL) == 4, "an unknown status is a failed run");
  result(run_with("exit 0", "kill -9 $$", 0, NULL) == 4, "a killed rank is a failed run");
  int status = run_with("echo $$ >\"$0.pid\"; exec sleep 60", "exit 4", 0, &seconds);
  result(status == 4 && seconds < 15 && !is_alive("rank_0.pid"), "when one fails, the others are ended after a grace");
  status = run_with("echo $$ >\"$0.pid\"; kill -STOP $$", "exit 4", 0, &seconds);
  result(status == 4 && seconds < 15 && !is_alive("rank_0.pid"), "even a stopped one");
  status = run_with("trap 'exit 130' INT; sleep 20 & wait", "trap 'exit 130' INT; sleep 20 & wait", SIGINT, &seconds);
  result(status == 130 && seconds < 10, "SIGINT is handed on");
  status = run_with("trap 'exit 143' TERM; sleep 20 & wait", "trap 'exit 143' TERM; sleep 20 & wait", SIGTERM, &seconds);
  result(status == 143 && seconds < 10, "SIGTERM is handed on");
  status = run_with("echo $$ >\"$0.pid\"; exec sleep 20", "exec sleep 20", SIGKILL, NULL);
  usleep(300000);
  result(status == -1 && !is_alive("rank_0.pid"), "ranks end when ppc is killed");
  output_remove(root);
  arena_destroy(arena);
  return failures != 0;
}
