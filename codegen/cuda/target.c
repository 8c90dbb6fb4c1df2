/* The CUDA target: device code in kernels.cu, products by cuBLASLt, transfers by NCCL. The host program is
 * C, and reads like that for CPUs. */
#include <string.h>

#include "codegen/cuda/build_files.h"
#include "codegen/cuda/calls.h"

static bool takes_runtime_file(const char *path) {
  static const char *const of_cpus[] = {"runtime/cpu.c", "runtime/kernels/matmul.c", "runtime/kernels/attention.c", "runtime/kernels/attention_body.h",
                                        "runtime/kernels/rows.c", "runtime/kernels/level.h"};
  for (size_t i = 0; i < sizeof of_cpus / sizeof *of_cpus; i++)
    if (strcmp(path, of_cpus[i]) == 0) return false;
  return true;
}

static const void *prepare(Arena *arena, const Plan *plan) { return cuda_calls_collect(arena, plan); }

static void emit_kernels(Arena *arena, const Plan *plan, const void *prepared, EmitFiles *files) {
  const CudaCalls *calls = prepared;
  (void)plan;
  emit_kernels_cuda(arena, calls->kernels.n, calls->kernels.at, files);
  emit_tables_cuda(arena, calls, files);
}

/* Sample data that the calls of a task take from the host. */
static int64_t staged_bytes(const PlanTask *task) {
  int64_t bytes = 0;
  for (int i = 0; i < task->n_statements; i++) {
    const PlanStatement *s = &task->statements[i];
    if (s->op == PLAN_OP_DATA && s->n_in == 0) bytes += pp_align(plan_bytes(&task->buffers[s->out[0]].type));
  }
  return bytes;
}

static void emit_members(Str *out, const Plan *plan, const PlanRank *rank) {
  int64_t staging = 0;
  for (int i = 0; i < rank->n_actions; i++) staging += staged_bytes(&plan->tasks[rank->actions[i].task]);
  str_printf(out, "  .fatbin = \"kernels.fatbin\", .kernels_mark = pp_kernels_mark,\n"
                  "  .kernels = pp_kernels, .n_kernels = n_kernels,\n"
                  "  .products = pp_products, .n_products = n_products,\n"
                  "  .places = pp_places, .n_places = n_places,\n"
                  "  .n_streams = %d, .scratch_bytes = %lld, .partial_bytes = %lld, .staging_bytes = %lld,\n",
             rank->n_streams, (long long)plan->scratch_bytes, (long long)plan->partial_bytes, (long long)staging);
}

const EmitTarget emit_target_cuda = {
    .name = "cuda",
    .products = "cublaslt",
    .stage_includes = "#include \"tables.h\"\n",
    .rank_includes = "#include \"kernels.h\"\n#include \"tables.h\"\n#include \"runtime/device.h\"\n",
    .window = "from which it sends",
    .source = "place in the sender's window (NCCL needs none)",
    .main_starts = "",
    .names_lives = true,
    .prepare = prepare,
    .begin_task = emit_cuda_begin_task,
    .statement = emit_cuda_statement,
    .kernels = emit_kernels,
    .program = emit_members,
    .build_files = emit_build_files_cuda,
    .takes_runtime_file = takes_runtime_file,
};
