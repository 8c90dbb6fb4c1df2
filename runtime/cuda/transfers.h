/* What transports between GPUs share (transfers.c): when a transfer may begin and what its end lets go on, by events
 * between the compute streams and the communication stream; and where a rank's transfers are. What moves the bytes is
 * the transport's own, given to pp_transfers_post. */
#ifndef PP_CUDA_TRANSFERS_H
#define PP_CUDA_TRANSFERS_H

#include "rank.h"

pp_status pp_transfers_create(pp_rank *rank);
void pp_transfers_destroy(pp_rank *rank); /* of a half-made one too */

/* Enqueues the transfer on the communication stream, behind what its row in `ops` names. */
typedef void pp_move_fn(pp_rank *rank, uint32_t transfer);
void pp_transfers_post(pp_rank *rank, uint32_t transfer, pp_move_fn *move);
pp_status pp_transfers_await(pp_rank *rank, uint32_t transfer);
/* The captured step of this parity is launched once more. */
void pp_transfers_repeat(pp_rank *rank);
void pp_transfers_progress(pp_rank *rank); /* what has been enqueued moves by itself */

int pp_transfers_is_post(const pp_op *op);

/* Whether two ranks have the same GPU, and the first two that do: known when all have met. */
int pp_gpus_shared(const pp_rank *rank, int *out_a, int *out_b);

/* Tells the watchdog where the device is: at the first transfer that is not complete. */
pp_status pp_transfers_look(pp_rank *rank);

#endif
