/* A rank's memory: the arena, a private mapping whose name /proc/self/smaps shows, and the window,
 * its part of the job's segment. Both have the compiler's size; addresses are computed once. */
#include "internal.h"

#include <errno.h>
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

static pp_status compute_addresses(pp_rank *rank) {
  const pp_program *program = rank->program;
  rank->at = malloc((program->n_offsets + 1) * sizeof *rank->at);
  if (!rank->at) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  for (uint32_t i = 0; i < program->n_offsets; i++) rank->at[i] = pp_address(rank, program->offsets[i]);
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

pp_status pp_memory_create(pp_rank *rank) {
  PP_TRY(map_windows(rank));
  PP_TRY(map_arena(rank));
  PP_TRY(compute_addresses(rank));
  size_t n = rank->program->n_transfers + 1u;
  rank->posted = calloc(n, sizeof *rank->posted);
  rank->arrived = calloc(n, sizeof *rank->arrived);
  rank->chunks_taken = calloc((size_t)rank->program->n_ranks, sizeof *rank->chunks_taken);
  if (!rank->posted || !rank->arrived || !rank->chunks_taken) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  return PP_OK;
}

void pp_memory_destroy(pp_rank *rank) {
  if (rank->arena) munmap(rank->arena, rank->program->arena_bytes ? rank->program->arena_bytes : 1);
  rank->arena = NULL;
  free(rank->at);
  free(rank->windows);
  free(rank->posted);
  free(rank->arrived);
  free(rank->chunks_taken);
}
