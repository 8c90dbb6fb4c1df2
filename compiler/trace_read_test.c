/* Traces read back: numbers of a made-up one, and every way in which a file can be none. */
#include "compiler/trace_read.h"

#include <math.h>
#include <stdlib.h>

#include "compiler/base/test.h"

static Arena *arena;
static Str error;

/* Two ranks, a stage each, two microbatches; step k lasts longer the larger k is. Rank 1 waits for x. */
static const char *sample(int n_steps) {
  Str s = {0};
  str_printf(&s, "{\"otherData\":{\"writer\":\"ppc\",\"model\":\"m.pp\",\"ranks\":2,\"stages\":2,\"microbatches\":2,\"microbatch\":8,"
                 "\"first_step\":3,\"last_step\":%d},\"traceEvents\":[{\"ph\":\"M\",\"name\":\"x\",\"pid\":0}", 2 + n_steps);
  for (int step = 3; step < 3 + n_steps; step++) {
    for (int rank = 0; rank < 2; rank++) {
      for (int mb = 0; mb < 2; mb++) {
        double begin = 1000 * step + 10 * rank + 20 * mb;
        str_printf(&s, ",\n{\"ph\":\"X\",\"cat\":\"task\",\"pid\":%d,\"ts\":%g,\"dur\":%d,\"args\":{\"kind\":\"fwd\",\"stage\":%d,"
                       "\"microbatch\":%d,\"step\":%d,\"action\":%d,\"line\":\"s.pp:7\"}}", rank, begin, step + rank, rank, mb, step, mb);
        if (rank == 0) continue;
        str_printf(&s, ",\n{\"ph\":\"X\",\"cat\":\"wait\",\"pid\":1,\"ts\":%g,\"dur\":6,\"args\":{\"why\":\"receive\",\"id\":%d,\"step\":%d,"
                       "\"action\":%d}}", begin - 7, mb, step, mb);
        str_printf(&s, ",\n{\"ph\":\"b\",\"cat\":\"transfer\",\"id\":%d,\"ts\":%g,\"args\":{\"value\":\"x\",\"id\":%d,\"microbatch\":%d,"
                       "\"from\":0,\"to\":1,\"bytes\":1000,\"step\":%d}}", 10 * step + mb, begin - 4, mb, mb, step);
        str_printf(&s, ",\n{\"ph\":\"e\",\"cat\":\"transfer\",\"id\":%d,\"ts\":%g,\"args\":{\"copy_us\":2}}", 10 * step + mb, begin - 1);
      }
    }
  }
  str_puts(&s, "]}");
  const char *text = arena_strdup(arena, str_text(&s));
  str_free(&s);
  return text;
}

static bool close_to(double a, double b) { return fabs(a - b) < 1e-10; }

static const Trace *read(const char *text) { return trace_read(arena, "t.json", text, strlen(text), &error); }

static void test_costs(void) {
  const Trace *trace = read(sample(3));
  CHECK(trace);
  if (!trace) return;
  const TraceCosts *c = trace_costs(arena, trace);
  CHECK(c->n_ranks == 2 && c->n_stages == 2 && c->n_microbatches == 2 && c->microbatch == 8);
  CHECK_TEXT(c->model, "m.pp");
  CHECK(close_to(c->task[PP_FWD], 4e-6) && close_to(c->task[PP_TASK_KIND_COUNT + PP_FWD], 5e-6));
  CHECK(isnan(c->task[PP_BWD]));
  CHECK(close_to(c->latency, 1e-6)); /* posted 4 before the task, waited until 1 before it; the copy took 2 */
  CHECK(close_to(c->seconds_per_byte, 2e-9));
  CHECK(close_to(c->step_time, 25e-6)); /* step 4: 20 between starts, and 4 + 1 */
}

/* From three steps on, odd ones don't count: the first of a run starts cold. */
static void test_usual_steps(void) {
  static const double middle[] = {3, 3.5, 4, 4.5, 5, 5.5};
  for (int n = 1; n <= 6; n++) {
    const TraceCosts *c = trace_costs(arena, read(sample(n)));
    CHECK(close_to(c->task[PP_FWD], middle[n - 1] * 1e-6));
  }
  const char *text = sample(5), *slow = strstr(text, "\"ts\":3020,\"dur\":3,");
  CHECK(slow);
  const TraceCosts *c = trace_costs(arena, read(arena_printf(arena, "%.*s\"ts\":3020,\"dur\":900%s", (int)(slow - text), text, slow + 17)));
  CHECK(close_to(c->task[PP_FWD], 6e-6));
}

static void test_timeline(void) {
  const Trace *trace = read(sample(3));
  if (!trace) return;
  const Timeline *t = trace_timeline(arena, trace);
  CHECK_TEXT(t->title, "m.pp: 2 ranks, 2 stages, 2 microbatches; step 4, the median of 3 to 5");
  CHECK(t->measured && t->in_seconds && t->n_tasks == 4 && t->n_transfers == 2 && !t->memory);
  CHECK(t->tasks[0].start == 0 && close_to(t->tasks[1].start, 20e-6) && close_to(t->tasks[2].start, 10e-6));
  CHECK(t->tasks[2].rank == 1 && t->tasks[2].stage == 1 && t->tasks[3].microbatch == 1);
  CHECK_TEXT(t->tasks[0].line, "s.pp:7");
  CHECK(t->transfers[0].made == 0 && t->transfers[0].used == 2 && t->transfers[1].made == 1 && t->transfers[1].used == 3);
  CHECK(t->transfers[0].bytes == 1000 && t->transfers[0].from == 0 && t->transfers[0].to == 1);
  CHECK(close_to(t->step_time, 25e-6) && close_to(t->bubble, 15e-6) && close_to(t->bubble_rate, 0.6));
}

static void test_refused(const char *text, const char *why) {
  str_clear(&error);
  CHECK(!read(text));
  if (strstr(str_text(&error), why)) return;
  printf("'%s' says: %s\n", why, str_text(&error));
  test_failures++;
}

/* The sample with its first `old` replaced. */
static const char *with(const char *old, const char *new) {
  const char *text = sample(2), *at = strstr(text, old);
  CHECK(at);
  return at ? arena_printf(arena, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old)) : text;
}

static void test_what_is_no_trace(void) {
  test_refused("", "t.json: line 1: ");
  test_refused("{", "no JSON");
  test_refused("[]", "no JSON object");
  test_refused("{}", "not written by a program of ppc");
  test_refused("{\"traceEvents\":[],\"otherData\":{\"writer\":\"nsys\"}}", "not written by a program of ppc");
  test_refused(with("\"ranks\":2", "\"ranks\":0"), "'ranks' is 0, not between 1 and");
  test_refused(with("\"ranks\":2", "\"ranks\":\"2\""), "'ranks' is missing or no whole number");
  test_refused(with("\"ranks\":2", "\"ranks\":3"), "step 3 of rank 2 is missing");
  test_refused(with("\"last_step\":4", "\"last_step\":5"), "step 5 of rank 0 is missing");
  test_refused(with("\"last_step\":4", "\"last_step\":2147483649"), "not whole");
  test_refused(with("\"last_step\":4", "\"last_step\":3"), "'step' is 4, not between 3 and 3");
  test_refused(with("\"model\":\"m.pp\",", ""), "'model' is missing or no text");
  test_refused(with("\"microbatch\":8", "\"microbatch\":0"), "'microbatch' is 0, not between 1 and");
  test_refused(with("\"traceEvents\":[", "\"events\":["), "'traceEvents' is missing");
  test_refused(with("{\"ph\":\"M\",", "{"), "event 0: an event has no 'ph'");
}

static void test_what_is_not_whole(void) {
  test_refused(with("\"kind\":\"fwd\"", "\"kind\":\"forward\""), "event 1: 'forward' is no kind of task");
  test_refused(with("\"stage\":0", "\"stage\":2"), "event 1: 'stage' is 2");
  test_refused(with("\"microbatch\":1", "\"microbatch\":9"), "event 2: 'microbatch' is 9");
  test_refused(with("\"ts\":3000", "\"ts\":-1"), "event 1: 'ts' is missing or no time");
  test_refused(with("\"dur\":3", "\"dur\":\"3\""), "event 1: 'dur' is missing or no time");
  test_refused(with("\"dur\":3", "\"dur\":300"), "step 3 of rank 0: its tasks are not one after the other");
  test_refused(with("\"action\":1", "\"action\":4"), "step 3 of rank 0: its tasks are not one after the other");
  test_refused(with("\"why\":\"receive\"", "\"why\":\"send\""), "has 4 transfers and 3 waits");
  test_refused(with("\"id\":0,\"step\":3", "\"id\":1,\"step\":3"), "don't match");
  test_refused(with("\"action\":0}}", "\"action\":7}}"), "waited for in no action");
  test_refused(with("\"ph\":\"b\"", "\"ph\":\"i\""), "a transfer ends that has not begun");
  test_refused(with("\"ph\":\"e\"", "\"ph\":\"i\""), "has no end");
  test_refused(with("\"bytes\":1000", "\"bytes\":-1"), "'bytes' is -1");
}

/* The sender's clock is ahead: the transfer has no length. */
static void test_skewed_clocks(void) {
  CHECK(trace_skew(read(sample(2))).n == 0);
  const Trace *trace = read(with("\"ts\":3009", "\"ts\":3001"));
  CHECK(trace);
  if (!trace) return;
  CHECK(trace_skew(trace).n == 1 && close_to(trace_skew(trace).most, 5e-6));
  const Timeline *t = trace_timeline(arena, trace);
  CHECK(close_to(t->transfers[0].start, t->transfers[0].end));
}

/* Tasks of two streams lie over one another. */
static void test_two_tracks(void) {
  const char *first = "\"ts\":3000,\"dur\":3";
  test_refused(with(first, "\"ts\":3000,\"dur\":40"), "its tasks are not one after the other");
  const Trace *trace = read(with(first, "\"tid\":2,\"ts\":3000,\"dur\":40"));
  CHECK(trace && close_to(trace_costs(arena, trace)->step_time, 25e-6)); /* of the other step; this one takes 40 */
  /* 3000 … 3003 and 3001 … 3005: the block takes 5, so 2 and 3; the other step has 4 and 4 */
  trace = read(with("\"ts\":3020,\"dur\":3", "\"tid\":2,\"ts\":3001,\"dur\":4"));
  CHECK(trace && close_to(trace_costs(arena, trace)->task[PP_FWD], 3.25e-6));
  test_refused(with(first, "\"tid\":3,\"ts\":3000,\"dur\":40"), "'tid' is 3");
}

/* Cut anywhere, or with any byte changed: read or refused, with a text. */
static void test_any_bytes(void) {
  const char *text = sample(1);
  size_t n = strlen(text);
  for (size_t i = 0; i < n; i++) {
    str_clear(&error);
    CHECK(!trace_read(arena, "t.json", text, i, &error));
    CHECK(str_starts_with(str_text(&error), "t.json: "));
  }
  for (size_t i = 0; i < n; i++) {
    char *other = arena_strdup(arena, text);
    other[i] = "9-}\"\xff"[i % 5];
    str_clear(&error);
    const Trace *trace = trace_read(arena, "t.json", other, n, &error);
    if (trace) trace_timeline(arena, trace), trace_costs(arena, trace);
    else CHECK(str_starts_with(str_text(&error), "t.json: "));
  }
}

int main(void) {
  arena = arena_create();
  TEST(test_costs);
  TEST(test_usual_steps);
  TEST(test_timeline);
  TEST(test_what_is_no_trace);
  TEST(test_what_is_not_whole);
  TEST(test_skewed_clocks);
  TEST(test_two_tracks);
  TEST(test_any_bytes);
  str_free(&error);
  arena_destroy(arena);
  return test_end();
}
