/* What turns the emitted C into running programs. In: the plan, and the files made so far. Out: Makefile,
 * threads.c, launch.sh, mpmd.conf (srun), mpiexec.conf. The build needs make, a C compiler and the
 * libraries of LIBS; nothing of ppc. */
#include <string.h>

#include "codegen/parts.h"

/* Compiled once for each instruction set, like kernels.c. */
static const char *const leveled[] = {"kernels.c", "runtime/kernels/attention.c"};

static bool is_leveled(const char *path) {
  for (size_t i = 0; i < sizeof leveled / sizeof *leveled; i++)
    if (strcmp(path, leveled[i]) == 0) return true;
  return false;
}

/* --- Makefile ------------------------------------------------------------------------------------- */

static bool is_header(const char *path) { return str_ends_with(path, ".h"); }
static bool is_common(const char *path) { return str_ends_with(path, ".c") && !is_leveled(path) && !emit_is_of_one_rank(path); }

static const char makefile_head[] =
    "#   make                the programs rank_0, rank_1, …; ./launch.sh starts them\n"
    "#   make CHECK=1        check/rank_0, …: memory that is not live is poisoned, AddressSanitizer,\n"
    "#                       UndefinedBehaviorSanitizer (CHECK=1 ./launch.sh)\n"
    "#   make threads        ./threads: all ranks as threads of one process, ThreadSanitizer\n"
    "#   make V=1            shows the commands;  WARN=-Werror: warnings are errors\n"
    "# Objects are kept by content in $OBJECT_CACHE (default ~/.cache/ppc/objects).\n"
    "\n"
    "# No contraction, no -ffast-math: kernels give the same bits on all instruction sets.\n"
    "CFLAGS := -std=c11 -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off -fopenmp-simd\n"
    "WARN    =\n"
    "SOURCE := -D_GNU_SOURCE -Wall -Wextra -I. -Iruntime\n"
    "LIBS   := -lopenblas -ljansson -lcrypto -lm -lpthread\n"
    "\n"
    "ifeq ($(CHECK),1)\n"
    "OUT    := check/\n"
    "BUILD  := check/obj\n"
    "MODE   := -O2 -g -DPP_CHECK -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer\n"
    "else ifeq ($(MAKECMDGOALS),threads)\n"
    "OUT    :=\n"
    "BUILD  := obj-threads\n"
    "MODE   := -O2 -g -DPP_THREADS -fsanitize=thread\n"
    "else\n"
    "OUT    :=\n"
    "BUILD  := obj\n"
    "MODE   :=\n"
    "endif\n"
    "FLAGS   = $(CFLAGS) $(SOURCE) $(WARN) $(MODE)\n"
    "SAY     = $(if $(V),,@echo \"  cc $@\";)\n"
    "CACHED := sh runtime/cc-cached.sh\n"
    "\n"
    "# Kernels are built for three instruction sets, and chosen at start.\n"
    "ifneq ($(findstring x86_64,$(shell $(CC) -dumpmachine)),)\n"
    "LEVELS := 2 3 4\n"
    "else\n"
    "LEVELS := 0\n"
    "FLAGS  += -DPP_LEVEL=0\n"
    "endif\n"
    "LEVEL_0 := -DPP_LEVEL=0\n"
    "LEVEL_2 := -march=x86-64-v2 -DPP_LEVEL=2\n"
    "LEVEL_3 := -march=x86-64-v3 -DPP_LEVEL=3\n"
    "LEVEL_4 := -march=x86-64-v4 -mprefer-vector-width=512 -DPP_LEVEL=4\n\n";

static const char makefile_rules[] =
    "define level_rule\n"
    "$(BUILD)/%_v$(1).o: %.c $(HEADERS) Makefile $(BUILD)/flags\n"
    "\t@mkdir -p $$(@D)\n"
    "\t$$(SAY)$$(CACHED) $$@ $$< $$(CC) $$(FLAGS) $$(LEVEL_$(1))\n"
    "endef\n"
    "$(foreach l,$(LEVELS),$(eval $(call level_rule,$(l))))\n"
    "\n"
    "$(BUILD)/%.o: %.c $(HEADERS) Makefile $(BUILD)/flags\n"
    "\t@mkdir -p $(@D)\n"
    "\t$(SAY)$(CACHED) $@ $< $(CC) $(FLAGS)\n"
    "\n"
    "$(PROGRAMS) threads:\n"
    "\t@mkdir -p $(@D)\n"
    "\t$(SAY)$(CC) $(MODE) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBS)\n"
    "\n"
    "# What was built with other flags is built again.\n"
    "$(BUILD)/flags: BUILT = $(CC) $(CFLAGS) $(SOURCE) $(MODE)\n"
    "$(BUILD)/flags: FORCE\n"
    "\t@mkdir -p $(@D)\n"
    "\t@echo '$(BUILT)' | cmp -s - $@ || echo '$(BUILT)' >$@\n"
    "FORCE:\n"
    "\n"
    "clean:\n"
    "\trm -rf obj obj-threads check threads $(PROGRAMS)\n"
    "\n"
    ".PHONY: all clean FORCE\n";

static void emit_threads_prerequisites(Str *out, const Plan *plan) {
  str_puts(out, "threads: $(BUILD)/threads.o");
  for (int i = 0; i < plan->n_ranks + plan->n_stages; i++) {
    bool is_rank = i < plan->n_ranks;
    if (emit_column(out) > EMIT_COLUMNS - 24) str_puts(out, " \\\n ");
    str_printf(out, " $(BUILD)/%s_%d.o", is_rank ? "rank" : "stage", is_rank ? i : i - plan->n_ranks);
  }
  str_puts(out, " $(COMMON)\n\n");
}

static void emit_makefile(Arena *arena, const Plan *plan, EmitFiles *files) {
  Str out = {0};
  str_puts(&out, "# Builds the programs of ");
  emit_comment(&out, plan->model);
  str_printf(&out, " for %d ranks. Emitted by ppc.\n#\n%s", plan->n_ranks, makefile_head);
  emit_list(&out, "HEADERS", files, is_header);
  emit_list(&out, "SHARED", files, is_common);
  emit_list(&out, "LEVELED", files, is_leveled);
  str_puts(&out, "COMMON := $(SHARED:%.c=$(BUILD)/%.o) $(foreach l,$(LEVELS),$(LEVELED:%.c=$(BUILD)/%_v$(l).o))\n");
  emit_programs(&out, plan);
  emit_prerequisites(&out, plan);
  emit_threads_prerequisites(&out, plan);
  str_puts(&out, makefile_rules);
  emit_add(arena, files, "Makefile", &out);
}

/* --- threads.c ----------------------------------------------------------------------------------------- */

static void emit_threads(Arena *arena, const Plan *plan, EmitFiles *files) {
  Str out = {0};
  str_puts(&out, "/* All ranks of ");
  emit_comment(&out, plan->model);
  str_puts(&out, " as threads of one process, so that ThreadSanitizer sees what they share.\n"
                 " * Built by `make threads`. Emitted by ppc. */\n"
                 "#include \"kernels.h\"\n#include \"runtime/pp.h\"\n\nextern const pp_program");
  for (int r = 0; r < plan->n_ranks; r++) str_printf(&out, "%s pp_rank_%d", r ? "," : "", r);
  str_puts(&out, ";\n\nint main(int argc, char **argv) {\n  const pp_program *const ranks[] = {");
  for (int r = 0; r < plan->n_ranks; r++) str_printf(&out, "%s&pp_rank_%d", r ? ", " : "", r);
  str_printf(&out, "};\n  if (pp_kernels_select() != 0) return 1;\n"
                   "  return pp_main_threads(ranks, %d, argc, argv);\n}\n", plan->n_ranks);
  emit_add(arena, files, "threads.c", &out);
}

void emit_build_files(Arena *arena, const Plan *plan, EmitFiles *files) {
  emit_makefile(arena, plan, files); /* before threads.c is a file: it is not part of every program */
  emit_threads(arena, plan, files);
  emit_launch_files(arena, plan, "[ \"${CHECK:-}\" = 1 ] && here=$here/check\n", "", files);
}
