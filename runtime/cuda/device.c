/* A GPU as a rank's device: one allocation of exactly what the plan says, streams, events, pinned memory,
 * the libraries. In: the tables of pp_program. Out: rank->cuda, and the table pp_device_cuda. Every call is
 * checked; the first failure is the job's. Nothing is made after the start. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rank.h"
#include "trace.h"

/* --- errors -------------------------------------------------------------------------------------- */

const char *pp_cuda_error(cudaError_t error) { return cudaGetErrorString(error); }
const char *pp_blas_error(cublasStatus_t status) { return cublasLtGetStatusString(status); }

pp_status pp_cuda_fail(pp_rank *rank, const char *call, const char *file, int line, const char *error) {
  char place[512] = "at the start";
  if (rank->slot) pp_describe_place(rank->slot, place, sizeof place);
  return pp_fail(rank, PP_EXIT_FAILED, "%s:%d: %s: %s; %s", file, line, call, error, place);
}

/* --- streams and events ---------------------------------------------------------------------------- */

pp_status pp_cuda_event(pp_rank *rank, cudaEvent_t *out_event, const char *name, int number) {
  char text[128];
  PP_CUDA_TRY(rank, cudaEventCreateWithFlags(out_event, cudaEventDisableTiming));
  if (number < 0) snprintf(text, sizeof text, "%s", name);
  else snprintf(text, sizeof text, "%s.%d", name, number);
  pp_names_event(*out_event, text);
  return PP_OK;
}

static pp_status create_stream(pp_rank *rank, cudaStream_t *out_stream, const char *name) {
  PP_CUDA_TRY(rank, cudaStreamCreateWithFlags(out_stream, cudaStreamNonBlocking));
  pp_names_stream(*out_stream, name);
  return PP_OK;
}

static pp_status create_streams(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  PP_TRY(create_stream(rank, &cuda->compute[0], "compute"));
  if (rank->program->n_streams > 1) PP_TRY(create_stream(rank, &cuda->compute[1], "compute 2"));
  if (rank->program->n_ranks > 1) PP_TRY(create_stream(rank, &cuda->communication, "communication"));
  PP_TRY(pp_cuda_event(rank, &cuda->drained, "drained", -1));
  PP_TRY(pp_cuda_event(rank, &cuda->forked, "forked", -1));
  PP_TRY(pp_cuda_event(rank, &cuda->joined, "joined", -1));
  PP_TRY(pp_cuda_event(rank, &cuda->second_joined, "second joined", -1));
  for (int i = 0; i < 2; i++) PP_TRY(pp_cuda_event(rank, &cuda->ended[i], "step ended", i));
  return PP_OK;
}

/* First it asks again and again, for a step of a small model is over soon; then it naps. What the device
 * waits for is told to the watchdog by the transport. */
static pp_status await(pp_rank *rank, cudaEvent_t event) {
  enum { ASKS = 64, SHORT_NAPS = 1 << 14, NAP_NS = 20 * 1000, LONG_NAP_NS = 200 * 1000 };
  for (int asked = 0;; asked++) {
    cudaError_t error = cudaEventQuery(event);
    if (error == cudaSuccess) return PP_OK;
    if (error != cudaErrorNotReady) PP_CUDA_TRY(rank, error);
    if (pp_failing(rank)) return PP_STOPPED;
    if (asked < ASKS) continue;
    if (rank->transport->look) PP_TRY(rank->transport->look(rank));
    struct timespec nap = {.tv_sec = 0, .tv_nsec = asked < SHORT_NAPS ? NAP_NS : LONG_NAP_NS};
    nanosleep(&nap, NULL);
  }
}

/* Where the host is, and not the device, afterwards. */
pp_status pp_cuda_await(pp_rank *rank, cudaEvent_t event) {
  pp_slot *slot = rank->slot;
  uint64_t where = atomic_load_explicit(&slot->where, memory_order_relaxed);
  uint32_t before = atomic_exchange_explicit(&slot->waiting, PP_RUNS, memory_order_relaxed);
  pp_status status = await(rank, event);
  if (status != PP_OK) return status;
  atomic_store_explicit(&slot->step, rank->step, memory_order_relaxed);
  atomic_store_explicit(&slot->where, where, memory_order_relaxed);
  atomic_store_explicit(&slot->waiting, before, memory_order_relaxed);
  pp_cuda_note_call(rank);
  return pp_failing(rank) ? PP_STOPPED : PP_OK; /* then transfers may have ended without their bytes */
}

void pp_cuda_issues(pp_rank *rank, int issues) {
  atomic_store_explicit(&rank->slot->has_waiting_text, 0, memory_order_relaxed);
  atomic_store_explicit(&rank->slot->waiting, issues ? PP_ISSUES : PP_RUNS, memory_order_relaxed);
}

/* --- memory ---------------------------------------------------------------------------------------- */

/* By its place on the bus: ranks may see different devices under one number. */
static pp_status tell_gpu(pp_rank *rank) {
  int domain, bus, device;
  PP_CUDA_TRY(rank, cudaDeviceGetAttribute(&domain, cudaDevAttrPciDomainId, rank->cuda->device));
  PP_CUDA_TRY(rank, cudaDeviceGetAttribute(&bus, cudaDevAttrPciBusId, rank->cuda->device));
  PP_CUDA_TRY(rank, cudaDeviceGetAttribute(&device, cudaDevAttrPciDeviceId, rank->cuda->device));
  rank->slot->gpu = (uint64_t)domain << 32 | (uint64_t)bus << 8 | (uint64_t)device;
  return PP_OK;
}

/* Text for the log. */
static pp_status describe_device(pp_rank *rank) {
  const double gib = 1 << 30;
  const struct pp_cuda *cuda = rank->cuda;
  struct cudaDeviceProp has;
  int runtime = 0, driver = 0;
  PP_CUDA_TRY(rank, cudaGetDeviceProperties(&has, cuda->device));
  PP_CUDA_TRY(rank, cudaRuntimeGetVersion(&runtime));
  PP_CUDA_TRY(rank, cudaDriverGetVersion(&driver));
  snprintf(rank->about, sizeof rank->about, "%.64s, %.1f of %.1f GiB free, of which it takes %llu bytes; CUDA %d.%d, driver for %d.%d", has.name,
           (double)cuda->free_bytes / gib, (double)has.totalGlobalMem / gib, (unsigned long long)cuda->memory_bytes, runtime / 1000,
           runtime % 1000 / 10, driver / 1000, driver % 1000 / 10);
  return PP_OK;
}

static pp_status choose_device(pp_rank *rank) {
  int n_devices = 0;
  cudaError_t error = cudaGetDeviceCount(&n_devices);
  if (error != cudaSuccess || n_devices == 0) {
    return pp_fail(rank, PP_EXIT_INPUT, "no GPU: %s; is the NVIDIA driver there, and new enough (nvidia-smi)? Without a GPU: make check, and "
                   "PPC_CHECK=1 ./launch.sh", error != cudaSuccess ? pp_cuda_error(error) : "the driver knows none");
  }
  rank->cuda->device = rank->program->rank % n_devices; /* all ranks are on this host */
  PP_CUDA_TRY(rank, cudaSetDevice(rank->cuda->device));
  return tell_gpu(rank);
}

/* Free bytes of the device; others may use it too. */
static pp_status free_bytes(pp_rank *rank, uint64_t *out_bytes) {
  size_t available, total;
  PP_CUDA_TRY(rank, cudaMemGetInfo(&available, &total));
  *out_bytes = available;
  return PP_OK;
}

/* Twice: before the libraries have taken theirs, so that what can't fit is told at once, and after. */
static pp_status check_memory(pp_rank *rank) {
  const pp_program *program = rank->program;
  struct pp_cuda *cuda = rank->cuda;
  uint64_t available = 0;
  cuda->memory_bytes = (uint64_t)pp_cuda_bytes((long long)program->arena_bytes, (long long)program->window_bytes, program->n_streams,
                                               (long long)program->scratch_bytes);
  PP_TRY(free_bytes(rank, &available));
  if (cuda->free_bytes == 0) cuda->free_bytes = available;
  if (cuda->memory_bytes <= available) return PP_OK;
  return pp_fail(rank, PP_EXIT_INPUT, "device %d has %llu bytes free; this rank needs %llu, and the libraries some more", cuda->device,
                 (unsigned long long)available, (unsigned long long)cuda->memory_bytes);
}

static pp_status allocate(pp_rank *rank) {
  const pp_program *program = rank->program;
  struct pp_cuda *cuda = rank->cuda;
  uint64_t window = pp_round_up(program->arena_bytes, PP_CUDA_ALIGNMENT);
  uint64_t scratch = window + pp_round_up(program->window_bytes, PP_CUDA_ALIGNMENT);
  uint64_t each = program->scratch_bytes, state = scratch + each * (uint64_t)program->n_streams;
  PP_TRY(check_memory(rank));
  PP_CUDA_TRY(rank, cudaMalloc((void **)&cuda->memory, cuda->memory_bytes));
  rank->arena = cuda->memory;
  rank->window = cuda->memory + window;
  for (int i = 0; i < program->n_streams; i++) cuda->scratch[i] = cuda->memory + scratch + each * (uint64_t)i;
  cuda->state = (pp_step_state *)(void *)(cuda->memory + state);
  cuda->warm = cuda->memory + state + PP_CUDA_STATE_BYTES - PP_CUDA_WARM_BYTES;
  return PP_OK;
}
_Static_assert(sizeof(pp_step_state) + PP_CUDA_WARM_BYTES <= PP_CUDA_STATE_BYTES, "both lie behind the scratch");

static size_t element_count(const pp_parameter *p) {
  size_t n = 1;
  for (int i = 0; i < p->n_dims; i++) n *= (size_t)p->dims[i];
  return n;
}

static pp_status zero(pp_rank *rank, void *at, size_t size_bytes) {
  if (at && size_bytes) PP_CUDA_TRY(rank, cudaMemsetAsync(at, 0, size_bytes, rank->cuda->compute[0]));
  return PP_OK;
}

/* What the CPU's tasks find zeroed because fresh mappings are. Anything else is written before it is read. */
static pp_status zero_states(pp_rank *rank) {
  const pp_program *program = rank->program;
  for (int i = 0; i < program->n_held; i++) {
    const pp_held *h = &program->held[i];
    const pp_parameter *p = &program->parameters[h->parameter];
    size_t size_bytes = element_count(p) * (size_t)pp_dtype_bytes((pp_dtype)p->dtype);
    for (int k = 0; h->owned && p->trainable && k < program->n_states; k++) PP_TRY(zero(rank, pp_address(rank, h->states[k]), size_bytes));
  }
  if (program->rank == program->loss_rank && program->norms != UINT64_MAX)
    PP_TRY(zero(rank, pp_address(rank, program->norms), (size_t)program->n_parameters * sizeof(double)));
  return PP_OK;
}

static pp_status start_state(pp_rank *rank) {
  pp_step_state state;
  memset(&state, 0, sizeof state);
  state.random.seed = rank->options->seed;
  PP_TRY(zero_states(rank));
  PP_TRY(zero(rank, rank->cuda->warm, PP_CUDA_WARM_BYTES));
  return rank->program->device->write(rank, rank->cuda->state, &state, sizeof state);
}

/* What is copied goes through pinned memory, a chunk at a time: the host sleeps as it does at a step's end. */
static pp_status copy(pp_rank *rank, unsigned char *to, const unsigned char *from, size_t size_bytes, int writes) {
  struct pp_cuda *cuda = rank->cuda;
  for (size_t at = 0; at < size_bytes; at += PP_CHUNK_BYTES) {
    size_t n = size_bytes - at < PP_CHUNK_BYTES ? size_bytes - at : PP_CHUNK_BYTES;
    if (writes) memcpy(cuda->bounce, from + at, n);
    if (writes) PP_CUDA_TRY(rank, cudaMemcpyAsync(to + at, cuda->bounce, n, cudaMemcpyHostToDevice, cuda->compute[0]));
    else PP_CUDA_TRY(rank, cudaMemcpyAsync(cuda->bounce, from + at, n, cudaMemcpyDeviceToHost, cuda->compute[0]));
    PP_CUDA_TRY(rank, cudaEventRecord(cuda->drained, cuda->compute[0]));
    PP_TRY(pp_cuda_await(rank, cuda->drained));
    if (!writes) memcpy(to + at, cuda->bounce, n);
  }
  return PP_OK;
}

static pp_status write_device(pp_rank *rank, void *to, const void *from, size_t size_bytes) { return copy(rank, to, from, size_bytes, 1); }
static pp_status read_device(pp_rank *rank, void *to, const void *from, size_t size_bytes) { return copy(rank, to, from, size_bytes, 0); }

/* --- the whole ------------------------------------------------------------------------------------- */

static pp_status check_limits(pp_rank *rank) {
  const pp_program *program = rank->program;
  if (program->n_streams >= 1 && program->n_streams <= PP_CUDA_MAX_STREAMS) return PP_OK;
  return pp_fail(rank, PP_EXIT_BUG, "%d compute streams; 1 and 2 are known", program->n_streams);
}

static pp_status create(pp_rank *rank) {
  rank->cuda = calloc(1, sizeof *rank->cuda);
  if (!rank->cuda) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  rank->cuda->step_begin = rank->cuda->step_gate = rank->cuda->step_end = -1;
  PP_TRY(check_limits(rank));
  PP_TRY(choose_device(rank));
  PP_TRY(check_memory(rank));
  PP_TRY(describe_device(rank));
  PP_TRY(create_streams(rank));
  PP_TRY(pp_cuda_kernels_create(rank));
  PP_TRY(pp_cuda_products_create(rank));
  PP_TRY(allocate(rank));
  PP_TRY(pp_names_create(rank));
  PP_TRY(pp_cuda_step_create(rank));
  return start_state(rank);
}

static pp_status describe(pp_rank *rank, uint64_t *out_digest, uint64_t *out_library_bytes) {
  const struct pp_cuda *cuda = rank->cuda;
  uint64_t now = 0;
  PP_TRY(free_bytes(rank, &now));
  *out_digest = cuda->products_digest;
  *out_library_bytes = cuda->free_bytes > now + cuda->memory_bytes ? cuda->free_bytes - now - cuda->memory_bytes : 0;
  return PP_OK;
}

static void destroy_streams(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  cudaEvent_t events[] = {cuda->drained, cuda->forked, cuda->joined, cuda->second_joined, cuda->ended[0], cuda->ended[1]};
  cudaStream_t streams[] = {cuda->compute[0], cuda->compute[1], cuda->communication};
  for (size_t i = 0; i < sizeof events / sizeof *events; i++)
    if (events[i]) PP_CUDA_DO(rank, cudaEventDestroy(events[i]));
  for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
    if (streams[i]) PP_CUDA_DO(rank, cudaStreamDestroy(streams[i]));
}

/* The transport has gone before, so that nothing on the streams waits for a peer any more. */
static void destroy(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  if (!cuda) return;
  pp_cuda_step_destroy(rank);
  pp_cuda_products_destroy(rank);
  pp_cuda_kernels_destroy(rank);
  destroy_streams(rank);
  pp_names_destroy(rank);
  if (cuda->memory) PP_CUDA_DO(rank, cudaFree(cuda->memory));
  free(rank->seen.outputs);
  free(cuda);
  rank->cuda = NULL;
}

static const pp_transport *const transports[] = {&pp_transport_self, &pp_transport_auto, &pp_transport_nccl, &pp_transport_host, NULL};

const pp_device pp_device_cuda = {
    .name = "cuda",
    .transports = transports,
    .create = create,
    .destroy = destroy,
    .describe = describe,
    .begin_step = pp_cuda_begin_step,
    .end_step = pp_cuda_end_step,
    .enter = pp_cuda_enter,
    .leave = pp_cuda_leave,
    .run = pp_cuda_run,
    .stamp = pp_cuda_stamp,
    .write = write_device,
    .read = read_device,
};
