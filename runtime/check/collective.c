/* libnccl: all-reduce and broadcast. In chunks: every rank posts its part, reads all when all are there, and goes on when
 * all have read. A sum is made in the order of ranks, so every rank has the same bits. */
#include <stdio.h>
#include <string.h>

#include "collective.h"

static size_t chunk_bytes(const Transfer *t) {
  size_t left = t->bytes - t->done_bytes;
  return left < CHUNK_BYTES ? left : CHUNK_BYTES;
}

static void post(Transfer *t, Op *op) {
  SharedComm *shared = t->comm->shared;
  Box *box = world_box(shared, t->comm->rank, t->comm->rank);
  if (t->done_bytes == 0) {
    box->clock = *check_lane_clock(op->lane);
    box->send.bytes = t->bytes;
    snprintf(box->send.text, sizeof box->send.text, "%.63s: %.250s", check_program(), t->text);
    snprintf(box->send.tag, sizeof box->send.tag, "kind %d, type %d, op %d, root %d", t->collective, (int)t->type, (int)t->op,
             t->peer);
  }
  check_memory_open(true);
  if (t->from) memcpy(box->data, (const char *)t->from + t->done_bytes, chunk_bytes(t));
  t->state = POSTED;
  shared->collective.posted |= 1u << t->comm->rank;
  world_note_progress();
}

static void compare(const Transfer *t) {
  const Box *mine = world_box(t->comm->shared, t->comm->rank, t->comm->rank), *first = world_box(t->comm->shared, 0, 0);
  if (mine->send.bytes != first->send.bytes)
    check_report("size mismatch", "%s of %zu bytes meets %s of %zu bytes", first->send.text, first->send.bytes, mine->send.text,
                 mine->send.bytes);
  if (strcmp(mine->send.tag, first->send.tag) != 0)
    check_report("order mismatch", "%s (%s) meets %s (%s)", first->send.text, first->send.tag, mine->send.text, mine->send.tag);
}

#define COMBINE(type)                                        \
  do {                                                       \
    type *to = out;                                          \
    const type *from = in;                                   \
    for (size_t i = 0; i < bytes / sizeof(type); i++) {      \
      if (op == ncclSum) to[i] = (type)(to[i] + from[i]);    \
      else if (op == ncclProd) to[i] = (type)(to[i] * from[i]); \
      else if (op == ncclMax ? from[i] > to[i] : from[i] < to[i]) to[i] = from[i]; \
    }                                                        \
  } while (0)

static void combine(void *out, const void *in, size_t bytes, ncclDataType_t type, ncclRedOp_t op) {
  if (op != ncclSum && op != ncclProd && op != ncclMax && op != ncclMin) check_fatal("unsupported", "ncclRedOp_t %d", (int)op);
  if (type == ncclFloat32) COMBINE(float);
  else if (type == ncclFloat64) COMBINE(double);
  else if (type == ncclInt32) COMBINE(int32_t);
  else if (type == ncclInt64) COMBINE(int64_t);
  else if (type == ncclUint8) COMBINE(uint8_t);
  else check_fatal("unsupported", "ncclAllReduce of data type %d", (int)type);
}

static void read_chunk(Transfer *t, Op *op) {
  SharedComm *shared = t->comm->shared;
  char *out = t->buffer + t->done_bytes;
  size_t bytes = chunk_bytes(t);
  check_memory_open(true);
  if (t->done_bytes == 0) compare(t);
  memcpy(out, world_box(shared, t->collective == BROADCAST ? t->peer : 0, t->collective == BROADCAST ? t->peer : 0)->data, bytes);
  for (int r = 0; r < t->comm->n_ranks; r++) {
    const Box *box = world_box(shared, r, r);
    if (t->collective == ALL_REDUCE && r > 0) combine(out, box->data, bytes, t->type, t->op);
    if (t->done_bytes == 0) check_clock_join(check_lane_clock(op->lane), &box->clock);
  }
}

static void leave_chunk(Transfer *t) {
  Collective *c = &t->comm->shared->collective;
  uint32_t all = (uint32_t)((1ull << t->comm->n_ranks) - 1), bit = 1u << t->comm->rank;
  t->comm->chunks_read++;
  if ((atomic_fetch_or(&c->read, bit) | bit) == all) {
    c->posted = 0;
    c->read = 0;
    c->generation++;
  }
  world_note_progress();
}

void collective_advance(Transfer *t, Op *op) {
  Collective *c = &t->comm->shared->collective;
  uint32_t all = (uint32_t)((1ull << t->comm->n_ranks) - 1);
  if (c->generation != t->comm->chunks_read) return; /* others still read the last one */
  if (t->state == WAITING) post(t, op);
  if (c->posted != all) return;
  read_chunk(t, op);
  t->done_bytes += chunk_bytes(t);
  t->state = t->done_bytes == t->bytes ? DONE : WAITING;
  leave_chunk(t);
}

uint32_t collective_missing(const Transfer *t) {
  const SharedComm *shared = t->comm->shared;
  uint32_t missing = 0;
  for (int r = 0; r < t->comm->n_ranks; r++)
    if (!(shared->collective.posted >> r & 1)) missing |= 1u << shared->world_rank[r];
  return missing;
}
