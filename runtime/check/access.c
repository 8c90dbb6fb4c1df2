/* Accesses of the op that runs now: which memory it may touch, and the functions that device code calls at every access
 * (-fsanitize=thread). What most accesses are is decided here: of memory that an earlier op wrote, or that the same
 * thread has seen since it last met others. The rest goes to race.c. */
#include <string.h>

#include "race.h"

enum { MAX_ALLOWED = 1024, N_RECENT = 32 };

/* What an op may touch. Values from ops before `born` are stale; serials above `fresh` are certainly not of those. */
typedef struct Window {
  char *base;
  size_t bytes;
  uint32_t born, fresh;
  const char *name;
} Window;

static const Op *current;
static Window allowed[MAX_ALLOWED];
static int n_allowed;
static Window recent[N_RECENT]; /* by address: the last that was found there */

/* ---- one op ---- */

void check_access_begin(Op *op) {
  current = op;
  n_allowed = 0;
  memset(recent, 0, sizeof recent);
  check_race_begin(op, check_lane_clock(op->lane));
}

void check_access_end(void) {
  check_race_end();
  current = NULL;
}

static void allow(const Span *span) {
  for (int i = 0; i < n_allowed; i++)
    if (allowed[i].base == span->base && allowed[i].bytes == span->bytes) return;
  if (n_allowed == MAX_ALLOWED) check_fatal("unsupported", "more than %d buffers in one op", MAX_ALLOWED);
  allowed[n_allowed++] = (Window){span->base, span->bytes, span->born, check_race_last_before(span->born), span->name};
}

/* The op may use the named buffers at `pointer`, else its allocation. */
void check_access_allow(const void *pointer) {
  enum { MAX_FOUND = 64 };
  const Span *found[MAX_FOUND];
  if (!check_memory_contains(pointer)) return;
  const Span *allocation = check_allocation_at(pointer);
  if (!allocation || !allocation->live) return; /* told at the access */
  int n = check_buffers_at(pointer, current->id, found, MAX_FOUND);
  for (int i = 0; i < n; i++) allow(found[i]);
  if (!n) allow(allocation);
}

static bool has(const Window *window, const char *address, size_t bytes) {
  size_t at = (size_t)(address - window->base);
  return at < window->bytes && bytes <= window->bytes - at;
}

static Window *recent_at(const char *address) { return &recent[((uintptr_t)address >> 10 ^ (uintptr_t)address >> 15) % N_RECENT]; }

static const Window *find_window(const char *address, size_t bytes) {
  for (int i = 0; i < n_allowed; i++) {
    if (!has(&allowed[i], address, bytes)) continue;
    *recent_at(address) = allowed[i];
    return &allowed[i];
  }
  return NULL;
}

/* Reports why an access is not allowed; false: don't look at its cells. */
static bool judge_address(const char *address, size_t bytes, const Place *place) {
  const char *verb = place->kind & WRITE ? "writes" : "reads", *where = check_place_in_kernel(place->code);
  const Span *allocation = check_allocation_at(address);
  if (allocation && !allocation->live) {
    check_report("use after free", "%s %s %s%s after cudaFree", check_label_text(current->id), verb, check_buffer_at(address),
                 where);
    return false;
  }
  const Window *nearest = NULL; /* the last argument that begins before it */
  for (int i = 0; i < n_allowed; i++)
    if (allowed[i].base <= address && (!nearest || nearest->base < allowed[i].base)) nearest = &allowed[i];
  check_report("out of bounds", "%s %s %zu bytes at %s%s, outside its arguments; nearest: %s of %zu bytes, at +%zu",
               check_label_text(current->id), verb, bytes, check_buffer_at(address), where, nearest ? nearest->name : "none",
               nearest ? nearest->bytes : 0, nearest ? (size_t)(address - nearest->base) : 0);
  return allocation != NULL;
}

static void judge_closed(const char *address, size_t bytes, const Place *place) {
  const Zone *zone = &check_shared_zone;
  if (address + bytes <= zone->closed_from || address >= zone->closed_to) return;
  check_report("out of bounds", "%s %s %zu bytes%s behind the launch's dynamic shared memory",
               check_label_text(current->id), place->kind & WRITE ? "writes" : "reads", bytes, check_place_in_kernel(place->code));
}

/* ---- the common cases: each returns true if nothing else is to be done ---- */

#define INLINE static inline __attribute__((always_inline))

static uint32_t serial_of(uint64_t epoch) { return (uint32_t)(epoch >> 32); }
static bool is_before_op(uint32_t serial) { return serial <= check_now.safe[serial % (1 << LANE_BITS)]; }

/* Of an access of this block: whether what it did comes before the present; false: ask race.c. */
INLINE bool has_met(uint64_t epoch) {
  uint32_t stamp = (uint32_t)epoch & EPOCH_STAMP;
  uint32_t differ = (uint32_t)(epoch ^ check_now.epoch) >> STAMP_BITS; /* flags count */
  return stamp < check_now.block_stamp || (differ == 0 && stamp != STAMP_PENDING) ||
         (differ < WARP && stamp < check_now.warp_stamp) || (differ < WARP / 2 && stamp < check_now.half_stamp);
}

/* A read beside another one of this block, both without flags. */
INLINE void read_in_block(Cell *cell) {
  uint64_t now = check_now.epoch, read = cell->read;
  if (has_met(read)) {
    cell->read = now;
    return;
  }
  uint32_t stamp = (uint32_t)now & EPOCH_STAMP, other = (uint32_t)read & EPOCH_STAMP;
  uint32_t node = check_common_node((uint32_t)read >> STAMP_BITS, (uint32_t)now >> STAMP_BITS);
  cell->read = now >> 32 << 32 | node << STAMP_BITS | (stamp > other ? stamp : other);
}

INLINE bool is_plain_in_block(uint64_t epoch) {
  return serial_of(epoch) == serial_of(check_now.epoch) && !(epoch & (EPOCH_ATOMIC | EPOCH_BLOCKS | EPOCH_MORE));
}

INLINE bool device_read_is_plain(Cell *cell, uint32_t fresh) {
  uint64_t write = cell->write, read = cell->read, now = check_now.epoch;
  if (write == now || read == now) return true;
  uint32_t writer = serial_of(write), reader = serial_of(read);
  if (writer <= fresh || !(is_before_op(writer) || (is_plain_in_block(write) && has_met(write)))) return false;
  if (read & EPOCH_MORE) return false;
  if (is_before_op(reader)) {
    cell->read = now;
    return true;
  }
  if (reader < check_now.first_serial || (read & EPOCH_ATOMIC)) return false;
  if (read & EPOCH_BLOCKS) return true;
  if (reader != serial_of(now)) cell->read = now | EPOCH_BLOCKS;
  else read_in_block(cell);
  return true;
}

INLINE bool device_write_is_plain(Cell *cell) {
  uint64_t write = cell->write, read = cell->read, now = check_now.epoch;
  if (write == now) return true;
  if (!is_before_op(serial_of(write)) && !(is_plain_in_block(write) && has_met(write))) return false;
  if ((read & EPOCH_MORE) || !(is_before_op(serial_of(read)) || (is_plain_in_block(read) && has_met(read)))) return false;
  cell->write = now;
  cell->read = 0;
  return true;
}

/* In shared memory, what isn't of this block isn't there. */
INLINE bool shared_read_is_plain(Cell *cell) {
  uint64_t write = cell->write, read = cell->read, now = check_now.epoch;
  if (write == now || read == now) return true;
  if (!is_plain_in_block(write) || !has_met(write)) return false;
  if (serial_of(read) != serial_of(now)) cell->read = now;
  else if (is_plain_in_block(read)) read_in_block(cell);
  else return false;
  return true;
}

INLINE bool shared_write_is_plain(Cell *cell) {
  uint64_t write = cell->write, read = cell->read, now = check_now.epoch;
  if (write == now) return true;
  if (write >= CELL_SPLIT) return false;
  if (serial_of(write) == serial_of(now) && !(is_plain_in_block(write) && has_met(write))) return false;
  if (serial_of(read) == serial_of(now) && !(is_plain_in_block(read) && has_met(read))) return false;
  cell->write = now;
  cell->read = 0;
  return true;
}

INLINE bool is_plain(Cell *cell, int kind, bool is_shared, uint32_t fresh) {
  if (is_shared) return kind == READ ? shared_read_is_plain(cell) : shared_write_is_plain(cell);
  return kind == READ ? device_read_is_plain(cell, fresh) : device_write_is_plain(cell);
}

/* `bytes` at `at`, which is aligned to them. */
INLINE bool are_plain(const Zone *zone, size_t at, size_t bytes, int kind, bool is_shared, uint32_t fresh) {
  Cell *cell = &zone->cells[at / GRANULE];
  bool all = true;
  if (bytes == 2 && cell->write == CELL_SPLIT) return is_plain(&zone->parts[at], kind, is_shared, fresh);
  if (bytes < GRANULE) return false;
  for (size_t i = 0; i < bytes / GRANULE; i++) all &= is_plain(&cell[i], kind, is_shared, fresh);
  return all;
}

/* Every granule of the range. */
static void judge_range(const char *address, size_t bytes, Place *place) {
  Zone *zone = place->zone;
  size_t at = (size_t)(address - zone->base), end = at + bytes;
  bool is_simple = (place->kind == READ || place->kind == WRITE) && zone == &check_device_zone;
  for (size_t index = at / GRANULE; index * GRANULE < end; index++) {
    size_t first = index * GRANULE;
    int from = at > first ? (int)(at - first) : 0, to = end - first < GRANULE ? (int)(end - first) : GRANULE;
    if (is_simple && from == 0 && to == GRANULE && is_plain(&zone->cells[index], place->kind, false, place->fresh)) continue;
    check_race_judge(index, from, to, place);
  }
}

/* An access of any size, anywhere. */
void check_access_at(const void *at, size_t bytes, int kind, const void *code) {
  const char *address = at;
  Place place = {.kind = kind, .code = code};
  if (!current || bytes == 0 || check_is_stack(address)) return;
  if (check_memory_contains(address)) {
    const Window *window = find_window(address, bytes);
    if (!window && !judge_address(address, bytes, &place)) return;
    place.zone = &check_device_zone;
    if (window) place.born = window->born, place.fresh = window->fresh;
    judge_range(address, bytes, &place);
  } else if ((size_t)(address - check_shared_zone.base) < check_shared_zone.bytes) {
    place.zone = &check_shared_zone;
    judge_closed(address, bytes, &place);
    judge_range(address, bytes, &place);
  } else if (!check_is_kernel_memory(address)) {
    check_report("host pointer", "%s %s host memory%s", check_label_text(current->id), kind & WRITE ? "writes" : "reads",
                 check_place_in_kernel(code));
  }
}

void check_access(const void *address, size_t bytes, bool is_write, bool is_atomic) {
  check_race_use();
  check_access_at(address, bytes, is_atomic ? ATOMIC : is_write ? WRITE : READ, NULL);
}

void check_access_arrive(const void *at, size_t bytes) {
  const char *address = at;
  size_t from = (size_t)(address - check_shared_zone.base);
  if (from >= check_shared_zone.bytes) return; /* told at the copy */
  for (size_t index = from / GRANULE; index * GRANULE < from + bytes; index++) {
    Cell *cell = &check_shared_zone.cells[index];
    if (cell->write == (check_now.epoch | STAMP_PENDING)) cell->write = check_now.epoch;
  }
}

/* ---- what device code calls ---- */

/* A plain access of few bytes. */
INLINE void access_few(const char *address, size_t bytes, int kind, const void *code) {
  const Window *window = recent_at(address);
  size_t in_shared = (size_t)(address - check_shared_zone.base);
  if ((uintptr_t)address % bytes == 0) {
    if (has(window, address, bytes)) {
      if (are_plain(&check_device_zone, (size_t)(address - check_device_zone.base), bytes, kind, false, window->fresh)) return;
    } else if (in_shared < check_shared_zone.bytes && (address < check_shared_zone.closed_from || address >= check_shared_zone.closed_to)) {
      if (are_plain(&check_shared_zone, in_shared, bytes, kind, true, 0)) return;
    }
  }
  check_access_at(address, bytes, kind, code);
}

#define TSAN(bytes)                                                                                                     \
  void __tsan_read##bytes(void *a);                                                                                     \
  void __tsan_write##bytes(void *a);                                                                                    \
  void __tsan_unaligned_read##bytes(void *a);                                                                           \
  void __tsan_unaligned_write##bytes(void *a);                                                                          \
  void __tsan_read##bytes(void *a) { access_few(a, bytes, READ, __builtin_return_address(0)); }                         \
  void __tsan_write##bytes(void *a) { access_few(a, bytes, WRITE, __builtin_return_address(0)); }                       \
  void __tsan_unaligned_read##bytes(void *a) { check_access_at(a, bytes, READ, __builtin_return_address(0)); }          \
  void __tsan_unaligned_write##bytes(void *a) { check_access_at(a, bytes, WRITE, __builtin_return_address(0)); }
TSAN(1) TSAN(2) TSAN(4) TSAN(8) TSAN(16)

void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void __tsan_read_range(void *a, size_t bytes);
void __tsan_write_range(void *a, size_t bytes);
void check_access_atomic(const void *address, size_t bytes);
void __tsan_init(void) {}
void __tsan_func_entry(void *caller) { (void)caller; }
void __tsan_func_exit(void) {}
void __tsan_read_range(void *a, size_t bytes) { check_access_at(a, bytes, READ, __builtin_return_address(0)); }
void __tsan_write_range(void *a, size_t bytes) { check_access_at(a, bytes, WRITE, __builtin_return_address(0)); }
void check_access_atomic(const void *a, size_t bytes) { check_access_at(a, bytes, ATOMIC, __builtin_return_address(0)); }
