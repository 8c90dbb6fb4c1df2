/* Makefile and launch files of CUDA programs. */
#ifndef PPC_CUDA_BUILD_FILES_H
#define PPC_CUDA_BUILD_FILES_H

#include "codegen/parts.h"

void emit_build_files_cuda(Arena *arena, const Plan *plan, EmitFiles *files);

#endif
