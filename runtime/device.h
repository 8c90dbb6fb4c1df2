/* Where a rank's memory lies and its tasks run. Like a transport, one constant table per kind of device;
 * the emitted program names its own (pp_program.device), so that a program for CPUs has nothing of CUDA in it. */
#ifndef PP_DEVICE_H
#define PP_DEVICE_H

#include "transport.h"

typedef struct pp_device {
  const char *name; /* "cpu", "cuda" */
  pp_status (*create)(pp_rank *rank);   /* maps arena and window: after the transport has connected */
  void (*destroy)(pp_rank *rank);       /* of a half-made one too */
  pp_status (*begin_step)(pp_rank *rank);
  /* Everything of the step has been issued. With `sees` it returns when the step has ended and the vectors in
   * rank->seen (control, losses, counts, norms, outputs) hold its results; else it may return at once. */
  pp_status (*end_step)(pp_rank *rank, int sees);
  void (*run)(pp_rank *rank, const pp_task *task, const pp_call *call); /* a task; leaves out updates that don't apply */
  /* Between steps only; both wait for all that was issued. */
  pp_status (*write)(pp_rank *rank, void *to, const void *from, size_t size_bytes); /* host → device */
  pp_status (*read)(pp_rank *rank, void *to, const void *from, size_t size_bytes);  /* device → host */
} pp_device;

extern const pp_device pp_device_cpu;  /* memory.c */
extern const pp_device pp_device_cuda; /* cuda/device.c */

#endif
