/* Reads the Chrome-trace JSON of runtime/trace.c. In: the file's bytes, which may be anything. Out: its tasks,
 * waits and transfers, checked: what the head promises is there, once, in numbers that can be. Then the costs of
 * (stage, kind) for the simulator, and the step with the median time as a timeline. Only ppc's own traces are
 * read; a trace of something else is refused by name. */
#include "compiler/trace_read.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/vec.h"

enum { MAX_RANKS = 1 << 16, MAX_STAGES = 1 << 20, MAX_MICROBATCHES = 1 << 24 };

typedef struct {
  int rank, stage, microbatch, action;
  int64_t step;
  pp_task_kind kind;
  double start, end;
  int track;         /* as in the file: on a device with two streams those of the second have their own */
  const char *line;
} Task;

enum { N_TRACKS = 3 };

typedef struct {
  int from, to, microbatch;
  int action;        /* of the wait for it, -1 */
  int64_t id, step, bytes, flow;
  const char *value;
  double sent, arrived, copy;
  double wait_start, wait_end;
} Move;

typedef struct {
  int rank, action;
  int64_t id, step;
  double start, end;
} Wait;

struct Trace {
  const char *model;
  int n_ranks, n_stages, n_microbatches, microbatch;
  int64_t first_step, last_step;
  VEC(Task) tasks;   /* by step, rank, action */
  VEC(Move) moves;   /* by step, id */
  VEC(Wait) waits;   /* of receives; by step, id */
  int *first_task;   /* [steps * n_ranks + 1] */
  int typical;       /* index of the step with the median time */
  bool *usual;       /* [steps] its time is in the middle half */
  double step_time;
  TraceSkew skew;
};

typedef struct {
  Arena *arena;
  const char *name;
  Trace *trace;
  Str *error;
} Reader;

static bool fail(Reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(Reader *r, const char *format, ...) {
  va_list args;
  str_clear(r->error);
  str_printf(r->error, "%s: ", r->name);
  va_start(args, format);
  str_vprintf(r->error, format, args);
  va_end(args);
  return false;
}

/* --- fields ------------------------------------------------------------------------------------------- */

static bool get_int(Reader *r, const json_t *object, const char *key, int64_t min, int64_t max, int64_t *out_value) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_integer(value)) return fail(r, "'%s' is missing or no whole number", key);
  *out_value = json_integer_value(value);
  if (*out_value >= min && *out_value <= max) return true;
  return fail(r, "'%s' is %lld, not between %lld and %lld", key, (long long)*out_value, (long long)min, (long long)max);
}

static bool get_small(Reader *r, const json_t *object, const char *key, int min, int max, int *out_value) {
  int64_t value = 0;
  bool fine = get_int(r, object, key, min, max, &value);
  *out_value = (int)value;
  return fine;
}

static bool get_text(Reader *r, const json_t *object, const char *key, const char **out_text) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_string(value)) return fail(r, "'%s' is missing or no text", key);
  *out_text = arena_strdup(r->arena, json_string_value(value));
  return true;
}

/* Microseconds in the file, seconds here. */
static bool get_time(Reader *r, const json_t *object, const char *key, double *out_seconds) {
  const json_t *value = json_object_get(object, key);
  double us = json_number_value(value);
  if (!json_is_number(value) || !isfinite(us) || us < 0) return fail(r, "'%s' is missing or no time", key);
  *out_seconds = us * 1e-6;
  return true;
}

static bool get_span(Reader *r, const json_t *event, double *out_start, double *out_end) {
  double duration = 0;
  if (!get_time(r, event, "ts", out_start) || !get_time(r, event, "dur", &duration)) return false;
  *out_end = *out_start + duration;
  return true;
}

static bool get_step(Reader *r, const json_t *args, int64_t *out_step) {
  return get_int(r, args, "step", r->trace->first_step, r->trace->last_step, out_step);
}

static bool get_kind(Reader *r, const json_t *args, pp_task_kind *out_kind) {
  const char *text = NULL;
  if (!get_text(r, args, "kind", &text)) return false;
  for (int k = 0; k < PP_TASK_KIND_COUNT; k++) {
    *out_kind = (pp_task_kind)k;
    if (strcmp(text, pp_task_kind_name(*out_kind)) == 0) return true;
  }
  return fail(r, "'%s' is no kind of task", text);
}

/* --- events ------------------------------------------------------------------------------------------- */

static bool read_task(Reader *r, const json_t *event, const json_t *args) {
  const Trace *t = r->trace;
  Task task = {0};
  bool fine = get_small(r, event, "pid", 0, t->n_ranks - 1, &task.rank) && get_span(r, event, &task.start, &task.end) &&
              get_kind(r, args, &task.kind) && get_small(r, args, "stage", -1, t->n_stages - 1, &task.stage) &&
              get_small(r, args, "microbatch", -1, t->n_microbatches - 1, &task.microbatch) && get_step(r, args, &task.step) &&
              get_small(r, args, "action", 0, INT32_MAX, &task.action) && get_text(r, args, "line", &task.line);
  if (fine && json_object_get(event, "tid")) fine = get_small(r, event, "tid", 0, N_TRACKS - 1, &task.track);
  if (fine) VEC_PUSH(r->arena, &r->trace->tasks, task);
  return fine;
}

static bool read_wait(Reader *r, const json_t *event, const json_t *args) {
  const Trace *t = r->trace;
  Wait wait = {0};
  const char *why = NULL;
  if (!get_text(r, args, "why", &why)) return false;
  if (strcmp(why, "receive") != 0) return true;
  bool fine = get_small(r, event, "pid", 0, t->n_ranks - 1, &wait.rank) && get_span(r, event, &wait.start, &wait.end) &&
              get_small(r, args, "action", 0, INT32_MAX, &wait.action) && get_int(r, args, "id", 0, UINT32_MAX, &wait.id) &&
              get_step(r, args, &wait.step);
  if (fine) VEC_PUSH(r->arena, &r->trace->waits, wait);
  return fine;
}

static bool read_send(Reader *r, const json_t *event, const json_t *args) {
  const Trace *t = r->trace;
  Move move = {.action = -1, .arrived = -1};
  bool fine = get_time(r, event, "ts", &move.sent) && get_int(r, event, "id", 0, INT64_MAX, &move.flow) &&
              get_text(r, args, "value", &move.value) && get_int(r, args, "id", 0, UINT32_MAX, &move.id) &&
              get_small(r, args, "microbatch", -1, t->n_microbatches - 1, &move.microbatch) &&
              get_small(r, args, "from", 0, t->n_ranks - 1, &move.from) && get_small(r, args, "to", 0, t->n_ranks - 1, &move.to) &&
              get_int(r, args, "bytes", 0, INT64_MAX, &move.bytes) && get_step(r, args, &move.step);
  if (fine) VEC_PUSH(r->arena, &r->trace->moves, move);
  return fine;
}

/* The end of a transfer stands after its beginning in the file. */
static bool read_arrival(Reader *r, const json_t *event, const json_t *args) {
  Trace *t = r->trace;
  int64_t flow = 0;
  if (!get_int(r, event, "id", 0, INT64_MAX, &flow)) return false;
  Move *move = t->moves.n ? &VEC_LAST(&t->moves) : NULL;
  if (!move || move->flow != flow || move->arrived >= 0) return fail(r, "a transfer ends that has not begun");
  if (!get_time(r, event, "ts", &move->arrived) || !get_time(r, args, "copy_us", &move->copy)) return false;
  double early = move->sent - move->arrived;
  if (early <= 0) return true;
  move->arrived = move->sent;
  t->skew.n++;
  t->skew.most = fmax(t->skew.most, early);
  return true;
}

static bool read_event(Reader *r, const json_t *event) {
  const char *ph = json_string_value(json_object_get(event, "ph")), *cat = json_string_value(json_object_get(event, "cat"));
  const json_t *args = json_object_get(event, "args");
  if (!ph) return fail(r, "an event has no 'ph'");
  if (!cat) return true;
  if (strcmp(cat, "task") == 0 && strcmp(ph, "X") == 0) return read_task(r, event, args);
  if (strcmp(cat, "wait") == 0 && strcmp(ph, "X") == 0) return read_wait(r, event, args);
  if (strcmp(cat, "transfer") == 0 && strcmp(ph, "b") == 0) return read_send(r, event, args);
  if (strcmp(cat, "transfer") == 0 && strcmp(ph, "e") == 0) return read_arrival(r, event, args);
  return true;
}

static bool read_events(Reader *r, const json_t *events) {
  size_t i;
  json_t *event;
  if (!json_is_array(events)) return fail(r, "'traceEvents' is missing or no list: not a trace");
  json_array_foreach(events, i, event) {
    if (read_event(r, event)) continue;
    char *why = arena_strdup(r->arena, str_text(r->error) + strlen(r->name) + 2);
    return fail(r, "event %zu: %s", i, why);
  }
  return true;
}

static bool read_head(Reader *r, const json_t *top) {
  Trace *t = r->trace;
  const json_t *head = json_object_get(top, "otherData");
  const char *writer = json_string_value(json_object_get(head, "writer"));
  if (!json_is_object(top)) return fail(r, "no JSON object: not a trace");
  if (!writer || strcmp(writer, "ppc") != 0) return fail(r, "not written by a program of ppc (--trace=FILE)");
  return get_text(r, head, "model", &t->model) && get_small(r, head, "ranks", 1, MAX_RANKS, &t->n_ranks) &&
         get_small(r, head, "stages", 1, MAX_STAGES, &t->n_stages) &&
         get_small(r, head, "microbatches", 1, MAX_MICROBATCHES, &t->n_microbatches) &&
         get_small(r, head, "microbatch", 1, INT32_MAX, &t->microbatch) &&
         get_int(r, head, "first_step", 1, INT64_MAX / 2, &t->first_step) &&
         get_int(r, head, "last_step", t->first_step, t->first_step + INT32_MAX - 1, &t->last_step);
}

/* --- order, and what must be there ------------------------------------------------------------------------ */

static int three_way(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_place(const void *x, const void *y) {
  const Task *a = x, *b = y;
  int order = three_way(a->step, b->step);
  if (!order) order = three_way(a->rank, b->rank);
  return order ? order : three_way(a->action, b->action);
}

static int move_order(const void *x, const void *y) {
  const Move *a = x, *b = y;
  int order = three_way(a->step, b->step);
  return order ? order : three_way(a->id, b->id);
}

static int wait_order(const void *x, const void *y) {
  const Wait *a = x, *b = y;
  int order = three_way(a->step, b->step);
  return order ? order : three_way(a->id, b->id);
}

static int n_steps(const Trace *t) { return (int)(t->last_step - t->first_step + 1); }

/* Tasks of (step, rank) are a run of the sorted list; their actions are 0, 1, 2 …, on each track one after the other in
 * time. */
static bool index_tasks(Reader *r) {
  Trace *t = r->trace;
  int at = 0;
  if ((int64_t)n_steps(t) * t->n_ranks > t->tasks.n) return fail(r, "has fewer tasks than steps and ranks: it is not whole");
  t->first_task = arena_alloc_array(r->arena, (size_t)n_steps(t) * (size_t)t->n_ranks + 1, sizeof *t->first_task);
  for (int s = 0; s < n_steps(t); s++) {
    for (int rank = 0; rank < t->n_ranks; rank++) {
      int first = at;
      double ends[N_TRACKS] = {0};
      t->first_task[s * t->n_ranks + rank] = first;
      for (; at < t->tasks.n && t->tasks.at[at].step == t->first_step + s && t->tasks.at[at].rank == rank; at++) {
        const Task *task = &t->tasks.at[at];
        if (task->action != at - first || task->start < ends[task->track] - 1e-8)
          return fail(r, "step %lld of rank %d: its tasks are not one after the other", (long long)(t->first_step + s), rank);
        ends[task->track] = task->end;
      }
      if (at == first) return fail(r, "step %lld of rank %d is missing", (long long)(t->first_step + s), rank);
    }
  }
  t->first_task[n_steps(t) * t->n_ranks] = at;
  return true;
}

/* Both lists are sorted alike; each transfer was waited for once. */
static bool match_waits(Reader *r) {
  Trace *t = r->trace;
  if (t->moves.n != t->waits.n) return fail(r, "has %d transfers and %d waits for them: it is not whole", t->moves.n, t->waits.n);
  for (int i = 0; i < t->moves.n; i++) {
    Move *m = &t->moves.at[i];
    const Wait *w = &t->waits.at[i];
    if (m->step != w->step || m->id != w->id || m->to != w->rank)
      return fail(r, "step %lld: transfer %lld and its wait don't match", (long long)m->step, (long long)m->id);
    if (m->arrived < 0) return fail(r, "step %lld: transfer %lld has no end", (long long)m->step, (long long)m->id);
    int row = (int)(m->step - t->first_step) * t->n_ranks + m->to;
    if (w->action >= t->first_task[row + 1] - t->first_task[row])
      return fail(r, "step %lld: transfer %lld is waited for in no action", (long long)m->step, (long long)m->id);
    m->action = w->action;
    m->wait_start = w->start;
    m->wait_end = w->end;
  }
  return true;
}

static double time_of_step(const Trace *t, int step) {
  double longest = 0;
  for (int rank = 0; rank < t->n_ranks; rank++) {
    const int *first = &t->first_task[step * t->n_ranks + rank];
    double start = INFINITY, end = 0;
    for (int i = first[0]; i < first[1]; i++) {
      start = fmin(start, t->tasks.at[i].start);
      end = fmax(end, t->tasks.at[i].end);
    }
    longest = fmax(longest, end - start);
  }
  return longest;
}

typedef struct {
  double time;
  int step;
} StepTime;

static int by_time(const void *x, const void *y) {
  double a = ((const StepTime *)x)->time, b = ((const StepTime *)y)->time;
  return (a > b) - (a < b);
}

static void choose_step(Reader *r) {
  Trace *t = r->trace;
  StepTime *times = arena_alloc_array(r->arena, (size_t)n_steps(t), sizeof *times);
  for (int s = 0; s < n_steps(t); s++) times[s] = (StepTime){time_of_step(t, s), s};
  qsort(times, (size_t)n_steps(t), sizeof *times, by_time);
  StepTime median = times[(n_steps(t) - 1) / 2];
  t->usual = arena_alloc_array(r->arena, (size_t)n_steps(t), sizeof *t->usual);
  int quarter = (n_steps(t) + 3) / 4, odd = 2 * quarter < n_steps(t) ? quarter : 0;
  for (int i = odd; i < n_steps(t) - odd; i++) t->usual[times[i].step] = true;
  t->typical = median.step;
  t->step_time = median.time;
}

static bool arrange(Reader *r) {
  Trace *t = r->trace;
  if (t->tasks.n) qsort(t->tasks.at, (size_t)t->tasks.n, sizeof *t->tasks.at, by_place);
  if (t->moves.n) qsort(t->moves.at, (size_t)t->moves.n, sizeof *t->moves.at, move_order);
  if (t->waits.n) qsort(t->waits.at, (size_t)t->waits.n, sizeof *t->waits.at, wait_order);
  if (!index_tasks(r) || !match_waits(r)) return false;
  choose_step(r);
  return true;
}

const Trace *trace_read(Arena *arena, const char *name, const char *text, size_t size, Str *out_error) {
  Reader r = {.arena = arena, .name = name, .error = out_error};
  json_error_t error;
  r.trace = arena_alloc(arena, sizeof *r.trace);
  json_t *top = json_loadb(text, size, 0, &error);
  if (!top) {
    fail(&r, "line %d: %s: no JSON", error.line, error.text);
    return NULL;
  }
  bool fine = read_head(&r, top) && read_events(&r, json_object_get(top, "traceEvents"));
  json_decref(top);
  return fine && arrange(&r) ? r.trace : NULL;
}

TraceSkew trace_skew(const Trace *t) { return t->skew; }

/* --- costs ------------------------------------------------------------------------------------------------ */

/* Means over the steps whose time is in the middle half: what a step takes is a sum of its tasks, which
 * their medians don't add up to when some of them are interrupted, and odd steps don't count. */
typedef struct {
  double sum;
  int64_t n;
} Mean;

static void add_to_mean(Mean *mean, double x) { mean->sum += x, mean->n++; }

static double mean_of(const Mean *mean, double otherwise) { return mean->n ? mean->sum / (double)mean->n : otherwise; }

static bool is_usual(const Trace *t, int64_t step) { return t->usual[step - t->first_step]; }

/* Time that a task shares with another one of its overlap block, whose members stand side by side, counts half for each:
 * the simulator adds up the members of a block. */
static double own_time(const Trace *t, int index) {
  enum { BLOCK = 8 };
  const Task *task = &t->tasks.at[index];
  double shared = 0;
  for (int i = index - BLOCK; i <= index + BLOCK; i++) {
    if (i < 0 || i >= t->tasks.n || i == index) continue;
    const Task *other = &t->tasks.at[i];
    if (other->step == task->step && other->rank == task->rank && other->track != task->track)
      shared += fmax(0, fmin(task->end, other->end) - fmax(task->start, other->start));
  }
  return task->end - task->start - shared / 2;
}

static const double *task_costs(Arena *arena, const Trace *t) {
  int n_cells = t->n_stages * PP_TASK_KIND_COUNT;
  double *costs = arena_alloc_array(arena, (size_t)n_cells, sizeof *costs);
  Mean *means = arena_alloc_array(arena, (size_t)n_cells, sizeof *means);
  for (int i = 0; i < t->tasks.n; i++) {
    const Task *task = &t->tasks.at[i];
    if (task->stage < 0 || !is_usual(t, task->step)) continue;
    add_to_mean(&means[task->stage * PP_TASK_KIND_COUNT + (int)task->kind], own_time(t, i));
  }
  for (int c = 0; c < n_cells; c++) costs[c] = mean_of(&means[c], NAN);
  return costs;
}

/* Only what was waited for tells how long a post takes to wake its receiver. */
static double wake_latency(const Trace *t) {
  Mean delay = {0};
  for (int i = 0; i < t->moves.n; i++) {
    const Move *m = &t->moves.at[i];
    if (m->wait_start < m->sent && is_usual(t, m->step)) add_to_mean(&delay, fmax(0, m->wait_end - m->sent - m->copy));
  }
  return mean_of(&delay, 0);
}

static double copy_rate(const Trace *t) {
  double seconds = 0, bytes = 0;
  for (int i = 0; i < t->moves.n; i++) seconds += t->moves.at[i].copy, bytes += (double)t->moves.at[i].bytes;
  return bytes > 0 ? seconds / bytes : 0;
}

const TraceCosts *trace_costs(Arena *arena, const Trace *t) {
  TraceCosts *costs = arena_alloc(arena, sizeof *costs);
  *costs = (TraceCosts){.model = t->model,
                        .n_ranks = t->n_ranks,
                        .n_stages = t->n_stages,
                        .n_microbatches = t->n_microbatches,
                        .microbatch = t->microbatch,
                        .task = task_costs(arena, t),
                        .latency = wake_latency(t),
                        .seconds_per_byte = copy_rate(t),
                        .step_time = t->step_time};
  return costs;
}

/* --- timeline ----------------------------------------------------------------------------------------------- */

static double first_start(const Trace *t) {
  const int *first = &t->first_task[t->typical * t->n_ranks];
  double start = INFINITY;
  for (int rank = 0; rank < t->n_ranks; rank++) start = fmin(start, t->tasks.at[first[rank]].start);
  return start;
}

/* The sender's last task that ended before the post; with two tracks, one of the last. */
static int maker(const Trace *t, const int *first, const Move *m) {
  int low = first[m->from], high = first[m->from + 1];
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (t->tasks.at[middle].end <= m->sent + 1e-8) low = middle + 1;
    else high = middle;
  }
  return low > first[m->from] ? low - 1 - first[0] : -1;
}

static void fill_tasks(Arena *arena, const Trace *t, const int *first, double zero, Timeline *out) {
  out->n_tasks = first[t->n_ranks] - first[0];
  TimelineTask *tasks = arena_alloc_array(arena, (size_t)out->n_tasks, sizeof *tasks);
  for (int i = 0; i < out->n_tasks; i++) {
    const Task *from = &t->tasks.at[first[0] + i];
    tasks[i] = (TimelineTask){.rank = from->rank, .stage = from->stage, .microbatch = from->microbatch, .kind = from->kind,
                              .start = from->start - zero, .end = from->end - zero, .overlap = -1, .line = from->line};
  }
  out->tasks = tasks;
}

static void fill_transfers(Arena *arena, const Trace *t, const int *first, double zero, Timeline *out) {
  VEC(TimelineTransfer) transfers = {0};
  for (int i = 0; i < t->moves.n; i++) {
    const Move *m = &t->moves.at[i];
    if (m->step != t->first_step + t->typical) continue;
    VEC_PUSH(arena, &transfers, (TimelineTransfer){.value = m->value, .microbatch = m->microbatch, .from = m->from, .to = m->to,
                                                   .made = maker(t, first, m), .used = first[m->to] - first[0] + m->action,
                                                   .start = m->sent - zero, .end = m->arrived - zero, .bytes = m->bytes});
  }
  out->transfers = transfers.at;
  out->n_transfers = transfers.n;
}

static double busiest(const Timeline *timeline) {
  double most = 0, work = 0;
  for (int i = 0; i < timeline->n_tasks; i++) {
    if (i == 0 || timeline->tasks[i].rank != timeline->tasks[i - 1].rank) work = 0;
    work += timeline->tasks[i].end - timeline->tasks[i].start;
    most = fmax(most, work);
  }
  return most;
}

const Timeline *trace_timeline(Arena *arena, const Trace *t) {
  const int *first = &t->first_task[t->typical * t->n_ranks];
  double zero = first_start(t);
  Timeline *out = arena_alloc(arena, sizeof *out);
  *out = (Timeline){.measured = true, .in_seconds = true, .n_ranks = t->n_ranks, .n_stages = t->n_stages,
                    .n_microbatches = t->n_microbatches, .step_time = t->step_time};
  out->title = arena_printf(arena, "%s: %d rank%s, %d stage%s, %d microbatch%s; step %lld, the median of %lld to %lld", t->model, t->n_ranks,
                            t->n_ranks == 1 ? "" : "s", t->n_stages, t->n_stages == 1 ? "" : "s", t->n_microbatches, t->n_microbatches == 1 ? "" : "es",
                            (long long)(t->first_step + t->typical), (long long)t->first_step, (long long)t->last_step);
  fill_tasks(arena, t, first, zero, out);
  fill_transfers(arena, t, first, zero, out);
  out->bubble = out->step_time - busiest(out);
  out->bubble_rate = out->step_time > 0 ? out->bubble / out->step_time : 0;
  return out;
}
