/* Small programs on stream capture and graphs, each right or wrong by CUDA's rules. `graphs CASE` runs one; `graphs`
 * prints the list: the case and the kind of report it must give ("clean": none). */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 };

static char *buffer, *host; /* of 4 BYTES */
static cudaStream_t a, b, other; /* other: ordered with the default stream */
static cudaEvent_t fork_event, join_event, outside;
static cudaGraph_t graph;
static cudaGraphExec_t exec;

static void must(cudaError_t error) {
  if (error != cudaSuccess) exit(1);
}

static void fill(cudaStream_t stream, int part, int value) {
  must(cudaMemsetAsync(buffer + part * BYTES, value, BYTES, stream));
}

static void begin(void) { must(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal)); }

static void fork_b(void) {
  must(cudaEventRecord(fork_event, a));
  must(cudaStreamWaitEvent(b, fork_event, 0));
}

static void join_b(void) {
  must(cudaEventRecord(join_event, b));
  must(cudaStreamWaitEvent(a, join_event, 0));
}

static void end(void) {
  must(cudaStreamEndCapture(a, &graph));
  must(cudaGraphInstantiate(&exec, graph, 0));
  must(cudaGraphDestroy(graph));
}

static void destroy(void) { must(cudaGraphExecDestroy(exec)); }

/* Two parts side by side, then both to the host: launched three times. */
static void capture_diamond(void) {
  begin();
  fill(a, 0, 1);
  fork_b();
  fill(a, 1, 2);
  fill(b, 2, 3);
  join_b();
  must(cudaMemcpyAsync(host, buffer, 3 * BYTES, cudaMemcpyDeviceToHost, a));
  end();
}

static void diamond(void) {
  capture_diamond();
  for (int i = 0; i < 3; i++) {
    memset(host, 9, 4 * BYTES);
    must(cudaGraphLaunch(exec, a));
    must(cudaStreamSynchronize(a));
    if (host[0] != 1 || host[BYTES] != 2 || host[3 * BYTES - 1] != 3) exit(1);
  }
  destroy();
}

static void behind_the_stream(void) { /* a launch is behind what its stream has, and before what comes */
  capture_diamond();
  fill(a, 2, 7);
  must(cudaGraphLaunch(exec, a));
  fill(a, 2, 8);
  must(cudaGraphLaunch(exec, a));
  must(cudaStreamSynchronize(a));
  destroy();
}

static void CUDART_CB count(void *number) { ++*(int *)number; }

static void host_function(void) {
  int n = 0;
  begin();
  must(cudaLaunchHostFunc(a, count, &n));
  fill(a, 0, 1);
  end();
  for (int i = 0; i < 3; i++) must(cudaGraphLaunch(exec, a));
  must(cudaStreamSynchronize(a));
  if (n != 3) exit(1);
  destroy();
}

static void no_run_in_capture(void) { /* what is captured doesn't run */
  host[0] = 5;
  begin();
  must(cudaMemcpyAsync(host, buffer, BYTES, cudaMemcpyDeviceToHost, a));
  end();
  must(cudaDeviceSynchronize());
  if (host[0] != 5) exit(1);
  destroy();
}

static void no_edge(void) {
  begin();
  fork_b();
  fill(a, 0, 1);
  fill(b, 0, 2);
  join_b();
  end();
  must(cudaGraphLaunch(exec, a));
  must(cudaStreamSynchronize(a));
  destroy();
}

/* Each launch records the event: the host may ask it, and then knows what came before. */
static void ask_a_launch(void) {
  begin();
  fill(a, 0, 7);
  must(cudaMemcpyAsync(host, buffer, BYTES, cudaMemcpyDeviceToHost, a));
  must(cudaEventRecordWithFlags(outside, a, cudaEventRecordExternal));
  end();
  for (int i = 0; i < 3; i++) {
    memset(host, 9, BYTES);
    must(cudaGraphLaunch(exec, a));
    cudaError_t error;
    while ((error = cudaEventQuery(outside)) == cudaErrorNotReady) {}
    must(error);
    if (host[BYTES - 1] != 7) exit(1);
  }
  must(cudaDeviceSynchronize());
  destroy();
}

static void external_record_outside(void) { must(cudaEventRecordWithFlags(outside, a, cudaEventRecordExternal)); }

static void beside_the_graph(void) { /* no event orders the fill in b with the launch in a */
  capture_diamond();
  must(cudaGraphLaunch(exec, a));
  fill(b, 2, 1);
  must(cudaDeviceSynchronize());
  destroy();
}

static void host_too_early(void) {
  capture_diamond();
  must(cudaGraphLaunch(exec, a));
  host[0] = 1;
  must(cudaDeviceSynchronize());
  destroy();
}

static void synchronise(void) {
  begin();
  must(cudaStreamSynchronize(a));
}

static void synchronise_device(void) {
  begin();
  must(cudaDeviceSynchronize());
}

static void allocate(void) {
  void *more;
  begin();
  must(cudaMalloc(&more, BYTES));
}

static void unjoined(void) {
  begin();
  fork_b();
  fill(b, 1, 1);
  end();
}

static void query_captured_event(void) {
  begin();
  must(cudaEventRecord(fork_event, a));
  must(cudaEventQuery(fork_event));
}

static void event_from_outside(void) {
  must(cudaEventRecord(outside, b));
  begin();
  must(cudaStreamWaitEvent(a, outside, 0));
}

static void event_of_ended_capture(void) {
  begin();
  fill(a, 0, 1);
  must(cudaEventRecord(fork_event, a));
  end();
  must(cudaStreamWaitEvent(b, fork_event, 0));
}

static void pageable(void) {
  char local[BYTES] = {0};
  begin();
  must(cudaMemcpyAsync(buffer, local, BYTES, cudaMemcpyHostToDevice, a));
}

static void ended_elsewhere(void) {
  begin();
  fork_b();
  must(cudaStreamEndCapture(b, &graph));
}

static void default_stream(void) {
  must(cudaStreamBeginCapture(other, cudaStreamCaptureModeGlobal));
  fill(NULL, 0, 1);
  must(cudaStreamEndCapture(other, &graph));
}

static void leak(void) {
  capture_diamond();
  must(cudaGraphLaunch(exec, a));
  must(cudaStreamSynchronize(a));
}

static void launch_destroyed(void) {
  capture_diamond();
  destroy();
  must(cudaGraphLaunch(exec, a));
}

static const struct {
  const char *name, *kind;
  void (*run)(void);
} cases[] = {
    {"diamond", "clean", diamond},
    {"behind_the_stream", "clean", behind_the_stream},
    {"host_function", "clean", host_function},
    {"no_run_in_capture", "clean", no_run_in_capture},
    {"ask_a_launch", "clean", ask_a_launch},
    {"external_record_outside", "misuse", external_record_outside},
    {"no_edge", "race", no_edge},
    {"beside_the_graph", "race", beside_the_graph},
    {"host_too_early", "host race", host_too_early},
    {"synchronise", "misuse", synchronise},
    {"synchronise_device", "misuse", synchronise_device},
    {"allocate", "misuse", allocate},
    {"unjoined", "misuse", unjoined},
    {"query_captured_event", "misuse", query_captured_event},
    {"event_from_outside", "misuse", event_from_outside},
    {"event_of_ended_capture", "misuse", event_of_ended_capture},
    {"pageable", "misuse", pageable},
    {"ended_elsewhere", "misuse", ended_elsewhere},
    {"default_stream", "misuse", default_stream},
    {"leak", "leak", leak},
    {"launch_destroyed", "misuse", launch_destroyed},
};

static void set_up(void) {
  must(cudaMalloc((void **)&buffer, 4 * BYTES));
  must(cudaMallocHost((void **)&host, 4 * BYTES));
  must(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
  must(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
  must(cudaStreamCreate(&other));
  must(cudaEventCreateWithFlags(&fork_event, cudaEventDisableTiming));
  must(cudaEventCreateWithFlags(&join_event, cudaEventDisableTiming));
  must(cudaEventCreateWithFlags(&outside, cudaEventDisableTiming));
  must(cudaMemsetAsync(buffer, 0, 4 * BYTES, a));
  must(cudaDeviceSynchronize());
}

static void tear_down(void) {
  must(cudaFree(buffer));
  must(cudaFreeHost(host));
  must(cudaStreamDestroy(a));
  must(cudaStreamDestroy(b));
  must(cudaStreamDestroy(other));
  must(cudaEventDestroy(fork_event));
  must(cudaEventDestroy(join_event));
  must(cudaEventDestroy(outside));
}

int main(int n_arguments, char **arguments) {
  set_up();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (n_arguments < 2) printf("%s %s\n", cases[i].name, cases[i].kind);
    else if (strcmp(arguments[1], cases[i].name) == 0) cases[i].run();
  }
  tear_down();
  return 0;
}
