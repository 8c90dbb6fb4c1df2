/* What turns an emitted CUDA program into running ones. In: the plan, and the files made so far. Out: Makefile,
 * launch.sh, mpmd.conf, mpiexec.conf. The build needs make, a C compiler, the CUDA toolkit with cuBLASLt, NCCL,
 * jansson and libcrypto; nothing of ppc. `make check` builds what stands in for a GPU and its libraries. */
#include "codegen/cuda/build_files.h"

#include <string.h>

static bool is_header(const char *path) { return str_ends_with(path, ".h") && !str_starts_with(path, "runtime/check/"); }
static bool is_device_text(const char *path) {
  return str_ends_with(path, ".cuh") || (is_header(path) && strcmp(path, "tables.h") != 0 && !emit_is_of_one_rank(path));
}
static bool is_common(const char *path) {
  return str_ends_with(path, ".c") && !emit_is_of_one_rank(path) && !str_starts_with(path, "runtime/check/");
}

static const char makefile_head[] =
    "#   make                the programs rank_0, rank_1, … and kernels.fatbin; ./launch.sh starts them\n"
    "#   make check          what stands in for a GPU: PPC_CHECK=SEED ./launch.sh runs the same programs on this\n"
    "#                       host, in an order of things that the seed chooses, and reports races and hangs\n"
    "#   make occupancy      registers, shared memory and occupancy of each kernel\n"
    "#   make V=1            shows the commands;  WARN=-Werror: warnings of the C compiler are errors\n"
    "#   make CUDA=DIR       the toolkit, when nvcc is not on PATH;  NCCL=DIR: NCCL, when it is elsewhere\n"
    "#   make ARCH='90 100'  the GPUs that device code is built for, or 90,sm_100a; later ones compile\n"
    "#                       the PTX of the newest of them, without its letter\n"
    "# Objects are kept by content in $OBJECT_CACHE (default ~/.cache/ppc/objects).\n"
    "\n"
    "ifndef CUDA\n"
    "CUDA   := $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc)))\n"
    "endif\n"
    "NVCC   := $(CUDA)/bin/nvcc\n"
    "ifeq ($(wildcard $(NVCC)),)\n"
    "ifneq ($(MAKECMDGOALS),clean)\n"
    "$(error $(if $(CUDA),$(NVCC): no such file,nvcc is not on PATH): name the CUDA toolkit with make CUDA=DIR, or CUDA=DIR in the environment)\n"
    "endif\n"
    "endif\n"
    "KNOWN  := $(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch 2>/dev/null))\n";

static const char makefile_flags[] =
    "comma  := ,\n"
    "GPUS   := $(shell printf '%s\\n' $(subst $(comma), ,$(ARCH)) | sed 's/^sm_//' | sort -n | uniq)\n"
    "# PTX of 90a or 100f is for no later GPU; that of their numbers is.\n"
    "PTX    := $(patsubst %f,%,$(patsubst %a,%,$(lastword $(GPUS))))\n"
    "CODE   := $(foreach a,$(GPUS),-gencode arch=compute_$a,code=sm_$a) -gencode arch=compute_$(PTX),code=compute_$(PTX)\n"
    "\n"
    "# No contraction: kernels give the bits of those for CPUs. Nothing is spilled. Each call of a stage leaves a frame, so\n"
    "# that a stack tells the line.\n"
    "NVCCFLAGS := -std=c++17 -fmad=false -Xptxas -warn-spills,-warn-lmem-usage -Werror all-warnings\n"
    "CFLAGS := -std=c11 -O2 -g -fno-optimize-sibling-calls -ffp-contract=off\n"
    "WARN    =\n"
    "SOURCE := -D_GNU_SOURCE -Wall -Wextra -I. -Iruntime -isystem $(CUDA)/include $(addprefix -isystem ,$(NCCL:%=%/include))\n"
    "# Where the libraries are.\n"
    "FOLDERS := $(wildcard $(CUDA)/lib64 $(CUDA)/lib $(CUDA)/targets/*/lib $(NCCL:%=%/lib64) $(NCCL:%=%/lib))\n"
    "# A path in the programs that LD_LIBRARY_PATH goes before.\n"
    "LDFLAGS := -Wl,--no-undefined -Wl,--enable-new-dtags $(FOLDERS:%=-L%) $(FOLDERS:%=-Wl,-rpath,%)\n"
    "LIBS   := -lcudart -lcublasLt -lnccl -ljansson -lcrypto -lm -lpthread\n"
    "\n"
    "BUILD  := obj\n"
    "FLAGS   = $(CFLAGS) $(SOURCE) $(WARN)\n"
    "SAY     = $(if $(V),,@echo \"  $(if $(filter %.fatbin,$@),nvcc,cc) $@\";)\n"
    "CACHED := sh runtime/cc-cached.sh\n"
    "\n";

static const char makefile_rules[] =
    "\n"
    "all: kernels.fatbin\n"
    "\n"
    "kernels.fatbin: kernels.cu $(DEVICE) Makefile $(BUILD)/arch\n"
    "\t$(SAY)INCLUDED=\"$(DEVICE)\" $(CACHED) $@ $< $(NVCC) $(NVCCFLAGS) $(CODE) -I. -fatbin\n"
    "\n"
    "$(BUILD)/%.o: %.c $(HEADERS) Makefile $(BUILD)/flags\n"
    "\t@mkdir -p $(@D)\n"
    "\t$(SAY)$(CACHED) $@ $< $(CC) $(FLAGS)\n"
    "\n"
    "$(PROGRAMS):\n"
    "\t$(SAY)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(LIBS)\n"
    "\n"
    "# What was built for other GPUs, or with other flags, is built again.\n"
    "$(BUILD)/arch: BUILT = $(NVCC) $(NVCCFLAGS) $(CODE)\n"
    "$(BUILD)/flags: BUILT = $(CC) $(CFLAGS) $(SOURCE) $(LDFLAGS)\n"
    "$(BUILD)/arch $(BUILD)/flags: FORCE\n"
    "\t@mkdir -p $(@D)\n"
    "\t@echo '$(BUILT)' | cmp -s - $@ || echo '$(BUILT)' >$@\n"
    "FORCE:\n"
    "\n"
    "# Libraries in place of those of CUDA, and the kernels for this CPU.\n"
    "CHECK_FROM := runtime/check\n"
    "CHECK_TO   := check\n"
    "include runtime/check/build.mk\n"
    "$(eval $(call check_kernels,kernels.host.so,kernels.cu,-I. -Wno-unknown-pragmas $(WARN)))\n"
    "kernels.host.so: $(DEVICE)\n"
    "check: all $(CHECK_LIBS) kernels.host.so\n"
    "\n"
    "# Registers, shared memory and theoretical occupancy of each kernel, for each of GPUS.\n"
    "occupancy: kernels.cu $(DEVICE)\n"
    "\t@mkdir -p $(BUILD)\n"
    "\t@$(NVCC) $(filter-out -Werror all-warnings,$(NVCCFLAGS)) $(CODE) -Xptxas -v -I. -fatbin -o $(BUILD)/occupancy.fatbin $< \\\n"
    "\t  >$(BUILD)/occupancy.log 2>&1 || { cat $(BUILD)/occupancy.log; exit 1; }\n"
    "\t@awk -f runtime/cuda/occupancy.awk kernels_launch.c $(BUILD)/occupancy.log\n"
    "\n"
    "clean:\n"
    "\trm -rf obj check kernels.fatbin kernels.host.* $(PROGRAMS)\n"
    "\n"
    ".PHONY: all check occupancy clean FORCE\n";

/* What the command line of ppc names, else those that nvcc knows. */
static void emit_arch(Str *out, const Plan *plan) {
  if (plan->arch) str_printf(out, "ARCH   := %s\n", plan->arch);
  else str_puts(out, "ARCH   := $(filter $(KNOWN),80 90 100)\n");
}

static void emit_makefile(Arena *arena, const Plan *plan, EmitFiles *files) {
  Str out = {0};
  str_puts(&out, "# Builds the programs of ");
  emit_comment(&out, plan->model);
  str_printf(&out, " for %d GPU%s. Emitted by ppc.\n#\n%s", plan->n_ranks, plan->n_ranks == 1 ? "" : "s", makefile_head);
  emit_arch(&out, plan);
  str_puts(&out, makefile_flags);
  emit_list(&out, "HEADERS", files, is_header);
  emit_list(&out, "DEVICE", files, is_device_text);
  emit_list(&out, "SHARED", files, is_common);
  str_puts(&out, "COMMON := $(SHARED:%.c=$(BUILD)/%.o)\n");
  emit_programs(&out, plan);
  emit_prerequisites(&out, plan);
  str_puts(&out, makefile_rules);
  emit_add(arena, files, "Makefile", &out);
}

static const char launch_setup[] =
    "\n"
    "# PPC_CHECK=SEED: under the checking libraries (make check), without a GPU.\n"
    "if [ -n \"${PPC_CHECK:-}\" ]; then\n"
    "  case $PPC_CHECK in *[!0-9]*) echo \"launch.sh: PPC_CHECK=$PPC_CHECK: expected a seed, a number\" >&2; exit 2 ;; esac\n"
    "  libraries=$here/check/lib\n"
    "  [ -e \"$here/kernels.host.so\" ] || { echo \"launch.sh: run make check first\" >&2; exit 1; }\n"
    "  LD_LIBRARY_PATH=$libraries LD_BIND_NOW=1 NVTX_INJECTION64_PATH=$libraries/libcudart.so.13\n"
    "  PPC_CHECK_SEED=$PPC_CHECK PPC_CHECK_RANKS=$PPC_RANKS PPC_CHECK_WORLD=$(mktemp) || exit 1\n"
    "  export LD_LIBRARY_PATH LD_BIND_NOW NVTX_INJECTION64_PATH PPC_CHECK_SEED PPC_CHECK_RANKS PPC_CHECK_WORLD\n"
    "  trap 'rm -f \"$PPC_CHECK_WORLD\"' EXIT\n"
    "  set -- --timeout=60 \"$@\" # this host makes the kernels: a call takes long\n"
    "fi\n";

void emit_build_files_cuda(Arena *arena, const Plan *plan, EmitFiles *files) {
  emit_makefile(arena, plan, files);
  emit_launch_files(arena, plan, launch_setup, "PPC_CHECK_RANK=$rank ", files);
}
