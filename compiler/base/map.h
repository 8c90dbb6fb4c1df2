// Hash maps in an arena: string → pointer and pointer → pointer.
//
// Both remember the order of insertion, so that a walk is deterministic:
//   for (int i = 0; i < map.n; i++) use(map.entries[i].key, ….value);
// `{0}` is an empty map. There is no removal. A string key is not copied: it
// must live as long as the map.
#pragma once

#include "compiler/base/arena.h"

typedef struct {
  const char *key;
  void *value;
} MapEntry;

typedef struct {
  MapEntry *entries;  // in the order of insertion
  int n, cap;
  int *slots;         // index into entries + 1, 0 = free
  int n_slots;        // a power of two
} Map;

// NULL when absent.
void *map_get(const Map *map, const char *key);

// The entry, or NULL; tells a NULL value from an absent key.
MapEntry *map_find(const Map *map, const char *key);

// Inserts or replaces; returns the value that was there, or NULL.
void *map_put(Arena *arena, Map *map, const char *key, void *value);

typedef struct {
  const void *key;
  void *value;
} PtrMapEntry;

typedef struct {
  PtrMapEntry *entries;
  int n, cap;
  int *slots;
  int n_slots;
} PtrMap;

void *ptrmap_get(const PtrMap *map, const void *key);
PtrMapEntry *ptrmap_find(const PtrMap *map, const void *key);
void *ptrmap_put(Arena *arena, PtrMap *map, const void *key, void *value);
