/* Emitted programs: building them and running all ranks on this host. */
#ifndef PPC_RUN_H
#define PPC_RUN_H

#include "codegen/emit.h"
#include "compiler/driver/options.h"

/* Builds the program in options->output, else in the cache, where the same text is built once. Returns
 * the folder, or null after a message. out_temporary: the caller removes the folder in the end. */
const char *build_program(Arena *arena, const EmitFiles *files, const Options *options, bool *out_temporary);

/* Starts rank_0 … in `dir`, hands signals on, reaps all, ends the rest when one fails. Returns the status
 * for ppc: fine, 128 + signal, or that of the first rank that failed. */
int run_ranks(Arena *arena, const char *dir, int n_ranks, const Texts *arguments);

#endif
