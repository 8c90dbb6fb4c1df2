/* Shared memory that behaves as badly as the rules allow, for tests: bytes are taken only while their
 * receiver waits, and then after a random number of looks. Whoever reuses a sent buffer too early, or
 * reads a received one too early, gets other bits. */
#include "../internal.h"

static pp_status connect_late(pp_rank *rank, void *segment) {
  rank->late_state = 0x9e3779b97f4a7c15u ^ (uint64_t)(rank->program->rank + 1);
  return pp_shm_connect(rank, segment);
}

/* One look in eight pulls. */
static void progress_late(pp_rank *rank) {
  int looks = (pp_late_random(rank) >> 40 & 7) == 0;
  if (rank->waits_for != 0 && looks) pp_shm_progress(rank);
}

const pp_transport pp_transport_late = {
    .name = "late",
    .connect = connect_late,
    .disconnect = pp_shm_disconnect,
    .post_send = pp_shm_post_send,
    .post_receive = pp_shm_post_receive,
    .await_send = pp_shm_await_send,
    .await_receive = pp_shm_await_receive,
    .progress = progress_late,
    .barrier = pp_board_barrier,
    .give = pp_board_give,
    .take = pp_board_take,
};
