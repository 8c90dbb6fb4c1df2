/* A step on a GPU. The host issues kernels, copies and waits in the order of the rank's actions and does not wait for
 * them, but at a step's begin for the step before the last, whose pinned memory it uses again, and at the end of a step
 * that is looked at. What a step decides is decided on the device (kernels/cuda/step.cuh). With --graph the first step
 * of each parity is captured and launched from then on.
 * A step begins and ends with all streams of the rank joined. */
#include <stdlib.h>
#include <string.h>

#include "rank.h"
#include "trace.h"

static int parity_of(const pp_rank *rank) { return (int)(rank->step & 1); }

/* --- pinned memory -------------------------------------------------------------------------------- */

static uint64_t output_bytes(const pp_program *program, int k) {
  const pp_output *o = &program->outputs[k];
  return sizeof(double) * (uint64_t)program->n_microbatches * (uint64_t)(o->kind == PP_REDUCE_CONCAT ? o->n : 1);
}

/* What the host sees of a step, in pinned memory: all of the addresses when there is memory, the sizes anyway. */
static uint64_t lay_out_copies(pp_rank *rank, unsigned char *base) {
  const pp_program *program = rank->program;
  struct pp_cuda *cuda = rank->cuda;
  int has_losses = program->rank == program->loss_rank && !program->generate;
  uint64_t used = 0, vector = sizeof(double) * (uint64_t)program->n_microbatches;
  cuda->n_copies = 0;
#define SEE(field, type, device, bytes)                                                        \
  do {                                                                                         \
    if (base) field = (type)(void *)(base + used);                                             \
    if (base) cuda->copies[cuda->n_copies++] = (pp_copy){base + used, device, (size_t)(bytes)}; \
    used += pp_round_up(bytes, PP_ALIGNMENT);                                                  \
  } while (0)
  SEE(cuda->seen_state, pp_step_state *, cuda->state, sizeof *cuda->state);
  if (!program->generate) SEE(rank->seen.control, double *, pp_address(rank, program->control), PP_CONTROL_SIZE * sizeof(double));
  if (has_losses) SEE(rank->seen.losses, double *, pp_address(rank, program->losses), vector);
  if (has_losses) SEE(rank->seen.counts, double *, pp_address(rank, program->counts), vector);
  if (has_losses) SEE(rank->seen.norms, double *, pp_address(rank, program->norms), sizeof(double) * (uint64_t)program->n_parameters);
  if (program->first_loss_scale != 0)
    SEE(rank->seen.loss_scale, double *, pp_address(rank, program->loss_scale), sizeof(double) * PP_LOSS_SCALE_SIZE);
  for (int k = 0; has_losses && k < program->n_outputs; k++)
    SEE(rank->seen.outputs[k], double *, pp_address(rank, program->output_slots[k]), output_bytes(program, k));
#undef SEE
  return used;
}

static uint64_t sample_bytes(const pp_program *program, int data) {
  return (uint64_t)program->microbatch * (uint64_t)program->data[data].n * 4;
}

static uint64_t longest_sample(const pp_program *program) {
  uint64_t longest = 1;
  for (int i = 0; i < program->n_data; i++)
    if (sample_bytes(program, i) > longest) longest = sample_bytes(program, i);
  return longest;
}

pp_status pp_cuda_step_create(pp_rank *rank) {
  const pp_program *program = rank->program;
  struct pp_cuda *cuda = rank->cuda;
  uint64_t seen = lay_out_copies(rank, NULL);
  cuda->max_staged = (uint32_t)(program->staging_bytes / PP_ALIGNMENT);
  cuda->copies = calloc((size_t)program->n_outputs + 6, sizeof *cuda->copies);
  cuda->staged = calloc(cuda->max_staged + 1u, sizeof *cuda->staged);
  rank->seen.outputs = calloc((size_t)program->n_outputs + 1, sizeof *rank->seen.outputs);
  cuda->sample = malloc(longest_sample(program));
  if (!cuda->copies || !cuda->staged || !cuda->sample || !rank->seen.outputs) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  PP_CUDA_TRY(rank, cudaHostAlloc((void **)&cuda->pinned, seen + PP_CHUNK_BYTES + 2 * program->staging_bytes, cudaHostAllocDefault));
  lay_out_copies(rank, cuda->pinned);
  cuda->bounce = cuda->pinned + seen;
  cuda->staging = cuda->bounce + PP_CHUNK_BYTES;
  cuda->graphs = rank->options->graph;
  return rank->options->trace ? pp_cuda_trace_create(rank) : PP_OK;
}

void pp_cuda_graphs_destroy(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  for (int i = 0; i < 2; i++) {
    if (cuda->graph[i]) PP_CUDA_DO(rank, cudaGraphExecDestroy(cuda->graph[i]));
    cuda->graph[i] = NULL;
  }
}

void pp_cuda_step_destroy(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  pp_cuda_trace_destroy(rank);
  pp_cuda_graphs_destroy(rank);
  if (cuda->pinned) PP_CUDA_DO(rank, cudaFreeHost(cuda->pinned));
  free(cuda->copies);
  free(cuda->staged);
  free(cuda->sample);
}

/* --- sample data ------------------------------------------------------------------------------------ */

static unsigned char *staging_of(const pp_rank *rank, uint64_t at) {
  return rank->cuda->staging + (uint64_t)parity_of(rank) * rank->program->staging_bytes + at;
}

/* Pinned memory is written by the program's own stores: checkers guard its pages, and the system would not read a
 * file into a page of which another part is being copied. */
static void stage(const pp_call *call, const pp_staged *s) {
  pp_rank *rank = call->rank;
  pp_cuda_issues(rank, 0); /* a disk may take its time */
  pp_data_read(call, s->data, rank->cuda->sample);
  pp_cuda_issues(rank, 1);
  memcpy(staging_of(rank, s->at), rank->cuda->sample, sample_bytes(rank->program, s->data));
}

void pp_device_data(const pp_call *call, int data, void *to) {
  pp_rank *rank = call->rank;
  struct pp_cuda *cuda = rank->cuda;
  uint64_t size_bytes = sample_bytes(rank->program, data);
  if (cuda->n_staged == cuda->max_staged || cuda->staged_bytes + pp_round_up(size_bytes, PP_ALIGNMENT) > rank->program->staging_bytes) {
    pp_fail(rank, PP_EXIT_BUG, "a step reads more sample data than the %llu bytes that are planned",
            (unsigned long long)rank->program->staging_bytes);
    return;
  }
  const unsigned char *from = staging_of(rank, cuda->staged_bytes);
  cuda->staged[cuda->n_staged++] = (pp_staged){data, call->microbatch, cuda->staged_bytes};
  cuda->staged_bytes += pp_round_up(size_bytes, PP_ALIGNMENT);
  stage(call, &cuda->staged[cuda->n_staged - 1]);
  PP_CUDA_DO(rank, cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, cuda->compute[cuda->current]));
}

/* What the data calls of a captured step would do on the host. */
static void read_again(pp_rank *rank) {
  const struct pp_cuda *cuda = rank->cuda;
  for (uint32_t i = 0; i < cuda->n_staged; i++) {
    pp_call call = {NULL, cuda->staged[i].microbatch, 0, rank};
    stage(&call, &cuda->staged[i]);
  }
}

/* --- actions ------------------------------------------------------------------------------------------ */

static void wait_on(pp_rank *rank, cudaStream_t waiter, cudaEvent_t event, cudaStream_t other) {
  PP_CUDA_DO(rank, cudaEventRecord(event, other));
  PP_CUDA_DO(rank, cudaStreamWaitEvent(waiter, event, 0));
}

void pp_cuda_enter(pp_rank *rank, const pp_action *action) {
  struct pp_cuda *cuda = rank->cuda;
  if (cuda->names) pp_names_push(cuda->names[action - rank->program->actions]);
  if (action->streams & PP_FORK) wait_on(rank, cuda->compute[1], cuda->forked, cuda->compute[0]);
  cuda->current = action->streams & PP_ON_SECOND ? 1 : 0;
}

void pp_cuda_leave(pp_rank *rank, const pp_action *action) {
  struct pp_cuda *cuda = rank->cuda;
  if (action->streams & PP_JOIN) wait_on(rank, cuda->compute[0], cuda->second_joined, cuda->compute[1]);
  cuda->current = 0;
  if (cuda->names) pp_names_pop();
}

/* Launches one of the kernels that go with steps, with up to four pointers. */
static void launch_step(pp_rank *rank, int kernel, void *a, void *b, void *c, void *d) {
  pp_cuda_launch(rank, kernel, (void *[]){&a, &b, &c, &d});
}

static void gate(pp_rank *rank) {
  launch_step(rank, rank->cuda->step_gate, rank->cuda->state, pp_address(rank, rank->program->control), NULL, NULL);
  rank->cuda->gated = 1;
}

/* The kernels of updates look at the control vector themselves. */
void pp_cuda_run(pp_rank *rank, const pp_task *task, const pp_call *call) {
  if (task->kind == PP_UPDATE && !rank->cuda->gated) gate(rank);
  task->run(call);
  if (task->kind == PP_DECIDE) gate(rank);
}

/* --- a step ------------------------------------------------------------------------------------------- */

static void start(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  const pp_program *program = rank->program;
  cuda->current = cuda->gated = 0;
  cuda->n_staged = 0;
  cuda->staged_bytes = 0;
  if (!program->generate) launch_step(rank, cuda->step_begin, cuda->state, pp_address(rank, program->step), NULL, NULL);
  PP_CUDA_DO(rank, cudaEventRecord(cuda->forked, cuda->compute[0]));
  if (cuda->compute[1]) PP_CUDA_DO(rank, cudaStreamWaitEvent(cuda->compute[1], cuda->forked, 0));
  if (cuda->communication) PP_CUDA_DO(rank, cudaStreamWaitEvent(cuda->communication, cuda->forked, 0));
}

static void *vector_at(pp_rank *rank, uint64_t offset) {
  int known = rank->program->rank == rank->program->loss_rank && offset != UINT64_MAX;
  return known ? pp_address(rank, offset) : NULL;
}

static void stop(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  const pp_program *program = rank->program;
  if (cuda->communication) wait_on(rank, cuda->compute[0], cuda->joined, cuda->communication);
  if (cuda->compute[1]) wait_on(rank, cuda->compute[0], cuda->second_joined, cuda->compute[1]);
  if (program->generate) return;
  launch_step(rank, cuda->step_end, cuda->state, pp_address(rank, program->control), vector_at(rank, program->losses),
              vector_at(rank, program->norms));
}

static int is_captured(const pp_rank *rank) { return rank->cuda->graphs && !rank->keeps; }

pp_status pp_cuda_begin_step(pp_rank *rank, int *out_issued) {
  struct pp_cuda *cuda = rank->cuda;
  int parity = parity_of(rank);
  *out_issued = 0;
  if (rank->step > 2) PP_TRY(pp_cuda_await(rank, cuda->ended[parity]));
  pp_cuda_issues(rank, 1);
  if (is_captured(rank) && cuda->graph[parity]) {
    if (rank->transport->repeat) rank->transport->repeat(rank);
    read_again(rank);
    *out_issued = 1;
    return PP_OK;
  }
  PP_TRY(pp_cuda_trace_begin(rank));
  /* Relaxed: a library may load a kernel on its first use. */
  if (is_captured(rank)) PP_CUDA_TRY(rank, cudaStreamBeginCapture(cuda->compute[0], cudaStreamCaptureModeRelaxed));
  cuda->captures = is_captured(rank);
  start(rank);
  return pp_failing(rank) ? PP_STOPPED : PP_OK;
}

/* Nothing of the step has run: it is issued once more, as all others will be. */
static pp_status give_up_graphs(pp_rank *rank, const char *why) {
  rank->cuda->graphs = 0;
  pp_warn(rank, "--graph: the step can't be captured: %s; its actions are launched one by one", why);
  start(rank);
  PP_TRY(pp_run_actions(rank));
  stop(rank);
  return PP_OK;
}

static pp_status capture(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  cudaGraph_t graph = NULL;
  pp_cuda_issues(rank, 0); /* it is long, and waits for nobody */
  cudaError_t error = cudaStreamEndCapture(cuda->compute[0], &graph);
  cuda->captures = 0;
  if (error == cudaSuccess) error = cudaGraphInstantiate(&cuda->graph[parity_of(rank)], graph, 0);
  if (graph) PP_CUDA_DO(rank, cudaGraphDestroy(graph));
  pp_cuda_issues(rank, 1);
  if (error == cudaSuccess) return PP_OK;
  cudaGetLastError(); /* it has been told */
  return give_up_graphs(rank, pp_cuda_error(error));
}

static pp_status copy_seen(pp_rank *rank) {
  struct pp_cuda *cuda = rank->cuda;
  for (int i = 0; i < cuda->n_copies; i++) {
    const pp_copy *c = &cuda->copies[i];
    PP_CUDA_TRY(rank, cudaMemcpyAsync(c->to, c->from, c->size_bytes, cudaMemcpyDeviceToHost, cuda->compute[0]));
  }
  return PP_OK;
}

/* As pp_check_indices of rank.c; what meets the index runs steps before the host looks, so the device notes the step. */
static pp_status tell_fault(pp_rank *rank, const pp_step_state *state) {
  const pp_fault *f = &state->fault;
  const pp_place *place = &rank->program->places[f->place];
  uint64_t step = rank->program->generate ? rank->step : state->fault_step;
  return pp_fail(rank, PP_EXIT_FAILED, "%s: index %d at place %d is outside 0 … %d, in step %llu, %s, stage %d, microbatch %d", place->line,
                 f->value, f->position, f->rows - 1, (unsigned long long)step, place->task, place->stage, f->microbatch);
}

static pp_status look(pp_rank *rank) {
  const pp_step_state *state = rank->cuda->seen_state;
  pp_seen *seen = &rank->seen;
  if (state->fault.set) return tell_fault(rank, state);
  seen->n_skipped = state->n_skipped;
  seen->skipped_step = state->skip.step;
  seen->uncounted = state->skip.uncounted;
  seen->bad_microbatch = state->skip.microbatch;
  seen->bad_parameter = state->skip.parameter;
  seen->bad_value = state->skip.value;
  return PP_OK;
}

pp_status pp_cuda_end_step(pp_rank *rank, int sees) {
  struct pp_cuda *cuda = rank->cuda;
  int parity = parity_of(rank), launched = is_captured(rank) && cuda->graph[parity];
  if (!launched) stop(rank);
  if (!launched && is_captured(rank)) PP_TRY(capture(rank));
  if (is_captured(rank)) PP_CUDA_TRY(rank, cudaGraphLaunch(cuda->graph[parity], cuda->compute[0]));
  if (sees) PP_TRY(copy_seen(rank));
  PP_CUDA_TRY(rank, cudaEventRecord(cuda->ended[parity], cuda->compute[0]));
  pp_cuda_issues(rank, 0);
  if (pp_failing(rank)) return PP_STOPPED;
  PP_TRY(pp_cuda_trace_end(rank));
  if (!sees) return PP_OK;
  PP_TRY(pp_cuda_await(rank, cuda->ended[parity]));
  return look(rank);
}
