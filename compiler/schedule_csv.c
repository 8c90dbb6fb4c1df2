/* In: the text of a CSV file as PyTorch's pipelining writes and reads it. Out: scheduled actions and the
 * transfers that the file states, each with its row and column; several errors in one go. And the way back.
 *
 *   cell     = STAGE KIND MICROBATCH | STAGE (UNSHARD|RESHARD|REDUCE_GRAD) | "(" cell ";" cell ")OVERLAP_F_B"
 *
 * Blanks round a cell, quotes, CRLF, a byte-order mark, commas at the end of a row, rows of different length and
 * kinds in lower case are fine. `B` is a whole backward; in older files, where `BW` is, a `B` whose stage and
 * microbatch has a `W` later in the row is the input half. What shards parameters has no meaning here and is
 * left out with a warning. Whether the schedule is complete and ordered is the pass `schedule`'s matter; the
 * transfers are stated.c's. */
#include "compiler/schedule_csv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/schedule_check.h"
#include "compiler/tasks.h"

enum { MAX_BYTES = 64 << 20, MAX_TRANSFERS = 1 << 22, MAX_ROWS = 1 << 16, MAX_DIGITS = 9, SHOWN = 40 };

typedef enum { CELL_ACTION, CELL_TRANSFER, CELL_SHARDING } CellKind;

typedef struct {
  const char *name;
  CellKind cell;
  int kind; /* pp_task_kind or StatedKind */
} Row;

/* A name ends where a digit or the cell does, so that none hides a longer one. */
static const Row kinds[] = {
    {"F", CELL_ACTION, PP_FWD},
    {"I", CELL_ACTION, PP_BWD_INPUT},
    {"W", CELL_ACTION, PP_BWD_WEIGHT},
    {"BW", CELL_ACTION, PP_BWD},
    {"B", CELL_ACTION, PP_BWD},
    {"UNSHARD", CELL_SHARDING, 0},
    {"RESHARD", CELL_SHARDING, 0},
    {"REDUCE_GRAD", CELL_SHARDING, 0},
    {"SEND_F", CELL_TRANSFER, STATED_SEND_F},
    {"RECV_F", CELL_TRANSFER, STATED_RECV_F},
    {"SEND_B", CELL_TRANSFER, STATED_SEND_B},
    {"RECV_B", CELL_TRANSFER, STATED_RECV_B},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };
static const char kind_list[] = "F, I, W, B, UNSHARD, RESHARD, REDUCE_GRAD, SEND_F, RECV_F, SEND_B or RECV_B";

const char *stated_kind_name(StatedKind kind) {
  for (int i = 0; i < N_KINDS; i++)
    if (kinds[i].cell == CELL_TRANSFER && kinds[i].kind == (int)kind) return kinds[i].name;
  bug("stated transfer of kind %d", (int)kind);
}

bool schedule_is_csv(const char *value) {
  return value && str_ends_with(value, ".csv");
}

/* --- one cell ------------------------------------------------------------------------------------------ */

/* Text of the file, with the place of its first byte. */
typedef struct {
  const char *at, *end;
  Loc loc;
} Piece;

/* A `B` and where its kind is settled, once its row is read. */
typedef struct {
  int64_t key; /* stage and microbatch */
  int action;
} Half;

typedef struct {
  Diag *diag;
  Arena *arena;
  ScheduleCsv *csv;
  int rank, n_before; /* the row, and its actions so far */
  int overlap, n_overlaps;
  VEC(Half) wholes, weights; /* `B` and `W` cells of the row */
  bool full;                  /* it is too long to read on */
  int n_sharding;
  Loc first_sharding;
} Reader;

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static Piece skip(Piece p, int n) {
  p.at += n;
  p.loc.col += n;
  return p;
}

static Piece trim(Piece p) {
  while (p.at < p.end && is_blank(*p.at)) p = skip(p, 1);
  while (p.end > p.at && is_blank(p.end[-1])) p.end--;
  return p;
}

/* For messages: printable and short. */
static const char *shown(const Reader *r, Piece p) {
  char text[SHOWN + 4];
  int n = 0;
  for (const char *c = p.at; c < p.end && n < SHOWN; c++) text[n++] = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
  if (p.end - p.at > SHOWN) memcpy(&text[n], "...", 3), n += 3;
  return arena_strndup(r->arena, text, (size_t)n);
}

/* Digits at the front of *p; -1: none, or an error that was reported. */
static int take_number(Reader *r, Piece *p, const char *what, bool *out_ok) {
  int value = 0, n = 0;
  Piece start = *p;
  for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; *p = skip(*p, 1))
    if (n++ < MAX_DIGITS) value = 10 * value + (*p->at - '0');
  *out_ok = n <= MAX_DIGITS;
  if (!*out_ok) diag_error(r->diag, start.loc, "this %s has %d digits: at most %d can be right", what, n, MAX_DIGITS);
  return n ? value : -1;
}

static char upper(char c) { return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c; }

static const Row *take_kind(Piece *p) {
  for (int i = 0; i < N_KINDS; i++) {
    int n = (int)strlen(kinds[i].name), k = 0;
    while (k < n && p->at + k < p->end && upper(p->at[k]) == kinds[i].name[k]) k++;
    bool ends = p->at + k >= p->end || (p->at[k] >= '0' && p->at[k] <= '9');
    if (k < n || !ends) continue;
    *p = skip(*p, n);
    return &kinds[i];
  }
  return NULL;
}

static int64_t key_of(int stage, int microbatch) { return (int64_t)stage << 32 | microbatch; }

static void add_action(Reader *r, const Row *row, int stage, int microbatch, Loc loc) {
  ScheduledActions *list = &r->csv->actions;
  Half half = {key_of(stage, microbatch), list->n};
  if (row->kind == PP_BWD && row->name[1] == 0) VEC_PUSH(r->arena, &r->wholes, half);
  if (row->kind == PP_BWD_WEIGHT) VEC_PUSH(r->arena, &r->weights, half);
  VEC_PUSH(r->arena, list,
           ((ScheduledAction){.rank = r->rank, .stage = stage, .microbatch = microbatch, .kind = (pp_task_kind)row->kind,
                              .overlap = r->overlap, .loc = loc}));
  r->n_before++;
}

static void add_transfer(Reader *r, const Row *row, int stage, int microbatch, Loc loc) {
  StatedTransfer t = {.rank = r->rank, .stage = stage, .microbatch = microbatch, .kind = (StatedKind)row->kind,
                      .before = r->n_before, .loc = loc};
  VEC_PUSH(r->arena, &r->csv->transfers, t);
}

static void refuse(Reader *r, Piece cell, const char *why) {
  diag_error(r->diag, cell.loc, "'%s' is no action: %s", shown(r, cell), why);
}

/* A trimmed cell without overlap; null after an error. */
static const Row *read_action(Reader *r, Piece cell) {
  Piece p = cell;
  bool ok;
  int stage = take_number(r, &p, "stage", &ok);
  if (!ok) return NULL;
  const Row *row = stage >= 0 ? take_kind(&p) : NULL;
  if (!row) {
    refuse(r, cell, arena_printf(r->arena, "a stage, a kind (%s) and a microbatch, e.g. 0F3", kind_list));
    return NULL;
  }
  Loc number = p.loc;
  int microbatch = take_number(r, &p, "microbatch", &ok);
  if (!ok) return NULL;
  if (p.at < p.end) refuse(r, cell, "something follows it");
  else if (row->cell == CELL_SHARDING && microbatch >= 0)
    diag_error(r->diag, number, "'%s': %s has no microbatch", shown(r, cell), row->name);
  else if (row->cell != CELL_SHARDING && microbatch < 0)
    diag_error(r->diag, cell.loc, "'%s': %s needs a microbatch, e.g. %d%s0", shown(r, cell), row->name, stage, row->name);
  else if (row->cell == CELL_SHARDING) {
    if (r->n_sharding++ == 0) r->first_sharding = cell.loc;
    return row;
  } else {
    (row->cell == CELL_ACTION ? add_action : add_transfer)(r, row, stage, microbatch, cell.loc);
    return row;
  }
  return NULL;
}

/* --- overlaps ------------------------------------------------------------------------------------------ */

static bool take_suffix(Piece *cell) {
  static const char suffix[] = "OVERLAP_F_B";
  int n = (int)sizeof suffix - 1;
  if (cell->end - cell->at < n) return false;
  for (int i = 0; i < n; i++)
    if (upper(cell->end[i - n]) != suffix[i]) return false;
  cell->end -= n;
  *cell = trim(*cell);
  return cell->end - cell->at >= 2 && *cell->at == '(' && cell->end[-1] == ')';
}

static bool is_overlapped(const Row *row, bool first) {
  if (!row || row->cell != CELL_ACTION) return false;
  return first ? row->kind == PP_FWD : row->kind == PP_BWD || row->kind == PP_BWD_INPUT;
}

static void read_overlap(Reader *r, Piece cell) {
  Piece inner = cell;
  const char *middle = NULL;
  if (take_suffix(&inner)) {
    inner = skip(inner, 1);
    inner.end--;
    middle = memchr(inner.at, ';', (size_t)(inner.end - inner.at));
  }
  if (!middle) {
    refuse(r, cell, "a pair has the form (0F3;2B1)OVERLAP_F_B");
    return;
  }
  Piece first = {inner.at, middle, inner.loc}, second = skip(inner, (int)(middle + 1 - inner.at));
  int errors = diag_error_count(r->diag);
  r->overlap = r->n_overlaps++;
  const Row *forward = read_action(r, trim(first)), *backward = read_action(r, trim(second));
  r->overlap = -1;
  if (diag_error_count(r->diag) == errors && (!is_overlapped(forward, true) || !is_overlapped(backward, false)))
    refuse(r, cell, "OVERLAP_F_B pairs a forward with a B or I, the forward first");
}

/* --- rows ---------------------------------------------------------------------------------------------- */

static int by_key(const void *px, const void *py) {
  const Half *x = px, *y = py;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  return x->action - y->action;
}

/* The last of the row's `W` with that key, or null. */
static const Half *find_weight(const Reader *r, int64_t key) {
  int low = 0, high = r->weights.n;
  while (low < high) {
    int mid = (low + high) / 2;
    if (r->weights.at[mid].key <= key) low = mid + 1;
    else high = mid;
  }
  return low && r->weights.at[low - 1].key == key ? &r->weights.at[low - 1] : NULL;
}

static void settle_halves(Reader *r) {
  if (r->weights.n) qsort(r->weights.at, (size_t)r->weights.n, sizeof *r->weights.at, by_key);
  for (int i = 0; i < r->wholes.n; i++) {
    const Half *whole = &r->wholes.at[i], *weight = find_weight(r, whole->key);
    if (weight && weight->action > whole->action) r->csv->actions.at[whole->action].kind = PP_BWD_INPUT;
  }
}

/* The cell at the front of *rest, without its quotes, and what is behind its comma; false behind an error after which
 * the row can't be read on. */
static bool take_cell(Reader *r, Piece *rest, Piece *out_cell, bool *out_more) {
  Piece p = *rest;
  while (p.at < p.end && is_blank(*p.at)) p = skip(p, 1);
  bool quoted = p.at < p.end && *p.at == '"';
  const char *from = p.at;
  if (quoted) {
    const char *close = memchr(p.at + 1, '"', (size_t)(p.end - p.at - 1));
    if (!close) {
      diag_error(r->diag, p.loc, "this quote has no end in its row");
      return false;
    }
    *out_cell = skip(p, 1);
    out_cell->end = close;
    from = close + 1;
  }
  const char *comma = memchr(from, ',', (size_t)(p.end - from));
  Piece after = skip(p, (int)(from - p.at));
  if (comma) after.end = comma;
  if (!quoted) {
    *out_cell = p;
    if (comma) out_cell->end = comma;
  } else if (trim(after).at < trim(after).end) {
    diag_error(r->diag, trim(after).loc, "'%s' stands between a quote and the next comma", shown(r, trim(after)));
  }
  *out_more = comma != NULL;
  if (comma) *rest = skip(p, (int)(comma + 1 - p.at));
  return true;
}

static bool is_full(Reader *r, Loc loc) {
  if (r->csv->actions.n > SCHEDULE_MAX_ACTIONS) diag_error(r->diag, loc, "this schedule has more than %d actions", SCHEDULE_MAX_ACTIONS), r->full = true;
  else if (r->csv->transfers.n > MAX_TRANSFERS) diag_error(r->diag, loc, "this schedule states more than %d ends of transfers", MAX_TRANSFERS), r->full = true;
  return r->full;
}

static void read_row(Reader *r, Piece row) {
  r->n_before = 0;
  r->wholes.n = r->weights.n = 0;
  for (bool more = true; more && !diag_is_full(r->diag);) {
    Piece cell;
    if (!take_cell(r, &row, &cell, &more)) break;
    cell = trim(cell);
    if (cell.at == cell.end) continue;
    if (is_full(r, cell.loc)) return;
    r->csv->n_ranks = r->rank + 1;
    if (*cell.at == '(') read_overlap(r, cell);
    else read_action(r, cell);
  }
  settle_halves(r);
}

/* --- files --------------------------------------------------------------------------------------------- */

static void check_whole(Reader *r) {
  if (r->csv->actions.n == 0 && r->csv->transfers.n == 0)
    diag_error(r->diag, (Loc){r->csv->source, 1, 1}, "this schedule has no actions: row k holds those of rank k");
  if (r->n_sharding)
    diag_warning(r->diag, r->first_sharding,
                 "%d cell%s of UNSHARD, RESHARD or REDUCE_GRAD %s left out: parameters aren't sharded here", r->n_sharding,
                 r->n_sharding == 1 ? "" : "s", r->n_sharding == 1 ? "is" : "are");
}

ScheduleCsv *schedule_csv_parse(Diag *diag, Arena *arena, int source) {
  int errors = diag_error_count(diag);
  ScheduleCsv *csv = arena_alloc(arena, sizeof *csv);
  csv->source = source;
  Reader r = {.diag = diag, .arena = arena, .csv = csv, .overlap = -1};
  const char *at = diag_source_text(diag, source), *end = at + diag_source_length(diag, source);
  int col = 1;
  if (end - at >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0) at += 3, col += 3;
  for (; at < end && !diag_is_full(diag) && !r.full; r.rank++, col = 1) {
    const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
    Loc loc = {source, r.rank + 1, col};
    if (r.rank >= MAX_ROWS) {
      diag_error(diag, loc, "this schedule has more than %d rows, one per rank", MAX_ROWS);
      break;
    }
    read_row(&r, (Piece){at, stop, loc});
    at = newline ? newline + 1 : end;
  }
  if (diag_error_count(diag) == errors) check_whole(&r);
  return diag_error_count(diag) == errors ? csv : NULL;
}

static const char *read_text(Diag *diag, Arena *arena, const char *path, size_t *out_length) {
  FILE *stream = fopen(path, "rb");
  char *text = NULL;
  size_t room = 1 << 16, length = 0;
  while (stream && length <= MAX_BYTES) {
    char *more = arena_alloc(arena, room);
    if (length) memcpy(more, text, length);
    text = more;
    length += fread(text + length, 1, room - length, stream);
    if (length < room) break;
    room *= 2;
  }
  bool bad = !stream || ferror(stream);
  if (bad) diag_error(diag, (Loc){0}, "can't read '%s': %s", path, strerror(errno));
  else if (length > MAX_BYTES) diag_error(diag, (Loc){0}, "'%s' has more than %d bytes", path, (int)MAX_BYTES);
  if (stream) fclose(stream);
  *out_length = length;
  return bad || length > MAX_BYTES ? NULL : text;
}

ScheduleCsv *schedule_csv_read(Diag *diag, Arena *arena, const char *path) {
  Arena *tmp = arena_create();
  size_t length = 0;
  const char *text = read_text(diag, tmp, path, &length);
  ScheduleCsv *csv = NULL;
  if (text) csv = schedule_csv_parse(diag, arena, diag_add_source_bytes(diag, path, text, length));
  arena_destroy(tmp);
  return csv;
}

bool schedule_csv_check_rows(Diag *diag, const ScheduleCsv *csv, int n_ranks, Loc declared) {
  if (csv->n_ranks == n_ranks) return true;
  int row = csv->n_ranks > n_ranks ? n_ranks + 1 : csv->n_ranks;
  diag_error(diag, (Loc){csv->source, row, 1}, "this schedule has %d row%s, one per rank, but there %s %d rank%s", csv->n_ranks,
             csv->n_ranks == 1 ? "" : "s", n_ranks == 1 ? "is" : "are", n_ranks, n_ranks == 1 ? "" : "s");
  if (declared.line) diag_note(diag, declared, "train says how many; --ranks=%d changes it", csv->n_ranks);
  return false;
}

/* --- writing ------------------------------------------------------------------------------------------- */

/* Actions as cells in slots. A cell waits for the one before it on its rank and, as stages form a chain, for the
 * same microbatch in the stage before it (behind it, backward). */
typedef struct {
  const ScheduledActions *list;
  Arena *arena;
  ScheduleJob job;
  int *first;  /* [n_ranks + 1] */
  int *at;     /* [schedule_slot] index in the list + 1 */
  int64_t *slot; /* [list] */
} Cells;

static int *cell_at(const Cells *c, int stage, pp_task_kind kind, int microbatch) {
  return &c->at[schedule_slot(&c->job, stage, kind, microbatch)];
}

static void index_cells(Cells *c) {
  for (int i = 0; i < c->list->n; i++) {
    const ScheduledAction *a = &c->list->at[i];
    if (a->stage >= c->job.n_stages) c->job.n_stages = a->stage + 1;
    if (a->microbatch >= c->job.n_microbatches) c->job.n_microbatches = a->microbatch + 1;
  }
  c->first = arena_alloc_array(c->arena, (size_t)c->job.n_ranks + 1, sizeof *c->first);
  c->at = arena_alloc_array(c->arena, (size_t)schedule_slot(&c->job, c->job.n_stages, PP_FWD, 0), sizeof *c->at);
  c->slot = arena_alloc_array(c->arena, (size_t)c->list->n, sizeof *c->slot);
  for (int i = 0; i < c->list->n; i++) {
    const ScheduledAction *a = &c->list->at[i];
    c->first[a->rank + 1]++;
    *cell_at(c, a->stage, a->kind, a->microbatch) = i + 1;
  }
  for (int r = 0; r < c->job.n_ranks; r++) c->first[r + 1] += c->first[r];
}

/* Index + 1 of the backward that hands on a gradient. */
static int backward_at(const Cells *c, int stage, int microbatch) {
  int input = *cell_at(c, stage, PP_BWD_INPUT, microbatch);
  return input ? input : *cell_at(c, stage, PP_BWD, microbatch);
}

/* Index + 1 of what `a` needs from another cell, up to 2. */
static void needs_of(const Cells *c, const ScheduledAction *a, int out_needs[2]) {
  out_needs[0] = out_needs[1] = 0;
  if (a->kind == PP_FWD) {
    if (a->stage > 0) out_needs[0] = *cell_at(c, a->stage - 1, PP_FWD, a->microbatch);
  } else if (a->kind == PP_BWD_WEIGHT) {
    out_needs[0] = *cell_at(c, a->stage, PP_BWD_INPUT, a->microbatch);
  } else {
    out_needs[0] = *cell_at(c, a->stage, PP_FWD, a->microbatch);
    if (a->stage + 1 < c->job.n_stages) out_needs[1] = backward_at(c, a->stage + 1, a->microbatch);
  }
}

/* The end of the cell that begins with action i: an overlapped pair is one. */
static int cell_end(const Cells *c, int i) {
  const ScheduledAction *a = &c->list->at[i];
  return a->overlap >= 0 && i + 1 < c->first[a->rank + 1] && a[1].overlap == a->overlap ? i + 2 : i + 1;
}

/* The first slot in which a cell could stand, or -1 when what it needs has none yet. */
static int64_t earliest(const Cells *c, int begin, int end, int64_t clock) {
  for (int i = begin; i < end; i++) {
    int needs[2];
    needs_of(c, &c->list->at[i], needs);
    for (int k = 0; k < 2; k++) {
      int64_t slot = needs[k] ? c->slot[needs[k] - 1] : 0;
      if (needs[k] && slot < 0) return -1;
      if (needs[k] && slot >= clock) clock = slot + 1;
    }
  }
  return clock;
}

/* Goes round the ranks as long as one moves; false when some can't. */
static bool place_cells(Cells *c) {
  int *next = arena_alloc_array(c->arena, (size_t)c->job.n_ranks, sizeof *next);
  int64_t *clock = arena_alloc_array(c->arena, (size_t)c->job.n_ranks, sizeof *clock);
  int left = c->list->n;
  for (int r = 0; r < c->job.n_ranks; r++) next[r] = c->first[r];
  for (int i = 0; i < c->list->n; i++) c->slot[i] = -1;
  for (int before = -1; left > 0 && left != before;) {
    before = left;
    for (int r = 0; r < c->job.n_ranks; r++)
      while (next[r] < c->first[r + 1]) {
        int end = cell_end(c, next[r]);
        int64_t start = earliest(c, next[r], end, clock[r]);
        if (start < 0) break;
        for (; next[r] < end; left--) c->slot[next[r]++] = start;
        clock[r] = start + 1;
      }
  }
  return left == 0;
}

/* Without idle slots. */
static void pack_cells(Cells *c) {
  for (int r = 0; r < c->job.n_ranks; r++) {
    int64_t slot = 0;
    for (int i = c->first[r], end; i < c->first[r + 1]; i = end, slot++) {
      end = cell_end(c, i);
      for (int k = i; k < end; k++) c->slot[k] = slot;
    }
  }
}

static void put_action(Str *out, const ScheduledAction *a) {
  str_printf(out, "%d%c%d", a->stage, tasks_kind_letter(a->kind), a->microbatch);
}

static void put_cell(const Cells *c, int begin, int end, Str *out) {
  const ScheduledAction *a = &c->list->at[begin];
  if (end - begin == 1) {
    put_action(out, a);
    return;
  }
  bool in_order = a->kind == PP_FWD;
  str_putc(out, '(');
  put_action(out, in_order ? a : a + 1);
  str_putc(out, ';');
  put_action(out, in_order ? a + 1 : a);
  str_puts(out, ")OVERLAP_F_B");
}

static void put_rows(const Cells *c, Str *out) {
  int64_t n_slots = 0;
  for (int i = 0; i < c->list->n; i++)
    if (c->slot[i] >= n_slots) n_slots = c->slot[i] + 1;
  for (int r = 0; r < c->job.n_ranks; r++) {
    int64_t slot = 0;
    for (int i = c->first[r], end; i < c->first[r + 1]; i = end) {
      end = cell_end(c, i);
      for (; slot < c->slot[i]; slot++) str_putc(out, ',');
      put_cell(c, i, end, out);
    }
    str_pad(out, ',', (int)(n_slots - 1 - slot));
    str_putc(out, '\n');
  }
}

static bool is_pair(const ScheduledAction *a, int n) {
  if (n != 2) return false;
  const ScheduledAction *f = a[0].kind == PP_FWD ? &a[0] : &a[1], *b = f == a ? &a[1] : &a[0];
  return f->kind == PP_FWD && (b->kind == PP_BWD || b->kind == PP_BWD_INPUT);
}

/* The actions as cells can say them: blocks that are no pairs come apart. */
static void split_blocks(Diag *diag, Arena *arena, const ScheduledActions *from, ScheduledActions *out) {
  bool told = false;
  for (int i = 0, end; i < from->n; i = end) {
    const ScheduledAction *a = &from->at[i];
    for (end = i + 1; a->overlap >= 0 && end < from->n && from->at[end].overlap == a->overlap;) end++;
    bool apart = a->overlap >= 0 && !is_pair(a, end - i);
    for (int k = i; k < end; k++) {
      VEC_PUSH(arena, out, from->at[k]);
      if (apart) VEC_LAST(out).overlap = -1;
    }
    if (apart && end - i > 1 && !told)
      diag_warning(diag, a->loc, "CSV can overlap one forward with one backward only: these actions stand one by one"), told = true;
  }
}

void schedule_csv_write(Diag *diag, const ScheduledActions *actions, int n_ranks, Str *out) {
  Arena *arena = arena_create();
  ScheduledActions list = {0};
  split_blocks(diag, arena, actions, &list);
  Cells c = {.list = &list, .arena = arena, .job = {.n_ranks = n_ranks}};
  index_cells(&c);
  if (!place_cells(&c)) pack_cells(&c);
  put_rows(&c, out);
  arena_destroy(arena);
}
