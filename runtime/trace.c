/* --trace=FILE: what each rank did when, as Chrome-trace JSON for Perfetto and for ppc simulate.
 * The tables of a rank say how many times a step has: two per action, two per transfer operation, three
 * per transfer. Room for all traced steps is mapped and touched before step 1; the traced loop only
 * stores clock readings there (CLOCK_MONOTONIC, one clock for all ranks of a host). The text is made after the
 * last step, a megabyte at a time, and goes to rank 0, which writes the file. A job that fails writes none. */
#include "internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { EVENT_BYTES = 2048, TRACED_STEPS = 10 };
/* About what the events of an action and of an operation take in the file. */
enum { ACTION_TEXT_BYTES = 190, OP_TEXT_BYTES = 260 };

struct pp_trace {
  uint64_t first, last;   /* steps that are traced */
  uint64_t *times;        /* [last - first + 1][row_words] */
  size_t row_words;
  pp_file file;           /* on rank 0 */
  char *text;             /* under construction, PP_CHUNK_BYTES */
  size_t used;
};

/* --- a row: the times of one step --------------------------------------------------------------- */

static uint64_t *action_times(uint64_t *row, uint32_t action) { return row + 2 + 2 * (size_t)action; }

static uint64_t *op_times(const pp_program *program, uint64_t *row, uint32_t op) {
  return row + 2 + 2 * (size_t)program->n_actions + 2 * (size_t)op;
}

/* Sent, copied from, copied to. */
static uint64_t *copy_times(const pp_program *program, uint64_t *row, uint32_t transfer) {
  return row + 2 + 2 * (size_t)program->n_actions + 2 * (size_t)program->n_ops + 3 * (size_t)transfer;
}

static size_t row_words(const pp_program *program) {
  return 2 + 2 * (size_t)program->n_actions + 2 * (size_t)program->n_ops + 3 * (size_t)program->n_transfers;
}

void pp_trace_step(pp_rank *rank) {
  const pp_trace *trace = rank->trace;
  int traced = trace && rank->step >= trace->first && rank->step <= trace->last;
  rank->times = traced ? trace->times + (rank->step - trace->first) * trace->row_words : NULL;
}

static void stamp(pp_rank *rank, uint64_t *at) {
  if (rank->program->device->stamp) rank->program->device->stamp(rank, at, 0);
  else *at = pp_now_ns();
}

void pp_trace_mark(pp_rank *rank, int end) { stamp(rank, &rank->times[end]); }

void pp_trace_action(pp_rank *rank, const pp_action *action, int end) {
  stamp(rank, &action_times(rank->times, (uint32_t)(action - rank->program->actions))[end]);
}

/* What is sent is stamped for its receiver, which reads the stamp after it has seen that the bytes are ready. */
void pp_trace_op(pp_rank *rank, const pp_op *op, int end) {
  const pp_program *program = rank->program;
  uint64_t *at = &op_times(program, rank->times, (uint32_t)(op - program->ops))[end];
  stamp(rank, at);
  if (program->device->stamp || op->op != PP_POST_SEND || end) return;
  atomic_store_explicit(&rank->flags[program->transfers[op->transfer].id].sent_ns, *at, memory_order_relaxed);
}

static uint64_t sent_ns(pp_rank *rank, uint32_t transfer) {
  return atomic_load_explicit(&rank->flags[rank->program->transfers[transfer].id].sent_ns, memory_order_relaxed);
}

void pp_trace_copy(pp_rank *rank, uint32_t transfer, int end) {
  uint64_t *times = copy_times(rank->program, rank->times, transfer);
  if (rank->program->device->stamp) {
    rank->program->device->stamp(rank, &times[1 + end], 1);
    return;
  }
  times[0] = sent_ns(rank, transfer);
  times[1 + end] = pp_now_ns();
}

/* A rank stores the stamps of the next step when all have made it, and so read those of this one. */
pp_status pp_trace_exchange(pp_rank *rank) {
  const pp_program *program = rank->program;
  for (uint32_t i = 0; i < program->n_transfers; i++) {
    const pp_transfer *t = &program->transfers[i];
    if (t->is_send) atomic_store_explicit(&rank->flags[t->id].sent_ns, copy_times(program, rank->times, i)[1], memory_order_relaxed);
  }
  PP_TRY(rank->transport->barrier(rank));
  for (uint32_t i = 0; i < program->n_transfers; i++)
    if (!program->transfers[i].is_send) copy_times(program, rank->times, i)[0] = sent_ns(rank, i);
  return PP_OK;
}

/* --- before step 1 --------------------------------------------------------------------------------- */

static uint64_t n_steps(const pp_trace *trace) { return trace->last - trace->first + 1; }

/* A full disk is found out before the work is done. Ranks are about alike. */
static pp_status check_space(pp_rank *rank, const char *path) {
  const pp_program *program = rank->program;
  struct statvfs fs;
  char *directory = pp_file_directory(path);
  int known = directory && statvfs(directory, &fs) == 0;
  free(directory);
  uint64_t step = (uint64_t)program->n_actions * ACTION_TEXT_BYTES + (uint64_t)program->n_ops * OP_TEXT_BYTES;
  uint64_t needed = step * (uint64_t)program->n_ranks * n_steps(rank->trace);
  uint64_t available = known ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
  if (needed <= available) return PP_OK;
  return pp_fail(rank, PP_EXIT_INPUT, "--trace=%s: needs about %llu bytes there, %llu are free (--trace-steps=A:B traces fewer steps)",
                 path, (unsigned long long)needed, (unsigned long long)available);
}

/* Touching more than there is would end some process, maybe not this one: what all ranks take is held
 * against half of the machine's memory. */
static int is_too_large(const pp_rank *rank, size_t row_bytes) {
  uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES), page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
  uint64_t room = pages * page_bytes / 2 / (uint64_t)rank->program->n_ranks;
  return n_steps(rank->trace) > room / row_bytes;
}

static pp_status reserve(pp_rank *rank, pp_trace *trace) {
  size_t row_bytes = trace->row_words * sizeof *trace->times;
  void *times = MAP_FAILED;
  errno = ENOMEM;
  if (!is_too_large(rank, row_bytes)) {
    times = mmap(NULL, row_bytes * n_steps(trace), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  }
  if (times == MAP_FAILED) {
    return pp_fail(rank, PP_EXIT_INPUT, "--trace: no room for %llu steps of %zu bytes: %s (--trace-steps=A:B traces fewer)",
                   (unsigned long long)n_steps(trace), row_bytes, strerror(errno));
  }
  trace->times = times;
  trace->text = malloc(PP_CHUNK_BYTES);
  return trace->text ? PP_OK : pp_fail(rank, PP_EXIT_FAILED, "out of memory");
}

static void choose_steps(const pp_options *options, pp_trace *trace) {
  uint64_t steps = (uint64_t)options->steps;
  trace->first = steps > TRACED_STEPS ? steps - TRACED_STEPS + 1 : 1;
  trace->last = steps;
  if (!options->trace_steps.first) return;
  trace->first = (uint64_t)options->trace_steps.first;
  if ((uint64_t)options->trace_steps.last < steps) trace->last = (uint64_t)options->trace_steps.last;
}

/* What one option alone can't tell. All ranks have the same, so one of them speaks. */
static pp_status check_options(pp_rank *rank) {
  const pp_options *options = rank->options;
  const char *what = NULL;
  if (options->trace_steps.first && !options->trace) what = "--trace-steps needs --trace=FILE";
  else if (options->trace && options->steps < 1) what = "--trace: no step is made";
  else if (options->trace && options->graph) what = "--graph and --trace: the actions of a captured step have no times";
  else if (options->trace_steps.first > options->steps) what = "--trace-steps: the run ends before these steps";
  return what ? pp_fail(rank, PP_EXIT_USAGE, "%s", what) : PP_OK;
}

pp_status pp_trace_create(pp_rank *rank) {
  const char *path = rank->options->trace;
  PP_TRY(check_options(rank));
  if (!path) return PP_OK;
  rank->trace = calloc(1, sizeof *rank->trace);
  if (!rank->trace) return pp_fail(rank, PP_EXIT_FAILED, "out of memory");
  choose_steps(rank->options, rank->trace);
  rank->trace->row_words = row_words(rank->program);
  if (rank->program->rank == 0) PP_TRY(pp_file_check(rank, "--trace", path));
  PP_TRY(reserve(rank, rank->trace));
  if (rank->program->rank == 0) PP_TRY(check_space(rank, path));
  if (rank->program->rank == 0) atomic_store(&rank->board->trace_start_ns, pp_now_ns()); /* a barrier follows */
  return PP_OK;
}

void pp_trace_destroy(pp_rank *rank) {
  pp_trace *trace = rank->trace;
  if (!trace) return;
  if (trace->times) munmap(trace->times, trace->row_words * sizeof *trace->times * n_steps(trace));
  free(trace->text);
  free(trace);
  rank->trace = NULL;
}

/* --- text ------------------------------------------------------------------------------------------ */

static void add(pp_trace *trace, const char *format, ...) PP_PRINTF(2, 3);
static void add(pp_trace *trace, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(trace->text + trace->used, PP_CHUNK_BYTES - trace->used, format, arguments);
  va_end(arguments);
  if (n > 0) trace->used += (size_t)n;
  if (trace->used >= PP_CHUNK_BYTES) trace->used = PP_CHUNK_BYTES - 1;
}

/* Bytes of the character at `at` in UTF-8; 0: it is none, for names of files may be any bytes. */
static size_t character_bytes(const unsigned char *at) {
  size_t n = *at < 0x80 ? 1 : *at >= 0xc2 && *at < 0xe0 ? 2 : *at >= 0xe0 && *at < 0xf0 ? 3 : *at >= 0xf0 && *at < 0xf5 ? 4 : 0;
  for (size_t i = 1; i < n; i++)
    if ((at[i] & 0xc0) != 0x80) return 0;
  int too_long = (*at == 0xe0 && at[1] < 0xa0) || (*at == 0xf0 && at[1] < 0x90);
  int no_character = (*at == 0xed && at[1] >= 0xa0) || (*at == 0xf4 && at[1] >= 0x90);
  return too_long || no_character ? 0 : n;
}

/* Quoted, at most `limit` bytes of it. */
static void add_text(pp_trace *trace, const char *text, size_t limit) {
  add(trace, "\"");
  for (size_t n; *text; text += n ? n : 1) {
    n = character_bytes((const unsigned char *)text);
    if ((n ? n : 1) > limit) break;
    limit -= n ? n : 1;
    if (n == 0) add(trace, "?");
    else if (*text == '"' || *text == '\\') add(trace, "\\%c", *text);
    else if ((unsigned char)*text < 0x20) add(trace, "\\u%04x", *text);
    else add(trace, "%.*s", (int)n, text);
  }
  add(trace, "\"");
}

/* Names beyond what an event has room for are cut. */
static void add_name(pp_trace *trace, const char *name) { add_text(trace, name, EVENT_BYTES / 16); }

/* Microseconds since the start of the job's trace, to the nanosecond. */
static void add_time(const pp_rank *rank, const char *key, uint64_t ns) {
  uint64_t start_ns = atomic_load(&rank->board->trace_start_ns), since = ns > start_ns ? ns - start_ns : 0;
  add(rank->trace, ",\"%s\":%llu.%03u", key, (unsigned long long)(since / 1000), (unsigned)(since % 1000));
}

static void add_duration(const pp_rank *rank, const char *key, uint64_t from_ns, uint64_t to_ns) {
  uint64_t ns = to_ns > from_ns ? to_ns - from_ns : 0;
  add(rank->trace, ",\"%s\":%llu.%03u", key, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

/* Rank 0 writes its own text at once; the others hand theirs over, each time with its length. */
static pp_status flush(pp_rank *rank) {
  pp_trace *trace = rank->trace;
  uint64_t n = trace->used;
  trace->used = 0;
  if (rank->program->rank == 0) return pp_file_write(rank, &trace->file, trace->text, n);
  PP_TRY(rank->transport->give(rank, &n, sizeof n));
  return n ? rank->transport->give(rank, trace->text, n) : PP_OK;
}

static pp_status start_event(pp_rank *rank) {
  pp_trace *trace = rank->trace;
  if (trace->used + EVENT_BYTES > PP_CHUNK_BYTES) PP_TRY(flush(rank));
  add(trace, ",\n");
  return PP_OK;
}

/* --- events ---------------------------------------------------------------------------------------- */

enum { TASK_TRACK, STEP_TRACK, SECOND_TRACK };

/* What runs on the second stream of a device lies over what runs on the first. */
static int track_of(const pp_program *program, uint32_t action) {
  return program->n_streams > 1 && program->actions[action].streams & PP_ON_SECOND ? SECOND_TRACK : TASK_TRACK;
}

static pp_status put_names(pp_rank *rank) {
  pp_trace *trace = rank->trace;
  int r = rank->program->rank;
  PP_TRY(start_event(rank));
  add(trace, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}},\n", r, r);
  add(trace, "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"args\":{\"sort_index\":%d}},\n", r, r);
  add(trace, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"tasks and waits\"}},\n", r, TASK_TRACK);
  if (rank->program->n_streams > 1)
    add(trace, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"those of the second stream\"}},\n", r, SECOND_TRACK);
  add(trace, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"steps\"}}", r, STEP_TRACK);
  return PP_OK;
}

static pp_status put_step(pp_rank *rank, uint64_t step, const uint64_t *row) {
  pp_trace *trace = rank->trace;
  PP_TRY(start_event(rank));
  add(trace, "{\"ph\":\"X\",\"cat\":\"step\",\"name\":\"step %llu\",\"pid\":%d,\"tid\":%d", (unsigned long long)step, rank->program->rank,
      STEP_TRACK);
  add_time(rank, "ts", row[0]);
  add_duration(rank, "dur", row[0], row[1]);
  add(trace, ",\"args\":{\"step\":%llu}}", (unsigned long long)step);
  return PP_OK;
}

static pp_status put_task(pp_rank *rank, uint64_t step, uint64_t *row, uint32_t action) {
  pp_trace *trace = rank->trace;
  const pp_program *program = rank->program;
  const pp_action *a = &program->actions[action];
  const pp_task *task = &program->tasks[a->task];
  const uint64_t *times = action_times(row, action);
  PP_TRY(start_event(rank));
  add(trace, "{\"ph\":\"X\",\"cat\":\"task\",\"name\":");
  add_name(trace, task->name);
  add(trace, ",\"pid\":%d,\"tid\":%d", program->rank, track_of(program, action));
  add_time(rank, "ts", times[0]);
  add_duration(rank, "dur", times[0], times[1]);
  add(trace, ",\"args\":{\"kind\":\"%s\",\"stage\":%d,\"microbatch\":%d,\"step\":%llu,\"action\":%u,\"line\":", pp_task_kind_name((pp_task_kind)task->kind),
      task->stage, a->microbatch, (unsigned long long)step, action);
  add_name(trace, program->lines[a->line]);
  add(trace, "}}");
  return PP_OK;
}

/* One number for a transfer of a step, the same on both its ranks. */
static uint64_t flow_id(const pp_program *program, uint64_t step, const pp_transfer *t) {
  return step * program->n_transfers_job + t->id;
}

/* An arrow's end lies inside the task that it belongs to. */
static pp_status put_flow(pp_rank *rank, uint64_t step, const pp_transfer *t, uint64_t ns) {
  pp_trace *trace = rank->trace;
  PP_TRY(start_event(rank));
  add(trace, "{\"ph\":\"%s\",\"cat\":\"flow\",\"name\":\"transfer\",\"id\":%llu,\"pid\":%d,\"tid\":%d", t->is_send ? "s" : "f",
      (unsigned long long)flow_id(rank->program, step, t), rank->program->rank, TASK_TRACK);
  add_time(rank, "ts", ns);
  add(trace, "%s}", t->is_send ? "" : ",\"bp\":\"e\"");
  return PP_OK;
}

static pp_status put_wait(pp_rank *rank, uint64_t step, uint64_t *row, uint32_t action, uint32_t op) {
  pp_trace *trace = rank->trace;
  const pp_program *program = rank->program;
  const pp_transfer *t = &program->transfers[program->ops[op].transfer];
  const uint64_t *times = op_times(program, row, op);
  PP_TRY(start_event(rank));
  add(trace, "{\"ph\":\"X\",\"cat\":\"wait\",\"name\":\"wait %s rank %d\",\"pid\":%d,\"tid\":%d", t->is_send ? "until taken by" : "for",
      t->peer, program->rank, track_of(program, action));
  add_time(rank, "ts", times[0]);
  add_duration(rank, "dur", times[0], times[1]);
  add(trace, ",\"args\":{\"why\":\"%s\",\"transfer\":", t->is_send ? "send" : "receive");
  add_name(trace, program->values[t->value]);
  add(trace, ",\"id\":%u,\"microbatch\":%d,\"peer\":%d,\"step\":%llu,\"action\":%u}}", t->id, t->microbatch, t->peer,
      (unsigned long long)step, action);
  return PP_OK;
}

/* From the sender's post to the receiver's last byte; told by the receiver, which knows both. Transfers lie over
 * one another, so they are a pair of asynchronous events. */
static pp_status put_transfer(pp_rank *rank, uint64_t step, uint64_t *row, uint32_t transfer) {
  pp_trace *trace = rank->trace;
  const pp_program *program = rank->program;
  const pp_transfer *t = &program->transfers[transfer];
  const uint64_t *times = copy_times(program, row, transfer);
  unsigned long long id = flow_id(program, step, t);
  PP_TRY(start_event(rank));
  add(trace, "{\"ph\":\"b\",\"cat\":\"transfer\",\"name\":\"from rank %d\",\"id\":%llu,\"pid\":%d,\"tid\":%d", t->peer, id, program->rank,
      TASK_TRACK);
  add_time(rank, "ts", times[0]);
  add(trace, ",\"args\":{\"value\":");
  add_name(trace, program->values[t->value]);
  add(trace, ",\"id\":%u,\"microbatch\":%d,\"from\":%d,\"to\":%d,\"bytes\":%llu,\"step\":%llu}}", t->id, t->microbatch, t->peer,
      program->rank, (unsigned long long)t->size_bytes, (unsigned long long)step);
  PP_TRY(start_event(rank));
  add(trace, "{\"ph\":\"e\",\"cat\":\"transfer\",\"name\":\"from rank %d\",\"id\":%llu,\"pid\":%d,\"tid\":%d", t->peer, id, program->rank,
      TASK_TRACK);
  add_time(rank, "ts", times[2]);
  add(trace, ",\"args\":{\"step\":%llu", (unsigned long long)step);
  add_duration(rank, "copy_us", times[1], times[2]);
  add(trace, "}}");
  return PP_OK;
}

/* Where the arrow of a post begins: in the task before it. */
static uint64_t made_ns(uint64_t *row, uint32_t action, int after) {
  const uint64_t *times = action_times(row, after || action == 0 ? action : action - 1);
  return times[1] > times[0] ? times[1] - 1 : times[0];
}

static pp_status put_op(pp_rank *rank, uint64_t step, uint64_t *row, uint32_t action, uint32_t op, int after) {
  const pp_program *program = rank->program;
  const pp_transfer *t = &program->transfers[program->ops[op].transfer];
  switch ((pp_transfer_op)program->ops[op].op) {
    case PP_POST_RECEIVE: return PP_OK;
    case PP_POST_SEND: return put_flow(rank, step, t, made_ns(row, action, after));
    case PP_AWAIT_SEND: return put_wait(rank, step, row, action, op);
    case PP_AWAIT_RECEIVE:
      PP_TRY(put_wait(rank, step, row, action, op));
      PP_TRY(put_transfer(rank, step, row, program->ops[op].transfer));
      return put_flow(rank, step, t, after ? op_times(program, row, op)[0] : action_times(row, action)[0]);
  }
  return PP_OK;
}

static pp_status put_actions(pp_rank *rank, uint64_t step, uint64_t *row) {
  const pp_program *program = rank->program;
  uint32_t op = 0;
  for (uint32_t i = 0; i < program->n_actions; i++) {
    const pp_action *a = &program->actions[i];
    for (unsigned k = 0; k < a->n_before; k++) PP_TRY(put_op(rank, step, row, i, op++, 0));
    PP_TRY(put_task(rank, step, row, i));
    for (unsigned k = 0; k < a->n_after; k++) PP_TRY(put_op(rank, step, row, i, op++, 1));
  }
  return PP_OK;
}

static pp_status put_rank(pp_rank *rank) {
  pp_trace *trace = rank->trace;
  PP_TRY(put_names(rank));
  for (uint64_t step = trace->first; step <= trace->last; step++) {
    uint64_t *row = trace->times + (step - trace->first) * trace->row_words;
    PP_TRY(put_step(rank, step, row));
    PP_TRY(put_actions(rank, step, row));
  }
  return PP_OK;
}

/* --- the file -------------------------------------------------------------------------------------- */

static void add_head(pp_rank *rank) {
  pp_trace *trace = rank->trace;
  const pp_program *program = rank->program;
  add(trace, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"writer\":\"ppc\",\"model\":");
  add_text(trace, program->model, SIZE_MAX);
  add(trace, ",\"plan\":\"%016llx\",\"ranks\":%d,\"stages\":%d,\"microbatches\":%d,\"microbatch\":%d,\"first_step\":%llu,\"last_step\":%llu},\n",
      (unsigned long long)program->plan_hash, program->n_ranks, program->n_stages, program->n_microbatches, program->microbatch,
      (unsigned long long)trace->first, (unsigned long long)trace->last);
  add(trace, "\"traceEvents\":[\n{\"ph\":\"M\",\"name\":\"trace\",\"pid\":0,\"args\":{}}");
}

static pp_status copy_from(pp_rank *rank, int from) {
  pp_trace *trace = rank->trace;
  for (;;) {
    uint64_t n = 0;
    PP_TRY(rank->transport->take(rank, from, &n, sizeof n));
    if (n == 0) return PP_OK;
    PP_TRY(rank->transport->take(rank, from, trace->text, n));
    PP_TRY(pp_file_write(rank, &trace->file, trace->text, n));
  }
}

static pp_status write_all(pp_rank *rank) {
  static const char tail[] = "\n]}\n";
  pp_trace *trace = rank->trace;
  PP_TRY(pp_file_open(rank, &trace->file, rank->options->trace));
  add_head(rank);
  PP_TRY(put_rank(rank));
  PP_TRY(flush(rank));
  for (int r = 1; r < rank->program->n_ranks; r++) PP_TRY(copy_from(rank, r));
  PP_TRY(pp_file_write(rank, &trace->file, tail, sizeof tail - 1));
  return pp_file_publish(rank, &trace->file);
}

static pp_status give_all(pp_rank *rank) {
  PP_TRY(put_rank(rank));
  if (rank->trace->used) PP_TRY(flush(rank));
  return flush(rank); /* nothing: the end */
}

pp_status pp_trace_write(pp_rank *rank) {
  pp_trace *trace = rank->trace;
  if (!trace) return PP_OK;
  pp_status status = rank->program->rank == 0 ? write_all(rank) : give_all(rank);
  if (rank->program->rank == 0) pp_file_destroy(rank, &trace->file);
  PP_TRY(status);
  return rank->transport->barrier(rank); /* nobody goes on before the file is there */
}
