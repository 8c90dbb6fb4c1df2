/* Random schedules with random transfers: what stated_check accepts runs to the end on a machine that sends by
 * rendezvous over one channel per rank, and what it rejects as a cycle hangs there, whatever the order in which
 * ranks and transfers move. The machine is written anew, from the rules alone. */
#include <stdlib.h>
#include <string.h>

#include "compiler/base/test.h"
#include "compiler/stated.h"

static uint64_t random_state = 11;
static int random_below(int n) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (int)((random_state >> 33) % (uint64_t)n);
}

/* --- a schedule as text ---------------------------------------------------------------------------------- */

enum { MAX_RANKS = 4, MAX_STAGES = 6, MAX_MICROBATCHES = 4, MAX_CELLS = 256, CELL = 32 };

typedef struct {
  int ranks, stages, microbatches;
  int home[MAX_STAGES];
  char cells[MAX_RANKS][MAX_CELLS][CELL];
  int n[MAX_RANKS];
} Table;

static void insert(Table *t, int r, int at, const char *cell) {
  memmove(t->cells[r][at + 1], t->cells[r][at], (size_t)(t->n[r] - at) * CELL);
  snprintf(t->cells[r][at], CELL, "%s", cell);
  t->n[r]++;
}

static int place(const Table *t, int r, const char *cell) {
  for (int i = 0; i < t->n[r]; i++)
    if (strcmp(t->cells[r][i], cell) == 0) return i;
  return -1;
}

static const char *name(char out[CELL], int stage, const char *kind, int microbatch) {
  snprintf(out, CELL, "%d%s%d", stage, kind, microbatch);
  return out;
}

/* Any order in which one processor could run everything, dealt out to ranks. */
static void draw_actions(Table *t) {
  int forward[MAX_MICROBATCHES] = {0}, backward[MAX_MICROBATCHES] = {0};
  char cell[CELL];
  for (int left = 2 * t->stages * t->microbatches; left > 0;) {
    int m = random_below(t->microbatches), s;
    const char *kind = forward[m] < t->stages ? "F" : "B";
    if (*kind == 'F') s = forward[m]++;
    else if (backward[m] < t->stages) s = t->stages - 1 - backward[m]++;
    else continue;
    int r = t->home[s];
    insert(t, r, t->n[r], name(cell, s, kind, m));
    left--;
  }
}

/* Both ends of one transfer: near the maker and the user, or anywhere in between. */
static void add_transfer(Table *t, int from, int to, const char *kind, int m, int far) {
  char cell[CELL], other[CELL], text[CELL];
  int r = t->home[from], q = t->home[to];
  if (r == q) return;
  int made = place(t, r, name(cell, from, kind, m)), used = place(t, q, name(other, to, kind, m));
  snprintf(text, sizeof text, "%dSEND_%s%d", from, kind, m);
  insert(t, r, made + 1 + (random_below(4) ? 0 : random_below(far)) % (t->n[r] - made), text);
  snprintf(text, sizeof text, "%dRECV_%s%d", to, kind, m);
  insert(t, q, used - random_below(far) % (used + 1), text);
}

static void draw_table(Table *t) {
  memset(t, 0, sizeof *t);
  t->ranks = 2 + random_below(MAX_RANKS - 1);
  t->stages = t->ranks + random_below(MAX_STAGES - t->ranks + 1);
  t->microbatches = 1 + random_below(1 + random_below(MAX_MICROBATCHES));
  for (int s = 0; s < t->stages; s++) t->home[s] = s < t->ranks ? s : random_below(t->ranks);
  draw_actions(t);
  int far = 1 + random_below(6);
  for (int m = 0; m < t->microbatches; m++)
    for (int s = 0; s + 1 < t->stages; s++) {
      add_transfer(t, s, s + 1, "F", m, far);
      add_transfer(t, s + 1, s, "B", m, far);
    }
}

/* --- the machine ----------------------------------------------------------------------------------------- */

typedef struct {
  const Table *t;
  int next[MAX_RANKS], n_posts[MAX_RANKS], head[MAX_RANKS];
  char posts[MAX_RANKS][MAX_CELLS][CELL];
} Run;

/* "1RECV_F0" of "0SEND_F0" and the other way round. */
static void peer_cell(const char *cell, char out[CELL]) {
  int stage = 0, m = 0;
  char what[5], kind;
  sscanf(cell, "%d%4c_%c%d", &stage, what, &kind, &m);
  bool sends = what[0] == 'S';
  int to = (kind == 'F') == sends ? stage + 1 : stage - 1;
  snprintf(out, CELL, "%d%s_%c%d", to, sends ? "RECV" : "SEND", kind, m);
}

static bool is_complete(const Run *run, int r, const char *cell) {
  for (int i = 0; i < run->head[r]; i++)
    if (strcmp(run->posts[r][i], cell) == 0) return true;
  return false;
}

static bool can_run(const Run *run, int r, const char *cell) {
  int stage = 0, m = 0;
  char kind, source[CELL];
  const Table *t = run->t;
  sscanf(cell, "%d%c%d", &stage, &kind, &m);
  int from = kind == 'F' ? stage - 1 : stage + 1;
  if (from < 0 || from >= t->stages || t->home[from] == r) return true;
  snprintf(source, sizeof source, "%dRECV_%c%d", stage, kind, m);
  return is_complete(run, r, source);
}

static bool step_rank(Run *run, int r) {
  const Table *t = run->t;
  if (run->next[r] == t->n[r]) return false;
  const char *cell = t->cells[r][run->next[r]];
  if (strchr(cell, '_')) memcpy(run->posts[r][run->n_posts[r]++], cell, CELL);
  else if (!can_run(run, r, cell)) return false;
  run->next[r]++;
  return true;
}

/* The head of r's queue, when it heads its peer's too. */
static bool step_transfer(Run *run, int r) {
  if (run->head[r] == run->n_posts[r]) return false;
  char peer[CELL];
  peer_cell(run->posts[r][run->head[r]], peer);
  for (int q = 0; q < run->t->ranks; q++) {
    if (q == r || run->head[q] == run->n_posts[q] || strcmp(run->posts[q][run->head[q]], peer) != 0) continue;
    run->head[r]++, run->head[q]++;
    return true;
  }
  return false;
}

static bool ends(const Table *t) {
  static Run run;
  memset(&run, 0, sizeof run);
  run.t = t;
  for (int idle = 0; idle < 400;) {
    int r = random_below(t->ranks);
    idle = (random_below(3) ? step_rank(&run, r) : step_transfer(&run, r)) ? 0 : idle + 1;
  }
  for (int r = 0; r < t->ranks; r++)
    if (run.next[r] < t->n[r] || run.head[r] < run.n_posts[r]) return false;
  return true;
}

/* --- both directions --------------------------------------------------------------------------------------- */

static bool is_accepted(const Table *t) {
  Arena *arena = arena_create();
  Diag *diag = diag_create();
  Str text = {0}, messages = {0};
  for (int r = 0; r < t->ranks; r++)
    for (int i = 0; i < t->n[r]; i++) str_printf(&text, "%s%s", t->cells[r][i], i + 1 < t->n[r] ? "," : "\n");
  ScheduleCsv *csv = schedule_csv_parse(diag, arena, diag_add_source(diag, "t.csv", str_text(&text)));
  ScheduleJob job = {.n_ranks = t->ranks, .n_stages = t->stages, .n_microbatches = t->microbatches, .bare = true};
  ScheduleIndex index;
  bool ok = csv && schedule_check(diag, arena, &csv->actions, &job, &index);
  CHECK(ok);
  StatedJob stated = {.csv = csv, .job = &job, .index = &index};
  bool accepted = ok && stated_check(diag, arena, &stated);
  diag_flush_to(diag, &messages);
  CHECK(accepted || strstr(str_text(&messages), "can't finish") != NULL);
  str_free(&text);
  str_free(&messages);
  diag_destroy(diag);
  arena_destroy(arena);
  return accepted;
}

static void the_verdict_is_what_happens(void) {
  static Table t;
  int accepted = 0, rejected = 0;
  for (int i = 0; i < 3000; i++) {
    uint64_t seed = random_state;
    draw_table(&t);
    bool right = is_accepted(&t);
    right ? accepted++ : rejected++;
    for (int k = 0; k < 3; k++) {
      bool ended = ends(&t);
      CHECK(ended == right);
      if (ended != right) printf("table of state %llu\n", (unsigned long long)seed);
    }
  }
  CHECK(accepted > 300 && rejected > 300);
}

int main(void) {
  TEST(the_verdict_is_what_happens);
  return test_end();
}
