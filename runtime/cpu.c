/* The CPU as a device: the arena is a private mapping whose name /proc/self/smaps shows, the window its part of
 * the job's segment. Tasks run where they are called. Not part of programs for other devices. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pp_status map_arena(pp_rank *rank) {
  size_t size_bytes = rank->program->arena_bytes ? rank->program->arena_bytes : 1;
  int fd = memfd_create("ppc-arena", MFD_CLOEXEC);
  void *base = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, (off_t)size_bytes) == 0) {
    base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  int error = errno;
  if (fd >= 0) close(fd);
  if (base == MAP_FAILED) {
    return pp_fail(rank, PP_EXIT_INPUT, "can't map %zu bytes of memory: %s", size_bytes, strerror(error));
  }
  madvise(base, size_bytes, MADV_HUGEPAGE); /* where the site allows it for shared memory */
  rank->arena = base;
  return PP_OK;
}

static pp_status map_windows(pp_rank *rank) {
  size_t n_ranks = (size_t)rank->program->n_ranks;
  rank->windows = malloc(n_ranks * sizeof *rank->windows);
  if (!rank->windows) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  for (size_t r = 0; r < n_ranks; r++) rank->windows[r] = pp_board_window(rank->program, (int)r);
  rank->window = rank->segment + rank->windows[rank->program->rank];
  return PP_OK;
}

/* --- a step -------------------------------------------------------------------------------------- */

/* What a rank doesn't have has no place. */
static double *vector_at(const pp_rank *rank, uint64_t offset) {
  return offset == UINT64_MAX ? NULL : pp_address(rank, offset);
}

static pp_status see(pp_rank *rank) {
  const pp_program *program = rank->program;
  int has_losses = program->rank == program->loss_rank;
  rank->seen.outputs = malloc(((size_t)program->n_outputs + 1) * sizeof *rank->seen.outputs);
  if (!rank->seen.outputs) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  rank->seen.control = vector_at(rank, program->control);
  rank->seen.losses = has_losses ? vector_at(rank, program->losses) : NULL;
  rank->seen.counts = has_losses ? vector_at(rank, program->counts) : NULL;
  rank->seen.norms = has_losses ? vector_at(rank, program->norms) : NULL;
  rank->seen.loss_scale = program->first_loss_scale != 0 ? vector_at(rank, program->loss_scale) : NULL;
  for (int i = 0; i < program->n_outputs; i++) rank->seen.outputs[i] = vector_at(rank, program->output_slots[i]);
  return PP_OK;
}

static pp_status create(pp_rank *rank) {
  pp_matmul_set_threads(rank->options->threads);
  PP_TRY(map_windows(rank));
  PP_TRY(map_arena(rank));
  return see(rank);
}

static void destroy(pp_rank *rank) {
  if (rank->arena) munmap(rank->arena, rank->program->arena_bytes ? rank->program->arena_bytes : 1);
  rank->arena = NULL;
  free(rank->windows);
  free(rank->seen.outputs);
}

/* A skipped step leaves the optimizer's step as it was. */
static pp_status begin_step(pp_rank *rank, int *out_issued) {
  double *step = vector_at(rank, rank->program->step);
  if (step) *step = (double)(rank->step - rank->seen.n_skipped);
  *out_issued = 0;
  return PP_OK;
}

static int applies(const pp_rank *rank) { return rank->seen.control[PP_CONTROL_APPLY] != 0; }

static pp_status end_step(pp_rank *rank, int sees) {
  (void)sees;
  if (!rank->program->generate && !applies(rank)) pp_seen_skip(rank);
  return PP_OK;
}

/* Optimizer tasks are left out as a whole, so that parameters and states keep their bits; what is sent of
 * a parameter is sent from where it lies. */
static void run(pp_rank *rank, const pp_task *task, const pp_call *call) {
  if (task->kind != PP_UPDATE || applies(rank)) task->run(call);
}

static pp_status copy(pp_rank *rank, void *to, const void *from, size_t size_bytes) {
  (void)rank;
  memcpy(to, from, size_bytes);
  return PP_OK;
}

const pp_device pp_device_cpu = {
    .name = "cpu",
    .transports = pp_transports_cpu,
    .sees_all = 1,
    .shares_windows = 1,
    .create = create,
    .destroy = destroy,
    .begin_step = begin_step,
    .end_step = end_step,
    .run = run,
    .write = copy,
    .read = copy,
};
