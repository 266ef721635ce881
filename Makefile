# fletch. Everything is built under $B; `make run` and `make test` are all a newcomer needs.
# V=1 shows the commands; B=dir, CC=clang, OPT=-O0, DEBUG=-g1, EXTRA=-fsanitize=… make a build of
# another kind; WERROR=1 makes errors of warnings, as CI does. DEBUG=metal makes run and test run
# under Metal's API and shader validation.
B       ?= build
DEBUG   ?= -g
ifeq ($(DEBUG),metal)
override DEBUG := -g
VALIDATE := MTL_DEBUG_LAYER=1 MTL_SHADER_VALIDATION=1
endif
OPT     ?= -O2 $(DEBUG)
PREFIX  ?= /usr/local
Q       := $(if $(V),,@)
VERSION := $(shell sed -n 's/.*FLETCH_VERSION "\(.*\)".*/\1/p' include/fletch.h)
# Of the machine that is built for; tools/check-mac builds for macOS elsewhere.
SYSTEM  ?= $(shell uname -s)
SOVER   := $(firstword $(subst ., ,$(VERSION)))
CORES   := $(shell getconf _NPROCESSORS_ONLN)
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += --no-print-directory -j$(CORES) # a -j on the command line wins
endif

PKGS    := jansson libpcre2-8 libutf8proc libxxhash
APP_PKGS := libedit libevent libevent_openssl openssl
ERRORS  := $(if $(WERROR),-Werror)
WARN    := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wno-psabi $(ERRORS)
CFLAGS  += -std=c11 -D_GNU_SOURCE $(OPT) $(WARN) -ffp-contract=off -fvisibility=hidden -fPIC \
           -pthread -MMD -MP -Isrc -Iinclude $(EXTRA) $(PKG_CFLAGS)
LIBS    := -lm -pthread
# Without CoreGraphics programs of the command line have no default GPU.
FRAMEWORKS := $(if $(filter Darwin,$(SYSTEM)),$(patsubst %,-framework %,Metal Foundation CoreGraphics IOKit))

# A BLAS library for prompts of models in floats, openblas or accelerate; docs/benchmarks.md says
# when it pays. Only src/cpu/blas.c knows of it.
BLAS    ?=
blas_cflags = $(if $(filter openblas,$1),-DBLAS_OPENBLAS $(shell tools/pkg-config --cflags openblas)) \
              $(if $(filter accelerate,$1),-DBLAS_ACCELERATE -DACCELERATE_NEW_LAPACK)
blas_libs   = $(if $(filter openblas,$1),$(shell tools/pkg-config --libs openblas)) \
              $(if $(filter accelerate,$1),-framework Accelerate)
ifneq ($(filter-out openblas accelerate,$(BLAS)),)
$(error BLAS is openblas or accelerate, not $(BLAS))
endif
LIBS    += $(call blas_libs,$(BLAS))

SRC     := $(filter-out %_test.c,$(wildcard src/*.c src/*/*.c src/*/*/*.c))
APP     := $(filter-out %_test.c,$(wildcard app/*.c app/*/*.c))
WEB     := $(wildcard web/*.* web/*/*.*)
MAN     := $(wildcard docs/*.1)
C_FILES := $(wildcard $(addsuffix *.[chm],include/ src/ src/*/ src/*/*/ app/ app/*/ test/ test/fuzz/ \
           test/standin/ test/standin/*/ tools/ examples/) src/gpu/emu/*.cpp)
OBJ     := $(SRC:%.c=$B/%.o)
# Kernels are written once and compiled for each instruction set of the processor's family.
KERNELS := tiles panels rows attend
TARGET  := $(shell $(CC) -dumpmachine)
ISAS    := $(if $(filter x86_64-% amd64-%,$(TARGET)),avx2 avxvnni avx512 amx) \
           $(if $(filter aarch64-% arm64-%,$(TARGET)),neon dotprod i8mm)
ISA_OBJ := $(foreach k,$(KERNELS),$(ISAS:%=$B/src/cpu/$k_%.o)) \
           $(if $(filter avx512,$(ISAS)),$B/src/cpu/panels_avx512bf16.o)
OBJ     += $(ISA_OBJ)
APP_OBJ := $(APP:%.c=$B/%.o) $B/app/builtin.o $B/app/server/web.o
BUILTIN := $(firstword $(wildcard zoo/guide.gguf) test/golden/models/llama-gguf/model.gguf)

.PHONY: FORCE all run test tests asan tsan fuzz cover bench bench-kernels bench-tps bench-tps-cpu \
        bench-tps-metal bench-tps-cuda build-metal lint format docs static verify-shapes arm64 \
        machines blas release zoo-table census install uninstall clean
.SECONDARY:
.DEFAULT_GOAL := all

# Where the libraries are. Made first, because make includes it; `make run` and `make test` install
# what is missing, every other goal only says so.
ifneq ($(filter-out clean uninstall format,$(or $(MAKECMDGOALS),all)),)
include $B/config.mk
endif
$B/config.mk: tools/deps tools/pkg-config tools/standin-flags Makefile
	@mkdir -p $B
	@tools/deps $(if $(filter run test,$(MAKECMDGOALS)),,--check)
	@echo "PKG_CFLAGS := $$(tools/pkg-config --cflags $(PKGS))" > $@.tmp
	@echo "PKG_LIBS := $$(tools/pkg-config --libs $(PKGS))" >> $@.tmp
	@echo "TEST_CFLAGS := $$(tools/pkg-config --cflags cmocka)" >> $@.tmp
	@echo "TEST_LIBS := $$(tools/pkg-config --libs cmocka)" >> $@.tmp
	@echo "APP_CFLAGS := -Iapp $$(tools/pkg-config --cflags $(APP_PKGS) libcurl)" >> $@.tmp
	@echo "APP_LIBS := $$(tools/pkg-config --libs $(APP_PKGS))" >> $@.tmp
	@echo "APP_STATIC := $$(tools/pkg-config --static --libs $(APP_PKGS))" >> $@.tmp
	@echo "STANDIN := $$(tools/standin-flags)" >> $@.tmp
	@echo "FRAMEWORKS := $(FRAMEWORKS)" >> $@.tmp
	@mv $@.tmp $@
include tools/gpu.mk tools/check.mk tools/install.mk
all: $B/fletch $B/libfletch.a $B/$(SO)

$B/%.o: %.c $B/config.mk
	@mkdir -p $(@D)
	@echo "cc $<"
	$Q$(CC) $(CFLAGS) -c $< -o $@

# Which library the objects are made for.
$B/blas.is: FORCE
	@mkdir -p $B
	@echo "$(BLAS)" | cmp -s - $@ || echo "$(BLAS)" > $@
FORCE:
$B/src/cpu/blas.o: $B/blas.is
$B/src/cpu/blas.o: CFLAGS += $(call blas_cflags,$(BLAS))

# Without -O3 gcc keeps their accumulators in memory (a fifth of the speed).
KERNEL_OPT ?= -O3
$(KERNELS:%=$B/src/cpu/%.o) $(ISA_OBJ): override OPT := $(DEBUG) $(KERNEL_OPT)
$(KERNELS:%=$B/src/cpu/%.o) $(ISA_OBJ): CFLAGS += $(KERNEL_EXTRA)
AVX512  := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
$B/src/cpu/%_avx2.o: ISA := -DISA=avx2 -mavx2 -mfma -mf16c
$B/src/cpu/%_avxvnni.o: ISA := -DISA=avxvnni -mavx2 -mfma -mf16c -mavxvnni
$B/src/cpu/%_avx512.o: ISA := -DISA=avx512 $(AVX512)
$B/src/cpu/%_avx512bf16.o: ISA := -DISA=avx512bf16 $(AVX512) -mavx512bf16
$B/src/cpu/%_amx.o: ISA := -DISA=amx $(AVX512) -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16
ARM_DOTPROD := -march=armv8.2-a+dotprod
ARM_I8MM := -march=armv8.2-a+dotprod+i8mm
$B/src/cpu/%_neon.o: ISA := -DISA=neon -DLANES_NEON
$B/src/cpu/%_dotprod.o: ISA := -DISA=dotprod -DLANES_NEON $(ARM_DOTPROD)
$B/src/cpu/%_i8mm.o: ISA := -DISA=i8mm -DLANES_NEON $(ARM_I8MM)
define isa_rule
$B/src/cpu/%_$1.o: src/cpu/%.c $B/config.mk
	@mkdir -p $$(@D)
	@echo "cc $$< ($1)"
	$$Q$$(CC) $$(CFLAGS) $$(ISA) -c $$< -o $$@
endef
$(foreach i,$(ISAS) avx512bf16,$(eval $(call isa_rule,$i)))

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
	$Q$(AR) rcs $@ $^

$B/$(SO): $(OBJ)
	$Q$(CC) $(LDFLAGS) $(EXTRA) $(SOFLAGS) $^ -o $@ $(PKG_LIBS) $(LIBS)

$(APP_OBJ) $B/app/%_test.o $B/test/fuzz/request.o $B/tools/openapi_doc.o: CFLAGS += $(APP_CFLAGS)
$B/fletch: $(APP_OBJ) $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ $(PKG_LIBS) $(APP_LIBS) $(LIBS)

# Needs nothing but the C library, which a GPU driver, loaded when it is there, must share.
$B/fletch-static: $(APP_OBJ) $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) -static-libgcc $^ -o $@ \
	    -Wl,-Bstatic $(PKG_LIBS) $(APP_STATIC) -Wl,-Bdynamic $(LIBS)

$B/tools/openapi_doc: $B/tools/openapi_doc.o $B/libapp.a $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ $(PKG_LIBS) $(APP_LIBS) $(LIBS)
$B/tools/%: $B/tools/%.o $B/libfletch.a
	$Q$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ $(PKG_LIBS) $(LIBS)

run: $B/fletch
	$(VALIDATE) $B/fletch run -p "Once upon a time" -n 160

ifeq ($(SYSTEM),Darwin)
static:
	@echo "make static: programs of macOS always need the system's libraries; use make install" >&2; exit 1
else
static: $B/fletch-static
endif
# The same with kernels for every chip since Turing.
release:
	$Q$(MAKE) static B=$B-release SM="75 80 86 89 90 100 120"

# The Metal backend is part of every build on macOS, and of none elsewhere.
ifeq ($(SYSTEM),Darwin)
build-metal: all
else
build-metal:
	@echo "the Metal backend is built on macOS only; 'make' builds the backends of this system" >&2; exit 1
endif

# Short standard measurements; docs/benchmarks.md says how to read them. bench-tps: tokens per second
# of a synthetic model, SHAPE in storage type TYPE, with short, medium and long contexts. BACKEND=cpu,
# metal or cuda instead of the best there is; bench-tps-cpu and so on say the same.
SHAPE   ?= Qwen2.5-0.5B
TYPE    ?= q8_0
BENCH   = $B/fletch bench --dir $B/bench $(BACKEND:%=--backend %)
bench: $B/fletch
	$(BENCH)
bench-kernels: $B/fletch
	$(BENCH) --kernel all
bench-tps: $B/fletch $B/bench/$(SHAPE)-$(TYPE).gguf
	$(BENCH) $B/bench/$(SHAPE)-$(TYPE).gguf --mode prefill -p 512 -r 3
	$(BENCH) $B/bench/$(SHAPE)-$(TYPE).gguf --mode decode -n 32 -d 256,2048,8192
bench-tps-cpu bench-tps-metal bench-tps-cuda: bench-tps-%:
	$Q$(MAKE) bench-tps BACKEND=$*
$B/bench/%.gguf: | $B/fletch
	@mkdir -p $(@D)
	$B/fletch synth $(SHAPE) --type $(TYPE) -o $@

docs: $B/tools/ops_doc $B/tools/openapi_doc $B/fletch
	$< > docs/ops.md
	$B/tools/openapi_doc > web/sampling.js
	$B/tools/openapi_doc tools/openapi_base.json > web/openapi.json
	$B/fletch man > docs/fletch.1

# Accepts what executors make of the golden models now (test/census_cli.c); the diff shows what
# changed.
census: $B/test/census_cli
	$Q$< > test/census.txt

# How much the zoo models lose in each storage type.
zoo-table: $B/fletch
	$Qpython3 zoo/make/table.py $B/fletch

clean:
	rm -rf $B $B-asan $B-tsan $B-fuzz $B-cover $B-clang $B-arm64 $B-arm64-root $B-ci $B-release

-include $(shell find $B -name '*.d' 2>/dev/null)
