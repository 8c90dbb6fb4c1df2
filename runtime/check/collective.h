/* A part of an NCCL operation: a send, a receive, or a rank's part of a collective. */
#ifndef CHECK_COLLECTIVE_H
#define CHECK_COLLECTIVE_H

#include "world.h"

enum { POINT_TO_POINT, ALL_REDUCE, BROADCAST };

typedef struct Transfer {
  ncclComm_t comm;
  cudaStream_t stream;
  char *buffer;     /* what a send reads, all else writes */
  const void *from; /* what a collective reads; NULL: nothing here */
  size_t bytes, done_bytes;
  int peer;         /* or the root */
  int collective;   /* see above */
  ncclDataType_t type;
  ncclRedOp_t op;
  bool is_send;
  enum { WAITING, POSTED, DONE } state;
  char text[TEXT], tag[MAX_TAG];
} Transfer;

void collective_advance(Transfer *t, Op *op);
uint32_t collective_missing(const Transfer *t); /* world ranks that haven't posted */

#endif
