/* --trace on a GPU: where the CPU's loop reads a clock, an event with a time is recorded on the stream. When the step
 * has ended the events are read and their times stand in the row of the step (runtime/trace.c) as on a CPU, on the
 * host's clock: an event recorded while the device was idle says how the two clocks lie, to the time that the
 * host took to see it. Traced steps are waited for. */
#include <stdlib.h>

#include "trace.h"

struct pp_cuda_trace {
  cudaEvent_t base;
  uint64_t base_ns;
  cudaEvent_t *events;  /* [n] */
  uint64_t **at;        /* [n] where the time of each goes */
  size_t n, used;
};

/* As many as a step has times. */
pp_status pp_cuda_trace_create(pp_rank *rank) {
  const pp_program *program = rank->program;
  struct pp_cuda_trace *trace = calloc(1, sizeof *trace);
  if (!trace) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  rank->cuda->trace = trace;
  trace->n = 2 + 2 * (size_t)program->n_actions + 2 * (size_t)program->n_ops + 2 * (size_t)program->n_transfers;
  trace->events = calloc(trace->n, sizeof(cudaEvent_t));
  trace->at = calloc(trace->n, sizeof *trace->at);
  if (!trace->events || !trace->at) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  PP_CUDA_TRY(rank, cudaEventCreateWithFlags(&trace->base, cudaEventDefault));
  for (size_t i = 0; i < trace->n; i++) PP_CUDA_TRY(rank, cudaEventCreateWithFlags(&trace->events[i], cudaEventDefault));
  return PP_OK;
}

void pp_cuda_trace_destroy(pp_rank *rank) {
  struct pp_cuda_trace *trace = rank->cuda->trace;
  if (!trace) return;
  for (size_t i = 0; trace->events && i < trace->n; i++)
    if (trace->events[i]) PP_CUDA_DO(rank, cudaEventDestroy(trace->events[i]));
  if (trace->base) PP_CUDA_DO(rank, cudaEventDestroy(trace->base));
  free(trace->events);
  free(trace->at);
  free(trace);
}

void pp_cuda_stamp(pp_rank *rank, uint64_t *at, int in_transfer) {
  struct pp_cuda *cuda = rank->cuda;
  struct pp_cuda_trace *trace = cuda->trace;
  if (trace->used == trace->n) return;
  trace->at[trace->used] = at;
  PP_CUDA_DO(rank, cudaEventRecord(trace->events[trace->used++], in_transfer ? cuda->communication : cuda->compute[cuda->current]));
}

pp_status pp_cuda_trace_begin(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  struct pp_cuda_trace *trace = cuda->trace;
  if (!rank->times) return PP_OK;
  trace->used = 0;
  if (rank->step > 1) PP_TRY(pp_cuda_await(rank, cuda->ended[(rank->step - 1) & 1]));
  PP_CUDA_TRY(rank, cudaEventRecord(trace->base, cuda->compute[0]));
  PP_TRY(pp_cuda_await(rank, trace->base));
  trace->base_ns = pp_now_ns();
  return PP_OK;
}

pp_status pp_cuda_trace_end(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  struct pp_cuda_trace *trace = cuda->trace;
  if (!rank->times) return PP_OK;
  PP_TRY(pp_cuda_await(rank, cuda->ended[rank->step & 1]));
  for (size_t i = 0; i < trace->used; i++) {
    float ms = 0;
    PP_CUDA_TRY(rank, cudaEventElapsedTime(&ms, trace->base, trace->events[i]));
    *trace->at[i] = trace->base_ns + (uint64_t)(ms > 0 ? (double)ms * 1e6 : 0);
  }
  return pp_trace_exchange(rank);
}
