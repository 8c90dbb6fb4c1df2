/* libcudart: streams, events, the device. */
#include <stdio.h>
#include <stdlib.h>

#include "core.h"

struct CUstream_st {
  CheckObject object;
  int lane;
};

struct CUevent_st {
  CheckObject object;
  const Op *record; /* the last */
  bool is_timed;
};

/* ---- names ---- */

int check_lane_of(cudaStream_t stream) {
  if (!stream || stream == cudaStreamLegacy) return LANE_DEFAULT;
  if (stream == cudaStreamPerThread) check_fatal("unsupported", "cudaStreamPerThread");
  return stream->lane;
}

void check_name_lane(cudaStream_t stream, const char *name) {
  snprintf(check_lane_at(check_lane_of(stream))->name, sizeof((Lane *)0)->name, "%s", name);
  if (stream && stream != cudaStreamLegacy) snprintf(stream->object.name, sizeof stream->object.name, "%s", name);
}

void check_name_event(cudaEvent_t event, const char *name);
void check_name_event(cudaEvent_t event, const char *name) {
  snprintf(event->object.name, sizeof event->object.name, "%s", name);
}

const char *check_event_name(cudaEvent_t event) { return event->object.name; }

static bool stream_is_live(cudaStream_t stream, const char *call) {
  return !stream || stream == cudaStreamLegacy || check_object_is_live(&stream->object, call);
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
  CHECK_CALL();
  static int n_streams;
  char name[16];
  cudaStream_t stream = calloc(1, sizeof *stream);
  if (!stream) return check_error(cudaErrorMemoryAllocation);
  snprintf(name, sizeof name, "%d", n_streams++);
  check_object_begin(&stream->object, "stream", "%s", name);
  stream->lane = check_lane_create(!(flags & cudaStreamNonBlocking), name);
  *out = stream;
  return cudaSuccess;
}

/* A priority is a hint: no order follows from it. */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
  CHECK_CALL();
  (void)priority;
  return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaStreamCreate(cudaStream_t *out) {
  CHECK_CALL();
  return cudaStreamCreateWithFlags(out, cudaStreamDefault);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  CHECK_CALL();
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

/* What is queued still runs. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  CHECK_CALL();
  check_step_some();
  if (!check_object_end(&stream->object, "cudaStreamDestroy")) return check_error(cudaErrorInvalidResourceHandle);
  check_lane_at(stream->lane)->in_use = false;
  return cudaSuccess;
}

/* Waiting for a stream that is being captured, or asking it, is an error and ends the capture. */
static bool is_captured(cudaStream_t stream, const char *call) {
  return check_lane_at(check_lane_of(stream))->capture && check_capture_forbids(call);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CHECK_CALL();
  if (!stream_is_live(stream, "cudaStreamSynchronize")) return check_error(cudaErrorInvalidResourceHandle);
  if (is_captured(stream, "cudaStreamSynchronize")) return check_error(cudaErrorStreamCaptureUnsupported);
  check_wait_op(check_lane_at(check_lane_of(stream))->last, "cudaStreamSynchronize");
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  CHECK_CALL();
  if (!stream_is_live(stream, "cudaStreamQuery")) return check_error(cudaErrorInvalidResourceHandle);
  if (is_captured(stream, "cudaStreamQuery")) return check_error(cudaErrorStreamCaptureUnsupported);
  const Lane *lane = check_lane_at(check_lane_of(stream));
  check_step_for_query("cudaStreamQuery(%s) in '%s', again and again", lane->name, check_action());
  if (lane->last && !lane->last->done) return cudaErrorNotReady;
  check_query_succeeds();
  check_host_joins(lane->last);
  check_pinned_guard();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  CHECK_CALL();
  (void)flags;
  if (!stream_is_live(stream, "cudaStreamWaitEvent") || !check_object_is_live(&event->object, "cudaStreamWaitEvent"))
    return check_error(cudaErrorInvalidResourceHandle);
  int lane = check_lane_of(stream);
  if (!event->record) {
    check_report("misuse", "cudaStreamWaitEvent(%s, %s) in '%s': the event was never recorded, so nothing waits",
                 check_lane_at(lane)->name, event->object.name, check_action());
    return cudaSuccess;
  }
  cudaError_t error = check_capture_join(lane, event->record);
  if (error != cudaSuccess) return check_error(error);
  Op *op = check_op_create(stream, 0, "cudaStreamWaitEvent(%s)", event->object.name);
  check_op_wait_for(op, event->record);
  check_op_issue(op);
  check_step_some();
  return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
  CHECK_CALL();
  static int n_events;
  cudaEvent_t event = calloc(1, sizeof *event);
  if (!event) return check_error(cudaErrorMemoryAllocation);
  check_object_begin(&event->object, "event", "%d", n_events++);
  event->is_timed = !(flags & cudaEventDisableTiming);
  *out = event;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
  CHECK_CALL();
  return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  CHECK_CALL();
  if (!check_object_end(&event->object, "cudaEventDestroy")) return check_error(cudaErrorInvalidResourceHandle);
  return cudaSuccess;
}

/* External, in a capture: a node of the graph. The event stands for what it stood for until the graph is launched. */
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  CHECK_CALL();
  if (!check_object_is_live(&event->object, "cudaEventRecord")) return check_error(cudaErrorInvalidResourceHandle);
  bool is_external = flags & cudaEventRecordExternal, is_captured = check_lane_at(check_lane_of(stream))->capture != NULL;
  if (is_external && !is_captured)
    return check_misuse(cudaErrorInvalidValue, "cudaEventRecordWithFlags(%s) in '%s': external, outside of a capture",
                        event->object.name, check_action());
  Op *op = check_op_create(stream, 0, "cudaEventRecord(%s)", event->object.name);
  if (is_external) op->records = event;
  check_op_issue(op);
  if (!is_external) event->record = op;
  check_step_some();
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CHECK_CALL();
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

void check_event_note(cudaEvent_t event, const Op *op) {
  if (check_object_is_live(&event->object, "cudaGraphLaunch")) event->record = op;
}

/* An event whose last record is in a capture stands for no work that could end. */
static cudaError_t find_record(cudaEvent_t event, const char *call) {
  if (!check_object_is_live(&event->object, call)) return check_error(cudaErrorInvalidResourceHandle);
  if (!event->record)
    check_report("misuse", "%s(%s) in '%s': the event was never recorded", call, event->object.name, check_action());
  else if (event->record->capture)
    return check_misuse(cudaErrorCapturedEvent, "%s(%s) in '%s': the event was last recorded in a capture", call,
                        event->object.name, check_action());
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  CHECK_CALL();
  char call[96];
  cudaError_t error = find_record(event, "cudaEventSynchronize");
  if (error != cudaSuccess) return error;
  snprintf(call, sizeof call, "cudaEventSynchronize(%s)", event->object.name);
  check_wait_op(event->record, call);
  return cudaSuccess;
}

/* Never recorded: complete, by CUDA's rules. */
cudaError_t cudaEventQuery(cudaEvent_t event) {
  CHECK_CALL();
  cudaError_t error = find_record(event, "cudaEventQuery");
  if (error != cudaSuccess) return error;
  check_step_for_query("cudaEventQuery(%s) in '%s', again and again", event->object.name, check_action());
  if (event->record && !event->record->done) return cudaErrorNotReady;
  check_query_succeeds();
  check_host_joins(event->record);
  check_pinned_guard(); /* what the copies before it used is the host's again */
  return cudaSuccess;
}

/* Times say when an op was done here, on one clock for all ranks: programs print them, and may decide nothing by them. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  CHECK_CALL();
  cudaError_t error = find_record(from, "cudaEventElapsedTime");
  if (error == cudaSuccess) error = find_record(to, "cudaEventElapsedTime");
  if (error != cudaSuccess) return error;
  if (!from->is_timed || !to->is_timed || !from->record || !to->record)
    return check_misuse(cudaErrorInvalidResourceHandle, "cudaEventElapsedTime(%s, %s) in '%s': without times or a record",
                        from->object.name, to->object.name, check_action());
  if (!from->record->done || !to->record->done) return cudaErrorNotReady;
  *ms = (float)((double)(int64_t)(to->record->done_ns - from->record->done_ns) * 1e-6);
  return cudaSuccess;
}

/* ---- the device ---- */

cudaError_t cudaDeviceSynchronize(void) {
  CHECK_CALL();
  if (check_capture_forbids("cudaDeviceSynchronize")) return check_error(cudaErrorStreamCaptureUnsupported);
  check_wait_device("cudaDeviceSynchronize");
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n) {
  CHECK_CALL();
  *n = (int)check_setting("PPC_CHECK_DEVICES", NULL, 1);
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  CHECK_CALL();
  if (device < 0 || device >= check_setting("PPC_CHECK_DEVICES", NULL, 1))
    return check_misuse(cudaErrorInvalidDevice, "cudaSetDevice(%d): no such device", device);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  CHECK_CALL();
  *device = 0;
  return cudaSuccess;
}

/* An A100's, but for what a program has no business to rely on. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  CHECK_CALL();
  static const struct {
    enum cudaDeviceAttr attribute;
    int value;
  } values[] = {
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxBlockDimX, 1024},
      {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64},
      {cudaDevAttrMaxGridDimX, 2147483647},
      {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535},
      {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, 166912},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 167936},
      {cudaDevAttrReservedSharedMemoryPerBlock, 1024},
      {cudaDevAttrTotalConstantMemory, 65536},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrMaxRegistersPerBlock, 65536},
      {cudaDevAttrMaxRegistersPerMultiprocessor, 65536},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
      {cudaDevAttrMaxBlocksPerMultiprocessor, 32},
      {cudaDevAttrMultiProcessorCount, 108},
      {cudaDevAttrComputeCapabilityMajor, 8},
      {cudaDevAttrComputeCapabilityMinor, 0},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrAsyncEngineCount, 3},
      {cudaDevAttrStreamPrioritiesSupported, 1},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrL2CacheSize, 41943040},
      {cudaDevAttrIntegrated, 0},
      {cudaDevAttrPciDeviceId, 0},
      {cudaDevAttrPciDomainId, 0},
  };
  /* Each rank's devices are its own, as under a launcher that gives each a GPU, unless all see PPC_CHECK_DEVICES. */
  if (attribute == cudaDevAttrPciBusId) {
    *value = check_setting("PPC_CHECK_DEVICES", NULL, 0) ? 1 + device : 1 + check_rank();
    return cudaSuccess;
  }
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    if (values[i].attribute != attribute) continue;
    *value = values[i].value;
    return cudaSuccess;
  }
  check_fatal("unsupported", "cudaDeviceGetAttribute %d", (int)attribute);
}

/* Its name and memory; the rest is to be asked for by attribute. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device) {
  CHECK_CALL();
  size_t available;
  (void)device;
  *out = (struct cudaDeviceProp){.name = "no GPU (checking libraries)"};
  return cudaMemGetInfo(&available, &out->totalGlobalMem);
}

cudaError_t cudaRuntimeGetVersion(int *version) {
  CHECK_CALL();
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  CHECK_CALL();
  *version = CUDART_VERSION;
  return cudaSuccess;
}

/* ---- errors ---- */

#define ERRORS(_)                                                                                                  \
  _(cudaSuccess, "no error")                                                                                       \
  _(cudaErrorInvalidValue, "invalid argument")                                                                     \
  _(cudaErrorMemoryAllocation, "out of memory")                                                                    \
  _(cudaErrorInitializationError, "initialization error")                                                          \
  _(cudaErrorInvalidConfiguration, "invalid configuration argument")                                               \
  _(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                                          \
  _(cudaErrorInvalidDeviceFunction, "invalid device function")                                                     \
  _(cudaErrorNoDevice, "no CUDA-capable device is detected")                                                       \
  _(cudaErrorInvalidDevice, "invalid device ordinal")                                                              \
  _(cudaErrorInvalidKernelImage, "device kernel image is invalid")                                                 \
  _(cudaErrorFileNotFound, "file not found")                                                                       \
  _(cudaErrorInvalidResourceHandle, "invalid resource handle")                                                     \
  _(cudaErrorSymbolNotFound, "named symbol not found")                                                             \
  _(cudaErrorNotReady, "device not ready")                                                                         \
  _(cudaErrorLaunchOutOfResources, "too many resources requested for launch")                                      \
  _(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")                         \
  _(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture")                  \
  _(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences")                \
  _(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began")                       \
  _(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work")                                          \
  _(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream")                    \
  _(cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream") \
  _(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped")            \
  _(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region")                  \
  _(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream")             \
  _(cudaErrorUnknown, "unknown error")

const char *cudaGetErrorName(cudaError_t error) {
#define NAME(code, text) \
  if (error == code) return #code;
  ERRORS(NAME)
  return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
#define STRING(code, text) \
  if (error == code) return text;
  ERRORS(STRING)
  return "unrecognized error code";
}
