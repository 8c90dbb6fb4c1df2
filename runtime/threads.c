/* All ranks of a job as threads of one process, over the transport code of shared memory: ThreadSanitizer
 * sees nothing across processes. The segment is ordinary memory; each thread has its own handle, as each process has. */
#include "pp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"

pp_status pp_threads_connect(pp_rank *rank, void *segment) {
  pp_board_attach(rank, segment);
  return pp_board_barrier(rank);
}

const pp_transport pp_transport_threads = {
    .name = "threads",
    .connect = pp_threads_connect,
    .disconnect = pp_shm_disconnect,
    .post_send = pp_shm_post_send,
    .post_receive = pp_shm_post_receive,
    .await_send = pp_shm_await_send,
    .await_receive = pp_shm_await_receive,
    .progress = pp_shm_progress,
    .barrier = pp_board_barrier,
    .give = pp_board_give,
    .take = pp_board_take,
};

typedef struct {
  const pp_program *program;
  const pp_options *options;
  void *segment;
  int exit_status, started;
  pthread_t thread;
} Member;

static void *member_run(void *argument) {
  Member *m = argument;
  pp_job launch = {.rank = m->program->rank, .n_ranks = m->program->n_ranks};
  int strict = m->options->transport && strncmp(m->options->transport, "strict", 6) == 0;
  const pp_transport *transport = strict ? &pp_transport_strict_threads : &pp_transport_threads;
  m->exit_status = pp_rank_run(m->program, m->options, transport, &launch, m->segment);
  return NULL;
}

/* A thread that can't be started leaves the others waiting until their start time-out ends them. */
static int run_members(Member *members, int n) {
  int worst = PP_EXIT_FINE;
  for (int r = 0; r < n; r++) members[r].started = pthread_create(&members[r].thread, NULL, member_run, &members[r]) == 0;
  for (int r = 0; r < n; r++) {
    if (members[r].started) pthread_join(members[r].thread, NULL);
    int status = members[r].started ? members[r].exit_status : PP_EXIT_FAILED;
    if (status > worst) worst = status;
  }
  return worst;
}

static int run_all(const pp_program *const *programs, const pp_options *options, int n) {
  size_t size_bytes = pp_board_layout(programs[0]).total_bytes;
  void *segment = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Member *members = calloc((size_t)n, sizeof *members);
  int status = PP_EXIT_FAILED;
  if (segment != MAP_FAILED && members) {
    pp_board_init(segment, programs[0]);
    for (int r = 0; r < n; r++) members[r] = (Member){.program = programs[r], .options = options, .segment = segment};
    pp_signals_install();
    status = run_members(members, n);
  }
  free(members);
  if (segment != MAP_FAILED) munmap(segment, size_bytes);
  return status;
}

int pp_main_threads(const pp_program *const *programs, int n, int argc, char **argv) {
  pp_options options;
  if (n != programs[0]->n_ranks) {
    fprintf(stderr, "ppc: %d programs for %d ranks\n", n, programs[0]->n_ranks);
    return PP_EXIT_USAGE;
  }
  int status = pp_options_parse(&options, programs[0], argc, argv);
  if (status < 0) status = run_all(programs, &options, n);
  pp_options_destroy(&options);
  return status;
}
