/* A checking build (-DPP_CHECK, with -fsanitize=address): what the compiler says about lifetimes is
 * enforced. Bytes of arena and window are poisoned outside their life and hold NaN (as an i32: -1) at
 * its start, so that a stale read, a read of what was never written, and a buffer used too long each
 * stop the run where they happen. Not compiled into other builds. */
#ifdef PP_CHECK
#include "internal.h"

#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

enum { NAN_BYTE = 0xff };

static void begin(const pp_rank *rank, const pp_life *life) {
  void *at = pp_address_in(rank, life->space, life->offset);
  ASAN_UNPOISON_MEMORY_REGION(at, life->size_bytes);
  memset(at, NAN_BYTE, life->size_bytes);
}

static void end(const pp_rank *rank, const pp_life *life) {
  ASAN_POISON_MEMORY_REGION(pp_address_in(rank, life->space, life->offset), life->size_bytes);
}

/* What lives always keeps the zeros that it was mapped with. */
void pp_check_start(pp_rank *rank) {
  const pp_program *program = rank->program;
  ASAN_POISON_MEMORY_REGION(rank->arena, program->arena_bytes);
  ASAN_POISON_MEMORY_REGION(rank->window, program->window_bytes);
  for (uint32_t i = 0; i < program->n_always; i++) {
    const pp_life *life = &program->always[i];
    ASAN_UNPOISON_MEMORY_REGION(pp_address_in(rank, life->space, life->offset), life->size_bytes);
  }
}

void pp_check_step(pp_rank *rank) { rank->check_point = rank->check_life = 0; }

void pp_check_point(pp_rank *rank) {
  const pp_program *program = rank->program;
  for (; rank->check_life < program->n_lives; rank->check_life++) {
    const pp_life *life = &program->lives[rank->check_life];
    if (life->point > rank->check_point) break;
    if (life->starts) begin(rank, life);
    else end(rank, life);
  }
  rank->check_point++;
}

/* Memory that is given back must not stay poisoned for whoever maps it next. */
void pp_check_end(pp_rank *rank) {
  if (rank->arena) ASAN_UNPOISON_MEMORY_REGION(rank->arena, rank->program->arena_bytes);
  if (rank->window) ASAN_UNPOISON_MEMORY_REGION(rank->window, rank->program->window_bytes);
}
#else
typedef int pp_check_is_off; /* a translation unit may not be empty */
#endif
