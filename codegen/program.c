/* Plan → the files of a program that runs on CPUs. In: the plan. Out: everything that DIR holds except
 * what the driver adds (the sources and the IR). One maker per file, in the order a reader meets them. */
#include "codegen/parts.h"

static void add_runtime(Arena *arena, EmitFiles *files) {
  for (int i = 0; i < codegen_runtime_file_count; i++) {
    const EmbeddedFile *f = &codegen_runtime_files[i];
    EmitFile file = {f->path, f->text, f->size, str_ends_with(f->path, ".sh")};
    VEC_PUSH(arena, files, file);
  }
}

void emit_program(Arena *arena, const Plan *plan, EmitFiles *files) {
  for (int k = 0; k < plan->n_stages; k++) {
    emit_stage_header(arena, plan, &plan->stages[k], files);
    emit_stage_source(arena, plan, &plan->stages[k], files);
  }
  emit_kernels_c(arena, plan, files);
  for (int r = 0; r < plan->n_ranks; r++) emit_rank(arena, plan, &plan->ranks[r], files);
  add_runtime(arena, files);
  emit_plan_json(arena, plan, "cpu", "openblas", files);
  emit_build_files(arena, plan, files);
}
