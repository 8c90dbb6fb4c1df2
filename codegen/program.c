/* Plan → the files of a program. In: the plan. Out: everything that DIR holds except what the driver adds
 * (the sources and the IR). One maker per file, in the order a reader meets them. */
#include "codegen/target.h"
#include "compiler/base/diag.h"

static void add_runtime(Arena *arena, const EmitTarget *target, EmitFiles *files) {
  for (int i = 0; i < codegen_runtime_file_count; i++) {
    const EmbeddedFile *f = &codegen_runtime_files[i];
    if (!target->takes_runtime_file(f->path)) continue;
    EmitFile file = {f->path, f->text, f->size, str_ends_with(f->path, ".sh")};
    VEC_PUSH(arena, files, file);
  }
}

static const EmitTarget *target_of(const Plan *plan) {
  switch (plan->target) {
  case PP_TARGET_CPU: return &emit_target_cpu;
  case PP_TARGET_CUDA: return &emit_target_cuda;
  }
  bug("no target %d", (int)plan->target);
}

void emit_program(Arena *arena, const Plan *plan, EmitFiles *files) {
  const EmitTarget *target = target_of(plan);
  const void *prepared = target->prepare ? target->prepare(arena, plan) : NULL;
  for (int k = 0; k < plan->n_stages; k++) {
    emit_stage_header(arena, plan, &plan->stages[k], files);
    emit_stage_source(arena, plan, &plan->stages[k], target, prepared, files);
  }
  target->kernels(arena, plan, prepared, files);
  for (int r = 0; r < plan->n_ranks; r++) emit_rank(arena, plan, &plan->ranks[r], target, files);
  add_runtime(arena, target, files);
  emit_plan_json(arena, plan, target->name, target->products, files);
  target->build_files(arena, plan, files);
}
