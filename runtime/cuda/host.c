/* Transfers through the host's memory, between ranks of one host, on GPUs of their own or not: where NCCL is not to be had.
 * In: the posts of the program. What ranks share is one file in shared memory, made and reserved before step 1: a channel
 * for each pair of ranks and direction, two counts and a few slots, which are pinned. A transfer goes in pieces of a slot
 * on the communication stream: the sender's host function waits for room, its copy fills the slot, its next host function
 * counts it as put; the receiver's wait until it is put, see that it is the right one, copy it away and count it as taken.
 * A piece's slot is the same in every step, so that a step can be captured. Progress is that of 0006: the first transfer of
 * the total order that is not complete is at the head of its stream at both ends, and all pieces before it have been taken.
 * A job that fails ends all waits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "transfers.h"

#ifndef PP_HOST_SLOT_BYTES /* small ones in tests */
#define PP_HOST_SLOT_BYTES (4 << 20)
#endif

enum { MAX_SLOTS = 4, SLOT_BYTES = PP_HOST_SLOT_BYTES, PAGE_BYTES = 4096, LOOKS = 2000, NAP_NS = 20 * 1000 };

/* One direction between two ranks; only the sender writes the first lines, only the receiver the last. */
typedef struct {
  _Alignas(PP_CACHE_LINE) _Atomic uint64_t put; /* pieces so far */
  uint64_t at;                                  /* of its slots, in the file */
  uint32_t id[MAX_SLOTS];                       /* whose piece lies there */
  _Alignas(PP_CACHE_LINE) _Atomic uint64_t taken;
} Channel;

/* What a rank knows of its channel to or from a peer. */
typedef struct {
  Channel *shared;
  unsigned char *slots;
  uint32_t n_pieces, n_slots; /* of a step */
  uint64_t slot_bytes;
} End;

typedef struct {
  pp_rank *rank;
  End *end;
  uint32_t transfer, slot;
  uint32_t reach;          /* of a send: how many pieces before this one its slot was filled last */
  uint64_t offset, size_bytes;
} Piece;

struct pp_host {
  End *ends[2];            /* [is_send][n_ranks] */
  Piece *pieces;           /* in the order of posts */
  uint32_t *first;         /* [n_transfers] piece */
  unsigned char *file;
  uint64_t file_bytes;
  int has_given_up;        /* host functions only */
};

/* --- host functions: no CUDA here ------------------------------------------------------------------------------- */

static const pp_transfer *transfer_of(const Piece *p) { return &p->rank->program->transfers[p->transfer]; }

static int has_room(const Piece *p) {
  return atomic_load_explicit(&p->end->shared->put, memory_order_relaxed) -
             atomic_load_explicit(&p->end->shared->taken, memory_order_acquire) < p->reach;
}

static int is_put(const Piece *p) {
  return atomic_load_explicit(&p->end->shared->put, memory_order_acquire) >
         atomic_load_explicit(&p->end->shared->taken, memory_order_relaxed);
}

static void wait_until(const Piece *p, int (*is_so)(const Piece *)) {
  struct pp_host *host = p->rank->host;
  const struct timespec nap = {.tv_sec = 0, .tv_nsec = NAP_NS};
  for (int i = 0; i < LOOKS; i++)
    if (is_so(p)) return;
  while (!is_so(p) && !host->has_given_up) {
    if (pp_failing(p->rank)) host->has_given_up = 1;
    nanosleep(&nap, NULL);
  }
}

static void CUDART_CB await_room(void *piece) { wait_until(piece, has_room); }

/* What follows on a wait that was given up is nothing to hand on. */
static void CUDART_CB put_piece(void *piece) {
  const Piece *p = piece;
  if (p->rank->host->has_given_up) return;
  p->end->shared->id[p->slot] = transfer_of(p)->id;
  atomic_fetch_add_explicit(&p->end->shared->put, 1, memory_order_release);
}

static void CUDART_CB await_piece(void *piece) {
  const Piece *p = piece;
  const pp_transfer *t = transfer_of(p);
  struct pp_host *host = p->rank->host;
  wait_until(p, is_put);
  if (host->has_given_up || p->end->shared->id[p->slot] == t->id) return;
  pp_fail(p->rank, PP_EXIT_BUG, "rank %d sends transfer %u where transfer %u is taken: %s, microbatch %d", t->peer,
          p->end->shared->id[p->slot], t->id, p->rank->program->values[t->value], t->microbatch);
  host->has_given_up = 1;
}

static void CUDART_CB take_piece(void *piece) {
  const Piece *p = piece;
  if (!p->rank->host->has_given_up) atomic_fetch_add_explicit(&p->end->shared->taken, 1, memory_order_release);
}

/* --- transfers -------------------------------------------------------------------------------------------------- */

static void move_piece(pp_rank *rank, Piece *p, int is_send, unsigned char *at) {
  cudaStream_t stream = rank->cuda->communication;
  unsigned char *slot = p->end->slots + p->slot * p->end->slot_bytes;
  PP_CUDA_DO(rank, cudaLaunchHostFunc(stream, is_send ? await_room : await_piece, p));
  if (is_send) PP_CUDA_DO(rank, cudaMemcpyAsync(slot, at + p->offset, p->size_bytes, cudaMemcpyDeviceToHost, stream));
  else PP_CUDA_DO(rank, cudaMemcpyAsync(at + p->offset, slot, p->size_bytes, cudaMemcpyHostToDevice, stream));
  PP_CUDA_DO(rank, cudaLaunchHostFunc(stream, is_send ? put_piece : take_piece, p));
}

static void move(pp_rank *rank, uint32_t transfer) {
  const pp_transfer *t = &rank->program->transfers[transfer];
  unsigned char *at = pp_address_in(rank, t->space, t->offset);
  Piece *p = &rank->host->pieces[rank->host->first[transfer]];
  if (pp_failing(rank)) return;
  for (uint64_t done = 0; done < t->size_bytes; done += p++->size_bytes) move_piece(rank, p, t->is_send, at);
}

static void post(pp_rank *rank, uint32_t transfer) { pp_transfers_post(rank, transfer, move); }

/* The device is asked before the start too. */
static pp_status look(pp_rank *rank) { return rank->transfers ? pp_transfers_look(rank) : PP_OK; }

/* --- pieces ----------------------------------------------------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static End *end_of(const pp_rank *rank, const pp_transfer *t) { return &rank->host->ends[t->is_send][t->peer]; }

/* A slot is as large as the channel's largest transfer, if that is not too large. */
static void size_ends(pp_rank *rank) {
  const pp_program *program = rank->program;
  for (uint32_t i = 0; i < program->n_transfers; i++) {
    End *end = end_of(rank, &program->transfers[i]);
    uint64_t wanted = pp_round_up(least(program->transfers[i].size_bytes, SLOT_BYTES), PAGE_BYTES);
    if (end->slot_bytes < wanted) end->slot_bytes = wanted;
  }
  for (uint32_t i = 0; i < program->n_transfers; i++) {
    End *end = end_of(rank, &program->transfers[i]);
    end->n_pieces += (uint32_t)((program->transfers[i].size_bytes + end->slot_bytes - 1) / end->slot_bytes);
    end->n_slots = (uint32_t)least(end->n_pieces, MAX_SLOTS);
  }
}

/* The last piece of the step before that has the slot of piece `k`, or of this step. */
static uint32_t reach_of(const End *end, uint32_t k) {
  if (k >= end->n_slots) return end->n_slots;
  uint32_t last = k + (end->n_pieces - 1 - k) / end->n_slots * end->n_slots;
  return end->n_pieces - last + k;
}

static uint32_t add_pieces(pp_rank *rank, uint32_t transfer, uint32_t n, uint32_t *used) {
  const pp_transfer *t = &rank->program->transfers[transfer];
  struct pp_host *host = rank->host;
  End *end = end_of(rank, t);
  uint32_t *at = &used[t->is_send * rank->program->n_ranks + t->peer];
  host->first[transfer] = n;
  for (uint64_t offset = 0; offset < t->size_bytes; offset += end->slot_bytes, ++*at) {
    host->pieces[n++] = (Piece){.rank = rank, .end = end, .transfer = transfer, .slot = *at % end->n_slots, .reach = reach_of(end, *at),
                                .offset = offset, .size_bytes = least(end->slot_bytes, t->size_bytes - offset)};
  }
  return n;
}

/* In the order in which transfers are posted, which is one order at both ends of a channel. */
static pp_status cut(pp_rank *rank) {
  const pp_program *program = rank->program;
  struct pp_host *host = rank->host;
  uint32_t n = 0;
  uint32_t *used = calloc(2 * (size_t)program->n_ranks, sizeof *used);
  for (int r = 0; r < program->n_ranks; r++) n += host->ends[0][r].n_pieces + host->ends[1][r].n_pieces;
  host->pieces = calloc(n + 1u, sizeof *host->pieces);
  host->first = calloc(program->n_transfers + 1u, sizeof *host->first);
  if (!used || !host->pieces || !host->first) {
    free(used);
    return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  }
  n = 0;
  for (uint32_t i = 0; i < program->n_ops; i++)
    if (pp_transfers_is_post(&program->ops[i])) n = add_pieces(rank, program->ops[i].transfer, n, used);
  free(used);
  return PP_OK;
}

/* --- the file --------------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const End *end) { return end->n_slots * end->slot_bytes; }

static uint64_t head_bytes(const pp_program *program) {
  return pp_round_up((uint64_t)program->n_ranks * (uint64_t)program->n_ranks * sizeof(Channel), PAGE_BYTES);
}

static Channel *channel_of(const pp_rank *rank, int from, int to) {
  return (Channel *)(void *)rank->host->file + (size_t)from * (size_t)rank->program->n_ranks + (size_t)to;
}

/* All channels that a rank sends on lie together. */
static void place_sends(pp_rank *rank) {
  int own = rank->program->rank;
  uint64_t at = head_bytes(rank->program);
  for (int r = 0; r < own; r++) at += rank->slots[r].pinned_bytes;
  for (int r = 0; r < rank->program->n_ranks; r++) {
    channel_of(rank, own, r)->at = at;
    at += bytes_of(&rank->host->ends[1][r]);
  }
}

static pp_status pin(pp_rank *rank, End *end, int from, int to) {
  Channel *channel = channel_of(rank, from, to);
  if (!end->n_slots) return PP_OK;
  end->shared = channel;
  PP_CUDA_TRY(rank, cudaHostRegister(rank->host->file + channel->at, bytes_of(end), cudaHostRegisterDefault));
  end->slots = rank->host->file + channel->at;
  return PP_OK;
}

static pp_status share_file(pp_rank *rank) {
  struct pp_host *host = rank->host;
  int own = rank->program->rank, n_ranks = rank->program->n_ranks;
  void *file = NULL;
  rank->slot->pinned_bytes = 0;
  for (int r = 0; r < n_ranks; r++) rank->slot->pinned_bytes += bytes_of(&host->ends[1][r]);
  PP_TRY(pp_board_barrier(rank));
  host->file_bytes = head_bytes(rank->program);
  for (int r = 0; r < n_ranks; r++) host->file_bytes += rank->slots[r].pinned_bytes;
  pp_status status = pp_shm_share(rank, host->file_bytes, &file);
  host->file = file; /* of a failed try too */
  PP_TRY(status);
  place_sends(rank);
  PP_TRY(pp_board_barrier(rank));
  for (int r = 0; r < n_ranks; r++) {
    PP_TRY(pin(rank, &host->ends[1][r], own, r));
    PP_TRY(pin(rank, &host->ends[0][r], r, own));
  }
  return pp_board_barrier(rank); /* all have pinned theirs: a step may begin */
}

/* --- start and end ---------------------------------------------------------------------------------------------- */

static pp_status start(pp_rank *rank) {
  struct pp_host *host = rank->host = calloc(1, sizeof *rank->host);
  if (!host) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  for (int i = 0; i < 2; i++) {
    host->ends[i] = calloc((size_t)rank->program->n_ranks, sizeof *host->ends[i]);
    if (!host->ends[i]) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  }
  size_ends(rank);
  PP_TRY(pp_transfers_create(rank));
  PP_TRY(cut(rank));
  return share_file(rank);
}

static void unpin(pp_rank *rank) {
  struct pp_host *host = rank->host;
  for (int i = 0; i < 2; i++)
    for (int r = 0; host->ends[i] && r < rank->program->n_ranks; r++)
      if (host->ends[i][r].slots) PP_CUDA_DO(rank, cudaHostUnregister(host->ends[i][r].slots));
}

/* Host functions look at all of this until the streams are empty. A rank that fails while it captures a step can't wait
 * for that: then the end of the process frees it. */
static void stop(pp_rank *rank) {
  struct pp_host *host = rank->host;
  enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (!host) return;
  PP_CUDA_DO(rank, cudaStreamIsCapturing(rank->cuda->compute[0], &capture));
  if (capture != cudaStreamCaptureStatusNone) return;
  PP_CUDA_DO(rank, cudaStreamSynchronize(rank->cuda->compute[0]));
  if (rank->cuda->communication) PP_CUDA_DO(rank, cudaStreamSynchronize(rank->cuda->communication));
  unpin(rank);
  pp_transfers_destroy(rank);
  if (host->file) munmap(host->file, host->file_bytes);
  free(host->ends[0]);
  free(host->ends[1]);
  free(host->pieces);
  free(host->first);
  free(host);
  rank->host = NULL;
}

const pp_transport pp_transport_host = {
    .name = "host",
    .connect = pp_shm_connect,
    .start = start,
    .stop = stop,
    .disconnect = pp_shm_disconnect,
    .look = look,
    .repeat = pp_transfers_repeat,
    .post_send = post,
    .post_receive = post,
    .await_send = pp_transfers_await,
    .await_receive = pp_transfers_await,
    .progress = pp_transfers_progress,
    .barrier = pp_board_barrier,
    .give = pp_board_give,
    .take = pp_board_take,
};

/* --- the choice ------------------------------------------------------------------------------------------------- */

/* Which GPUs ranks have is known when they have met. */
static pp_status choose(pp_rank *rank) {
  int a, b;
  rank->transport = pp_gpus_shared(rank, &a, &b) ? &pp_transport_host : &pp_transport_nccl;
  return rank->transport->start(rank);
}

static int fits(int n_ranks) { return n_ranks > 1; }

/* NCCL, unless some ranks share a GPU, which it refuses. */
const pp_transport pp_transport_auto = {
    .name = "auto",
    .fits = fits,
    .connect = pp_shm_connect,
    .start = choose,
    .disconnect = pp_shm_disconnect,
    .progress = pp_transfers_progress,
    .barrier = pp_board_barrier,
    .give = pp_board_give,
    .take = pp_board_take,
};
