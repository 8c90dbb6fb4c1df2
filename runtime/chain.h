/* A program written by hand for the runtime's tests: four stages y = x·w (elementwise), squared error,
 * gpipe over four microbatches, sgd, on 1, 2 or 4 ranks. Never linked into emitted programs. */
#ifndef PP_CHAIN_H
#define PP_CHAIN_H

#include "pp.h"

typedef struct {
  int64_t width;         /* elements of a sample */
  int sleep_us;          /* in each forward task */
  int bad_step;          /* stage 2's gradient is infinite at this step; 0: never */
  int bad_loss_step;     /* the loss of microbatch 1 is NaN */
  int bad_index_step;    /* an index outside its table */
  int no_count_step;     /* nothing is counted */
  int skip;              /* nonfinite skip */
  int lost_receive;      /* rank 1 never posts a receive of microbatch 2: a stall */
  int lost_send;         /* rank 0 never posts its last send forwards */
  int crash_step;        /* rank 1 dereferences null */
  int exit_step;         /* rank 1 calls exit(0) */
  int64_t data_kind;     /* pp_data_kind; file sources read PP_TEST_DATA */
  const char *data_path;
  int64_t vocabulary;
} chain_options;

/* From variables PP_TEST_WIDTH and so on. */
chain_options chain_options_read(void);
/* Not freed: tests are short. */
pp_program *chain_create(const chain_options *options, int rank, int n_ranks);

#endif
