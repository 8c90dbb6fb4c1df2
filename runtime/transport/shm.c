/* Shared memory between the processes of one host. Rank 0 makes one file in /dev/shm (or --shm-dir),
 * reserves all of it, and unlinks its name as soon as every rank has mapped it. A transfer is one
 * copy: the receiver takes it from the sender's window. Flags hold the step they speak of, so they
 * never need to be cleared. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "../internal.h"

enum { POLL_NS = 2 * 1000 * 1000 };
#define LINGER_NS UINT64_C(5000000000)

/* --- transfers ---------------------------------------------------------------------------------- */

static const pp_transfer *transfer_of(const pp_rank *rank, uint32_t transfer) {
  return &rank->program->transfers[transfer];
}

void pp_shm_post_send(pp_rank *rank, uint32_t transfer) {
  const pp_transfer *t = transfer_of(rank, transfer);
  atomic_store_explicit(&rank->flags[t->id].ready, rank->step, memory_order_release);
  pp_doorbell_ring(&rank->slots[t->peer]);
}

void pp_shm_post_receive(pp_rank *rank, uint32_t transfer) { rank->posted[rank->n_posted++] = transfer; }

static void copy(pp_rank *rank, const pp_transfer *t) {
  const unsigned char *from = rank->segment + rank->windows[t->peer] + t->peer_offset;
  memcpy(pp_address_in(rank, t->space, t->offset), from, t->size_bytes);
}

void pp_shm_pull(pp_rank *rank, uint32_t transfer) {
  const pp_transfer *t = transfer_of(rank, transfer);
  if (rank->times) pp_trace_copy(rank, transfer, 0);
  copy(rank, t);
  if (rank->times) pp_trace_copy(rank, transfer, 1);
  rank->arrived[transfer] = rank->step;
  atomic_store_explicit(&rank->flags[t->id].done, rank->step, memory_order_release);
  pp_doorbell_ring(&rank->slots[t->peer]);
}

void pp_shm_progress(pp_rank *rank) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < rank->n_posted; i++) {
    uint32_t transfer = rank->posted[i];
    pp_flags *flags = &rank->flags[transfer_of(rank, transfer)->id];
    if (atomic_load_explicit(&flags->ready, memory_order_acquire) == rank->step) {
      pp_shm_pull(rank, transfer);
    } else {
      rank->posted[kept++] = transfer;
    }
  }
  rank->n_posted = kept;
}

static int is_sent(pp_rank *rank, uint64_t transfer) {
  rank->transport->progress(rank);
  pp_flags *flags = &rank->flags[transfer_of(rank, (uint32_t)transfer)->id];
  return atomic_load_explicit(&flags->done, memory_order_acquire) == rank->step;
}

static int is_received(pp_rank *rank, uint64_t transfer) {
  if (rank->arrived[transfer] == rank->step) return 1;
  rank->transport->progress(rank);
  return rank->arrived[transfer] == rank->step;
}

static pp_status wait_for(pp_rank *rank, pp_done_fn *done, uint32_t transfer, int is_send) {
  rank->waits_for = transfer + 1;
  rank->waits_for_send = is_send;
  pp_status status = pp_wait(rank, done, transfer);
  rank->waits_for = 0;
  return status;
}

pp_status pp_shm_await_send(pp_rank *rank, uint32_t transfer) { return wait_for(rank, is_sent, transfer, 1); }
pp_status pp_shm_await_receive(pp_rank *rank, uint32_t transfer) { return wait_for(rank, is_received, transfer, 0); }

/* --- meeting the peers -------------------------------------------------------------------------- */

typedef struct {
  pp_rank *rank;
  uint64_t deadline_ns;
} Patience;

static Patience patience_of(pp_rank *rank) {
  Patience p = {rank, pp_now_ns() + (uint64_t)(rank->options->start_timeout_s * 1e9)};
  return p;
}

static void nap(void) {
  struct timespec time = {.tv_sec = 0, .tv_nsec = POLL_NS};
  nanosleep(&time, NULL);
}

/* Sleeps a little; 0 when the time is over or the job has failed. */
static int patience_nap(const Patience *p) {
  if (pp_failing(p->rank) || pp_now_ns() > p->deadline_ns) return 0;
  nap();
  return 1;
}

static int creator_lives(const pp_board *board) {
  return kill(board->creator_pid, 0) == 0 && pp_process_start(board->creator_pid) == board->creator_start;
}

static const char *shm_dir(const pp_rank *rank) {
  return rank->options->shm_dir ? rank->options->shm_dir : "/dev/shm";
}

static char *segment_path(const pp_rank *rank) {
  size_t n = strlen(shm_dir(rank)) + strlen(rank->launch.job) + 16;
  char *path = malloc(n);
  if (path) snprintf(path, n, "%s/ppc-%s", shm_dir(rank), rank->launch.job);
  return path;
}

static void *map_shared(int fd, size_t size_bytes) {
  void *base = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return base == MAP_FAILED ? NULL : base;
}

/* --- rank 0: making it -------------------------------------------------------------------------- */

static pp_status refuse_size(pp_rank *rank, size_t needed, int error) {
  struct statvfs fs;
  unsigned long long available = 0;
  if (statvfs(shm_dir(rank), &fs) == 0) available = (unsigned long long)fs.f_bavail * fs.f_frsize;
  if (error != ENOSPC && error != ENOMEM && error != EFBIG) {
    return pp_fail(rank, PP_EXIT_INPUT, "%s: can't reserve %zu bytes of shared memory: %s (--shm-dir=DIR names another place)",
                   shm_dir(rank), needed, strerror(error));
  }
  return pp_fail(rank, PP_EXIT_INPUT,
                 "%s is too small: the job needs %zu bytes of shared memory and %llu are free; make it larger, or name "
                 "another directory with --shm-dir=DIR",
                 shm_dir(rank), needed, available);
}

static int reserve(int fd, size_t from, size_t to) {
  int error;
  do error = posix_fallocate(fd, (off_t)from, (off_t)(to - from));
  while (error == EINTR && !pp_signal_caught());
  return error;
}

/* A name left behind by a job whose rank 0 is dead is removed; a living owner keeps it. */
static pp_status remove_leftover(pp_rank *rank) {
  int fd = open(rank->segment_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  struct stat st;
  int lives = 0;
  if (fd < 0) return errno == ENOENT ? PP_OK : pp_fail(rank, PP_EXIT_INPUT, "%s: %s", rank->segment_path, strerror(errno));
  if (fstat(fd, &st) == 0 && (size_t)st.st_size >= sizeof(pp_board)) {
    pp_board *board = map_shared(fd, sizeof(pp_board));
    lives = board && creator_lives(board);
    if (board) munmap(board, sizeof(pp_board));
  }
  close(fd);
  if (lives) {
    return pp_fail(rank, PP_EXIT_INPUT, "%s belongs to a running job: give this one another name with --job=NAME",
                   rank->segment_path);
  }
  unlink(rank->segment_path);
  return PP_OK;
}

static pp_status create_file(pp_rank *rank, int *out_fd) {
  for (int tries = 0; tries < 8; tries++) {
    *out_fd = open(rank->segment_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*out_fd >= 0) return PP_OK;
    if (errno != EEXIST) break;
    PP_TRY(remove_leftover(rank));
  }
  return pp_fail(rank, PP_EXIT_INPUT, "%s: can't make shared memory: %s (--shm-dir=DIR names another place)",
                 rank->segment_path, strerror(errno));
}

/* The head comes first, so that the other ranks can read why the rest failed. Sizing goes through
 * fallocate alone: a byte that exists has memory behind it. */
static pp_status create_in(pp_rank *rank, int fd) {
  pp_layout layout = pp_board_layout(rank->program);
  int error = reserve(fd, 0, layout.head_bytes);
  if (error) return refuse_size(rank, layout.total_bytes, error);
  pp_board *board = map_shared(fd, layout.head_bytes);
  if (!board) return pp_fail(rank, PP_EXIT_INPUT, "can't map %zu bytes: %s", layout.head_bytes, strerror(errno));
  pp_board_init(board, rank->program);
  board->creator_pid = getpid();
  board->creator_start = pp_process_start(getpid());
  rank->failure = &board->failure;
  rank->early_board = board;
  rank->early_board_bytes = layout.head_bytes;
  atomic_store_explicit(&board->stage, PP_BOARD_HEAD, memory_order_release);
  if (layout.total_bytes > layout.head_bytes) error = reserve(fd, layout.head_bytes, layout.total_bytes);
  if (error) return refuse_size(rank, layout.total_bytes, error);
  void *base = map_shared(fd, layout.total_bytes);
  if (!base) return pp_fail(rank, PP_EXIT_INPUT, "can't map %zu bytes: %s", layout.total_bytes, strerror(errno));
  pp_board_attach(rank, base);
  rank->owns_segment = 1;
  atomic_store_explicit(&board->stage, PP_BOARD_SIZED, memory_order_release);
  return PP_OK;
}

static void name_missing(const pp_rank *rank, char *out_text, size_t text_bytes) {
  size_t used = 0;
  out_text[0] = 0;
  for (int r = 0; r < rank->program->n_ranks && used + 16 < text_bytes; r++) {
    if (atomic_load(&rank->slots[r].state) != PP_STATE_ABSENT) continue;
    used += (size_t)snprintf(out_text + used, text_bytes - used, "%s%d", used ? ", " : "", r);
  }
}

static pp_status await_all(pp_rank *rank) {
  Patience patience = patience_of(rank);
  char missing[256];
  for (;;) {
    name_missing(rank, missing, sizeof missing);
    if (!missing[0]) return PP_OK;
    if (!patience_nap(&patience)) break;
  }
  if (pp_failing(rank)) return PP_STOPPED;
  return pp_fail(rank, PP_EXIT_FAILED, "waited %g s (--start-timeout); of %d ranks these did not start: %s",
                 rank->options->start_timeout_s, rank->program->n_ranks, missing);
}

/* Ranks that start a little later still find out why there is nothing to join. */
static void linger(const pp_rank *rank) {
  if (!rank->early_board) return;
  pp_slot *slots = (pp_slot *)(void *)((unsigned char *)rank->early_board + pp_board_layout(rank->program).slots);
  uint64_t end_ns = pp_now_ns() + LINGER_NS;
  for (int r = 1; r < rank->program->n_ranks; r++) {
    while (atomic_load(&slots[r].state) == PP_STATE_ABSENT && pp_now_ns() < end_ns && !pp_signal_caught()) nap();
  }
}

static pp_status lead(pp_rank *rank) {
  int fd;
  PP_TRY(create_file(rank, &fd));
  rank->made_segment = 1;
  pp_status status = create_in(rank, fd);
  close(fd);
  if (status != PP_OK) linger(rank);
  PP_TRY(status);
  PP_TRY(await_all(rank));
  unlink(rank->segment_path); /* all have mapped it: nothing is left behind, whatever happens later */
  rank->made_segment = 0;
  return PP_OK;
}

/* --- the others: finding it ---------------------------------------------------------------------- */

/* One try at a board that rank 0 has filled in: 1 mapped, 0 not yet, -1 the job has failed. Keeps the
 * mapping of the board when what it says is still to be read. */
static int join_board(pp_rank *rank, int fd, pp_board *board) {
  pp_layout layout = pp_board_layout(rank->program);
  const char *mismatch = pp_board_mismatch(board, rank->program);
  rank->failure = &board->failure;
  if (mismatch) {
    pp_fail(rank, PP_EXIT_INPUT, "this program is of %s than rank 0's: compile all ranks in one go", mismatch);
    return -1;
  }
  if (pp_failing(rank)) {
    unsigned char *head = map_shared(fd, layout.head_bytes);
    pp_slot *slots = head ? (pp_slot *)(void *)(head + layout.slots) : NULL;
    if (slots) atomic_store(&slots[rank->program->rank].state, PP_STATE_FINISHED); /* rank 0 lingers for this */
    if (head) munmap(head, layout.head_bytes);
    return -1;
  }
  rank->failure = &rank->early_failure;
  if (atomic_load_explicit(&board->stage, memory_order_acquire) != PP_BOARD_SIZED) return 0;
  void *base = map_shared(fd, layout.total_bytes);
  if (!base) return 0;
  pp_board_attach(rank, base);
  rank->owns_segment = 1;
  return 1;
}

/* What lies there may be half made, or a dead job's: then it is not there yet. */
static int try_join(pp_rank *rank) {
  struct stat st;
  int fd = open(rank->segment_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW), result = 0;
  if (fd < 0) return 0;
  pp_board *board = NULL;
  if (fstat(fd, &st) == 0 && (size_t)st.st_size >= sizeof(pp_board) && st.st_uid == geteuid()) {
    board = map_shared(fd, sizeof(pp_board));
  }
  if (board && atomic_load_explicit(&board->stage, memory_order_acquire) != PP_BOARD_FRESH && creator_lives(board)) {
    result = join_board(rank, fd, board);
  }
  close(fd);
  if (result < 0) {
    rank->early_board = board;
    rank->early_board_bytes = sizeof(pp_board);
  } else if (board) {
    munmap(board, sizeof(pp_board));
  }
  return result;
}

static pp_status join(pp_rank *rank) {
  Patience patience = patience_of(rank);
  int result;
  while ((result = try_join(rank)) == 0) {
    if (!patience_nap(&patience)) break;
  }
  if (result > 0) return PP_OK;
  if (result < 0 || pp_failing(rank)) return PP_STOPPED;
  return pp_fail(rank, PP_EXIT_FAILED,
                 "waited %g s (--start-timeout) for rank 0, which makes %s; is it running on this host with the same job name?",
                 rank->options->start_timeout_s, rank->segment_path);
}

pp_status pp_shm_connect(pp_rank *rank, void *segment) {
  (void)segment;
  rank->segment_path = segment_path(rank);
  if (!rank->segment_path) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  return rank->program->rank == 0 ? lead(rank) : join(rank);
}

/* --- more of it ---------------------------------------------------------------------------------- */

static pp_status create_more(pp_rank *rank, const char *path, size_t size_bytes, void **out_base) {
  int error, fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return pp_fail(rank, PP_EXIT_INPUT, "%s: can't make shared memory: %s", path, strerror(errno));
  error = reserve(fd, 0, size_bytes);
  *out_base = error ? NULL : map_shared(fd, size_bytes);
  close(fd);
  if (error) return refuse_size(rank, size_bytes, error);
  return *out_base ? PP_OK : pp_fail(rank, PP_EXIT_INPUT, "can't map %zu bytes: %s", size_bytes, strerror(errno));
}

static pp_status open_more(pp_rank *rank, const char *path, size_t size_bytes, void **out_base) {
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  *out_base = fd < 0 ? NULL : map_shared(fd, size_bytes);
  int error = errno;
  if (fd >= 0) close(fd);
  return *out_base ? PP_OK : pp_fail(rank, PP_EXIT_INPUT, "%s: can't map %zu bytes: %s", path, size_bytes, strerror(error));
}

static pp_status share_at(pp_rank *rank, const char *path, size_t size_bytes, void **out_base) {
  int leads = rank->program->rank == 0;
  if (leads) PP_TRY(create_more(rank, path, size_bytes, out_base));
  PP_TRY(pp_board_barrier(rank));
  if (!leads) PP_TRY(open_more(rank, path, size_bytes, out_base));
  return pp_board_barrier(rank);
}

/* Named after rank 0's process, as only one job can be. */
pp_status pp_shm_share(pp_rank *rank, size_t size_bytes, void **out_base) {
  size_t n = strlen(rank->segment_path) + 16;
  char *path = malloc(n);
  if (!path) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  snprintf(path, n, "%s-%d", rank->segment_path, (int)rank->board->creator_pid);
  if (rank->program->rank == 0) {
    unlink(path); /* of a dead process of that number */
    atomic_store(&rank->temporary, path);
  }
  pp_status status = share_at(rank, path, size_bytes, out_base);
  if (rank->program->rank == 0) unlink(path);
  atomic_store(&rank->temporary, NULL);
  free(path);
  return status;
}

void pp_shm_disconnect(pp_rank *rank) {
  rank->early_failure.exit_status = pp_exit_status(rank); /* what the board said is asked for after it is gone */
  atomic_store(&rank->early_failure.claimed, rank->early_failure.exit_status ? 2u : 0u);
  rank->failure = &rank->early_failure;
  if (rank->made_segment) unlink(rank->segment_path);
  rank->made_segment = 0;
  free(rank->segment_path);
  rank->segment_path = NULL;
  if (rank->owns_segment) munmap(rank->segment, rank->segment_bytes);
  if (rank->early_board) munmap(rank->early_board, rank->early_board_bytes);
  rank->owns_segment = 0;
  rank->early_board = NULL;
}

static int fits(int n_ranks) { return n_ranks > 1; }

const pp_transport pp_transport_shm = {
    .name = "shm",
    .fits = fits,
    .connect = pp_shm_connect,
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
