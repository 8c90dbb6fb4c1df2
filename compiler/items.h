/* The items of a rank's memory, as `memory` writes them into pp.rank: six numbers each, kind, key1,
 * key2, space, offset, bytes. And its totals: `bytes` = arena, window, one per class, peak action. */
#ifndef PPC_ITEMS_H
#define PPC_ITEMS_H

typedef enum {
  /* live in all steps */
  ITEM_PARAMETER,    /* parameter */
  ITEM_GRADIENT,     /* parameter, stage: an accumulator */
  ITEM_STATE,        /* parameter, number of the state */
  ITEM_LOSSES,
  ITEM_COUNTS,
  ITEM_NORMS,
  ITEM_CONTROL,
  ITEM_STEP,
  ITEM_LOSS_SCALE,
  ITEM_OUTPUT,       /* output */
  ITEM_PROMPT,
  ITEM_LOGITS,
  /* live over some actions */
  ITEM_FRAME,        /* stage, microbatch */
  ITEM_WEIGHT_FRAME, /* stage, microbatch */
  ITEM_VALUE,        /* root value (tasks_root), microbatch (-1 outside the loop) */
  ITEM_WORKSPACE,    /* index of the action */
  ITEM_KIND_COUNT
} ItemKind;

enum { ITEM_NUMBERS = 6 };
static inline int item_is_lasting(ItemKind kind) { return kind < ITEM_FRAME; }

#endif
