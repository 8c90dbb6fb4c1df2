# The checking libraries, and kernels for them: rules that ppc's own Makefile includes, and that of each program ppc emits for CUDA.
# Include it behind the first target, with these set:
#   CHECK_FROM   the folder of this file
#   CHECK_TO     where to build
#   CUDA         the toolkit, if nvcc is not on PATH
# It gives
#   $(CHECK_LIBS)   libcudart.so.13, libnccl.so.2, libcublasLt.so.13 in $(CHECK_TO)/lib
#   $(eval $(call check_kernels,OUT/kernels.host.so,kernels.cu,FLAGS))
#                   a rule that compiles device code for the host. The library opens NAME.host.so for NAME.fatbin, from
#                   the same folder. A kernel's head must stand on one line up to its name:
#                   extern "C" __global__ __launch_bounds__(n) void name(
#   $(CHECK_RUN)    the environment under which a program is checked; how ranks find each other is in world.c, and what
#                   else may be set in schedule.c
ifndef CUDA
CUDA := $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc)))
endif
CHECK_LIB  := $(CHECK_TO)/lib
CHECK_LIBS := $(addprefix $(CHECK_LIB)/,libcudart.so.13 libnccl.so.2 libcublasLt.so.13)
CHECK_RUN   = LD_LIBRARY_PATH=$(abspath $(CHECK_LIB)) LD_BIND_NOW=1 NVTX_INJECTION64_PATH=$(abspath $(CHECK_LIB))/libcudart.so.13

CHECK_WARN := -Wall -Wextra -Wshadow
# Whoever sets V=1 sees the commands.
CHECK_SAY   = $(if $(V),,@echo "  cc $@";)
CHECK_CC    = $(CC) -std=c11 -O2 -g -fPIC -shared -fno-semantic-interposition $(CHECK_WARN) -Wstrict-prototypes \
              -isystem $(CUDA)/include -Wl,-Bsymbolic-functions -Wl,--no-undefined -Wl,-soname,$(@F) $(filter %.c,$^)
CHECK_CORE  = -L$(CHECK_LIB) -l:libcudart.so.13

$(CHECK_LIB)/libcudart.so.13: $(addprefix $(CHECK_FROM)/,report.c label.c source.c schedule.c streams.c memory.c launch.c \
    graph.c host.c span.c nvtx.c race.c access.c device.c warp.c place.c race.h device.h core.h report.h cudart.map)
	@mkdir -p $(@D)
	$(CHECK_SAY)$(CHECK_CC) -Wl,--version-script,$(CHECK_FROM)/cudart.map -o $@.new && mv $@.new $@

$(CHECK_LIB)/libnccl.so.2: $(addprefix $(CHECK_FROM)/,world.c comm.c transfer.c collective.c world.h collective.h core.h report.h) $(CHECK_LIB)/libcudart.so.13
	$(CHECK_SAY)$(CHECK_CC) $(CHECK_CORE) -o $@.new && mv $@.new $@

$(CHECK_LIB)/libcublasLt.so.13: $(addprefix $(CHECK_FROM)/,cublaslt.c core.h report.h cublaslt.map) $(CHECK_LIB)/libcudart.so.13
	$(CHECK_SAY)$(CHECK_CC) $(CHECK_CORE) -Wl,--version-script,$(CHECK_FROM)/cublaslt.map -lm -o $@.new && mv $@.new $@

# Compiled, but not linked, with -fsanitize=thread: libcudart has the callbacks. -O1 and no loop patterns: a loop must
# not become a memset that nobody observes. Its thread-local variables are those of __shared__, without initialisers.
CHECK_CXX  := -std=c++17 -O1 -g1 -fPIC -fno-plt -fsanitize=thread --param tsan-instrument-func-entry-exit=0 -fno-extern-tls-init -ffp-contract=off -fno-tree-loop-distribute-patterns $(CHECK_WARN) -Wno-unknown-pragmas
CHECK_TABLE = sed -n -e 's/^extern "C" __global__ __launch_bounds__(\([^)]*\)) void \([A-Za-z0-9_]*\)(.*/CHECK_KERNEL(\2, \1)/p;t' \
                -e 's/^extern "C" __global__.* void \([A-Za-z0-9_]*\)(.*/CHECK_KERNEL(\1, 0)/p'

define check_kernels
$(1): $(2) $(CHECK_FROM)/kernels_host.h
	@mkdir -p $$(@D)
	@{ echo '#include "$(notdir $(2))"'; $$(CHECK_TABLE) $$<; } >$(1:.so=.cpp)
	$$(CHECK_SAY)sh $$(CHECK_FROM)/../cc-cached.sh $(1:.so=.o) $(1:.so=.cpp) $$(CXX) $$(CHECK_CXX) -isystem $$(CUDA)/include \
	  -include $$(CHECK_FROM)/kernels_host.h -I$(dir $(2)) $(3) && $$(CXX) -shared $(1:.so=.o) -o $$@.new && mv $$@.new $$@
endef
