/* kernels.cu, kernels.h and kernels_launch.c from a list of kernels, see kernel.h. What their bodies do is
 * the makers' work; here are the texts around them: signatures, numbers, geometries, launches. */
#include <string.h>

#include "codegen/cuda/kernel.h"
#include "codegen/kernel_emit.h"
#include "compiler/base/diag.h"

typedef VEC(const CudaKernel *) Functions;

enum { MAX_BLOCK = 1024, MAX_GRID_Y = 65535 };

/* --- the list ---------------------------------------------------------------------------------------- */

/* The hardware's limits: what is beyond them is a mistake of the maker. */
static void check_geometry(const CudaKernel *k) {
  bool fits = k->block >= 1 && k->block <= MAX_BLOCK && k->shared_bytes >= 0 && k->grid[0] >= 1 && k->grid[0] <= INT32_MAX;
  for (int i = 1; i < 3; i++) fits &= k->grid[i] >= 1 && k->grid[i] <= MAX_GRID_Y;
  if (!fits) bug("kernel %s can't be launched", k->name);
}

bool cuda_kernel_finds_control(const CudaKernel *k) {
  bool is_own = false;
  for (int i = 0; i < k->n_parameters; i++) is_own |= !strcmp(k->parameters[i].name, "control");
  return k->guarded && !is_own;
}

bool cuda_kernel_takes(const CudaKernel *k, int i) {
  const char *name = k->parameters[i].name;
  return (k->guarded && !strcmp(name, "control")) || kernel_count_mentions(k->body, name);
}

static void add_function(Arena *arena, Functions *functions, Map *names, const CudaKernel *k) {
  if (k->before) add_function(arena, functions, names, k->before);
  check_geometry(k);
  if (map_find(names, k->name)) bug("two kernels are called %s", k->name);
  map_put(arena, names, k->name, NULL);
  VEC_PUSH(arena, functions, k);
}

/* --- kernels.cu ---------------------------------------------------------------------------------------- */

static void print_parameter(EmitCall *call, const CudaParameter *p, bool device) {
  bool is_pointer = p->type[strlen(p->type) - 1] == '*';
  const char *restricted = device && is_pointer && p->is_restrict ? "__restrict__ " : "";
  emit_call_arg(call, "%s%s%s%s", p->type, is_pointer ? "" : " ", restricted, p->name);
}

static void print_function(Str *out, const CudaKernel *k) {
  str_putc(out, '\n');
  if (k->comment) {
    emit_wrapped_comment(out, k->comment);
    str_putc(out, '\n');
  }
  str_printf(out, "extern \"C\" __global__ __launch_bounds__(%d, %d) void %s(\n    ", k->block, k->min_blocks > 1 ? k->min_blocks : 1, k->name);
  EmitCall call = {.out = out, .indent = 4};
  if (cuda_kernel_finds_control(k)) emit_call_arg(&call, "const double *__restrict__ control");
  if (k->random) emit_call_arg(&call, "const pp_random_state *__restrict__ random, int microbatch");
  if (k->partial) emit_call_arg(&call, "double *__restrict__ partial");
  for (int i = 0; i < k->n_parameters; i++)
    if (cuda_kernel_takes(k, i)) print_parameter(&call, &k->parameters[i], true);
  str_puts(out, ") {\n");
  if (k->guarded) str_puts(out, "  if (control[PP_CONTROL_APPLY] == 0) return;\n");
  str_printf(out, "%s}\n", k->body);
}

static void print_includes(Arena *arena, Str *out, const Functions *functions) {
  Map seen = {0};
  for (int i = 0; i < functions->n; i++) {
    const char *name = functions->at[i]->include;
    if (!name || map_find(&seen, name)) continue;
    map_put(arena, &seen, name, NULL);
    str_printf(out, "#include \"runtime/kernels/cuda/%s\"\n", name);
  }
}

/* A name that only this text has: programs look for it among the kernels that they load. */
static const char *emit_source(Arena *arena, const Functions *functions, EmitFiles *files) {
  Str out = {0};
  str_puts(&out, "/* What runs on the device: every kernel once, with the geometry of kernels_launch.c. Values are rounded to\n"
                 " * their type, nothing is contracted (-fmad=false), sums have 16 fixed lanes: the bits of the CPU's kernels. */\n"
                 "#include \"runtime/cuda/cuda.h\"\n#include \"runtime/kernels/cuda/math.cuh\"\n"
                 "#include \"runtime/kernels/cuda/random.cuh\"\n#include \"runtime/kernels/cuda/reduce.cuh\"\n");
  print_includes(arena, &out, functions);
  for (int i = 0; i < functions->n; i++) print_function(&out, functions->at[i]);
  const char *mark = arena_printf(arena, "kernels_%016llx", (unsigned long long)str_hash(str_text(&out), out.length));
  str_printf(&out, "\n/* Programs look for it: whether these are their kernels. */\nextern \"C\" __global__ void %s() {}\n", mark);
  emit_add(arena, files, "kernels.cu", &out);
  return mark;
}

/* --- kernels.h, kernels_launch.c ------------------------------------------------------------------------- */

static void print_launch_head(Str *out, const CudaKernel *k) {
  str_printf(out, "void launch_%s(", k->name);
  EmitCall call = {.out = out, .indent = emit_column(out) > EMIT_COLUMNS / 2 ? 4 : emit_column(out)};
  emit_call_arg(&call, "const pp_call *c");
  for (int i = 0; i < k->n_parameters; i++) print_parameter(&call, &k->parameters[i], false);
  str_putc(out, ')');
}

static void print_numbers(Str *out, const Functions *functions) {
  str_puts(out, "/* Numbers in pp_kernels. */\nenum {\n");
  for (int i = 0; i < functions->n; i++) str_printf(out, "  kernel_%s,\n", functions->at[i]->name);
  str_puts(out, "  n_kernels\n};\n");
}

static void emit_header(Arena *arena, const Functions *functions, int n_kernels, const CudaKernel *kernels, EmitFiles *files) {
  Str out = {0};
  str_puts(&out, "/* The kernels of this program. A launch only enqueues, on the stream of the running action. */\n"
                 "#ifndef KERNELS_H\n#define KERNELS_H\n\n#include \"runtime/cuda/cuda.h\"\n\n");
  print_numbers(&out, functions);
  str_putc(&out, '\n');
  for (int i = 0; i < n_kernels; i++) {
    print_launch_head(&out, &kernels[i]);
    str_puts(&out, ";\n");
  }
  str_puts(&out, "\n#endif\n");
  emit_add(arena, files, "kernels.h", &out);
}

static void print_run(Str *out, const CudaKernel *k) {
  if (k->before) print_run(out, k->before);
  str_printf(out, "  pp_launch(c, kernel_%s,\n            (void *[]){", k->name);
  EmitCall call = {.out = out, .indent = 23};
  if (cuda_kernel_finds_control(k)) emit_call_arg(&call, "&control");
  if (k->random) emit_call_arg(&call, "&random, &microbatch");
  if (k->partial) emit_call_arg(&call, "&partial");
  for (int i = 0; i < k->n_parameters; i++)
    if (cuda_kernel_takes(k, i)) emit_call_arg(&call, "&%s", k->parameters[i].name);
  str_puts(out, "});\n");
}

/* What neither the kernel nor one before it takes. */
static void print_unused(Str *out, const CudaKernel *k) {
  for (int i = 0; i < k->n_parameters; i++) {
    bool is_taken = false;
    for (const CudaKernel *f = k; f && !is_taken; f = f->before) is_taken = cuda_kernel_takes(f, i);
    if (!is_taken) str_printf(out, "  (void)%s;\n", k->parameters[i].name);
  }
}

static void print_launch(Str *out, const CudaKernel *k) {
  str_putc(out, '\n');
  print_launch_head(out, k);
  str_puts(out, " {\n");
  bool control = false, random = false, partial = false;
  for (const CudaKernel *f = k; f; f = f->before) control |= cuda_kernel_finds_control(f), random |= f->random, partial |= f->partial;
  if (control) str_puts(out, "  const double *control = pp_device_control(c);\n");
  if (random) str_puts(out, "  const pp_random_state *random = pp_device_random(c);\n  int microbatch = c->microbatch;\n");
  if (partial) str_puts(out, "  double *partial = pp_device_scratch(c);\n");
  print_unused(out, k);
  print_run(out, k);
  str_puts(out, "}\n");
}

static void emit_launches(Arena *arena, const Functions *functions, int n_kernels, const CudaKernel *kernels, const char *mark, EmitFiles *files) {
  Str out = {0};
  str_puts(&out, "/* How the kernels are launched: their geometries, and a function for each that hands over its arguments. */\n"
                 "#include \"kernels.h\"\n\nconst pp_kernel pp_kernels[] = {\n");
  for (int i = 0; i < functions->n; i++) {
    const CudaKernel *k = functions->at[i];
    str_printf(&out, "  {\"%s\", {%lld, %lld, %lld}, %d, %lld},\n", k->name, (long long)k->grid[0], (long long)k->grid[1],
               (long long)k->grid[2], k->block, (long long)k->shared_bytes);
  }
  if (functions->n == 0) str_puts(&out, "  {0}\n");
  str_puts(&out, "};\nconst int pp_n_kernels = n_kernels;\n");
  str_printf(&out, "const char pp_kernels_mark[] = \"%s\";\n", mark);
  for (int i = 0; i < n_kernels; i++) print_launch(&out, &kernels[i]);
  emit_add(arena, files, "kernels_launch.c", &out);
}

void emit_kernels_cuda(Arena *arena, int n_kernels, const CudaKernel *kernels, EmitFiles *files) {
  Functions functions = {0};
  Map names = {0};
  for (int i = 0; i < n_kernels; i++) add_function(arena, &functions, &names, &kernels[i]);
  const char *mark = emit_source(arena, &functions, files);
  emit_header(arena, &functions, n_kernels, kernels, files);
  emit_launches(arena, &functions, n_kernels, kernels, mark, files);
}
