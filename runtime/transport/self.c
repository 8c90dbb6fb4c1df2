/* One rank: nothing is sent. The board is private memory, so that the rest of the runtime needs no
 * second case. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "../internal.h"

static pp_status connect_self(pp_rank *rank, void *segment) {
  size_t size_bytes = pp_board_layout(rank->program).total_bytes;
  (void)segment;
  void *base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return pp_fail(rank, PP_EXIT_INPUT, "can't map %zu bytes: %s", size_bytes, strerror(errno));
  pp_board_init(base, rank->program);
  pp_board_attach(rank, base);
  rank->owns_segment = 1;
  return PP_OK;
}

static int fits(int n_ranks) { return n_ranks == 1; }

const pp_transport pp_transport_self = {
    .name = "self",
    .fits = fits,
    .connect = connect_self,
    .disconnect = pp_shm_disconnect,
    .post_send = pp_shm_post_send,
    .post_receive = pp_shm_post_receive,
    .await_send = pp_shm_await_send,
    .await_receive = pp_shm_await_receive,
    .progress = pp_shm_progress,
    .barrier = pp_board_barrier,
    .give = pp_board_give,
    .take = pp_board_take,
};
