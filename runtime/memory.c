/* A rank's memory on any device: arena and window have the compiler's size; addresses are computed once. */
#include "internal.h"

#include <math.h>
#include <stdlib.h>

#define IN_WINDOW (UINT64_C(1) << 63)

void *pp_address_in(const pp_rank *rank, int space, uint64_t offset) {
  return (space == PP_WINDOW ? rank->window : rank->arena) + offset;
}

void *pp_address(const pp_rank *rank, uint64_t offset) {
  return pp_address_in(rank, offset & IN_WINDOW ? PP_WINDOW : PP_ARENA, offset & ~IN_WINDOW);
}

void pp_seen_skip(pp_rank *rank) {
  const pp_program *program = rank->program;
  pp_seen *seen = &rank->seen;
  seen->n_skipped++;
  seen->skipped_step = rank->step;
  seen->uncounted = seen->control[PP_CONTROL_DIVISOR] == 0;
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
