// Bump allocation in blocks that double up to 1 MiB; a larger request gets a
// block of its own. Blocks form a list, newest first.
#include "compiler/base/arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 16u
#define FIRST_BLOCK_BYTES ((size_t)16 << 10)
#define MAX_BLOCK_BYTES ((size_t)1 << 20)

typedef struct Block {
  struct Block *next;
  size_t size_bytes;  // of `data`
  size_t used_bytes;
  size_t zeroed;      // all of `data` that is not used; keeps it 16-aligned
  unsigned char data[];
} Block;

_Static_assert(sizeof(Block) % ALIGNMENT == 0, "block data must be aligned");

struct Arena {
  Block *blocks;
  size_t used_bytes;
};

static void out_of_memory(size_t size_bytes) {
  fprintf(stderr, "ppc: out of memory (%zu bytes more were needed)\n",
          size_bytes);
  exit(3);
}

Arena *arena_create(void) {
  Arena *arena = calloc(1, sizeof *arena);
  if (!arena) out_of_memory(sizeof *arena);
  return arena;
}

static void free_blocks(Block *block) {
  while (block) {
    Block *next = block->next;
    free(block);
    block = next;
  }
}

void arena_destroy(Arena *arena) {
  if (!arena) return;
  free_blocks(arena->blocks);
  free(arena);
}

void arena_reset(Arena *arena) {
  arena->used_bytes = 0;
  Block *kept = arena->blocks;
  if (!kept) return;
  free_blocks(kept->next);
  kept->next = NULL;
  kept->used_bytes = 0;
  kept->zeroed = false;
}

// Large blocks come zeroed from the system, which is cheaper than to touch them
// here.
static Block *add_block(Arena *arena, size_t need_bytes) {
  size_t size = arena->blocks ? arena->blocks->size_bytes * 2
                              : FIRST_BLOCK_BYTES;
  if (size > MAX_BLOCK_BYTES) size = MAX_BLOCK_BYTES;
  if (size < need_bytes) size = need_bytes;
  bool large = size > MAX_BLOCK_BYTES;
  Block *block = large ? calloc(1, sizeof *block + size) : malloc(sizeof *block + size);
  if (!block) out_of_memory(size);
  block->zeroed = large;
  block->size_bytes = size;
  block->used_bytes = 0;
  block->next = arena->blocks;
  arena->blocks = block;
  return block;
}

void *arena_alloc(Arena *arena, size_t size_bytes) {
  if (size_bytes > SIZE_MAX / 4) out_of_memory(size_bytes);
  size_t size = (size_bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  if (size == 0) size = ALIGNMENT;
  Block *block = arena->blocks;
  if (!block || block->size_bytes - block->used_bytes < size)
    block = add_block(arena, size);
  void *result = block->data + block->used_bytes;
  block->used_bytes += size;
  arena->used_bytes += size;
  if (!block->zeroed) memset(result, 0, size);
  return result;
}

void *arena_alloc_array(Arena *arena, size_t count, size_t element_bytes) {
  size_t size;
  if (__builtin_mul_overflow(count, element_bytes, &size))
    out_of_memory(SIZE_MAX);
  return arena_alloc(arena, size);
}

size_t arena_used_bytes(const Arena *arena) { return arena->used_bytes; }

char *arena_strdup(Arena *arena, const char *text) {
  return arena_strndup(arena, text, strlen(text));
}

char *arena_strndup(Arena *arena, const char *text, size_t length) {
  char *copy = arena_alloc(arena, length + 1);
  if (length > 0) memcpy(copy, text, length);
  return copy;
}

char *arena_vprintf(Arena *arena, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  char *text = arena_alloc(arena, (size_t)(length < 0 ? 0 : length) + 1);
  if (length > 0) vsnprintf(text, (size_t)length + 1, format, again);
  va_end(again);
  return text;
}

char *arena_printf(Arena *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = arena_vprintf(arena, format, args);
  va_end(args);
  return text;
}
