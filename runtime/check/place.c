/* Lines of device code, for reports: addr2line is asked about the library of kernels, if it is installed. An address is a
 * return address in code that was inlined; of its chain, the innermost line counts that isn't in kernels_host.h, and the
 * line of kernels.cu is added where that is another one. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

enum { PLACE_TEXT = 160, LINE = 1024, N_KNOWN = 64 };

const char *check_base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* Reads the lines "file:line" of the chain, the innermost first. */
static void read_chain(FILE *pipe, char *out) {
  char line[LINE];
  size_t used = 0;
  while (fgets(line, sizeof line, pipe) && used < PLACE_TEXT - 1) {
    line[strcspn(line, " \n")] = 0; /* " (discriminator 1)" */
    const char *name = check_base_name(line);
    if (name[0] == '?' || strncmp(name, "kernels_host.h", 14) == 0) continue;
    const char *suffix = strstr(name, ".cu:");
    if (used && !suffix) continue;
    used += (size_t)snprintf(out + used, PLACE_TEXT - used, used ? " in %s" : " at %s", name);
    if (suffix) break;
  }
}

static void look_up(const void *code, char *out) {
  char command[LINE];
  Dl_info info;
  if (!dladdr(code, &info) || strchr(info.dli_fname, '\'')) return;
  size_t at = (size_t)((const char *)code - 1 - (const char *)info.dli_fbase);
  int n = snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%zx 2>&-", info.dli_fname, at);
  FILE *pipe = n < (int)sizeof command ? popen(command, "r") : NULL;
  if (!pipe) return;
  read_chain(pipe, out);
  pclose(pipe);
}

const char *check_place_in_kernel(const void *code) {
  static struct { const void *code; char text[PLACE_TEXT]; } known[N_KNOWN];
  unsigned slot = (unsigned)((uintptr_t)code % 1021 % N_KNOWN);
  if (!code) return "";
  if (known[slot].code == code) return known[slot].text;
  known[slot].code = code;
  known[slot].text[0] = 0;
  look_up(code, known[slot].text);
  return known[slot].text;
}
