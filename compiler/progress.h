/* What the parts of the proof of progress share: the ranks and transfers as it has read them from the IR. */
#ifndef PPC_PROGRESS_H
#define PPC_PROGRESS_H

#include <stdarg.h>

#include "compiler/base/diag.h"
#include "compiler/base/vec.h"
#include "compiler/ir/ir.h"

typedef struct {
  int stage, kind;
  Op func;
  int n_in, n_out;
  const int64_t *in, *out;
  VEC(const char *) reads; /* parameters */
} TaskInfo;

typedef struct {
  int what;     /* pp_transfer_op, or RUN */
  int index;    /* transfer or action */
} Event;
enum { RUN = 100 };

typedef struct {
  Op op;
  int n_actions, n_events, n_posts;
  const int64_t *actions, *bytes, *overlaps;
  const Loc *lines;
  Event *events;
  int *event_of;  /* [n_actions] */
  int *posts;     /* transfers in the order in which they are posted */
  int unordered;  /* one that is posted out of the total order, -1 */
} RankInfo;

typedef struct {
  int value, microbatch, from, to, made;
  int events[4];  /* of POST_RECEIVE, POST_SEND, AWAIT_RECEIVE, AWAIT_SEND in their rank; -1 */
  bool issued[2], complete; /* at the sender, at the receiver */
} TransferInfo;

typedef struct {
  Ir *ir;
  Diag *diag;
  Arena *arena;
  int n_ranks, n_stages, n_microbatches, n_values, n_transfers, n_errors;
  bool generate;            /* forward only */
  const int64_t *stage_ranks;
  bool *prepared;           /* [n_values] made before the loop, for all microbatches */
  TaskInfo *tasks;          /* [n_stages * PP_TASK_KIND_COUNT], func null when absent */
  int *maker_stage;         /* [n_values] */
  int *same_bytes;          /* [n_values] value that it is a reshape of, -1 */
  bool *by_fwd;             /* [n_values] made by a fwd: lies in the frame, not the weight frame */
  const char **names;
  RankInfo *ranks;
  TransferInfo *transfers;
} Proof;

/* Transfers into one rank by (value, microbatch): rows for the values that come, columns microbatches. */
typedef struct {
  int *row;      /* [n_values] + 1 */
  int *number;   /* [rows][n_microbatches + 1] + 1 */
  int n_rows;
} Table;

Table proof_table_create(Proof *p, Arena *arena);
void proof_table_add_row(Table *table, int value);
void proof_table_close(Proof *p, Arena *arena, Table *table);
/* Null for a value without a row. */
int *proof_table_at(const Proof *p, const Table *table, int value, int microbatch);

/* Counts an error; the first few are printed. */
void proof_fail(Proof *p, Loc loc, const char *format, ...) __attribute__((format(printf, 3, 4)));
Loc proof_line(const RankInfo *rank, int action);
const char *proof_transfer(Proof *p, int number);
/* The first action at this event or behind it. */
int proof_next_action(const RankInfo *rank, int event);
const TaskInfo *proof_task(const Proof *p, const RankInfo *rank, int action);
const TransferInfo *proof_posted(const Proof *p, const RankInfo *rank, int post);

/* No two items of a rank that live at the same time share bytes. */
void proof_check_bytes(Proof *p, int r);

#endif
