/* Places in the program's source. A call is remembered as the return addresses on its stack; only a report turns them
 * into file and line, with addr2line, if that is installed and the program has debug information. Of the frames the first
 * counts that is neither in runtime/ nor in the table of launches nor in main: the line of the task. If none is, the
 * innermost. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core.h"

enum { MAX_FRAMES = 20, PLACES_MORE = 1024, N_BUCKETS = 1 << 12, MAX_PATH = 1024, COMMAND_BYTES = 8192 };

typedef struct Place {
  void *frames[MAX_FRAMES];
  int n_frames;
  uint32_t next;     /* in its bucket; 0: none */
  const char *text;  /* NULL: not looked up yet */
} Place;

static Place *places;
static uint32_t n_places = 1, buckets[N_BUCKETS];

static uint32_t hash_frames(void *const *frames, int n) {
  uint64_t hash = 14695981039346656037u; /* FNV-1a */
  for (int i = 0; i < n; i++) hash = (hash ^ (uintptr_t)frames[i]) * 1099511628211u;
  return (uint32_t)(hash >> 32) % N_BUCKETS;
}

uint32_t check_place_create(void) {
  void *frames[MAX_FRAMES];
  int n = backtrace(frames, MAX_FRAMES);
  if (n <= 0) return 0;
  uint32_t *bucket = &buckets[hash_frames(frames, n)];
  for (uint32_t i = *bucket; i; i = places[i].next)
    if (places[i].n_frames == n && memcmp(places[i].frames, frames, (size_t)n * sizeof *frames) == 0) return i;
  if (n_places % PLACES_MORE == 1) places = realloc(places, (n_places + PLACES_MORE) * sizeof *places);
  if (!places) check_fatal("internal", "out of memory");
  places[n_places] = (Place){.n_frames = n, .next = *bucket};
  memcpy(places[n_places].frames, frames, (size_t)n * sizeof *frames);
  *bucket = n_places;
  return n_places++;
}

/* ---- addr2line ---- */

static bool is_program(const struct link_map *map) { return map->l_name[0] == 0; }

/* Appends the address within its file; the one before the return address, which is in the call. */
static size_t append_address(char *command, size_t used, const void *address) {
  Dl_info info;
  struct link_map *map;
  if (!dladdr1((const char *)address - 1, &info, (void **)&map, RTLD_DL_LINKMAP) || !is_program(map)) return used;
  size_t at = (size_t)((const char *)address - 1 - (const char *)map->l_addr);
  return used + (size_t)snprintf(command + used, COMMAND_BYTES - used, " 0x%zx", at);
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* 2: the program's own; 1: a part of the runtime, or main; 0: nothing to show. */
static int rate(const char *function, const char *place) {
  if (place[0] == '?') return 0;
  return strcmp(function, "main") == 0 || strstr(place, "runtime/") || strstr(place, "kernels_launch.c") ? 1 : 2;
}

/* Reads "function\nfile:line\n" for each frame; keeps the first of the best. */
static void read_best(FILE *pipe, char *out, size_t capacity) {
  char function[MAX_PATH], place[MAX_PATH];
  int best = 0;
  while (fgets(function, sizeof function, pipe) && fgets(place, sizeof place, pipe)) {
    function[strcspn(function, "\n")] = 0;
    place[strcspn(place, " \n")] = 0; /* " (discriminator 1)" */
    int rated = rate(function, place);
    if (rated <= best) continue;
    best = rated;
    snprintf(out, capacity, "%s", base_name(place));
  }
}

static void ask(const char *command, char *out, size_t capacity) {
  FILE *pipe = popen(command, "r");
  out[0] = 0;
  if (!pipe) return;
  read_best(pipe, out, capacity);
  pclose(pipe);
}

static void look_up(Place *place) {
  char path[MAX_PATH], command[COMMAND_BYTES], text[MAX_PATH];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  place->text = "";
  if (n < 0) return;
  path[n] = 0;
  size_t used = (size_t)snprintf(command, sizeof command, "addr2line -f -e '%s'", path), start = used;
  for (int i = 0; i < place->n_frames; i++) used = append_address(command, used, place->frames[i]);
  if (used == start || used + 16 > sizeof command || strchr(path, '\'')) return;
  snprintf(command + used, sizeof command - used, " 2>&-");
  ask(command, text, sizeof text);
  place->text = strdup(text);
}

const char *check_place_text(uint32_t index) {
  if (!index) return "";
  if (!places[index].text) look_up(&places[index]);
  return places[index].text ? places[index].text : "";
}
