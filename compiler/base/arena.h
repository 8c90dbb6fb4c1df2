// Arenas: memory that is freed all at once.
//
// The compiler keeps two, `perm` and `tmp` (reset after each pass), and never
// frees object by object. Memory is zeroed and aligned to 16 bytes. When the
// system has no more memory the process ends with a message and status 3: no
// caller could do better.
#pragma once

#include <stdarg.h>
#include <stddef.h>

typedef struct Arena Arena;

Arena *arena_create(void);

// Takes NULL.
void arena_destroy(Arena *arena);

// Forgets everything that was allocated; keeps one block for reuse.
void arena_reset(Arena *arena);

// Zeroed bytes, 16-aligned; never NULL, not even for size 0.
void *arena_alloc(Arena *arena, size_t size_bytes);

// An array of `count` elements; aborts when the product overflows.
void *arena_alloc_array(Arena *arena, size_t count, size_t element_bytes);

// Bytes handed out since creation or the last reset.
size_t arena_used_bytes(const Arena *arena);

char *arena_strdup(Arena *arena, const char *text);

// Copies `length` bytes and adds a NUL; `text` needn't have one.
char *arena_strndup(Arena *arena, const char *text, size_t length);

char *arena_printf(Arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
char *arena_vprintf(Arena *arena, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
