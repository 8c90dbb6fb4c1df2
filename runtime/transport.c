/* The transports of programs for CPUs, and the choice of one. */
#include "device.h"

#include <string.h>

const pp_transport *const pp_transports_cpu[] = {&pp_transport_self, &pp_transport_shm, &pp_transport_late, &pp_transport_strict, NULL};

static int is_named(const pp_transport *t, const char *name) {
  size_t n = strlen(t->name);
  return strncmp(t->name, name, n) == 0 && (name[n] == 0 || (name[n] == ':' && strcmp(t->name, "strict") == 0));
}

const pp_transport *pp_transport_choose(const pp_device *device, const char *name, int n_ranks) {
  for (const pp_transport *const *at = device->transports; *at; at++) {
    const pp_transport *t = *at;
    if (name ? is_named(t, name) : t->fits && t->fits(n_ranks)) return t;
  }
  return NULL;
}
