/* Static layout: places for items that live over intervals of one time line, so that items that live
 * at the same time don't overlap and the whole is small. */
#ifndef PPC_LAYOUT_H
#define PPC_LAYOUT_H

#include <stdint.h>

#include "compiler/base/arena.h"

typedef struct {
  int64_t size;        /* bytes, a multiple of the alignment */
  int64_t start, end;  /* first and last instant of its life, inclusive */
  int64_t offset;      /* result */
} LayoutItem;

/* The items by their start and by their end; what the functions below share. Free it by layout_close. */
typedef struct LayoutEvent LayoutEvent;
typedef struct {
  LayoutItem *items;
  int n;
  LayoutEvent *starts, *ends;
} Layout;

Layout layout_open(LayoutItem *items, int n);
void layout_close(Layout *layout);

/* Places all items from offset 0 on; returns the bytes from 0 to the end of the highest. Several orders
 * are tried and the smallest result is kept; the same input gives the same result. */
int64_t layout_pack(const Layout *layout);

/* The largest sum of sizes alive at one instant: no layout is smaller. */
int64_t layout_peak(const Layout *layout, int64_t *out_instant);

/* For each item in the order of its start: tells which earlier items had any of its bytes last. */
typedef void LayoutVisit(void *context, int item, int earlier);
void layout_visit_earlier(const Layout *layout, LayoutVisit *visit, void *context);

#endif
