/* Times of a traced step on a GPU. */
#ifndef PP_CUDA_TRACE_H
#define PP_CUDA_TRACE_H

#include "rank.h"

pp_status pp_cuda_trace_create(pp_rank *rank);
void pp_cuda_trace_destroy(pp_rank *rank);
/* Both return at once when the step is not traced. */
pp_status pp_cuda_trace_begin(pp_rank *rank);
pp_status pp_cuda_trace_end(pp_rank *rank);
/* pp_device.stamp: the time at which the stream comes here will stand in `at` when the step has ended. */
void pp_cuda_stamp(pp_rank *rank, uint64_t *at, int in_transfer);

#endif
