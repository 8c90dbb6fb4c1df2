/* The CPU target: C for any CPU, OpenBLAS for products, ranks that share memory. */
#include <string.h>

#include "codegen/target.h"

static bool takes_runtime_file(const char *path) {
  return strstr(path, "/cuda/") == NULL && strstr(path, "/check/") == NULL;
}

static void emit_kernels(Arena *arena, const Plan *plan, const void *prepared, EmitFiles *files) {
  (void)prepared;
  emit_kernels_c(arena, plan, files);
}

const EmitTarget emit_target_cpu = {
    .name = "cpu",
    .products = "openblas",
    .stage_includes = "#include <string.h>\n\n",
    .rank_includes = "#include \"kernels.h\"\n#include \"runtime/device.h\"\n#include \"runtime/pp.h\"\n",
    .window = "from which its peers read",
    .source = "place in the sender's window",
    .main_starts = "  if (pp_kernels_select() != 0) return 1;\n",
    .statement = emit_c_statement,
    .kernels = emit_kernels,
    .build_files = emit_build_files,
    .takes_runtime_file = takes_runtime_file,
};
