/* What a CUDA rank keeps on its device beside its tensors: changed by kernels alone (runtime/kernels/cuda/step.cuh,
 * rows.cuh), copied to the host at the end of a step that is looked at. C11 and C++17. */
#ifndef PP_CUDA_STATE_H
#define PP_CUDA_STATE_H

#include <stdint.h>

/* What random numbers are a function of, beside microbatch, key and element. */
typedef struct pp_random_state {
  uint64_t seed, step; /* the running step, from 1 */
} pp_random_state;

/* The first index outside its table: the earliest launch that met one, and its lowest position there. */
typedef struct pp_fault {
  int32_t set;        /* 0: none */
  int32_t place;      /* number of the statement's place in the emitted table of places */
  int32_t microbatch;
  int32_t position, value, rows;
} pp_fault;

/* Why a step changed nothing. Only the rank of the loss finds out what wasn't finite. */
typedef struct pp_skip {
  uint64_t step;       /* its number; 0: none yet */
  int32_t uncounted;   /* 1: no target was counted */
  int32_t microbatch;  /* of the first loss that isn't finite; -1: none */
  int32_t parameter;   /* whose gradient's norm isn't finite; -1: none */
  double value;        /* that loss or squared norm */
} pp_skip;

typedef struct pp_step_state {
  pp_random_state random;
  uint64_t updates;    /* steps that changed the parameters */
  uint64_t n_skipped;
  pp_skip skip;        /* the last one; after a stop the one that stopped */
  int32_t stopped;     /* 1: `nonfinite stop` has met a step that isn't finite; nothing changes any more */
  pp_fault fault;
  uint64_t fault_step; /* in which it was met */
} pp_step_state;

#endif
