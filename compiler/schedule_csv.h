/* Schedules as PyTorch's CSV: no header, row k is rank k, an action per cell, empty cells are idle slots. */
#ifndef PPC_SCHEDULE_CSV_H
#define PPC_SCHEDULE_CSV_H

#include "compiler/compiler.h"

/* A transfer that the file states. A send stands for its sender's stage, a receive for its receiver's. */
typedef enum { STATED_SEND_F, STATED_RECV_F, STATED_SEND_B, STATED_RECV_B, STATED_COUNT } StatedKind;

typedef struct {
  int rank, stage, microbatch;
  StatedKind kind;
  int before; /* how many actions of its rank stand before it */
  Loc loc;
} StatedTransfer;
typedef VEC(StatedTransfer) StatedTransfers;

typedef struct ScheduleCsv {
  int source;                /* of the Diag */
  int n_ranks;               /* rows, without empty ones at the end */
  ScheduledActions actions;  /* rank by rank; `loc` is the cell */
  StatedTransfers transfers; /* rank by rank */
} ScheduleCsv;

/* Does --schedule's value name a CSV file? */
bool schedule_is_csv(const char *value);

/* Null after errors, which stand in `diag` with row and column. */
ScheduleCsv *schedule_csv_read(Diag *diag, Arena *arena, const char *path);
/* The same for a source that the Diag holds already. */
ScheduleCsv *schedule_csv_parse(Diag *diag, Arena *arena, int source);

/* Is there a row for each rank? `declared`: where the number of ranks is from, line 0: the command line. */
bool schedule_csv_check_rows(Diag *diag, const ScheduleCsv *csv, int n_ranks, Loc declared);

/* One row per rank, all of one length, each action in the slot in which it could start if every cell
 * took one unit; without idle slots when the stages don't form a chain. What a cell can't say (a block of
 * overlaps that is no forward with a backward) gives a warning. Actions stand rank by rank. */
void schedule_csv_write(Diag *diag, const ScheduledActions *actions, int n_ranks, Str *out);

const char *stated_kind_name(StatedKind kind); /* "SEND_F" */

#endif
