/* The life of a rank: find the peers, map memory, check every input, make the steps, save, report.
 * The loop walks constant tables: before each task the transfers that it needs, after it those that
 * it feeds. It allocates nothing and, but for waits, makes no system call. */
#include "internal.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A copy in each caller. */
#define PP_IN_PLACE static inline __attribute__((always_inline))

/* --- the loop ----------------------------------------------------------------------------------- */

static pp_status issue(pp_rank *rank, const pp_op *op) {
  const pp_transport *transport = rank->transport;
  rank->issued = op;
  switch ((pp_transfer_op)op->op) {
    case PP_POST_RECEIVE: transport->post_receive(rank, op->transfer); return PP_OK;
    case PP_POST_SEND: transport->post_send(rank, op->transfer); return PP_OK;
    case PP_AWAIT_RECEIVE: return transport->await_receive(rank, op->transfer);
    case PP_AWAIT_SEND: return transport->await_send(rank, op->transfer);
  }
  return pp_fail(rank, PP_EXIT_BUG, "unknown transfer operation %d", op->op);
}

/* `traced` is constant in each caller: the loop without a trace has nothing of it in it. */
PP_IN_PLACE pp_status issue_all(pp_rank *rank, const pp_op **at, unsigned n, int traced) {
  for (const pp_op *end = *at + n; *at < end; ++*at) {
    pp_check_point(rank);
    if (traced) pp_trace_op(rank, *at, 0);
    PP_TRY(issue(rank, *at));
    if (traced) pp_trace_op(rank, *at, 1);
  }
  return PP_OK;
}

/* See pp_describe_place for the packing. */
void pp_note_place(pp_rank *rank, const pp_action *a) {
  uint64_t where = ((uint64_t)(uint32_t)(a->microbatch + 1) << 32) | ((uint64_t)(a->line & 0xffff) << 16) |
                   (((uint32_t)a->task + 1) & 0xffff);
  pp_slot *slot = rank->slot;
  atomic_store_explicit(&slot->where, where, memory_order_relaxed);
  uint64_t moves = atomic_load_explicit(&slot->moves, memory_order_relaxed);
  atomic_store_explicit(&slot->moves, moves + 1, memory_order_relaxed);
}

PP_IN_PLACE pp_status run_action(pp_rank *rank, const pp_action *a, const pp_op **ops, int traced) {
  const pp_task *task = &rank->program->tasks[a->task];
  const pp_device *device = rank->program->device;
  pp_call call = {rank->at + a->args, a->microbatch, a->first, rank};
  pp_note_place(rank, a);
  if (device->enter) device->enter(rank, a);
  PP_TRY(issue_all(rank, ops, a->n_before, traced));
  if (rank->keeps && task->kind == PP_UPDATE) PP_TRY(pp_gradients_keep(rank));
  pp_check_point(rank);
  if (traced) pp_trace_action(rank, a, 0);
  device->run(rank, task, &call);
  if (traced) pp_trace_action(rank, a, 1);
  PP_TRY(issue_all(rank, ops, a->n_after, traced));
  if (device->leave) device->leave(rank, a);
  rank->transport->progress(rank);
  return pp_failing(rank) ? PP_STOPPED : PP_OK;
}

static pp_status run_plainly(pp_rank *rank) {
  const pp_program *program = rank->program;
  const pp_op *ops = program->ops;
  for (uint32_t i = 0; i < program->n_actions; i++) PP_TRY(run_action(rank, &program->actions[i], &ops, 0));
  return PP_OK;
}

static pp_status run_traced(pp_rank *rank) {
  const pp_program *program = rank->program;
  const pp_op *ops = program->ops;
  pp_trace_mark(rank, 0);
  for (uint32_t i = 0; i < program->n_actions; i++) PP_TRY(run_action(rank, &program->actions[i], &ops, 1));
  pp_trace_mark(rank, 1);
  return PP_OK;
}

pp_status pp_run_actions(pp_rank *rank) {
  pp_check_step(rank);
  PP_TRY(rank->times ? run_traced(rank) : run_plainly(rank));
  pp_check_point(rank);
  return PP_OK;
}

/* --- a step ------------------------------------------------------------------------------------- */

/* Only the rank of the loss knows it. */
static void describe_bad(const pp_rank *rank, char *out_text, size_t text_bytes) {
  const pp_seen *seen = &rank->seen;
  const pp_parameter *p = seen->bad_parameter >= 0 ? &rank->program->parameters[seen->bad_parameter] : NULL;
  double value = isnan(seen->bad_value) ? (double)NAN : seen->bad_value;
  if (seen->bad_microbatch >= 0) {
    snprintf(out_text, text_bytes, "the loss of microbatch %d is %g", seen->bad_microbatch, value);
  } else if (p) {
    snprintf(out_text, text_bytes, "the gradient of %s (stage %d) has a norm of %g", p->name, p->owner_stage, sqrt(value));
  } else {
    snprintf(out_text, text_bytes, "the gradient norm is not finite");
  }
}

/* What hasn't been told of the steps that changed nothing; the seen one is the last of `n`. */
static void tell_skips(pp_rank *rank, uint64_t n, const char *why) {
  const pp_seen *seen = &rank->seen;
  char scale[64] = "";
  if (seen->loss_scale) snprintf(scale, sizeof scale, "; the loss scale is %.9g now", seen->loss_scale[PP_LOSS_SCALE_NEXT]);
  if (n > 1) pp_warn(rank, "%llu steps since the last line changed nothing; the last of them:", (unsigned long long)n);
  if (seen->uncounted) {
    pp_warn(rank, "step %llu: no target is counted; parameters stay as they are", (unsigned long long)seen->skipped_step);
  } else {
    pp_warn(rank, "step %llu skipped: %s%s", (unsigned long long)seen->skipped_step, why, scale);
  }
}

/* Every rank sees the same control vector, so all stop or all go on; the rank of the loss says why. */
static pp_status judge(pp_rank *rank) {
  const pp_program *program = rank->program;
  const pp_seen *seen = &rank->seen;
  int tells = program->rank == program->loss_rank;
  uint64_t n = seen->n_skipped - rank->skips_told;
  char why[512] = "";
  rank->skips_told = seen->n_skipped;
  if (n == 0) return PP_OK;
  if (tells) describe_bad(rank, why, sizeof why);
  if (seen->uncounted || program->nonfinite_skip) {
    if (tells) tell_skips(rank, n, why);
    return PP_OK;
  }
  if (tells) return pp_fail(rank, PP_EXIT_FAILED, "step %llu: %s (nonfinite stop)", (unsigned long long)seen->skipped_step, why);
  return rank->transport->barrier(rank); /* until the reason is on the board */
}

/* Steps with a line in the log, and the last one. */
static int is_told(const pp_rank *rank) {
  const pp_options *options = rank->options;
  int has_line = options->json || !options->quiet;
  return (has_line && rank->step % (uint64_t)options->log_every == 0) || rank->step == (uint64_t)options->steps;
}

static pp_status make_step(pp_rank *rank) {
  const pp_program *program = rank->program;
  int told = is_told(rank), sees = told || program->device->sees_all, issued = 0;
  atomic_store_explicit(&rank->slot->step, rank->step, memory_order_relaxed);
  rank->keeps = rank->kept && rank->step == (uint64_t)rank->options->steps;
  pp_trace_step(rank);
  PP_TRY(program->device->begin_step(rank, &issued));
  if (!issued) PP_TRY(pp_run_actions(rank));
  PP_TRY(program->device->end_step(rank, sees));
  atomic_store_explicit(&rank->slot->where, 0, memory_order_relaxed);
  if (sees) PP_TRY(judge(rank));
  rank->samples += (uint64_t)program->n_microbatches * (uint64_t)program->microbatch;
  rank->steps_done++;
  if (told && program->rank == program->loss_rank) pp_log_step(rank, rank->steps_done);
  return PP_OK;
}

static pp_status train(pp_rank *rank) {
  for (int64_t i = 1; i <= rank->options->steps; i++) {
    rank->step = (uint64_t)i;
    PP_TRY(make_step(rank));
  }
  return PP_OK;
}

/* --- before and after ----------------------------------------------------------------------------- */

static void note_peak_rss(pp_rank *rank) {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) == 0) atomic_store(&rank->slot->peak_rss_bytes, (uint64_t)usage.ru_maxrss * 1024);
}

static pp_status finish(pp_rank *rank) {
  const pp_options *options = rank->options;
  if (options->save) PP_TRY(pp_parameters_save(rank, options->save));
  if (options->save_gradients && rank->steps_done > 0) PP_TRY(pp_gradients_save(rank, options->save_gradients));
  PP_TRY(pp_trace_write(rank));
  if (options->json) PP_TRY(pp_hashes(rank));
  note_peak_rss(rank);
  PP_TRY(rank->transport->barrier(rank));
  if (rank->program->rank == rank->program->loss_rank) pp_log_done(rank);
  return PP_OK;
}

/* A rank spins for about as long as a futex takes, when each rank can have cores of its own; else a
 * spinning rank takes the core of the one that it waits for. */
static void choose_spins(pp_rank *rank) {
  cpu_set_t cpus;
  int n_cpus = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
  rank->spins = rank->program->n_ranks * rank->options->threads <= n_cpus ? 200 : 50;
}

/* A launcher that starts each rank by its own command can give them different options. */
static pp_status check_options(pp_rank *rank) {
  const pp_device *device = rank->program->device;
  pp_options_publish(rank->options, rank->program, rank->slot->options);
  if (device->describe) PP_TRY(device->describe(rank, &rank->slot->device_digest, &rank->slot->library_bytes));
  PP_TRY(rank->transport->barrier(rank));
  for (int r = 1; r < rank->program->n_ranks; r++) {
    const char *name = pp_options_differ(rank->slots[0].options, rank->slots[r].options);
    if (name) return pp_fail(rank, PP_EXIT_USAGE, "ranks 0 and %d were started with different %s", r, name);
    if (rank->slots[0].device_digest == rank->slots[r].device_digest) continue;
    return pp_fail(rank, PP_EXIT_INPUT, "ranks 0 and %d would take different algorithms for products: their GPUs or libraries differ", r);
  }
  return PP_OK;
}

/* The transport takes memory of the device too. */
static pp_status start_transport(pp_rank *rank) {
  const pp_device *device = rank->program->device;
  if (!rank->transport->start) return PP_OK;
  PP_TRY(rank->transport->start(rank));
  return device->describe ? device->describe(rank, &rank->slot->device_digest, &rank->slot->library_bytes) : PP_OK;
}

/* A driver may never come back. */
static pp_status create_device(pp_rank *rank) {
  pp_limit(rank, rank->options->start_timeout_s, "--start-timeout", "its own device, with its libraries");
  pp_status status = pp_memory_create(rank);
  pp_limit_end(rank);
  return status;
}

static pp_status prepare(pp_rank *rank, void *segment) {
  choose_spins(rank);
  PP_TRY(rank->transport->connect(rank, segment));
  PP_TRY(pp_watch_start(rank));
  PP_TRY(create_device(rank));
  pp_check_start(rank);
  PP_TRY(check_options(rank));
  PP_TRY(start_transport(rank));
  PP_TRY(pp_data_open(rank));
  PP_TRY(pp_save_check(rank));
  PP_TRY(pp_parameters_start(rank));
  PP_TRY(pp_trace_create(rank));
  PP_TRY(pp_log_create(rank));
  PP_TRY(rank->transport->barrier(rank)); /* every input of every rank is fine */
  atomic_store(&rank->slot->state, PP_STATE_RUNNING);
  return PP_OK;
}

static pp_status live(pp_rank *rank, void *segment) {
  PP_TRY(prepare(rank, segment));
  if (rank->program->generate) return pp_generate(rank);
  PP_TRY(train(rank));
  return finish(rank);
}

/* It may take calls that wait for the peers to do the same. */
static void stop_transport(pp_rank *rank) {
  if (!rank->transport->stop) return;
  pp_limit(rank, rank->options->timeout_s, "--timeout", "all ranks to end their transfers");
  rank->transport->stop(rank);
  pp_limit_end(rank);
}

/* The watchdog goes late: when the job has failed it ends a process whose device does not come to rest. */
static void rank_destroy(pp_rank *rank) {
  pp_log_destroy(rank);
  if (rank->slot) atomic_store(&rank->slot->state, PP_STATE_FINISHED);
  pp_data_close(rank);
  pp_tensors_close(rank->init);
  free(rank->kept);
  pp_trace_destroy(rank);
  pp_check_end(rank);
  stop_transport(rank);
  pp_memory_destroy(rank);
  pp_watch_stop(rank);
  rank->transport->disconnect(rank);
}

int pp_rank_run(const pp_program *program, const pp_options *options, const pp_transport *transport, const pp_job *launch,
                void *segment) {
  pp_rank *rank = calloc(1, sizeof *rank);
  if (!rank) return PP_EXIT_FAILED;
  rank->program = program;
  rank->options = options;
  rank->transport = transport;
  rank->launch = *launch;
  rank->failure = &rank->early_failure;
  rank->wake_fd = -1;
  rank->in_threads = segment != NULL;
  pp_status status = live(rank, segment);
  int exit_status = status == PP_OK ? PP_EXIT_FINE : pp_exit_status(rank);
  if (status == PP_OK && rank->log.failed) exit_status = PP_EXIT_FAILED;
  if (exit_status != PP_EXIT_FINE) pp_repeat_failure(rank);
  rank_destroy(rank);
  if (exit_status == PP_EXIT_FINE) exit_status = pp_exit_status(rank); /* what could not be given back */
  free(rank);
  return exit_status;
}

/* --- the way in ----------------------------------------------------------------------------------- */

/* Else the shared memory would get the number of a closed output, and the log's lines. */
static void open_standard_files(void) {
  for (int fd = 0; fd <= 2; fd++) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) _exit(PP_EXIT_FAILED);
  }
}

static const char *get_variable(const char *name, void *context) {
  (void)context;
  return getenv(name);
}

static int run_here(const pp_program *program, const pp_options *options) {
  pp_job launch = {0};
  char text[2048];
  const pp_transport *transport = pp_transport_choose(program->device, options->transport, program->n_ranks);
  if (!transport) {
    if (pp_options_are_told(program))
      fprintf(stderr, "ppc: no transport %s for %d ranks\n", options->transport ? options->transport : "", program->n_ranks);
    return PP_EXIT_USAGE;
  }
  if (!pp_launch_find(&launch, program, options->job, get_variable, NULL, text, sizeof text)) {
    fprintf(stderr, "ppc: %s\n", text);
    return PP_EXIT_INPUT;
  }
  pp_signals_install();
  return pp_rank_run(program, options, transport, &launch, NULL);
}

int pp_main(const pp_program *program, int argc, char **argv) {
  pp_options options;
  open_standard_files();
  if (program->abi_version != PP_ABI_VERSION) {
    fprintf(stderr, "ppc: this program was emitted for version %d of the runtime; this is version %d\n",
            program->abi_version, PP_ABI_VERSION);
    return PP_EXIT_BUG;
  }
  int status = pp_options_parse(&options, program, argc, argv);
  if (status < 0) status = run_here(program, &options);
  pp_options_destroy(&options);
  return status;
}

/* --- what tasks call ------------------------------------------------------------------------------ */

void pp_loss_store(const pp_call *call, double loss, double count) {
  const pp_rank *rank = call->rank;
  double *losses = pp_address(rank, rank->program->losses), *counts = pp_address(rank, rank->program->counts);
  losses[call->microbatch] = loss;
  counts[call->microbatch] = count;
}

void pp_output_store(const pp_call *call, int output, const double *values, int64_t n) {
  const pp_rank *rank = call->rank;
  double *slot = pp_address(rank, rank->program->output_slots[output]);
  memcpy(slot + call->microbatch * n, values, (size_t)n * sizeof *values);
}

/* There is no way to hand a status back through a task, and it must not go on to read outside the
 * table: the process ends here. */
void pp_check_indices(const pp_call *call, const int32_t *index, int64_t n, int64_t rows, const char *place) {
  int64_t bad = 0;
  for (int64_t i = 0; i < n; i++) bad += index[i] < 0 || index[i] >= rows;
  if (!bad) return;
  int64_t i = 0;
  while (index[i] >= 0 && index[i] < rows) i++;
  char where[512];
  pp_describe_place(call->rank->slot, where, sizeof where);
  pp_fail(call->rank, PP_EXIT_FAILED, "%s: index %d at place %lld is outside 0 … %lld, in %s", place, index[i], (long long)i,
          (long long)rows - 1, where);
  pp_leave(call->rank);
}

void pp_random_uniform(const pp_call *call, uint64_t key, float *dst, int64_t n) {
  const pp_rank *rank = call->rank;
  pp_random_fill_uniform(rank->options->seed, rank->step, (uint32_t)call->microbatch, key, dst, n);
}
