/* The CPU target: C for any CPU, OpenBLAS for products, ranks that share memory. */
#include <string.h>

#include "codegen/target.h"

static bool takes_runtime_file(const char *path) {
  return strstr(path, "/cuda/") == NULL && strstr(path, "/check/") == NULL;
}

const EmitTarget emit_target_cpu = {
    .name = "cpu",
    .products = "openblas",
    .stage_includes = "#include <string.h>\n\n",
    .statement = emit_c_statement,
    .kernels = emit_kernels_c,
    .build_files = emit_build_files,
    .takes_runtime_file = takes_runtime_file,
};
