/* Transfers and the order in which a rank issues operations on them, as read from and written to the
 * IR by `transfers` and `memory`. */
#ifndef PPC_ISSUE_H
#define PPC_ISSUE_H

#include "compiler/actions.h"

typedef struct {
  int value, microbatch, from, to;
  int made;   /* index on the sender of the action that makes the value */
  int used;   /* index on the receiver of the first action that uses it; n_actions: only the end of the step */
} Transfer;

/* Reads pp.transfers and the receives' waits. */
Transfer *transfers_read(const Tasks *t, Arena *arena, int *out_n);

/* One operation. Position 2a: before action a, 2a + 1: after it; `order` within a position. */
typedef struct {
  int64_t position, order;
  int op, transfer; /* pp_transfer_op */
} Issue;
typedef VEC(Issue) Issues;

void issue_post(Arena *arena, Issues *list, int64_t position, pp_transfer_op op, int transfer);
/* Stands before the actions and after the posts of its position. */
void issue_await(Arena *arena, Issues *list, int64_t position, pp_transfer_op op, int transfer);
/* Waits for a send so that the receive posted at that position may overwrite its bytes. */
void issue_await_before_post(Arena *arena, Issues *list, int64_t position, int transfer, int receive);
/* Sorts, and writes the `ops` of a pp.rank. */
void issue_write(Ir *ir, Op rank, Issues *list);
/* The position behind a rank's last action. */
static inline int64_t issue_end(const TaskRank *rank) { return 2 * (int64_t)rank->n_actions - 1; }

#endif
