/* Where a rank's memory lies and its tasks run. Like a transport, one constant table per kind of device;
 * the emitted program names its own (pp_program.device), so that a program for CPUs has nothing of CUDA in it. */
#ifndef PP_DEVICE_H
#define PP_DEVICE_H

#include "transport.h"

/* What the host sees of a step that has ended. On the CPU the vectors lie in the arena, elsewhere they are copies. */
typedef struct {
  const double *control;
  const double *losses, *counts, *norms; /* null but on the rank of the loss */
  const double *loss_scale;              /* the same; null where the loss scale is not dynamic */
  const double **outputs;                /* [n_outputs] */
  /* Steps that changed nothing: how many so far, and of the last one its number and why. Of what isn't finite only
   * the rank of the loss knows: the first loss, else the first squared norm. */
  uint64_t n_skipped, skipped_step;
  int uncounted;                         /* 1: no target was counted */
  int bad_microbatch, bad_parameter;     /* -1: none */
  double bad_value;
} pp_seen;

typedef struct pp_device {
  const char *name;    /* "cpu", "cuda" */
  const pp_transport *const *transports; /* ends with null */
  int sees_all;        /* 1: looking at a step's results costs nothing, so that it is done at every step */
  int shares_windows;  /* 1: windows lie in the job's segment, where peers read from them */
  pp_status (*create)(pp_rank *rank);   /* sets arena, window and seen: after the transport has connected */
  void (*destroy)(pp_rank *rank);       /* of a half-made one too */
  /* What ranks must have alike, as one number: which algorithms products take; and bytes that libraries have taken of the
   * device so far beside the rank's own, those of other processes too. Null: nothing of the kind. */
  pp_status (*describe)(pp_rank *rank, uint64_t *out_digest, uint64_t *out_library_bytes);
  pp_status (*begin_step)(pp_rank *rank, int *out_issued); /* 1: the whole step has been issued, as it was captured before */
  /* Everything of the step has been issued. With `sees` it returns when the step has ended and rank->seen
   * holds its results; else it may return at once. */
  pp_status (*end_step)(pp_rank *rank, int sees);
  /* Around an action's operations and task; null: nothing to do. */
  void (*enter)(pp_rank *rank, const pp_action *action);
  void (*leave)(pp_rank *rank, const pp_action *action);
  void (*run)(pp_rank *rank, const pp_task *task, const pp_call *call); /* a task; leaves out updates that don't apply */
  /* In a traced step: the time at which the action's stream, or in_transfer the transfers', comes here; it stands in
   * `at` when the step has ended. Null: the time is now. */
  void (*stamp)(pp_rank *rank, uint64_t *at, int in_transfer);
  /* Between steps, and before the first update of one; both wait for all that was issued. */
  pp_status (*write)(pp_rank *rank, void *to, const void *from, size_t size_bytes); /* host to device */
  pp_status (*read)(pp_rank *rank, void *to, const void *from, size_t size_bytes);  /* device to host */
} pp_device;

extern const pp_device pp_device_cpu;  /* cpu.c */
extern const pp_device pp_device_cuda; /* cuda/device.c */

/* The first that fits, or the one of that name, which ends with it or a ':'; null when there is none. */
const pp_transport *pp_transport_choose(const pp_device *device, const char *name, int n_ranks);

#endif
