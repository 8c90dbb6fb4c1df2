/* A rank's memory, and the CPU as a device. There the arena is a private mapping whose name /proc/self/smaps
 * shows, the window its part of the job's segment. Both have the compiler's size; addresses are computed once. */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define IN_WINDOW (UINT64_C(1) << 63)

void *pp_address_in(const pp_rank *rank, int space, uint64_t offset) {
  return (space == PP_WINDOW ? rank->window : rank->arena) + offset;
}

void *pp_address(const pp_rank *rank, uint64_t offset) {
  return pp_address_in(rank, offset & IN_WINDOW ? PP_WINDOW : PP_ARENA, offset & ~IN_WINDOW);
}

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

/* --- a step on the CPU --------------------------------------------------------------------------- */

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
  for (int i = 0; i < program->n_outputs; i++) rank->seen.outputs[i] = vector_at(rank, program->output_slots[i]);
  return PP_OK;
}

static pp_status create(pp_rank *rank) {
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

void pp_seen_skip(pp_rank *rank) {
  const pp_program *program = rank->program;
  pp_seen *seen = &rank->seen;
  seen->n_skipped++;
  seen->skipped_step = rank->step;
  seen->uncounted = seen->control[PP_CONTROL_COUNT] == 0;
  seen->bad_microbatch = seen->bad_parameter = -1;
  for (int i = 0; seen->losses && i < program->n_microbatches; i++) {
    if (isfinite(seen->losses[i])) continue;
    seen->bad_microbatch = i;
    seen->bad_value = seen->losses[i];
    return;
  }
  for (int i = 0; seen->norms && i < program->n_parameters; i++) {
    if (isfinite(seen->norms[i])) continue;
    seen->bad_parameter = i;
    seen->bad_value = seen->norms[i];
    return;
  }
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

/* --- for all devices ------------------------------------------------------------------------------- */

static pp_status compute_addresses(pp_rank *rank) {
  const pp_program *program = rank->program;
  rank->at = malloc((program->n_offsets + 1) * sizeof *rank->at);
  if (!rank->at) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  for (uint32_t i = 0; i < program->n_offsets; i++) rank->at[i] = pp_address(rank, program->offsets[i]);
  return PP_OK;
}

pp_status pp_memory_create(pp_rank *rank) {
  PP_TRY(rank->program->device->create(rank));
  PP_TRY(compute_addresses(rank));
  size_t n = rank->program->n_transfers + 1u;
  rank->posted = calloc(n, sizeof *rank->posted);
  rank->arrived = calloc(n, sizeof *rank->arrived);
  rank->chunks_taken = calloc((size_t)rank->program->n_ranks, sizeof *rank->chunks_taken);
  if (!rank->posted || !rank->arrived || !rank->chunks_taken) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  return PP_OK;
}

void pp_memory_destroy(pp_rank *rank) {
  rank->program->device->destroy(rank);
  free(rank->at);
  free(rank->posted);
  free(rank->arrived);
  free(rank->chunks_taken);
}
