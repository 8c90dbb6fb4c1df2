/* Interval packing. In: items with sizes and lives. Out: offsets. Two families of heuristics:
 *   by time: items are placed in the order of their start, into the lowest or the tightest hole, over a
 *            sorted list of holes; n log n plus the holes that are passed, which are few;
 *   by size: largest first, each at the lowest place that is free over its life; quadratic, so only
 *            for short lists.
 * The next one is tried only while the lower bound is not met. No optimum is looked for (NP-hard). */
#include "compiler/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/diag.h"
#include "compiler/base/sort.h"

enum { FEW_ITEMS = 3000 };

static void *need_memory(size_t count, size_t bytes) {
  void *p = calloc(count + 1, bytes);
  if (!p) bug("out of memory");
  return p;
}

/* --- orders -------------------------------------------------------------------------------------------- */

struct LayoutEvent {
  int64_t key, second, third;
  int item;
};

static int by_keys(const void *px, const void *py) {
  const LayoutEvent *x = px, *y = py;
  if (x->key != y->key) return x->key < y->key ? -1 : 1;
  if (x->second != y->second) return x->second < y->second ? -1 : 1;
  if (x->third != y->third) return x->third < y->third ? -1 : 1;
  return x->item - y->item;
}

typedef enum { BY_START, BY_END, BY_SIZE } Order;

/* By start: long lives first, so that they lie below the short ones that come at the same instant. */
static LayoutEvent *sort_items(const LayoutItem *items, int n, Order order) {
  LayoutEvent *list = need_memory((size_t)n, sizeof *list);
  for (int i = 0; i < n; i++) {
    const LayoutItem *x = &items[i];
    switch (order) {
    case BY_START: list[i] = (LayoutEvent){x->start, -x->end, -x->size, i}; break;
    case BY_END: list[i] = (LayoutEvent){x->end, 0, 0, i}; break;
    case BY_SIZE: list[i] = (LayoutEvent){-x->size, x->start, -x->end, i}; break;
    }
  }
  sort_by_key(list, (size_t)n, sizeof *list, offsetof(LayoutEvent, key), by_keys);
  return list;
}

Layout layout_open(LayoutItem *items, int n) {
  return (Layout){items, n, sort_items(items, n, BY_START), sort_items(items, n, BY_END)};
}

void layout_close(Layout *layout) {
  free(layout->starts);
  free(layout->ends);
}

int64_t layout_peak(const Layout *layout, int64_t *out_instant) {
  const LayoutItem *items = layout->items;
  const LayoutEvent *starts = layout->starts, *ends = layout->ends;
  int64_t live = 0, peak = 0, instant = layout->n ? starts[0].key : 0;
  for (int i = 0, k = 0; i < layout->n; i++) {
    while (ends[k].key < starts[i].key) live -= items[ends[k++].item].size;
    live += items[starts[i].item].size;
    if (live > peak) peak = live, instant = starts[i].key;
  }
  if (out_instant) *out_instant = instant;
  return peak;
}

/* --- by time ------------------------------------------------------------------------------------------- */

typedef struct {
  int64_t offset, size;
} Hole;

/* Holes sorted by offset, none adjacent; what lies above the last is free without limit. */
typedef struct {
  Hole *at;
  int n, cap;
  int64_t top;
} Holes;

/* The first hole at or above `offset`. */
static int find_hole(const Holes *h, int64_t offset) {
  int low = 0, high = h->n;
  while (low < high) {
    int mid = (low + high) / 2;
    if (h->at[mid].offset < offset) low = mid + 1;
    else high = mid;
  }
  return low;
}

static void remove_hole(Holes *h, int i) {
  memmove(&h->at[i], &h->at[i + 1], sizeof *h->at * (size_t)(h->n - i - 1));
  h->n--;
}

static void insert_hole(Holes *h, int i, Hole hole) {
  if (h->n == h->cap) {
    h->cap = h->cap ? 2 * h->cap : 64;
    h->at = realloc(h->at, sizeof *h->at * (size_t)h->cap);
    if (!h->at) bug("out of memory");
  }
  memmove(&h->at[i + 1], &h->at[i], sizeof *h->at * (size_t)(h->n - i));
  h->at[i] = hole;
  h->n++;
}

static void give_back(Holes *h, int64_t offset, int64_t size) {
  int i = find_hole(h, offset);
  if (i < h->n && offset + size == h->at[i].offset) {
    size += h->at[i].size;
    remove_hole(h, i);
  }
  if (i > 0 && h->at[i - 1].offset + h->at[i - 1].size == offset) {
    offset = h->at[i - 1].offset;
    size += h->at[i - 1].size;
    remove_hole(h, --i);
  }
  if (offset + size == h->top) h->top = offset;
  else insert_hole(h, i, (Hole){offset, size});
}

static int64_t take(Holes *h, int64_t size, bool tightest) {
  int best = -1;
  for (int i = 0; i < h->n; i++) {
    if (h->at[i].size < size || (best >= 0 && h->at[best].size <= h->at[i].size)) continue;
    best = i;
    if (!tightest || h->at[i].size == size) break;
  }
  if (best < 0) {
    h->top += size;
    return h->top - size;
  }
  int64_t offset = h->at[best].offset;
  h->at[best].offset += size;
  h->at[best].size -= size;
  if (h->at[best].size == 0) remove_hole(h, best);
  return offset;
}

static int64_t pack_by_time(const Layout *layout, bool tightest, int64_t *offsets) {
  const LayoutItem *items = layout->items;
  const LayoutEvent *starts = layout->starts, *ends = layout->ends;
  Holes holes = {0};
  int64_t extent = 0;
  for (int i = 0, k = 0; i < layout->n; i++) {
    for (; ends[k].key < starts[i].key; k++)
      if (items[ends[k].item].size) give_back(&holes, offsets[ends[k].item], items[ends[k].item].size);
    int item = starts[i].item;
    offsets[item] = items[item].size ? take(&holes, items[item].size, tightest) : 0;
    if (holes.top > extent) extent = holes.top;
  }
  free(holes.at);
  return extent;
}

/* --- by size ------------------------------------------------------------------------------------------- */

static int64_t pack_by_size(const LayoutItem *items, int n, int64_t *offsets) {
  LayoutEvent *order = sort_items(items, n, BY_SIZE);
  int *placed = need_memory((size_t)n, sizeof *placed); /* by offset */
  int64_t extent = 0;
  for (int i = 0; i < n; i++) {
    const LayoutItem *x = &items[order[i].item];
    int64_t offset = 0;
    int at = i;
    for (int k = 0; k < i; k++) {
      const LayoutItem *y = &items[placed[k]];
      if (y->start > x->end || y->end < x->start) continue;
      if (offsets[placed[k]] - offset >= x->size) break;
      if (offsets[placed[k]] + y->size > offset) offset = offsets[placed[k]] + y->size;
    }
    offsets[order[i].item] = offset;
    while (at > 0 && offsets[placed[at - 1]] > offset) placed[at] = placed[at - 1], at--;
    placed[at] = order[i].item;
    if (offset + x->size > extent) extent = offset + x->size;
  }
  free(order);
  free(placed);
  return extent;
}

/* --- entries ------------------------------------------------------------------------------------------- */

static void keep_best(LayoutItem *items, int n, const int64_t *offsets, int64_t extent, int64_t *best) {
  if (*best >= 0 && extent >= *best) return;
  for (int i = 0; i < n; i++) items[i].offset = offsets[i];
  *best = extent;
}

int64_t layout_pack(const Layout *layout) {
  int n = layout->n;
  int64_t best = -1, bound = layout_peak(layout, NULL);
  int64_t *offsets = need_memory((size_t)n, sizeof *offsets);
  for (int tightest = 0; tightest < 2 && best != bound; tightest++) {
    int64_t extent = pack_by_time(layout, tightest, offsets);
    keep_best(layout->items, n, offsets, extent, &best);
  }
  if (best != bound && n <= FEW_ITEMS) {
    int64_t extent = pack_by_size(layout->items, n, offsets);
    keep_best(layout->items, n, offsets, extent, &best);
  }
  free(offsets);
  return best;
}

/* --- who had the bytes before ---------------------------------------------------------------------------- */

/* The last owner of each piece of [0, end), sorted by offset: a piece reaches to the next one. */
typedef struct {
  int64_t offset;
  int item; /* -1: nobody yet */
} Piece;

typedef struct {
  Piece *at;
  int n, cap;
} Pieces;

static int find_piece(const Pieces *p, int64_t offset) {
  int low = 0, high = p->n;
  while (high - low > 1) {
    int mid = (low + high) / 2;
    if (p->at[mid].offset <= offset) low = mid;
    else high = mid;
  }
  return low;
}

/* Replaces pieces [from, to) by `n` new ones. */
static void replace_pieces(Pieces *p, int from, int to, int n, const Piece *pieces) {
  int total = p->n + n - (to - from);
  if (total > p->cap) {
    p->cap = 2 * total;
    p->at = realloc(p->at, sizeof *p->at * (size_t)p->cap);
    if (!p->at) bug("out of memory");
  }
  if (n != to - from) memmove(&p->at[from + n], &p->at[to], sizeof *p->at * (size_t)(p->n - to));
  memcpy(&p->at[from], pieces, sizeof *pieces * (size_t)n);
  p->n = total;
}

static void take_pieces(Pieces *p, const LayoutItem *x, int item, LayoutVisit *visit, void *context) {
  int64_t end = x->offset + x->size;
  int from = find_piece(p, x->offset), to = from;
  for (; to < p->n && p->at[to].offset < end; to++)
    if (p->at[to].item >= 0) visit(context, item, p->at[to].item);
  Piece pieces[3];
  int n = 0;
  if (p->at[from].offset < x->offset) pieces[n++] = p->at[from];
  pieces[n++] = (Piece){x->offset, item};
  bool cut = to == p->n || p->at[to].offset > end;
  if (cut) pieces[n++] = (Piece){end, p->at[to - 1].item};
  replace_pieces(p, from, to, n, pieces);
}

void layout_visit_earlier(const Layout *layout, LayoutVisit *visit, void *context) {
  Pieces pieces = {0};
  replace_pieces(&pieces, 0, 0, 1, &(Piece){0, -1});
  for (int i = 0; i < layout->n; i++) {
    int item = layout->starts[i].item;
    if (layout->items[item].size) take_pieces(&pieces, &layout->items[item], item, visit, context);
  }
  free(pieces.at);
}
