/* The table of transports. */
#include "transport.h"

#include <string.h>

static const pp_transport *const pp_transports[] = {&pp_transport_self, &pp_transport_shm, &pp_transport_late,
                                                   &pp_transport_strict};

static int is_named(const pp_transport *t, const char *name) {
  size_t n = strlen(t->name);
  return strncmp(t->name, name, n) == 0 && (name[n] == 0 || (name[n] == ':' && t == &pp_transport_strict));
}

const pp_transport *pp_transport_choose(const char *name, int n_ranks) {
  for (size_t i = 0; i < sizeof pp_transports / sizeof *pp_transports; i++) {
    const pp_transport *t = pp_transports[i];
    if (name ? is_named(t, name) : t->fits && t->fits(n_ranks)) return t;
  }
  return NULL;
}
