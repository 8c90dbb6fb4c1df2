/* libcudart: memory and copies. Device memory is closed to the host. Pinned memory is closed while a copy into it that the
 * host hasn't waited for may run, and a touch there is reported by the SIGSEGV handler. Of a copy out of it the bytes are
 * kept: they must be the same when the host learns that the copy has ended. (Closed, the page could not be read into from a
 * file either, beside the copy.) */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core.h"

enum { PAGE_BYTES = 4096, PENDING_MORE = 64 };

typedef struct Pending {
  const Op *op;
  char *start;
  size_t bytes;
  char *kept; /* what a copy out of it reads; NULL: it writes */
} Pending;

typedef struct Pinned {
  CheckObject object;
  char *base;
  size_t bytes;
  int protection;
  bool is_registered; /* the program's own, which other processes may write too */
  Pending *pending;
  int n_pending, pending_capacity;
  struct Pinned *next;
} Pinned;

typedef struct Copy { /* from == NULL: a memset */
  char *to;
  const char *from;
  size_t bytes;
  int value;
  bool is_snapshot; /* the bytes follow */
  char snapshot[];
} Copy;

static Pinned *all_pinned;

/* ---- pinned memory ---- */

static void open_pinned(Pinned *p) {
  if (p->protection == (PROT_READ | PROT_WRITE)) return;
  p->protection = PROT_READ | PROT_WRITE;
  mprotect(p->base, p->bytes, p->protection);
}

static void settle(Pinned *p, Pending *pending) {
  size_t at = 0;
  if (!pending->kept) return;
  open_pinned(p);
  while (at < pending->bytes && pending->start[at] == pending->kept[at]) at++;
  if (at < pending->bytes)
    check_report("host race", "the host changed %s while %s might still run, before '%s'", check_buffer_at(pending->start + at),
                 check_label_text(pending->op->id), check_action());
  free(pending->kept);
}

static int protection_of(Pinned *p) {
  int n = 0;
  bool closed = false;
  for (int k = 0; k < p->n_pending; k++) {
    Pending *pending = &p->pending[k];
    if (check_host_knows(pending->op)) {
      settle(p, pending);
      continue;
    }
    closed = closed || !pending->kept;
    p->pending[n++] = *pending;
  }
  p->n_pending = n;
  return closed ? PROT_NONE : PROT_READ | PROT_WRITE;
}

void check_pinned_guard(void) {
  for (Pinned *p = all_pinned; p; p = p->next) {
    if (!p->base) continue;
    int protection = protection_of(p);
    if (protection == p->protection) continue;
    p->protection = protection;
    mprotect(p->base, p->bytes, protection);
  }
}

static Pinned *find_pinned(const void *address) {
  for (Pinned *p = all_pinned; p; p = p->next)
    if (p->base && (size_t)((const char *)address - p->base) < p->bytes) return p;
  return NULL;
}

static void note_pending(const void *address, size_t bytes, const Op *op, bool writes) {
  Pinned *p = find_pinned(address);
  if (!p || (p->is_registered && !writes)) return;
  if (p->n_pending == p->pending_capacity) {
    p->pending_capacity += PENDING_MORE;
    p->pending = realloc(p->pending, (size_t)p->pending_capacity * sizeof *p->pending);
    if (!p->pending) check_fatal("internal", "out of memory");
  }
  char *kept = NULL;
  if (!writes) {
    kept = malloc(bytes + 1);
    if (!kept) check_fatal("internal", "out of memory");
    open_pinned(p);
    memcpy(kept, address, bytes);
  }
  p->pending[p->n_pending++] = (Pending){op, (char *)(uintptr_t)address, bytes, kept};
}

/* A copy into pinned memory has run: what later copies out of it must find. */
static void note_written(const char *to, size_t bytes) {
  Pinned *p = find_pinned(to);
  for (int k = 0; p && k < p->n_pending; k++) {
    const Pending *pending = &p->pending[k];
    const char *start = to > pending->start ? to : pending->start;
    const char *end = to + bytes < pending->start + pending->bytes ? to + bytes : pending->start + pending->bytes;
    if (pending->kept && start < end) memcpy(pending->kept + (start - pending->start), start, (size_t)(end - start));
  }
}

static void on_fault(int signal_number, siginfo_t *info, void *context) {
  (void)context;
  const char *address = info->si_addr;
  if (check_memory_contains(address)) {
    const char *place = check_place_text(check_place_create());
    check_fatal("device pointer", "the host dereferences device memory %s in '%s'%s%s", check_buffer_at(address), check_action(),
                place[0] ? " at " : "", place);
  }
  Pinned *p = find_pinned(address);
  if (!p) {
    signal(signal_number, SIG_DFL);
    return;
  }
  for (int k = 0; k < p->n_pending && !check_memory_is_open(); k++) { /* a kernel that does has been told of */
    const Pending *pending = &p->pending[k];
    if (pending->kept || (size_t)(address - pending->start) >= pending->bytes) continue;
    const char *place = check_place_text(check_place_create());
    check_report("host race", "the host touches %s in '%s'%s%s while %s may still run", check_buffer_at(address), check_action(),
                 place[0] ? " at " : "", place, check_label_text(pending->op->id));
  }
  open_pinned(p);
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags) {
  CHECK_CALL();
  static int n_pinned;
  if (flags & (cudaHostAllocMapped | cudaHostAllocWriteCombined)) check_fatal("unsupported", "cudaHostAlloc flags %u", flags);
  Pinned *p = calloc(1, sizeof *p);
  if (!p) return check_error(cudaErrorMemoryAllocation);
  p->bytes = (bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
  p->protection = PROT_READ | PROT_WRITE;
  p->base = mmap(NULL, p->bytes, p->protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p->base == MAP_FAILED) {
    free(p);
    return check_error(cudaErrorMemoryAllocation);
  }
  memset(p->base, 0xff, p->bytes);
  check_object_begin(&p->object, "pinned memory", "%d of %zu bytes", n_pinned++, bytes);
  p->next = all_pinned;
  all_pinned = p;
  *pointer = p->base;
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes) {
  CHECK_CALL();
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *pointer) {
  CHECK_CALL();
  if (!pointer) return cudaSuccess;
  Pinned *p = find_pinned(pointer);
  if (check_capture_forbids("cudaFreeHost")) return check_error(cudaErrorStreamCaptureUnsupported);
  check_wait_device("cudaFreeHost");
  if (!p || p->base != pointer || p->is_registered)
    return check_misuse(cudaErrorInvalidValue, "cudaFreeHost of what cudaMallocHost didn't give, or freed before");
  check_object_end(&p->object, "cudaFreeHost");
  munmap(p->base, p->bytes);
  p->base = NULL;
  return cudaSuccess;
}

/* Memory that the program has. Pages are closed and opened, so it must be whole ones. */
cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags) {
  CHECK_CALL();
  if (flags & (cudaHostRegisterMapped | cudaHostRegisterIoMemory | cudaHostRegisterReadOnly))
    check_fatal("unsupported", "cudaHostRegister flags %u", flags);
  if ((uintptr_t)pointer % PAGE_BYTES || bytes % PAGE_BYTES || bytes == 0)
    check_fatal("unsupported", "cudaHostRegister of parts of pages: %zu bytes", bytes);
  for (const Pinned *p = all_pinned; p; p = p->next)
    if (p->base && (char *)pointer < p->base + p->bytes && p->base < (char *)pointer + bytes)
      return check_misuse(cudaErrorHostMemoryAlreadyRegistered, "cudaHostRegister of memory that is pinned already");
  Pinned *p = calloc(1, sizeof *p);
  if (!p) return check_error(cudaErrorMemoryAllocation);
  *p = (Pinned){.base = pointer, .bytes = bytes, .protection = PROT_READ | PROT_WRITE, .is_registered = true, .next = all_pinned};
  check_object_begin(&p->object, "registered memory", "of %zu bytes", bytes);
  all_pinned = p;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer) {
  CHECK_CALL();
  Pinned *p = find_pinned(pointer);
  if (check_capture_forbids("cudaHostUnregister")) return check_error(cudaErrorStreamCaptureUnsupported);
  check_wait_device("cudaHostUnregister");
  if (!p || p->base != pointer || !p->is_registered)
    return check_misuse(cudaErrorHostMemoryNotRegistered, "cudaHostUnregister of what cudaHostRegister wasn't given");
  check_object_end(&p->object, "cudaHostUnregister");
  open_pinned(p);
  p->base = NULL;
  return cudaSuccess;
}

/* ---- device memory ---- */

static size_t device_bytes(void) { return (size_t)check_setting("PPC_CHECK_MEMORY", NULL, 1L << 31); }

cudaError_t cudaMalloc(void **pointer, size_t bytes) {
  CHECK_CALL();
  if (check_capture_forbids("cudaMalloc")) return check_error(cudaErrorStreamCaptureUnsupported);
  size_t live = check_memory_live_bytes(), total = device_bytes();
  *pointer = bytes <= total && live <= total - bytes ? check_memory_create(bytes) : NULL;
  return *pointer ? cudaSuccess : check_error(cudaErrorMemoryAllocation);
}

/* cudaFree waits for the device. */
cudaError_t cudaFree(void *pointer) {
  CHECK_CALL();
  if (!pointer) return cudaSuccess;
  if (check_capture_forbids("cudaFree")) return check_error(cudaErrorStreamCaptureUnsupported);
  check_wait_device("cudaFree");
  if (!check_memory_destroy(pointer))
    return check_misuse(cudaErrorInvalidValue, "cudaFree of %s, which is no live allocation", check_buffer_at(pointer));
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  CHECK_CALL();
  *total_bytes = device_bytes();
  *free_bytes = *total_bytes - check_memory_live_bytes();
  return cudaSuccess;
}

/* ---- copies ---- */

static void open_pinned_at(const void *address) {
  Pinned *p = find_pinned(address);
  if (p) open_pinned(p);
}

static void run_copy(Op *op) {
  const Copy *copy = op->payload;
  const char *from = copy->is_snapshot ? copy->snapshot : copy->from;
  open_pinned_at(copy->to);
  open_pinned_at(from);
  check_access_allow(copy->to);
  if (from) check_access_allow(from);
  if (from && check_memory_contains(from)) check_access(from, copy->bytes, false, false);
  if (check_memory_contains(copy->to)) check_access(copy->to, copy->bytes, true, false);
  if (from) memcpy(copy->to, from, copy->bytes);
  if (from && !check_memory_contains(copy->to)) note_written(copy->to, copy->bytes);
  if (!from) memset(copy->to, copy->value, copy->bytes);
}

static void note_copy(Op *op) {
  const Copy *copy = op->payload;
  if (!check_memory_contains(copy->to)) note_pending(copy->to, copy->bytes, op, true);
  if (copy->from && !check_memory_contains(copy->from)) note_pending(copy->from, copy->bytes, op, false);
}

static bool kind_fits(const void *to, const void *from, enum cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) return true;
  if (kind == cudaMemcpyHostToHost) return false; /* no program has a use for it */
  return (kind == cudaMemcpyDeviceToHost) != check_memory_contains(to) &&
         (kind == cudaMemcpyHostToDevice) != check_memory_contains(from);
}

static const char *name_of(const void *address) {
  return check_memory_contains(address) || find_pinned(address) ? check_buffer_at(address) : "host";
}

/* Pageable memory: what is read is staged within the call, what is written is waited for. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  CHECK_CALL();
  if (!kind_fits(to, from, kind))
    return check_misuse(cudaErrorInvalidValue, "cudaMemcpyAsync in '%s': the kind doesn't fit the pointers", check_action());
  bool is_snapshot = !check_memory_contains(from) && !find_pinned(from);
  bool is_blocking = !check_memory_contains(to) && !find_pinned(to);
  Op *op = check_op_create(stream, sizeof(Copy) + (is_snapshot ? bytes : 0), "cudaMemcpyAsync %s -> %s", name_of(from),
                           name_of(to));
  if ((is_snapshot || is_blocking) && check_lane_at(op->lane)->capture)
    return check_misuse(cudaErrorStreamCaptureUnsupported, "%s: pageable memory in a capture", check_label_text(op->id));
  Copy *copy = op->payload;
  *copy = (Copy){.to = to, .from = from, .bytes = bytes, .is_snapshot = is_snapshot};
  if (is_snapshot) memcpy(copy->snapshot, from, bytes);
  op->start = run_copy;
  op->issued = note_copy;
  check_op_issue(op);
  check_pinned_guard();
  if (is_blocking) check_wait_op(op, "cudaMemcpyAsync to pageable memory");
  else check_step_some();
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  CHECK_CALL();
  if (check_capture_forbids("cudaMemcpy")) return check_error(cudaErrorStreamCaptureUnsupported);
  cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, NULL);
  if (error == cudaSuccess) check_wait_op(check_lane_at(LANE_DEFAULT)->last, "cudaMemcpy");
  return error;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  CHECK_CALL();
  if (!check_memory_contains(to))
    return check_misuse(cudaErrorInvalidValue, "cudaMemsetAsync of host memory in '%s'", check_action());
  Op *op = check_op_create(stream, sizeof(Copy), "cudaMemsetAsync %s", check_buffer_at(to));
  *(Copy *)op->payload = (Copy){.to = to, .bytes = bytes, .value = value};
  op->start = run_copy;
  check_op_issue(op);
  check_step_some();
  return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  CHECK_CALL();
  return cudaMemsetAsync(to, value, bytes, NULL);
}

__attribute__((constructor)) static void set_up(void) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGSEGV, &action, NULL);
}
