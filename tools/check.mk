# Tests, sanitizers, fuzzing, coverage, lint. Included by Makefile.
TESTS   ?= $(wildcard src/*_test.c src/*/*_test.c src/*/*/*_test.c app/*_test.c app/*/*_test.c \
           test/*_test.c)
HELPERS := $(filter-out %_test.c %_cli.c,$(wildcard test/*.c))
CLIS    := $(patsubst %.c,$B/%,$(wildcard test/*_cli.c))
FUZZ    := $(filter-out $(FUZZ_NOT),$(patsubst test/fuzz/%.c,%,$(wildcard test/fuzz/*.c)))
TESTBIN := $(TESTS:%.c=$B/%)

# cmocka 2 warns of names that cmocka 1 has no others for.
$(TESTBIN:%=%.o) $(HELPERS:%.c=$B/%.o): CFLAGS += $(TEST_CFLAGS) -Wno-deprecated-declarations
# The narrower pattern first: GNU make 3.81, which macOS has, takes the first that fits.
$B/app/%_test: $B/app/%_test.o $B/libapp.a $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ $(TEST_LIBS) $(PKG_LIBS) $(APP_LIBS) $(LIBS)

$B/%_test: $B/%_test.o $(HELPERS:%.c=$B/%.o) $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $(link_standins) $(TEST_LIBS) $(PKG_LIBS) $(LIBS) \
	    $(if $(findstring /standin/,$^),$(STANDIN_LIBS) $(STANDIN_RUN))

$B/test/fuzz/manifest: $B/app/manifest.o
$B/test/fuzz/request: $B/test/fuzz/request.o $B/libapp.a $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) -fsanitize=fuzzer $^ -o $@ $(PKG_LIBS) $(APP_LIBS) $(LIBS)

$B/%_cli: $B/%_cli.o $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ $(PKG_LIBS) $(LIBS)

$B/test/fuzz/%: $B/test/fuzz/%.o $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) -fsanitize=fuzzer $^ -o $@ $(PKG_LIBS) $(LIBS)

# What tests and fuzz targets of the server link.
$B/libapp.a: $(filter-out $B/app/main.o,$(APP_OBJ))
	@rm -f $@
	$Q$(AR) rcs $@ $^

# LIMIT: seconds a test program may take; RESULTS: a file that collects the totals; RUN_FLAGS: more
# for test/run.
LIMIT   ?= 300
tests: $(TESTBIN) $(CLIS) $B/tools/mac_probe $B/tools/openapi_doc
test: $B/fletch $B/standin/fletch tests
	$Q$(VALIDATE) test/run $(RUN_FLAGS) -t $(LIMIT) $(if $(RESULTS),-r $(RESULTS)) $B

# The same tests under sanitizers, in build folders of their own; races are looked for in what has
# threads only. Left to the plain builds: warnings, because what sanitizers add to the code makes
# compilers see things that are not there; and what would take minutes, most of it inside kernels
# whose buffers have guards there. Kernels go without what UBSan asks at every load and store, which
# takes gcc minutes: ASan looks at those.
SLOW     := src/cpu/attention_test.c src/cpu/blas_test.c src/cpu/kernels_test.c src/cpu/op_test.c src/gpu/op_test.c \
            test/batch_test.c test/bench_test.py test/bytes_test.c test/census.sh test/gpu_test.c test/grammar_test.py \
            test/kv_type_test.py test/memory_test.py test/mutate_test.py test/options_test.py test/oracle.sh \
            test/quality_test.py test/replay_test.py test/replicas_test.py test/shapes.sh test/standin_test.py \
            test/metal_mutate_test.py test/metal_text_test.py test/scripts_test.py test/tour_test.py test/tune_test.c
SCRIPTS  := $(wildcard test/*.sh test/*_test.py)
THREADED := src/base/pool_test.c src/base/turns_test.c src/cpu/team_test.c $(wildcard src/serve/*_test.c) \
            test/api_test.c test/constrain_test.c test/threads_test.c
asan tsan fuzz cover: $(EMU_OBJ) $(if $(STANDIN),$K/standin/kernels.o)
asan: export ASAN_OPTIONS = detect_stack_use_after_return=1
asan: export UBSAN_OPTIONS = print_stacktrace=1
asan: export LSAN_OPTIONS = suppressions=test/leaks.txt:print_suppressions=0
asan:
	$Q$(MAKE) test B=$B-asan K=$K NVCC= OPT="-O1 $(DEBUG)" WARN="-w -Wno-psabi" KERNEL_OPT=-O1 LIMIT=600 \
	    KERNEL_EXTRA=-fno-sanitize=null,alignment,object-size,pointer-overflow \
	    TESTS="$(filter-out $(SLOW),$(TESTS))" RUN_FLAGS='-o "$(filter-out $(SLOW),$(TESTS) $(SCRIPTS))"' \
	    EXTRA="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
tsan:
	$Q$(MAKE) test B=$B-tsan K=$K NVCC= OPT="-O1 $(DEBUG)" WARN="-w -Wno-psabi" KERNEL_OPT=-O1 LIMIT=600 \
	    TESTS="$(THREADED)" RUN_FLAGS='-o "$(THREADED)"' EXTRA="-fsanitize=thread"

# What depends on the processor and on who else uses it: memory plans, generation and the server, as
# on processors that have less, and beside others that keep this one busy.
MACHINES := generic $(filter avx2 avx512 neon dotprod,$(ISAS))
ANYWHERE := test/generate_test.c test/api_test.c test/report_test.c test/chat_test.c \
            src/engine/verify_test.c src/cpu/team_test.c \
            test/server_test.py:models_of_a:embeddings_and:twenty_at_once:chat_answers
machines: $B/fletch $B/test/limit_cli $(patsubst %.c,$B/%,$(filter %.c,$(ANYWHERE)))
	$Qfor isa in $(MACHINES); do echo "$$isa:"; \
	    test/run -i $$isa -o "$(ANYWHERE)" -t $(LIMIT) $(if $(RESULTS),-r $(RESULTS)) $B || exit 1; done
	@echo "beside six busy processes:"
	$Qtest/run -b 6 -o "$(ANYWHERE)" -t $(LIMIT) $(if $(RESULTS),-r $(RESULTS)) $B

# What a build with a BLAS library does otherwise: one object is another one, and the tests of it
# link that before the library.
blas: $B/blas/blas_test $B/blas/fletch
	$Q$B/blas/blas_test
	$Qfor type in f32 f16; do \
	    $B/blas/fletch convert zoo/tiny/llama.gguf --type $$type -o $B/blas/$$type.gguf && \
	    $B/blas/fletch verify $B/blas/$$type.gguf --isa generic || exit 1; \
	done
	$Q$B/blas/fletch --version
$B/blas/fletch: $(APP_OBJ) $B/blas/blas.o $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ $(PKG_LIBS) $(APP_LIBS) $(LIBS) $(call blas_libs,openblas)
$B/blas/blas.o: src/cpu/blas.c $B/config.mk
	@mkdir -p $(@D)
	$Q$(CC) $(CFLAGS) $(call blas_cflags,openblas) -c $< -o $@
$B/blas/%_test: $B/src/cpu/%_test.o $B/blas/blas.o $(HELPERS:%.c=$B/%.o) $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $(link_standins) $(TEST_LIBS) $(PKG_LIBS) $(LIBS) \
	    $(call blas_libs,openblas)

# Every op on files of published models' shapes; 64-bit ARM under qemu.
verify-shapes: $B/fletch
	$Qtools/verify-shapes $B
arm64:
	$Qtools/arm64 $B-arm64

# What takes minutes, and packages that CI need not have: random schemas against python3-jsonschema,
# bad weights and storage types of every tensor on every executor, and a server's memory under load.
SCHEMAS ?= 12800
check-long: $B/fletch $B/test/schema_cli $B/test/nonfinite_test $B/test/storage_test
	$Qtools/check-schemas -n $(SCHEMAS) $B
	$Q$B/test/nonfinite_test all
	$Q$B/test/storage_test all
	$Qtools/fill-memory --build $B --seconds 180

# Each fuzz target for FUZZ_SECONDS, as many at once as make runs jobs; findings land in $B-fuzz.
# No kernel runs here nor below, so compilers need not work on them.
FUZZ_SECONDS ?= 600
# On a Mac with Homebrew's clang (llvm): Apple's has no libFuzzer.
FUZZ_CC ?= $(if $(filter Darwin,$(SYSTEM)),$(shell tools/pkg-config --homebrew)/opt/llvm/bin/)clang
PARSERS_ONLY = CC=$(FUZZ_CC) K=$K NVCC= KERNEL_OPT=-O0 KERNEL_EXTRA=-fno-sanitize=all
fuzz:
	$Q$(MAKE) $(FUZZ:%=fuzz-%) B=$B-fuzz $(PARSERS_ONLY) OPT="-O1 -gline-tables-only" \
	    EXTRA="-fsanitize=address,undefined -fsanitize=fuzzer-no-link -fno-sanitize-recover=all \
	    -fno-omit-frame-pointer"
fuzz-%: $B/test/fuzz/%
	$Qtools/fuzz $< test/corpus/$* $(FUZZ_SECONDS)

# How much of each parser its committed corpus reaches (tools/fuzz-cover.txt says which is whose).
cover:
	$Q$(MAKE) cover-report B=$B-cover $(PARSERS_ONLY) OPT=-O0 \
	    EXTRA="-fprofile-instr-generate -fcoverage-mapping"
cover-report: $(FUZZ:%=$B/test/fuzz/%)
	$Qtools/fuzz-cover $B 90

lint: $(patsubst %.c,$B/%,$(wildcard tools/ops_doc.c))
	$Qtools/lint $B $(C_FILES)
format:
	clang-format -i $(C_FILES)
