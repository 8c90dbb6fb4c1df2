# ppc: `make` builds bin/ppc, `make demo` trains the demo, `make test` runs the tests.
# Each of the last two does its own set-up (.ci/setup).

LLVM      ?= /usr/lib/llvm-19
CC        ?= cc
CFLAGS    ?= -O2 -g
PREFIX    ?= /usr/local
B         := build

WARN      := -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wstrict-prototypes
ifeq ($(CI),true)
WARN      += -Werror
endif
INC       := -I. -I$(B) -isystem $(LLVM)/include

MLIRLIBS  := Parser AsmParser BytecodeReader BytecodeWriter BytecodeOpInterface IRDL FuncDialect FunctionInterfaces \
             ControlFlowInterfaces InferTypeOpInterface Pass IR Support
MLIR      := -L$(LLVM)/lib -Wl,--start-group -lMLIRCAPIIRDL -lMLIRCAPIFunc -lMLIRCAPIIR $(addprefix -lMLIR,$(MLIRLIBS)) \
             -lLLVMSupport -lLLVMDemangle -Wl,--end-group -lstdc++ -lm -lz -lzstd -ltinfo
LIBS      := $(MLIR) -ljansson -lpthread

# make V=1 shows the commands.
SAY        = $(if $(V),,@echo "  make $@";)

sources    = $(filter-out %_test.c %/fuzz.c,$(wildcard $(1)))
BASE      := $(call sources,compiler/base/*.c)
DSL       := $(call sources,dsl/*.c) $(B)/dsl/parse.c $(B)/dsl/lex.c $(B)/dsl/library.c
COMPILER  := $(call sources,compiler/ir/*.c compiler/*.c) $(B)/compiler/page.c
CODEGEN   := $(call sources,codegen/*.c codegen/c/*.c codegen/cuda/*.c) $(B)/codegen/runtime_files.c
DRIVER    := $(call sources,compiler/driver/*.c)
objects    = $(patsubst %.c,$(B)/obj/%.o,$(patsubst $(B)/%,gen/%,$(1)))
LIBRARY   := $(call objects,$(BASE) $(DSL) $(COMPILER) $(CODEGEN)) $(filter-out %/main.o,$(call objects,$(DRIVER)))
RUNTIME   := $(sort $(wildcard runtime/*.[hc] runtime/*.sh runtime/transport/*.[hc] runtime/kernels/*.[hc]))
RUNTIME   := $(filter-out %_test.c,$(RUNTIME))
# Goes into folders of emitted programs, beside the above.
EMBEDDED  := $(sort $(RUNTIME) $(filter-out %_test.c, $(wildcard runtime/cuda/*.[ch] runtime/cuda/*.awk runtime/kernels/cuda/*.cuh runtime/check/*.[ch] \
             runtime/check/*.map runtime/check/*.mk)))

all: bin/ppc

bin/ppc: $(B)/obj/compiler/driver/main.o $(B)/libppc.a
	@mkdir -p $(@D)
	$(SAY)$(CC) $(LDFLAGS) -static -Wl,--gc-sections -o $@ $^ $(LIBS) 2>$(B)/link.log || { cat $(B)/link.log; exit 1; }

$(B)/libppc.a: $(LIBRARY)
	@rm -f $@
	$(SAY)$(AR) rcs $@ $^

$(B)/obj/gen/%.o: $(B)/%.c
	@mkdir -p $(@D)
	$(SAY)$(CC) $(CFLAGS) -std=c11 -D_GNU_SOURCE $(INC) -ffunction-sections -fdata-sections -MMD -c -o $@ $<

$(B)/obj/%.o: %.c | $(B)/dsl/parse.h
	@mkdir -p $(@D)
	$(SAY)$(CC) $(CFLAGS) $(WARN) $(INC) -ffunction-sections -fdata-sections -MMD -c -o $@ $<

$(B)/dsl/parse.c $(B)/dsl/parse.h &: dsl/parse.y
	@mkdir -p $(@D)
	$(SAY)bison -Wall -Werror=conflicts-sr -Werror=conflicts-rr -o $(B)/dsl/parse.c --header=$(B)/dsl/parse.h $<

$(B)/dsl/lex.c: dsl/lex.l $(B)/dsl/parse.h
	@mkdir -p $(@D)
	$(SAY)flex -o $@ $<

$(B)/dsl/library.c: dsl/embed.sh $(wildcard dsl/lib/*.pp)
	@mkdir -p $(@D)
	$(SAY)sh dsl/embed.sh $(wildcard dsl/lib/*.pp) >$@.tmp && mv $@.tmp $@

$(B)/compiler/page.c: compiler/page/embed.sh compiler/page/page.css compiler/page/page.js
	@mkdir -p $(@D)
	$(SAY)sh compiler/page/embed.sh compiler/page/page.css compiler/page/page.js >$@.tmp && mv $@.tmp $@

$(B)/codegen/runtime_files.c: codegen/embed.sh $(EMBEDDED)
	@mkdir -p $(@D)
	$(SAY)sh codegen/embed.sh $(EMBEDDED) >$@.tmp && mv $@.tmp $@

# A header that is gone is a reason to build what included it, not to stop.
%.h: ;

# --- tests ------------------------------------------------------------------------------------------

UNIT      := $(wildcard compiler/base/*_test.c dsl/*_test.c compiler/ir/*_test.c compiler/*_test.c codegen/*_test.c codegen/c/*_test.c codegen/cuda/*_test.c compiler/driver/*_test.c)
UNITS     := $(patsubst %.c,$(B)/test/%,$(UNIT))
RUNITS    := $(patsubst %.c,$(B)/test/%,$(wildcard runtime/*_test.c runtime/transport/*_test.c runtime/kernels/*_test.c))

$(B)/test/runtime/%: runtime/%.c $(RUNTIME)
	@mkdir -p $(@D)
	$(SAY)$(CC) -O2 -g $(WARN) -ffp-contract=off -fopenmp-simd -I. -Iruntime -o $@ $< $(filter %.c,$(RUNTIME)) -lopenblas -ljansson -lcrypto -lm -lpthread

$(B)/test/%: %.c $(B)/libppc.a
	@mkdir -p $(@D)
	$(SAY)$(CC) $(CFLAGS) $(WARN) $(INC) -o $@ $< $(B)/libppc.a $(LIBS)

setup:
	@.ci/setup

# A second make, so that its variables see what set-up installed.
test: setup
	@$(MAKE) --no-print-directory check

check: bin/ppc $(UNITS) $(RUNITS) $(B)/asan/fuzz
	@testdata/run $(B)/asan/fuzz $(UNITS) $(RUNITS) testdata

# The same promises on many more cases, in hours.
test-long: setup
	@$(MAKE) --no-print-directory bin/ppc
	@JOBS=1 LIMIT=36000 VERBOSE=1 testdata/run $(wildcard testdata/*/*.long)

demo: setup
	@$(MAKE) --no-print-directory bin/ppc
	@testdata/demo

# Libraries in place of those of CUDA, under which emitted programs are checked without a GPU.
CHECK_FROM := runtime/check
CHECK_TO   := $(B)/check
include runtime/check/build.mk
ifeq ($(CUDA),)
check-libs:
	@echo 'skipped: the checking libraries need the headers of CUDA, and nvcc is not installed'
else
check-libs: $(CHECK_LIBS)
endif

# The compiler with sanitizers and its fuzzer. MLIR is linked as it is.
SANITIZE  := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -Wno-format-truncation
ASAN      := $(patsubst $(B)/obj/%,$(B)/asan/obj/%,$(LIBRARY)) $(B)/asan/obj/compiler/driver/fuzz.o

$(B)/asan/obj/gen/%.o: $(B)/%.c
	@mkdir -p $(@D)
	$(SAY)$(CC) $(SANITIZE) -std=c11 -D_GNU_SOURCE $(INC) -MMD -c -o $@ $<

$(B)/asan/obj/%.o: %.c | $(B)/dsl/parse.h
	@mkdir -p $(@D)
	$(SAY)$(CC) $(SANITIZE) $(WARN) $(INC) -MMD -c -o $@ $<

$(B)/asan/fuzz: $(ASAN)
	$(SAY)$(CC) $(SANITIZE) -o $@ $^ $(LIBS)

# Longer than the tests.
fuzz: $(B)/asan/fuzz
	$(B)/asan/fuzz 200000

# Speeds, as ratios in one run; no test.
bench: bin/ppc
	python3 testdata/bench/bench.py bin/ppc

# Pictures of the library's schedules, which are committed.
gallery: bin/ppc
	$(SAY)python3 docs/gallery/make.py bin/ppc docs/gallery

clean:
	rm -rf $(B) bin

install: bin/ppc
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 bin/ppc $(DESTDIR)$(PREFIX)/bin/ppc

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

-include $(shell find $(B)/obj $(B)/asan/obj -name '*.d' 2>/dev/null)

.PHONY: all bench setup test test-long check check-libs demo fuzz gallery clean install format
