# fletch. Everything is built under $B; `make run` and `make test` are all a newcomer needs.
# V=1 shows the commands; B=dir, CC=clang, OPT=-O0, EXTRA=-fsanitize=… make a build of another kind.
B       ?= build
OPT     ?= -O2 -g
PREFIX  ?= /usr/local
Q       := $(if $(V),,@)
VERSION := $(shell sed -n 's/.*FLETCH_VERSION "\(.*\)".*/\1/p' include/fletch.h)
SOVER   := $(firstword $(subst ., ,$(VERSION)))
CORES   := $(shell getconf _NPROCESSORS_ONLN)
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += --no-print-directory -j$(CORES) # a -j on the command line wins
endif

PKGS    := jansson libpcre2-8 libutf8proc libxxhash
APP_PKGS := libedit libevent
TLS_PKGS := libevent_openssl openssl
WARN    := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wno-psabi -Werror
CFLAGS  += -std=c11 -D_GNU_SOURCE $(OPT) $(WARN) -ffp-contract=off -fvisibility=hidden -fPIC \
           -pthread -MMD -MP -Isrc -Iinclude $(EXTRA) $(PKG_CFLAGS)
LIBS    := -lm -pthread

SRC     := $(filter-out %_test.c,$(wildcard src/*.c src/*/*.c src/*/*/*.c))
APP     := $(filter-out %_test.c,$(wildcard app/*.c app/*/*.c))
WEB     := $(wildcard web/*.* web/*/*.*)
TESTS   ?= $(wildcard src/*_test.c src/*/*_test.c src/*/*/*_test.c app/*/*_test.c test/*_test.c)
HELPERS := $(filter-out %_test.c %_cli.c,$(wildcard test/*.c))
CLIS    := $(patsubst %.c,$B/%,$(wildcard test/*_cli.c))
FUZZ    := $(patsubst test/fuzz/%.c,%,$(wildcard test/fuzz/*.c))
MAN     := $(wildcard docs/*.1)
C_FILES := $(wildcard $(addsuffix *.[chm],include/ src/ src/*/ src/*/*/ app/ app/*/ test/ test/fuzz/ \
           test/standin/ test/standin/*/ tools/ examples/) src/gpu/emu/*.cpp)
OBJ     := $(SRC:%.c=$B/%.o)
# Kernels are written once and compiled for each instruction set of the processor's family.
KERNELS := tiles panels rows
TARGET  := $(shell $(CC) -dumpmachine)
ISAS    := $(if $(filter x86_64-% amd64-%,$(TARGET)),avx2 avx512 amx) \
           $(if $(filter aarch64-% arm64-%,$(TARGET)),neon dotprod i8mm)
ISA_OBJ := $(foreach k,$(KERNELS),$(ISAS:%=$B/src/cpu/$k_%.o))
OBJ     += $(ISA_OBJ)
# CUDA kernels, when there is an nvcc: a fatbin of each kernel file, inside the library.
NVCC    ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
SM      ?= 90
ifneq ($(NVCC),)
FATBINS := $(patsubst src/%,$B/src/%.fatbin,$(wildcard src/gpu/kernels/*.gpu src/gpu/native/*.cu))
endif
OBJ     += $B/src/gpu/fatbins.o
APP_OBJ := $(APP:%.c=$B/%.o) $B/app/builtin.o $B/app/server/web.o
BUILTIN := $(firstword $(wildcard zoo/guide.gguf) test/golden/models/llama-gguf/model.gguf)
TESTBIN := $(TESTS:%.c=$B/%)

ifeq ($(shell uname -s),Darwin)
SO      := libfletch.$(VERSION).dylib
SONAME  := libfletch.$(SOVER).dylib
SOLINK  := libfletch.dylib
SOFLAGS := -dynamiclib -install_name $(PREFIX)/lib/$(SONAME)
else
SO      := libfletch.so.$(VERSION)
SONAME  := libfletch.so.$(SOVER)
SOLINK  := libfletch.so
SOFLAGS := -shared -Wl,-soname,$(SONAME)
endif

.PHONY: all run test asan tsan fuzz cover bench bench-kernels bench-tps lint format docs static \
        verify-shapes arm64 release zoo-table install uninstall clean
.SECONDARY:
all: $B/fletch $B/libfletch.a $B/$(SO)

# Where the libraries are. Made first, because make includes it; `make run` and `make test` install
# what is missing, every other goal only says so.
ifneq ($(filter-out clean uninstall format,$(or $(MAKECMDGOALS),all)),)
include $B/config.mk
endif
$B/config.mk: tools/deps tools/standin-flags Makefile
	@mkdir -p $B
	@tools/deps $(if $(filter run test,$(MAKECMDGOALS)),,--check)
	@echo "PKG_CFLAGS := $$(pkg-config --cflags $(PKGS))" > $@.tmp
	@echo "PKG_LIBS := $$(pkg-config --libs $(PKGS))" >> $@.tmp
	@(tls=; for p in $(TLS_PKGS); do pkg-config --exists $$p && tls="$$tls $$p" || { tls=; break; }; done; \
	    echo "APP_CFLAGS := -Iapp $${tls:+-DHAVE_TLS} $$(pkg-config --cflags $(APP_PKGS) $$tls)"; \
	    echo "APP_LIBS := $$(pkg-config --libs $(APP_PKGS) $$tls)"; \
	    echo "APP_STATIC := $$(pkg-config --static --libs $(APP_PKGS) $$tls)") >> $@.tmp
	@echo "STANDIN := $$(tools/standin-flags)" >> $@.tmp
	@mv $@.tmp $@
include tools/gpu.mk

$B/%.o: %.c $B/config.mk
	@mkdir -p $(@D)
	@echo "cc $<"
	$Q$(CC) $(CFLAGS) -c $< -o $@

# Without -O3 gcc keeps their accumulators in memory (a fifth of the speed).
KERNEL_OPT ?= -O3
$(KERNELS:%=$B/src/cpu/%.o) $(ISA_OBJ): OPT := -g $(KERNEL_OPT)
AVX512  := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
$B/src/cpu/%_avx2.o: ISA := -DISA=avx2 -mavx2 -mfma -mf16c
$B/src/cpu/%_avx512.o: ISA := -DISA=avx512 $(AVX512)
$B/src/cpu/%_amx.o: ISA := -DISA=amx $(AVX512) -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16
$B/src/cpu/%_neon.o: ISA := -DISA=neon -DLANES_NEON
$B/src/cpu/%_dotprod.o: ISA := -DISA=dotprod -DLANES_NEON -march=armv8.2-a+dotprod
$B/src/cpu/%_i8mm.o: ISA := -DISA=i8mm -DLANES_NEON -march=armv8.2-a+dotprod+i8mm
define isa_rule
$B/src/cpu/%_$1.o: src/cpu/%.c $B/config.mk
	@mkdir -p $$(@D)
	@echo "cc $$< ($1)"
	$$Q$$(CC) $$(CFLAGS) $$(ISA) -c $$< -o $$@
endef
$(foreach i,$(ISAS),$(eval $(call isa_rule,$i)))

# No contraction and no fast-math: rounding is the program's. The PTX is for chips yet to come.
NVFLAGS := -x cu -std=c++17 -O3 -fmad=false -Isrc \
           $(foreach a,$(SM),-gencode arch=compute_$a,code=sm_$a) \
           -gencode arch=compute_$(lastword $(SM)),code=compute_$(lastword $(SM))
$B/src/gpu/%.fatbin: src/gpu/% Makefile
	@mkdir -p $(@D)
	@echo "nvcc $<"
	$Q$(NVCC) $(NVFLAGS) -fatbin -MMD -MF $(@:.fatbin=.d) -MT $@ $< -o $@
$B/src/gpu/fatbins.o: src/gpu/fatbins.S $(FATBINS)
	@mkdir -p $(@D)
	$Q$(CC) $(if $(FATBINS),-DFATBINS='$(foreach f,$(FATBINS),BLOB("$f"))') -c $< -o $@

# The model that `fletch run` uses when it is given none, inside the binary.
$B/app/builtin.o: app/builtin.S $(BUILTIN)
	@mkdir -p $(@D)
	$Q$(CC) -DBUILTIN_MODEL='"$(BUILTIN)"' -c $< -o $@

# The page's files, inside the binary too.
$B/app/server/web.c: $(WEB) tools/embed Makefile
	@mkdir -p $(@D)
	$Qtools/embed web $(WEB) > $@
$B/app/server/web.o: $B/app/server/web.c
	$Q$(CC) $(CFLAGS) -Iapp -c $< -o $@

$B/libfletch.a: $(OBJ)
	@rm -f $@
	$Qar rcs $@ $^

$B/$(SO): $(OBJ)
	$Q$(CC) $(LDFLAGS) $(EXTRA) $(SOFLAGS) $^ -o $@ $(PKG_LIBS) $(LIBS)

$(APP_OBJ) $B/app/%_test.o $B/test/fuzz/request.o: CFLAGS += $(APP_CFLAGS)
# What tests and fuzz targets of the server link.
$B/libapp.a: $(filter-out $B/app/main.o,$(APP_OBJ))
	@rm -f $@
	$Qar rcs $@ $^
$B/fletch: $(APP_OBJ) $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ $(PKG_LIBS) $(APP_LIBS) $(LIBS)

# Needs nothing but the C library, which a GPU driver, loaded when it is there, must share.
$B/fletch-static: $(APP_OBJ) $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) -static-libgcc $^ -o $@ \
	    -Wl,-Bstatic $(PKG_LIBS) $(APP_STATIC) -Wl,-Bdynamic $(LIBS)

$B/%_test: $B/%_test.o $(HELPERS:%.c=$B/%.o) $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $(link_standins) -lcmocka $(PKG_LIBS) $(LIBS) \
	    $(if $(findstring /standin/,$^),$(STANDIN_LIBS) $(STANDIN_RUN))

$B/app/%_test: $B/app/%_test.o $B/libapp.a $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ -lcmocka $(PKG_LIBS) $(APP_LIBS) $(LIBS)
$B/test/fuzz/toolcall: $B/app/server/tools.o
$B/test/fuzz/request: $B/test/fuzz/request.o $B/libapp.a $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) -fsanitize=fuzzer $^ -o $@ $(PKG_LIBS) $(APP_LIBS) $(LIBS)

$B/%_cli: $B/%_cli.o $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ $(PKG_LIBS) $(LIBS)

$B/test/fuzz/%: $B/test/fuzz/%.o $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) -fsanitize=fuzzer $^ -o $@ $(PKG_LIBS) $(LIBS)

$B/tools/%: $B/tools/%.o $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ $(PKG_LIBS) $(LIBS)

run: $B/fletch
	@printf 'Once upon a time'
	@$B/fletch run -p "Once upon a time" -n 160

static: $B/fletch-static
# The same with kernels for every chip since Turing.
release:
	$Q$(MAKE) static B=$B-release SM="75 80 86 89 90 100 120"

# LIMIT: seconds a test program may take; RESULTS: a file that collects the totals; RUN_FLAGS: more
# for test/run.
LIMIT   ?= 300
test: $B/fletch $B/standin/fletch $(TESTBIN) $(CLIS)
	$Qtest/run $(RUN_FLAGS) -t $(LIMIT) $(if $(RESULTS),-r $(RESULTS)) $B

# The same tests under sanitizers, in build folders of their own; races are looked for in what has
# threads only. Left to the plain builds: warnings, because what sanitizers add to the code makes
# compilers see things that are not there; and what would take minutes, most of it inside kernels
# whose buffers have guards there.
SLOW     := src/cpu/attention_test.c src/cpu/kernels_test.c src/cpu/op_test.c src/gpu/op_test.c \
            test/driver_test.c test/gpu_test.c test/talk_test.py test/kv_type_test.py test/mutate_test.py test/oracle.sh \
            test/quality_test.py test/shapes.sh test/standin_test.py test/metal_text_test.py
SCRIPTS  := $(wildcard test/*.sh test/*_test.py)
THREADED := src/base/pool_test.c src/cpu/team_test.c src/engine/bench_test.c \
            $(wildcard src/serve/*_test.c) test/api_test.c test/batch_test.c
asan: export ASAN_OPTIONS = detect_stack_use_after_return=1
asan: export UBSAN_OPTIONS = print_stacktrace=1
asan:
	$Q$(MAKE) test B=$B-asan OPT="-O1 -g" WARN="-w -Wno-psabi" KERNEL_OPT=-O1 LIMIT=600 \
	    TESTS="$(filter-out $(SLOW),$(TESTS))" RUN_FLAGS='-o "$(filter-out $(SLOW),$(TESTS) $(SCRIPTS))"' \
	    EXTRA="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
tsan:
	$Q$(MAKE) test B=$B-tsan OPT="-O1 -g" WARN="-w -Wno-psabi" KERNEL_OPT=-O1 LIMIT=600 \
	    TESTS="$(THREADED)" RUN_FLAGS='-o "$(THREADED)"' EXTRA="-fsanitize=thread"

# Every op on files of published models' shapes; 64-bit ARM under qemu.
verify-shapes: $B/fletch
	$Qtools/verify-shapes $B
arm64:
	$Qtools/arm64 $B-arm64

# Each fuzz target for FUZZ_SECONDS, as many at once as make runs jobs; findings land in $B-fuzz.
FUZZ_SECONDS ?= 600
fuzz:
	$Q$(MAKE) $(FUZZ:%=fuzz-%) B=$B-fuzz CC=clang OPT="-O1 -g" EXTRA="-fsanitize=address,undefined \
	    -fsanitize=fuzzer-no-link -fno-sanitize-recover=all -fno-omit-frame-pointer"
fuzz-%: $B/test/fuzz/%
	$Qtools/fuzz $< test/corpus/$* $(FUZZ_SECONDS)

# How much of each parser its committed corpus reaches (tools/fuzz-cover.txt says which is whose).
cover:
	$Q$(MAKE) cover-report B=$B-cover CC=clang OPT="-O1 -g" \
	    EXTRA="-fprofile-instr-generate -fcoverage-mapping"
cover-report: $(FUZZ:%=$B/test/fuzz/%)
	$Qtools/fuzz-cover $B 90

# Short standard measurements; docs/benchmarks.md says how to read them. bench-tps: tokens per second
# of a synthetic model, SHAPE in storage type TYPE, behind short, medium and long contexts.
SHAPE   ?= Qwen2.5-0.5B
TYPE    ?= q8_0
bench: $B/fletch
	$B/fletch bench
bench-kernels: $B/fletch
	$B/fletch bench --kernel all
bench-tps: $B/fletch $B/bench/$(SHAPE)-$(TYPE).gguf
	$B/fletch bench $B/bench/$(SHAPE)-$(TYPE).gguf --mode prefill -p 512 -r 3
	$B/fletch bench $B/bench/$(SHAPE)-$(TYPE).gguf --mode decode -n 32 -d 256,2048,8192
$B/bench/%.gguf: | $B/fletch
	@mkdir -p $(@D)
	$B/fletch synth $(SHAPE) --type $(TYPE) -o $@

lint: $(patsubst %.c,$B/%,$(wildcard tools/ops_doc.c))
	$Qtools/lint $B $(C_FILES)
format:
	clang-format -i $(C_FILES)
docs: $B/tools/ops_doc
	$< > docs/ops.md

# How much the zoo models lose in each storage type.
zoo-table: $B/fletch
	$Qpython3 zoo/make/table.py $B/fletch

# The archive to install is one object whose internal names are local, so that only fletch_* can
# clash with a program's own. Where there is no objcopy (macOS) it is the plain one.
$B/public/libfletch.a: $(OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$Qif command -v objcopy > /dev/null; then ld -r $^ -o $(@D)/fletch.o && \
	    objcopy --localize-hidden $(@D)/fletch.o && ar rcs $@ $(@D)/fletch.o; \
	else ar rcs $@ $^; fi

D := $(DESTDIR)$(PREFIX)
install: all $B/public/libfletch.a
	install -d $D/bin $D/include $D/lib/pkgconfig $D/share/man/man1
	install -m 755 $B/fletch $D/bin/
	install -m 644 include/fletch.h $D/include/
	install -m 644 $B/public/libfletch.a $D/lib/
	install -m 755 $B/$(SO) $D/lib/
	ln -sf $(SO) $D/lib/$(SONAME)
	ln -sf $(SONAME) $D/lib/$(SOLINK)
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@PKGS@|$(PKGS)|' tools/fletch.pc.in \
	    > $D/lib/pkgconfig/fletch.pc
	$(if $(MAN),install -m 644 $(MAN) $D/share/man/man1/)
uninstall:
	rm -f $D/bin/fletch $D/include/fletch.h $D/lib/libfletch.a $D/lib/pkgconfig/fletch.pc \
	    $(addprefix $D/lib/,$(SO) $(SONAME) $(SOLINK)) $(MAN:docs/%=$D/share/man/man1/%)

clean:
	rm -rf $B $B-asan $B-tsan $B-fuzz $B-cover $B-clang $B-arm64 $B-arm64-root $B-ci $B-release

-include $(shell find $B -name '*.d' 2>/dev/null)
