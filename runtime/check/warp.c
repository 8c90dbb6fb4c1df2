/* What the lanes of a warp do together: barriers, shuffles, ballots, products of fragments; and asynchronous copies into
 * shared memory. Each lane brings its operands to a meeting; the last to come computes for all. */
#include <stdlib.h>
#include <string.h>

#include "device.h"

enum { MAX_COPIES = 256 };
#define ALL_LANES 0xffffffffu

void check_sync_warp(unsigned mask, const char *file, int line);
uint64_t check_shuffle(const char *call, unsigned mask, uint64_t value, int source, const char *file, int line);
unsigned check_ballot(const char *call, unsigned mask, int says, const char *file, int line);
void check_mma_bf16(float *c, const uint32_t *a, const uint32_t *b, const char *file, int line);
void check_load_matrices(uint32_t *out, const void *row, int n_matrices, int transposed, const char *file, int line);
void check_copy_async(void *to, const void *from, size_t bytes, size_t zeros, const char *file, int line);
void check_copy_commit(void);
void check_copy_wait(unsigned n_pending);
_Noreturn void check_trap(const char *file, int line);

void check_sync_warp(unsigned mask, const char *file, int line) {
  Meeting meeting = {.call = "__syncwarp", .file = file, .line = line, .mask = mask};
  check_meet(&meeting);
}

/* ---- shuffles ---- */

static void shuffle(unsigned mask, Meeting *const *of_lane) {
  uint64_t values[WARP];
  for (unsigned set = mask; set; set &= set - 1) values[__builtin_ctz(set)] = of_lane[__builtin_ctz(set)]->value;
  for (unsigned set = mask; set; set &= set - 1) {
    Meeting *m = of_lane[__builtin_ctz(set)];
    if (mask >> m->source & 1)
      m->value = values[m->source];
    else
      check_report("undefined shuffle", "%s: lane %d reads lane %d, which takes no part in the %s at %s:%d",
                   check_running_kernel(), __builtin_ctz(set), m->source, m->call, check_base_name(m->file), m->line);
  }
}

uint64_t check_shuffle(const char *call, unsigned mask, uint64_t value, int source, const char *file, int line) {
  Meeting meeting = {.call = call, .file = file, .line = line, .mask = mask, .finish = shuffle, .value = value, .source = source};
  check_meet(&meeting);
  return meeting.value;
}

static void ballot(unsigned mask, Meeting *const *of_lane) {
  uint64_t bits = 0;
  for (unsigned set = mask; set; set &= set - 1) bits |= of_lane[__builtin_ctz(set)]->value << __builtin_ctz(set);
  for (unsigned set = mask; set; set &= set - 1) of_lane[__builtin_ctz(set)]->value = bits;
}

unsigned check_ballot(const char *call, unsigned mask, int says, const char *file, int line) {
  Meeting meeting = {.call = call, .file = file, .line = line, .mask = mask, .finish = ballot, .value = says != 0};
  check_meet(&meeting);
  return (unsigned)meeting.value;
}

/* ---- fragments; lane l is in group l / 4 ---- */

static float from_bf16(uint32_t pair, int which) {
  uint32_t bits = which ? pair & 0xffff0000u : pair << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* c [16, 8] += a [16, 16] · b [16, 8], as the fragments of mma.m16n8k16 (PTX) hold them. */
static void multiply(unsigned mask, Meeting *const *of_lane) {
  float a[16][16], b[16][8];
  if (mask != ALL_LANES) check_fatal("misuse", "%s: not all lanes take part in an mma", check_running_kernel());
  for (int lane = 0; lane < WARP; lane++) {
    const uint32_t *x = of_lane[lane]->in[0], *y = of_lane[lane]->in[1];
    int g = lane / 4, t = lane % 4 * 2;
    for (int i = 0; i < 2; i++) {
      a[g][t + i] = from_bf16(x[0], i);
      a[g + 8][t + i] = from_bf16(x[1], i);
      a[g][t + 8 + i] = from_bf16(x[2], i);
      a[g + 8][t + 8 + i] = from_bf16(x[3], i);
      b[t + i][g] = from_bf16(y[0], i);
      b[t + 8 + i][g] = from_bf16(y[1], i);
    }
  }
  for (int lane = 0; lane < WARP; lane++) {
    float *c = of_lane[lane]->out;
    for (int i = 0; i < 4; i++) {
      int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      for (int k = 0; k < 16; k++) c[i] += a[row][k] * b[k][column];
    }
  }
}

void check_mma_bf16(float *c, const uint32_t *a, const uint32_t *b, const char *file, int line) {
  Meeting meeting = {.call = "mma", .file = file, .line = line, .mask = ALL_LANES, .finish = multiply, .in = {a, b}, .out = c};
  check_meet(&meeting);
}

/* ldmatrix: lane l brings the address of row l % 8 of matrix l / 8 (8 × 8 values of 16 bits); a lane's part of matrix m is
 * row l / 4, columns 2 (l % 4) and the next; of a transposed one, the same of its transpose. */
static void load_matrices(unsigned mask, Meeting *const *of_lane) {
  if (mask != ALL_LANES) check_fatal("misuse", "%s: not all lanes take part in an ldmatrix", check_running_kernel());
  for (int lane = 0; lane < WARP; lane++) {
    uint32_t *out = of_lane[lane]->out;
    int g = lane / 4, t = lane % 4 * 2;
    for (int m = 0; m < of_lane[lane]->source / 2; m++) {
      uint16_t pair[2];
      for (int i = 0; i < 2; i++) {
        bool transposed = of_lane[lane]->source & 1;
        const uint16_t *row = of_lane[m * 8 + (transposed ? t + i : g)]->in[0];
        pair[i] = row[transposed ? g : t + i];
      }
      memcpy(&out[m], pair, sizeof pair);
    }
  }
}

void check_load_matrices(uint32_t *out, const void *row, int n_matrices, int transposed, const char *file, int line) {
  Meeting meeting = {.call = "ldmatrix", .file = file, .line = line, .mask = ALL_LANES, .finish = load_matrices, .in = {row},
                     .out = out, .source = n_matrices * 2 + transposed};
  if (check_thread_number() % WARP < n_matrices * 8) check_access_at(row, 16, READ, __builtin_return_address(0));
  check_meet(&meeting);
}

/* ---- asynchronous copies: done when their thread waits, pending until then ---- */

typedef struct Copy {
  char *to;
  const char *from;
  size_t bytes, zeros;
  uint32_t group;
  const void *code;
} Copy;

typedef struct Copies {
  uint64_t owner;  /* launch and block, so that nothing is left over */
  int n;
  uint32_t group;  /* that is being filled */
  Copy at[MAX_COPIES];
} Copies;
static Copies *copies_of[MAX_THREADS];

static Copies *own_copies(void) {
  Copies **copies = &copies_of[check_thread_number()];
  if (!*copies) *copies = calloc(1, sizeof **copies);
  if (!*copies) check_fatal("internal", "out of memory");
  if ((*copies)->owner != check_now.epoch >> 32) {
    (*copies)->owner = check_now.epoch >> 32;
    (*copies)->n = 0;
    (*copies)->group = 0;
  }
  return *copies;
}

void check_copy_async(void *to, const void *from, size_t bytes, size_t zeros, const char *file, int line) {
  Copies *copies = own_copies();
  const void *code = __builtin_return_address(0);
  if ((bytes != 4 && bytes != 8 && bytes != 16) || zeros > bytes || (uintptr_t)to % bytes || (uintptr_t)from % bytes)
    check_fatal("misuse", "%s: an asynchronous copy at %s:%d is not of 4, 8 or 16 aligned bytes", check_running_kernel(),
                check_base_name(file), line);
  if (copies->n == MAX_COPIES) check_fatal("unsupported", "more than %d asynchronous copies of one thread", MAX_COPIES);
  check_access_at(from, bytes - zeros, READ, code);
  check_access_at(to, bytes, COPY, code);
  copies->at[copies->n++] = (Copy){to, from, bytes, zeros, copies->group, code};
}

void check_copy_commit(void) { own_copies()->group++; }

void check_copy_wait(unsigned n_pending) {
  Copies *copies = own_copies();
  int n = 0;
  for (int i = 0; i < copies->n; i++) {
    Copy *copy = &copies->at[i];
    if (copy->group + n_pending >= copies->group) {
      copies->at[n++] = *copy;
      continue;
    }
    check_access_at(copy->from, copy->bytes - copy->zeros, READ, copy->code);
    check_access_arrive(copy->to, copy->bytes);
    memcpy(copy->to, copy->from, copy->bytes - copy->zeros);
    memset(copy->to + copy->bytes - copy->zeros, 0, copy->zeros);
  }
  copies->n = n;
}

_Noreturn void check_trap(const char *file, int line) {
  check_fatal("trap", "%s: thread %d of block %u calls __trap() at %s:%d", check_running_kernel(), check_thread_number(),
              check_now.block, check_base_name(file), line);
}
