/* Device memory as reports name it: allocations, and buffers within them that the program registers through NVTX.
 * Buffers may overlap. A buffer lives from its registration to its end; an op sees those that live when it is issued,
 * however late it runs. Addresses are never given twice, with a gap behind each allocation. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core.h"

enum { MAX_ALLOCATIONS = 1024, SPANS_MORE = 1024, PAGE_BYTES = 4096, GAP_BYTES = 4096, MAX_TEXT = 256 };
#define REGION_BYTES ((size_t)4 << 30)
#define HUGE_BYTES ((size_t)2 << 20)
#define FOREVER UINT32_MAX

char *check_region;
static size_t region_used, live_bytes;
static bool region_is_open;
static Span allocations[MAX_ALLOCATIONS], *buffers;
static int n_allocations, n_buffers, buffer_capacity;

/* ---- allocations ---- */

static void reserve(void) {
  if (check_region) return;
  char *at = mmap(NULL, REGION_BYTES + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) check_fatal("internal", "can't reserve device memory");
  check_region = at + (HUGE_BYTES - (uintptr_t)at % HUGE_BYTES) % HUGE_BYTES;
  madvise(check_region, REGION_BYTES, MADV_HUGEPAGE); /* opened and closed at every call: few entries of page tables */
  check_cells_reserve(REGION_BYTES);
}

/* Device memory, readable by this process or not: the host may not touch it. */
void check_memory_open(bool open) {
  if (!check_region || open == region_is_open) return;
  size_t bytes = (region_used + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
  if (mprotect(check_region, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
    check_fatal("internal", "mprotect failed");
  region_is_open = open;
}

bool check_memory_is_open(void) { return region_is_open; }

bool check_memory_contains(const void *address) {
  return check_region && (size_t)((const char *)address - check_region) < REGION_BYTES;
}

size_t check_memory_live_bytes(void) { return live_bytes; }

void *check_memory_create(size_t bytes) {
  reserve();
  if (bytes > REGION_BYTES || region_used + bytes + 2 * GAP_BYTES > REGION_BYTES) return NULL;
  if (n_allocations == MAX_ALLOCATIONS) check_fatal("unsupported", "more than %d allocations", MAX_ALLOCATIONS);
  check_memory_open(false);
  Span *span = &allocations[n_allocations++];
  *span = (Span){.base = check_region + region_used, .bytes = bytes, .live = true, .died = FOREVER, .place = check_place_create()};
  snprintf(span->name, sizeof span->name, "allocation %d", n_allocations);
  region_used += (bytes + GAP_BYTES + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1);
  live_bytes += bytes;
  check_memory_open(true);
  memset(span->base, 0xff, bytes); /* NaN in every float format */
  check_memory_open(false);
  return span->base;
}

static bool contains(const Span *span, const void *address) {
  return (size_t)((const char *)address - span->base) < span->bytes;
}

const Span *check_allocation_at(const void *address) {
  for (int i = 0; i < n_allocations; i++)
    if (contains(&allocations[i], address)) return &allocations[i];
  return NULL;
}

bool check_memory_destroy(void *base) {
  Span *span = (Span *)(uintptr_t)check_allocation_at(base);
  if (!span || span->base != base || !span->live) return false;
  span->live = false;
  live_bytes -= span->bytes;
  return true;
}

const Span *check_allocation_next_live(const Span *after) {
  for (const Span *span = after ? after + 1 : allocations; span < allocations + n_allocations; span++)
    if (span->live) return span;
  return NULL;
}

/* ---- buffers ---- */

/* The record of a buffer that ended, if nothing queued can still see it; else a new one. */
static Span *buffer_record(void) {
  uint32_t oldest = check_oldest_pending();
  for (int i = 0; i < n_buffers; i++)
    if (buffers[i].died < oldest) return &buffers[i];
  if (n_buffers == buffer_capacity) {
    buffer_capacity += SPANS_MORE;
    buffers = realloc(buffers, (size_t)buffer_capacity * sizeof *buffers);
    if (!buffers) check_fatal("internal", "out of memory");
  }
  return &buffers[n_buffers++];
}

void check_buffer_name(const void *base, size_t bytes, const char *name) {
  Span *span = buffer_record();
  *span = (Span){.base = (char *)(uintptr_t)base, .bytes = bytes, .live = true, .born = check_label_next(), .died = FOREVER};
  snprintf(span->name, sizeof span->name, "%s", name);
}

void check_buffer_end(const void *base, size_t bytes) {
  for (int i = 0; i < n_buffers; i++) {
    if (buffers[i].base != base || buffers[i].bytes != bytes || !buffers[i].live) continue;
    buffers[i].live = false;
    buffers[i].died = check_label_next();
  }
}

int check_buffers_at(const void *address, uint32_t op, const Span **found, int capacity) {
  int n = 0;
  for (int i = 0; i < n_buffers; i++) {
    const Span *span = &buffers[i];
    if (!contains(span, address) || span->born > op || span->died <= op) continue;
    if (n == capacity) check_fatal("unsupported", "more than %d buffers share an address", capacity);
    found[n++] = span;
  }
  return n;
}

/* "name" or "name+offset"; the names of all buffers that live there now, else of those that did. */
static size_t write_names(char *out, const void *address, bool live) {
  size_t used = 0;
  for (int i = 0; i < n_buffers && used < MAX_TEXT - 80; i++) {
    if (buffers[i].live != live || !contains(&buffers[i], address)) continue;
    size_t at = (size_t)((const char *)address - buffers[i].base);
    used += (size_t)snprintf(out + used, MAX_TEXT - used, at ? "%s%s+%zu" : "%s%s", used ? "|" : "", buffers[i].name, at);
  }
  return used;
}

const char *check_buffer_at(const void *address) {
  static char text[4][MAX_TEXT];
  static int turn;
  char *out = text[turn++ & 3];
  out[0] = 0;
  if (write_names(out, address, true) || write_names(out, address, false)) return out;
  const Span *span = check_allocation_at(address);
  if (span)
    snprintf(out, MAX_TEXT, "%s+%zu", span->name, (size_t)((const char *)address - span->base));
  else
    snprintf(out, MAX_TEXT, check_memory_contains(address) ? "memory that was never allocated" : "host memory");
  return out;
}
