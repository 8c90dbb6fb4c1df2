/* What the ranks of a job share under the checking libnccl: one mapped file. */
#ifndef CHECK_WORLD_H
#define CHECK_WORLD_H

#include <nccl.h>
#include <stdatomic.h>

#include "core.h"

enum { MAX_COMMS = 128, MAX_SPLITS = 64, MAX_BOXES = 1024, CHUNK_BYTES = 256 << 10, TEXT = 320, MAX_TAG = 96 };

/* ---- world.c: ranks, progress, hangs ---- */

typedef struct Side { /* what one end of a transfer says of it */
  _Atomic bool posted;
  size_t bytes;
  char text[TEXT], tag[MAX_TAG];
} Side;

/* One direction between two ranks of a communicator; or, from a rank to itself, its part of a collective. */
typedef struct Box {
  Side send, receive;
  _Atomic bool full;
  size_t chunk_bytes;
  Clock clock;
  char data[CHUNK_BYTES];
} Box;

typedef struct Split {
  _Atomic uint32_t posted; /* ranks */
  int color[MAX_RANKS], key[MAX_RANKS];
} Split;

/* A collective goes in chunks. A rank posts its part of chunk `generation`, reads all parts when all are posted, and the
 * last to have read opens the next. */
typedef struct Collective {
  _Atomic uint32_t posted, read, generation, connected;
} Collective;

typedef struct SharedComm {
  uint64_t key;
  _Atomic int n_joined;
  _Atomic uint32_t aborted;                   /* ranks */
  int world_rank[MAX_RANKS];
  _Atomic int boxes[MAX_RANKS][MAX_RANKS];    /* [from][to]: number + 1, 0: none yet */
  _Atomic bool send_connected[MAX_RANKS][MAX_RANKS], receive_connected[MAX_RANKS][MAX_RANKS];
  Split splits[MAX_SPLITS];
  Collective collective;
} SharedComm;

SharedComm *world_find_comm(uint64_t key); /* a new one if there is none; locks */
Box *world_box(SharedComm *comm, int from, int to);
void world_note_progress(void);
void world_wait_for(uint32_t peers); /* world ranks that what runs waits for */
bool world_has_died(int rank);       /* without ending in order */

/* ---- comm.c: communicators ---- */

struct ncclComm {
  CheckObject object;
  SharedComm *shared; /* NULL: a split whose members aren't known */
  ncclComm_t parent;
  int split, color;
  int rank, n_ranks, polls_left, n_splits;
  bool is_blocking, is_aborted, is_finalized, tells_of_peers;
  uint32_t chunks_read;
  const Op *last;
};

bool comm_is_ready(ncclComm_t comm);
bool transfer_is_of(const Op *op, const void *comm); /* whether it is one of that communicator's */
ncclResult_t comm_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
