/* In: a timeline. Out: a row of letters for each rank: F, B, I, W and their microbatches, + for what follows the
 * loop, . for waiting. While every task is at least a column wide it is drawn as it is ("F0 B12=": a letter, the
 * microbatch, = up to its end), and when all times are multiples of one unit a unit is a whole number of columns.
 * Else a column shows what the rank does for most of it. Linear in tasks and columns. */
#include "compiler/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/diag.h"
#include "compiler/tasks.h"

enum { MANY_RANKS = 48, MARGIN = 9, FEWEST_COLUMNS = 20 };

/* Colours that those who see few tell apart: blue, orange, green, yellow. */
static const char *color_of(char letter) {
  switch (letter) {
  case 'F': return "\033[30;48;5;75m";
  case 'B': return "\033[30;48;5;215m";
  case 'I': return "\033[30;48;5;79m";
  case 'W': return "\033[30;48;5;229m";
  case '+': return "\033[30;48;5;250m";
  default: return NULL;
  }
}

/* --- scale ------------------------------------------------------------------------------------------- */

typedef struct {
  double begin, per_column; /* time */
  int columns;
  bool whole;               /* every task has a column of its own */
} Scale;

static bool is_multiple(double time, double unit) { return fabs(time / unit - round(time / unit)) < 1e-6; }

/* Of the loop, and longer than nothing; what follows the loop may vanish from the chart. */
static double shortest_task(const Timeline *t) {
  double shortest = INFINITY;
  for (int i = 0; i < t->n_tasks; i++) {
    double n = t->tasks[i].end - t->tasks[i].start;
    if (t->tasks[i].microbatch >= 0 && n > 0) shortest = fmin(shortest, n);
  }
  return shortest;
}

/* What all times are multiples of: the shortest task, if they are; else 0. */
static double find_unit(const Timeline *t, double begin) {
  double unit = shortest_task(t);
  for (int i = 0; i < t->n_tasks; i++)
    if (!is_multiple(t->tasks[i].start - begin, unit) || !is_multiple(t->tasks[i].end - begin, unit)) return 0;
  return isfinite(unit) ? unit : 0;
}

static int digits_of(int x) {
  int n = 1;
  while (x >= 10) x /= 10, n++;
  return n;
}

static Scale choose_scale(const Timeline *t, int columns) {
  Scale s = {.begin = INFINITY, .columns = columns};
  double end = -INFINITY;
  for (int i = 0; i < t->n_tasks; i++) {
    s.begin = fmin(s.begin, t->tasks[i].start);
    end = fmax(end, t->tasks[i].end);
  }
  double length = end - s.begin, unit = length > 0 ? find_unit(t, s.begin) : 0;
  if (!(length > 0)) return (Scale){.begin = 0, .per_column = 1, .columns = 0};
  s.per_column = length / columns;
  s.whole = shortest_task(t) >= s.per_column;
  if (unit > 0 && length / unit <= columns) {
    int most = digits_of(t->n_microbatches - 1) + 2, each = (int)(columns / round(length / unit));
    if (each > most) each = most;
    s.per_column = unit / each;
    s.whole = true;
    s.columns = (int)round(length / unit) * each;
  }
  return s;
}

static int column_of(const Scale *s, double time) {
  int column = (int)floor((time - s->begin) / s->per_column + 0.5);
  return column < 0 ? 0 : column > s->columns ? s->columns : column;
}

/* --- rows -------------------------------------------------------------------------------------------- */

/* What is seen of a task that has columns of its own. */
static void draw_whole(const Scale *s, TimelineTask task, char *row) {
  int begin = column_of(s, task.start), end = column_of(s, task.end);
  char name[16];
  if (begin >= end) return;
  snprintf(name, sizeof name, task.microbatch >= 0 ? "%c%d" : "%c", tasks_kind_letter(task.kind), task.microbatch);
  int n = (int)strlen(name);
  if (n > end - begin) n = 1; /* a part of a number is another number */
  memset(row + begin, '=', (size_t)(end - begin));
  memcpy(row + begin, name, (size_t)n);
}

/* Adds to how long each kind runs in each column. */
static void add_shares(const Scale *s, TimelineTask task, double (*shares)[PP_TASK_KIND_COUNT]) {
  double begin = (task.start - s->begin) / s->per_column, end = (task.end - s->begin) / s->per_column;
  for (int c = (int)floor(begin); c < s->columns && c < end; c++)
    if (c >= 0) shares[c][task.kind] += fmin(end, c + 1) - fmax(begin, c);
}

static char letter_of_share(const double *share) {
  int most = 0;
  double busy = 0;
  for (int kind = 0; kind < PP_TASK_KIND_COUNT; kind++) {
    busy += share[kind];
    if (share[kind] > share[most]) most = kind;
  }
  return busy < 0.5 ? '.' : tasks_kind_letter((pp_task_kind)most);
}

/* Two that run together share their time: a half for each. */
static TimelineTask drawn(const TimelineTask *tasks, int i, int n) {
  TimelineTask task = tasks[i];
  double middle = (task.start + task.end) / 2;
  bool pairs_next = i + 1 < n && task.overlap >= 0 && tasks[i + 1].overlap == task.overlap && tasks[i + 1].start == task.start;
  bool pairs_last = i > 0 && task.overlap >= 0 && tasks[i - 1].overlap == task.overlap && tasks[i - 1].start == task.start;
  if (pairs_next && tasks[i + 1].end == task.end) task.end = middle;
  else if (pairs_last && tasks[i - 1].end == task.end) task.start = middle;
  return task;
}

static void put_row(const char *row, int n, bool color, Str *out) {
  const char *now = NULL;
  for (int c = 0; c < n; c++) {
    bool begins = row[c] != '=' && (row[c] < '0' || row[c] > '9');
    const char *next = begins ? color_of(row[c]) : now;
    if (color && begins) str_puts(out, next ? next : now ? "\033[0m" : "");
    now = next;
    str_putc(out, row[c]);
  }
  if (color && now) str_puts(out, "\033[0m");
}

static void draw_rank(const Scale *s, const TimelineTask *tasks, int n, char *row) {
  memset(row, '.', (size_t)s->columns);
  if (s->whole) {
    for (int i = 0; i < n; i++) draw_whole(s, drawn(tasks, i, n), row);
    return;
  }
  double(*shares)[PP_TASK_KIND_COUNT] = calloc((size_t)s->columns + 1, sizeof *shares);
  if (!shares) bug("out of memory");
  for (int i = 0; i < n; i++) add_shares(s, drawn(tasks, i, n), shares);
  for (int c = 0; c < s->columns; c++) row[c] = letter_of_share(shares[c]);
  free(shares);
}

void chart_print(const Timeline *t, int columns, bool color, Str *out) {
  int width = columns - MARGIN < FEWEST_COLUMNS ? FEWEST_COLUMNS : columns - MARGIN;
  Scale s = choose_scale(t, width);
  char *row = calloc((size_t)s.columns + 1, 1);
  if (!row) bug("out of memory");
  for (int r = 0, begin = 0, end; r < t->n_ranks && r < MANY_RANKS; r++, begin = end) {
    for (end = begin; end < t->n_tasks && t->tasks[end].rank == r; end++) continue;
    draw_rank(&s, t->tasks + begin, end - begin, row);
    str_printf(out, "rank %-3d ", r);
    put_row(row, s.columns, color, out);
    str_putc(out, '\n');
  }
  free(row);
  if (t->n_ranks > MANY_RANKS) str_printf(out, "and %d more ranks\n", t->n_ranks - MANY_RANKS);
  if (!s.whole) str_puts(out, "Tasks are narrower than a column: a letter is what runs for most of one.\n");
}
