/* What the files of the form for people share: pretty.c prints functions, pretty_tables.c what is a
 * table (parameters, data, ranks, transfers). */
#ifndef PPC_IR_PRETTY_H
#define PPC_IR_PRETTY_H

#include "compiler/base/str.h"
#include "compiler/ir/ir.h"

typedef struct {
  Ir *ir;
  FILE *out;
  Arena *tmp;
  PrettyOptions options;
  const char *const *value_names; /* of values that cross tasks, from pp.value_names */
  int64_t n_value_names;
  const char **makers, **users;   /* of each of them: "stage 0 fwd", "stage 0 bwd, bwd_input, stage 1 fwd"; null: unknown */
  const char *const *parameters;  /* names, in declaration order */
  int64_t n_parameters;
  const int64_t *stage_ranks;     /* null before `schedule` */
  int64_t n_stage_ranks;
} Pretty;

const char *pretty_kind(int64_t kind);                      /* "fwd" */
const char *pretty_value(const Pretty *p, int64_t id);      /* the name of a crossing value */
const char *pretty_place(const Pretty *p, Loc loc);         /* "gpt2.pp:12", "" without a place */
const char *pretty_number(const Pretty *p, double v, bool single); /* 1, 0.5, 1e-05 */
void pretty_read_values(Pretty *p, Op top);                 /* fills what is above */
bool pretty_wants_stage(const Pretty *p, int64_t stage);    /* the filter, by stage and by its rank */

/* Rows of left-aligned cells, columns as wide as their widest cell, but no wider than `first` (the first
 * one) or `rest` characters: longer cells push the rest of their row to the right. */
enum { PRETTY_COLUMNS = 8 };
typedef struct {
  const char *cells[PRETTY_COLUMNS];
  bool whole; /* only the first cell, printed as it is, with no say in the widths */
} PrettyRow;
typedef VEC(PrettyRow) PrettyRows;
void pretty_print_rows(const Pretty *p, const PrettyRows *rows, const char *indent, int first, int rest);

void pretty_header(const Pretty *p, Op top);
void pretty_parameters(const Pretty *p, Op top);
void pretty_sources(const Pretty *p, Op top);
void pretty_ranks(const Pretty *p, Op top);
void pretty_transfers(const Pretty *p, Op top);

#endif
