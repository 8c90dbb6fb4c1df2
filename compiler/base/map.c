// Open addressing with linear probing over indices into an entry array, at
// most half full.
#include "compiler/base/map.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "compiler/base/str.h"
#include "compiler/base/vec.h"

static uint64_t hash_string(const char *key) {
  return str_hash(key, strlen(key));
}

static uint64_t hash_pointer(const void *key) {
  uint64_t bits = (uint64_t)(uintptr_t)key;
  bits = (bits ^ (bits >> 33)) * 0xff51afd7ed558ccdu;
  return bits ^ (bits >> 33);
}

// The slot that holds `key`, or the free one where it belongs.
static int find_slot(const Map *map, const char *key) {
  unsigned mask = (unsigned)map->n_slots - 1;
  unsigned slot = (unsigned)hash_string(key) & mask;
  while (map->slots[slot] &&
         strcmp(map->entries[map->slots[slot] - 1].key, key) != 0)
    slot = (slot + 1) & mask;
  return (int)slot;
}

MapEntry *map_find(const Map *map, const char *key) {
  if (map->n_slots == 0) return NULL;
  int index = map->slots[find_slot(map, key)];
  return index ? &map->entries[index - 1] : NULL;
}

void *map_get(const Map *map, const char *key) {
  MapEntry *entry = map_find(map, key);
  return entry ? entry->value : NULL;
}

static int grown_slots(int n_slots) { return n_slots ? n_slots * 2 : 16; }

static void map_rehash(Arena *arena, Map *map) {
  map->n_slots = grown_slots(map->n_slots);
  map->slots = arena_alloc_array(arena, (size_t)map->n_slots, sizeof(int));
  for (int i = 0; i < map->n; i++)
    map->slots[find_slot(map, map->entries[i].key)] = i + 1;
}

void *map_put(Arena *arena, Map *map, const char *key, void *value) {
  MapEntry *entry = map_find(map, key);
  if (entry) {
    void *old = entry->value;
    entry->value = value;
    return old;
  }
  if (map->n * 2 >= map->n_slots) map_rehash(arena, map);
  if (map->n == map->cap)
    map->entries =
        vec_grow(arena, map->entries, map->n, &map->cap, sizeof(MapEntry));
  map->slots[find_slot(map, key)] = map->n + 1;
  map->entries[map->n++] = (MapEntry){key, value};
  return NULL;
}

static int ptr_find_slot(const PtrMap *map, const void *key) {
  unsigned mask = (unsigned)map->n_slots - 1;
  unsigned slot = (unsigned)hash_pointer(key) & mask;
  while (map->slots[slot] && map->entries[map->slots[slot] - 1].key != key)
    slot = (slot + 1) & mask;
  return (int)slot;
}

PtrMapEntry *ptrmap_find(const PtrMap *map, const void *key) {
  if (map->n_slots == 0) return NULL;
  int index = map->slots[ptr_find_slot(map, key)];
  return index ? &map->entries[index - 1] : NULL;
}

void *ptrmap_get(const PtrMap *map, const void *key) {
  PtrMapEntry *entry = ptrmap_find(map, key);
  return entry ? entry->value : NULL;
}

static void ptrmap_rehash(Arena *arena, PtrMap *map) {
  map->n_slots = grown_slots(map->n_slots);
  map->slots = arena_alloc_array(arena, (size_t)map->n_slots, sizeof(int));
  for (int i = 0; i < map->n; i++)
    map->slots[ptr_find_slot(map, map->entries[i].key)] = i + 1;
}

void *ptrmap_put(Arena *arena, PtrMap *map, const void *key, void *value) {
  PtrMapEntry *entry = ptrmap_find(map, key);
  if (entry) {
    void *old = entry->value;
    entry->value = value;
    return old;
  }
  if (map->n * 2 >= map->n_slots) ptrmap_rehash(arena, map);
  if (map->n == map->cap)
    map->entries =
        vec_grow(arena, map->entries, map->n, &map->cap, sizeof(PtrMapEntry));
  map->slots[ptr_find_slot(map, key)] = map->n + 1;
  map->entries[map->n++] = (PtrMapEntry){key, value};
  return NULL;
}
