/* libnccl: what communicators do. A transfer is a rendezvous: it ends only when both sides have started. A group is one
 * operation on its stream, one per communicator; operations of a communicator run in issue order, which orders no memory.
 * The first use of a (communicator, peer, direction), and the first collective of a communicator, block the host until the
 * others do the same. A collective computes in the order of ranks. Refused: two streams in one group, other types. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collective.h"

enum { GROUP_MORE = 64 };

typedef struct Group {
  int n;
  Transfer transfers[];
} Group;

static Transfer *queued;
static int n_queued, capacity, depth;

/* ---- one transfer ---- */

static Box *box_of(const Transfer *t) {
  int mine = t->comm->rank;
  return t->is_send ? world_box(t->comm->shared, mine, t->peer) : world_box(t->comm->shared, t->peer, mine);
}

static void post(Transfer *t, Side *side) {
  side->bytes = t->bytes;
  snprintf(side->text, sizeof side->text, "%s: %s", check_program(), t->text);
  snprintf(side->tag, sizeof side->tag, "%s", t->tag);
  side->posted = true;
  t->state = POSTED;
  world_note_progress();
}

static void compare(const Side *send, const Side *receive) {
  if (send->bytes != receive->bytes)
    check_report("size mismatch", "%s sends %zu bytes, %s takes %zu bytes", send->text, send->bytes, receive->text,
                 receive->bytes);
  if (send->tag[0] && receive->tag[0] && strcmp(send->tag, receive->tag) != 0)
    check_report("order mismatch", "%s meets %s", send->text, receive->text);
}

static void send_chunk(Transfer *t, Box *box) {
  if (t->done_bytes == 0) compare(&box->send, &box->receive);
  size_t left = t->bytes - t->done_bytes;
  box->chunk_bytes = left < CHUNK_BYTES ? left : CHUNK_BYTES;
  check_memory_open(true);
  memcpy(box->data, t->buffer + t->done_bytes, box->chunk_bytes);
  t->done_bytes += box->chunk_bytes;
  if (t->done_bytes == t->bytes) t->state = DONE;
  box->full = true;
  world_note_progress();
}

/* The receive's end clears the box, `send.posted` last. */
static void receive_chunk(Transfer *t, Box *box, Op *op) {
  size_t room = t->bytes > t->done_bytes ? t->bytes - t->done_bytes : 0, all = box->send.bytes;
  check_memory_open(true);
  memcpy(t->buffer + t->done_bytes, box->data, box->chunk_bytes < room ? box->chunk_bytes : room);
  t->done_bytes += box->chunk_bytes;
  if (t->done_bytes == all) {
    check_clock_join(check_lane_clock(op->lane), &box->clock);
    t->state = DONE;
    box->receive.posted = false;
  }
  box->full = false;
  if (t->state == DONE) box->send.posted = false;
  world_note_progress();
}

static void advance_transfer(Transfer *t, Op *op) {
  Box *box = box_of(t);
  Side *mine = t->is_send ? &box->send : &box->receive;
  if (t->state == WAITING) {
    if (mine->posted) return; /* the box holds an earlier transfer */
    if (t->is_send) box->clock = *check_lane_clock(op->lane);
    post(t, mine);
  }
  if (t->is_send && box->receive.posted && !box->full) send_chunk(t, box);
  else if (!t->is_send && box->full) receive_chunk(t, box, op);
}

/* ---- groups ---- */

static bool has_turn(const Group *group, int i) {
  const Transfer *t = &group->transfers[i];
  for (int k = 0; k < i; k++) {
    const Transfer *earlier = &group->transfers[k];
    if (earlier->state == DONE || earlier->collective != t->collective) continue;
    if (t->collective || (earlier->peer == t->peer && earlier->is_send == t->is_send)) return false;
  }
  return true;
}

static bool poll_group(Op *op) {
  Group *group = op->payload;
  bool all = true;
  uint32_t peers = 0;
  if (group->transfers[0].comm->is_aborted) return true;
  for (int i = 0; i < group->n; i++) {
    Transfer *t = &group->transfers[i];
    if (t->state != DONE && has_turn(group, i)) {
      if (t->collective) collective_advance(t, op);
      else advance_transfer(t, op);
    }
    if (t->state == DONE) continue;
    all = false;
    peers |= t->collective ? collective_missing(t) : 1u << t->comm->shared->world_rank[t->peer];
  }
  world_wait_for(peers);
  return all;
}

static void start_group(Op *op) {
  Group *group = op->payload;
  for (int i = 0; i < group->n; i++) {
    Transfer *t = &group->transfers[i];
    if (t->from) {
      check_access_allow(t->from);
      check_access(t->from, t->bytes, false, false);
    }
    check_access_allow(t->buffer);
    if (t->buffer != t->from || t->collective) check_access(t->buffer, t->bytes, !t->is_send, false);
  }
}

bool transfer_is_of(const Op *op, const void *comm) {
  return op->is_transfer && ((const Group *)op->payload)->transfers[0].comm == comm;
}

static void follow_communicator(Op *op) {
  ncclComm_t comm = ((Group *)op->payload)->transfers[0].comm;
  op->after = comm->last;
  comm->last = op;
}

static void launch(ncclComm_t comm) {
  char text[2 * TEXT];
  size_t used = 0;
  int n = 0;
  cudaStream_t stream = NULL;
  for (int i = 0; i < n_queued; i++) {
    if (queued[i].comm != comm) continue;
    if (used < sizeof text)
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", n ? " + " : "", queued[i].text);
    if (n++ == 0) stream = queued[i].stream;
    else if (queued[i].stream != stream) check_fatal("unsupported", "two streams in one group: %s", text);
  }
  Op *op = check_op_create(stream, sizeof(Group) + (size_t)n * sizeof(Transfer), "%s on %s", text, comm->object.name);
  Group *group = op->payload;
  for (int i = 0; i < n_queued; i++)
    if (queued[i].comm == comm) group->transfers[group->n++] = queued[i];
  op->is_transfer = true;
  op->issued = follow_communicator;
  op->start = start_group;
  op->poll = poll_group;
  check_op_issue(op);
}

static void connect(const Transfer *t) {
  SharedComm *shared = t->comm->shared;
  int mine = t->comm->rank;
  if (t->collective) shared->collective.connected |= 1u << mine;
  else if (t->is_send) shared->send_connected[mine][t->peer] = true;
  else shared->receive_connected[t->peer][mine] = true;
}

static bool is_connected(const void *transfer) {
  const Transfer *t = transfer;
  SharedComm *shared = t->comm->shared;
  int mine = t->comm->rank, from = t->is_send ? mine : t->peer, to = t->is_send ? t->peer : mine;
  if (t->comm->is_aborted) return true;
  if (t->collective) return shared->collective.connected == (1ull << t->comm->n_ranks) - 1;
  return shared->send_connected[from][to] && shared->receive_connected[from][to];
}

static ncclResult_t flush_group(void) {
  ncclResult_t result = ncclSuccess;
  bool is_new = false;
  for (int i = 0; i < n_queued; i++) {
    is_new = is_new || !is_connected(&queued[i]);
    connect(&queued[i]);
  }
  if (is_new) world_note_progress();
  for (int i = 0; i < n_queued; i++)
    if (!is_connected(&queued[i]))
      check_run_until(is_connected, &queued[i], "the first %s on %s in '%s'", queued[i].text, queued[i].comm->object.name,
                      check_action());
  for (int i = 0; i < n_queued; i++) {
    ncclComm_t comm = queued[i].comm;
    bool is_first = true;
    for (int k = 0; k < i; k++) is_first = is_first && queued[k].comm != comm;
    if (!is_first) continue;
    launch(comm);
    if (!comm->is_blocking) comm->polls_left = (int)check_random(3);
    if (comm->polls_left) result = ncclInProgress;
  }
  n_queued = 0;
  check_step_some();
  return result;
}

/* ---- what programs call ---- */

static size_t type_bytes(ncclDataType_t type) {
  if (type == ncclFloat32 || type == ncclInt32 || type == ncclUint32) return 4;
  if (type == ncclFloat64 || type == ncclInt64 || type == ncclUint64) return 8;
  if (type == ncclBfloat16 || type == ncclFloat16) return 2;
  if (type == ncclInt8 || type == ncclUint8) return 1;
  check_fatal("unsupported", "NCCL data type %d", (int)type);
}

static ncclResult_t queue(Transfer t, size_t count, ncclDataType_t type, const char *call) {
  const char *action = check_action(), *verb = t.is_send ? "send " : "recv ";
  if (!check_object_is_live(&t.comm->object, call)) return ncclInvalidArgument;
  if (!comm_is_ready(t.comm))
    return comm_fail(ncclInvalidUsage, "%s used in '%s' before it is ready", t.comm->object.name, action);
  if (t.peer < 0 || t.peer >= t.comm->n_ranks || (!t.collective && t.peer == t.comm->rank))
    return comm_fail(ncclInvalidArgument, "%s on %s in '%s': peer %d", call, t.comm->object.name, action, t.peer);
  t.bytes = count * type_bytes(type);
  t.type = type;
  if (!t.bytes) check_fatal("unsupported", "%s of no bytes", call);
  snprintf(t.text, sizeof t.text, "%s %s '%s'", call, check_buffer_at(t.buffer), action);
  if (!t.collective && strncmp(action, verb, 5) == 0) snprintf(t.tag, sizeof t.tag, "%s", action + 5);
  if (n_queued == capacity) {
    capacity += GROUP_MORE;
    queued = realloc(queued, (size_t)capacity * sizeof *queued);
    if (!queued) check_fatal("internal", "out of memory");
  }
  queued[n_queued++] = t;
  return depth ? ncclSuccess : flush_group();
}

ncclResult_t ncclSend(const void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  CHECK_CALL();
  return queue((Transfer){.comm = comm, .stream = stream, .buffer = (char *)(uintptr_t)buffer, .peer = peer, .is_send = true},
               count, type, "ncclSend");
}

ncclResult_t ncclRecv(void *buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  CHECK_CALL();
  return queue((Transfer){.comm = comm, .stream = stream, .buffer = buffer, .peer = peer}, count, type, "ncclRecv");
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  CHECK_CALL();
  return queue((Transfer){.comm = comm, .stream = stream, .buffer = to, .from = from, .collective = ALL_REDUCE, .op = op},
               count, type, "ncclAllReduce");
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  CHECK_CALL();
  const void *mine = comm->rank == root ? from : NULL;
  return queue((Transfer){.comm = comm, .stream = stream, .buffer = to, .from = mine, .peer = root, .collective = BROADCAST},
               count, type, "ncclBroadcast");
}

ncclResult_t ncclGroupStart(void) {
  CHECK_CALL();
  depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  CHECK_CALL();
  if (depth == 0) return comm_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  return --depth ? ncclSuccess : flush_group();
}
