/* libcudart: stream capture and graphs. A capture keeps the operations that its streams are given, in order, with what
 * they wait for; they never run. A launch enqueues a copy of each, on lanes that belong to the executable graph, one for
 * each captured stream: all behind the launching stream, and that behind all.
 * PPC_CHECK_NO_CAPTURE=1: no capture is good for a graph, as with a library that does what captures forbid. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

enum { OPS_MORE = 256 };

struct Capture {
  int origin;
  enum cudaStreamCaptureMode mode;
  cudaError_t error; /* what made it invalid */
  Op **ops;
  int n_ops;
  const Op *last[MAX_LANES];
  struct Capture *next;
};

struct CUgraph_st {
  CheckObject object;
  Capture *capture;
};

struct CUgraphExec_st {
  CheckObject object;
  Capture *capture;
  int lanes[MAX_LANES]; /* by that of the captured stream; 0: none */
  struct CUgraphExec_st *next;
};

static Capture *running; /* captures that haven't ended */
static struct CUgraphExec_st *executables; /* those that have been destroyed, too */

/* ---- captures ---- */

static cudaError_t invalidate(Capture *capture, cudaError_t error) {
  if (capture->error == cudaSuccess) capture->error = error;
  return error;
}

bool check_capture_forbids(const char *call) {
  if (!running) return false;
  for (Capture *c = running; c; c = c->next) {
    if (c->mode == cudaStreamCaptureModeRelaxed && strcmp(call, "cudaMalloc") == 0) continue;
    invalidate(c, cudaErrorStreamCaptureUnsupported);
    check_report("misuse", "%s in '%s' while stream %s is captured: not permitted", call, check_action(),
                 check_lane_at(c->origin)->name);
  }
  return true;
}

void check_capture_op(Capture *capture, Op *op) {
  if (capture->n_ops % OPS_MORE == 0)
    capture->ops = realloc(capture->ops, (size_t)(capture->n_ops + OPS_MORE) * sizeof *capture->ops);
  if (!capture->ops) check_fatal("internal", "out of memory");
  op->capture = capture;
  op->issue = (uint64_t)capture->n_ops; /* its place among them */
  check_op_wait_for(op, capture->last[op->lane]);
  capture->last[op->lane] = op;
  capture->ops[capture->n_ops++] = op;
}

void check_op_issue(Op *op) {
  Lane *lane = check_lane_at(op->lane);
  if (lane->capture) {
    check_capture_op(lane->capture, op);
    return;
  }
  for (int l = LANE_FIRST_STREAM; op->lane == LANE_DEFAULT && l < MAX_LANES; l++) {
    Lane *other = check_lane_at(l);
    if (!other->capture || !other->is_blocking) continue;
    invalidate(other->capture, cudaErrorStreamCaptureImplicit);
    check_report("misuse", "%s: the default stream would wait for stream %s, which is captured", check_label_text(op->id),
                 other->name);
  }
  check_op_enqueue(op);
}

cudaError_t check_capture_join(int lane, const Op *record) {
  Lane *mine = check_lane_at(lane);
  if (!record->capture && !mine->capture) return cudaSuccess;
  Capture *capture = record->capture ? record->capture : mine->capture;
  bool runs = false;
  for (Capture *c = running; c; c = c->next) runs = runs || c == capture;
  if (!runs)
    return check_misuse(cudaErrorCapturedEvent, "stream %s waits in '%s' for an event of a capture that has ended", mine->name,
                        check_action());
  if (!record->capture)
    return check_misuse(invalidate(capture, cudaErrorStreamCaptureIsolation),
                        "captured stream %s waits in '%s' for an event recorded outside of the capture", mine->name,
                        check_action());
  if (mine->capture && mine->capture != capture)
    return check_misuse(invalidate(capture, cudaErrorStreamCaptureMerge), "stream %s in '%s' would join two captures",
                        mine->name, check_action());
  mine->capture = capture;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  CHECK_CALL();
  int lane = check_lane_of(stream);
  if (lane == LANE_DEFAULT)
    return check_misuse(cudaErrorStreamCaptureUnsupported, "cudaStreamBeginCapture of the default stream");
  if (check_lane_at(lane)->capture)
    return check_misuse(cudaErrorIllegalState, "cudaStreamBeginCapture: stream %s is captured already", check_lane_at(lane)->name);
  Capture *capture = calloc(1, sizeof *capture);
  if (!capture) return check_error(cudaErrorMemoryAllocation);
  *capture = (Capture){.origin = lane, .mode = mode, .next = running};
  running = capture;
  check_lane_at(lane)->capture = capture;
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  CHECK_CALL();
  const Capture *capture = check_lane_at(check_lane_of(stream))->capture;
  *status = !capture ? cudaStreamCaptureStatusNone
            : capture->error != cudaSuccess ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

/* Marks what comes before `op`, itself too. Ops are in an order of time: one walk back is enough. */
static const Op *find_unjoined(const Capture *capture) {
  bool *covered = calloc((size_t)capture->n_ops + 1, sizeof *covered);
  const Op *end = capture->last[capture->origin], *unjoined = NULL;
  if (!covered) check_fatal("internal", "out of memory");
  for (int i = capture->n_ops - 1; i >= 0; i--) {
    const Op *op = capture->ops[i];
    covered[i] = covered[i] || op == end;
    if (!covered[i] && op->start) unjoined = op;
    for (int w = 0; covered[i] && w < op->n_waits; w++) covered[op->waits[w]->issue] = true;
  }
  free(covered);
  return unjoined;
}

static void end_capture(Capture *capture) {
  for (int l = 0; l < MAX_LANES; l++)
    if (check_lane_at(l)->capture == capture) check_lane_at(l)->capture = NULL;
  for (Capture **at = &running; *at; at = &(*at)->next) {
    if (*at != capture) continue;
    *at = capture->next;
    break;
  }
}

static cudaError_t judge_capture(Capture *capture, int lane) {
  if (capture->origin != lane) {
    invalidate(capture, cudaErrorStreamCaptureUnmatched);
    check_report("misuse", "cudaStreamEndCapture of stream %s: the capture began in %s", check_lane_at(lane)->name,
                 check_lane_at(capture->origin)->name);
  }
  const Op *unjoined = capture->error == cudaSuccess ? find_unjoined(capture) : NULL;
  if (unjoined) {
    invalidate(capture, cudaErrorStreamCaptureUnjoined);
    check_report("misuse", "cudaStreamEndCapture of stream %s: %s is not joined to it", check_lane_at(lane)->name,
                 check_label_text(unjoined->id));
  }
  return capture->error;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
  CHECK_CALL();
  static int n_graphs;
  int lane = check_lane_of(stream);
  Capture *capture = check_lane_at(lane)->capture;
  *out = NULL;
  if (!capture)
    return check_misuse(cudaErrorIllegalState, "cudaStreamEndCapture: stream %s is not captured", check_lane_at(lane)->name);
  cudaError_t error = judge_capture(capture, lane);
  if (error == cudaSuccess && check_setting("PPC_CHECK_NO_CAPTURE", NULL, 0)) error = cudaErrorStreamCaptureUnsupported;
  end_capture(capture);
  if (error != cudaSuccess) return check_error(error);
  *out = calloc(1, sizeof **out);
  if (!*out) return check_error(cudaErrorMemoryAllocation);
  check_object_begin(&(*out)->object, "graph", "%d", n_graphs++);
  (*out)->capture = capture;
  return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  CHECK_CALL();
  return check_object_end(&graph->object, "cudaGraphDestroy") ? cudaSuccess : check_error(cudaErrorInvalidValue);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n) {
  CHECK_CALL();
  if (nodes) check_fatal("unsupported", "cudaGraphGetNodes with an array");
  *n = 0;
  for (int i = 0; i < graph->capture->n_ops; i++) *n += graph->capture->ops[i]->start != NULL;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
  CHECK_CALL();
  (void)flags;
  if (!check_object_is_live(&graph->object, "cudaGraphInstantiate")) return check_error(cudaErrorInvalidValue);
  cudaGraphExec_t exec = calloc(1, sizeof *exec);
  if (!exec) return check_error(cudaErrorMemoryAllocation);
  check_object_begin(&exec->object, "executable graph", "%s", graph->object.name);
  exec->capture = graph->capture;
  exec->next = executables;
  executables = exec;
  for (int i = 0; i < exec->capture->n_ops; i++) {
    int lane = exec->capture->ops[i]->lane;
    if (!exec->lanes[lane]) exec->lanes[lane] = check_lane_create(false, check_lane_at(lane)->name);
  }
  *out = exec;
  return cudaSuccess;
}

static Op *copy_op(const cudaGraphExec_t exec, const Op *op) {
  Op *copy = malloc(sizeof *copy);
  if (!copy) check_fatal("internal", "out of memory");
  *copy = *op;
  copy->lane = exec->lanes[op->lane];
  copy->id = check_label_copy(op->id, copy->lane);
  copy->capture = NULL;
  copy->n_waits = 0;
  copy->payload = op->payload_bytes ? malloc(op->payload_bytes) : NULL;
  if (op->payload_bytes) {
    if (!copy->payload) check_fatal("internal", "out of memory");
    memcpy(copy->payload, op->payload, op->payload_bytes);
  }
  return copy;
}

/* What waits for nothing in the graph waits for the launching stream. */
static void copy_waits(const Capture *capture, Op *const *copies, int i, const Op *begin) {
  const Op *op = capture->ops[i];
  for (int w = 0; w < op->n_waits; w++) check_op_wait_for(copies[i], copies[op->waits[w]->issue]);
  if (copies[i]->n_waits == 0) check_op_wait_for(copies[i], begin);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  CHECK_CALL();
  if (!check_object_is_live(&exec->object, "cudaGraphLaunch")) return check_error(cudaErrorInvalidValue);
  if (check_lane_at(check_lane_of(stream))->capture) check_fatal("unsupported", "cudaGraphLaunch in a capture");
  const Capture *capture = exec->capture;
  Op **copies = calloc((size_t)capture->n_ops + 1, sizeof *copies);
  if (!copies) check_fatal("internal", "out of memory");
  Op *begin = check_op_create(stream, 0, "cudaGraphLaunch(%s)", exec->object.name);
  check_op_issue(begin);
  for (int i = 0; i < capture->n_ops; i++) {
    copies[i] = copy_op(exec, capture->ops[i]);
    copy_waits(capture, copies, i, begin);
    check_op_enqueue(copies[i]);
    if (copies[i]->records) check_event_note(copies[i]->records, copies[i]);
  }
  Op *end = check_op_create(stream, 0, "end of cudaGraphLaunch(%s)", exec->object.name);
  for (int l = 0; l < MAX_LANES; l++)
    if (exec->lanes[l]) check_op_wait_for(end, check_lane_at(exec->lanes[l])->last);
  check_op_issue(end);
  free(copies);
  check_pinned_guard();
  check_step_some();
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  CHECK_CALL();
  (void)stream;
  return check_object_is_live(&exec->object, "cudaGraphUpload") ? cudaSuccess : check_error(cudaErrorInvalidValue);
}

const char *check_graph_with(bool (*is_such)(const Op *, const void *), const void *argument) {
  for (const struct CUgraphExec_st *exec = executables; exec; exec = exec->next)
    for (int i = 0; exec->object.live && i < exec->capture->n_ops; i++)
      if (is_such(exec->capture->ops[i], argument)) return exec->object.name;
  return NULL;
}

/* A launch that runs still ends. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  CHECK_CALL();
  if (!check_object_end(&exec->object, "cudaGraphExecDestroy")) return check_error(cudaErrorInvalidValue);
  for (int l = 0; l < MAX_LANES; l++)
    if (exec->lanes[l]) check_lane_at(exec->lanes[l])->in_use = false;
  return cudaSuccess;
}
