/* Shadow cells: what access.c, which is called at every access, sees of race.c. */
#ifndef CHECK_RACE_H
#define CHECK_RACE_H

#include "device.h"

enum { GRANULE = 4 };

typedef struct Cell {
  uint64_t write, read; /* epochs; a read of this thread's own write isn't noted */
} Cell;

/* As a write: see the parts; with CELL_BYTES all four, else the first and the third. */
#define CELL_SPLIT ((uint64_t)UINT32_MAX << 32)
#define CELL_BYTES 1u

/* Memory with cells: that of the device, or what a block shares. */
typedef struct Zone {
  char *base;
  size_t bytes;
  Cell *cells;
  Cell *parts;      /* GRANULE for each cell */
  uint32_t *others; /* of reads with EPOCH_MORE: a set of readers */
  char *closed_from, *closed_to; /* bytes that the launch didn't ask for */
} Zone;
extern Zone check_device_zone, check_shared_zone;

/* An access, for the slow path. */
typedef struct Place {
  Zone *zone;
  const char *address;
  int kind;
  uint32_t born, fresh; /* see Window in access.c */
  const void *code;     /* in a kernel: where */
  uint32_t *others;
} Place;

void check_race_begin(const Op *op, const Clock *clock);
void check_race_use(void); /* of what follows, something is noted in cells */
void check_race_end(void);
uint32_t check_race_last_before(uint32_t born);
void check_race_judge(size_t index, int from, int to, Place *place);

/* The smallest part of the block that holds both; `b` is a thread or deeper than `a`. */
static inline __attribute__((always_inline)) uint32_t check_common_node(uint32_t a, uint32_t b) {
  int deeper = __builtin_clz(a) - __builtin_clz(b);
  if (deeper >= 0) b >>= deeper;
  else a >>= -deeper;
  return a == b ? a : a >> (32 - __builtin_clz(a ^ b));
}

#endif
