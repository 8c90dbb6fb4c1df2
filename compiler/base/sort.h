// Sorting by an integer key. Times, positions and numbers of things lie close
// together, so most sorts of the compiler need no comparisons: linear then.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Sorts `n` elements by the int64_t that lies `key_offset` bytes into each,
// and by `compare` where keys are equal. `compare` must look at the key first:
// with keys far apart (over about 4 n) it sorts alone.
void sort_by_key(void *at, size_t n, size_t element_bytes, size_t key_offset,
                 int (*compare)(const void *, const void *));
