/* All ranks of a job as threads of one process, over the same transport code: ThreadSanitizer sees
 * nothing across processes. */
#ifndef PP_THREADS_H
#define PP_THREADS_H

#include "pp.h"

/* programs: [n], one per rank. Returns the largest exit status. */
int pp_main_threads(const pp_program *const *programs, int n, int argc, char **argv);

#endif
