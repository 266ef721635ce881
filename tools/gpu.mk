# The emulator, the kernels for CUDA, their Metal text, and the stand-ins that run the Metal and CUDA
# drivers where there is no GPU. Included by Makefile.

# GPU kernels on the CPU, each fast and checked (src/gpu/emu). They are under $K: builds of other
# kinds, which differ in nothing that matters to them, take those of the plain one.
K       ?= $B
GPU_SRC := $(wildcard src/gpu/kernels/*.gpu)
GPU_INC := $(wildcard src/gpu/*.h src/gpu/kernels/*.h) src/quant/encodings.h
EMU_OBJ := $(patsubst %.cpp,$K/%.o,$(wildcard src/gpu/emu/*.cpp)) $K/src/gpu/kernels/table.o \
           $(GPU_SRC:%.gpu=$K/%_fast.o) $(GPU_SRC:%.gpu=$K/%_checked.o)
OBJ     += $(EMU_OBJ)

# What tells the kernels of one build from those of another: layouts are kept for those they were
# measured with.
GPU_TEXTS := $(sort $(GPU_SRC) src/gpu/args.h src/gpu/simt.h src/gpu/num_f32.h \
             src/quant/encodings.h \
             $(wildcard src/gpu/kernels/*.h src/gpu/native/*))
$B/src/gpu/layout.o: $(GPU_TEXTS)
$B/src/gpu/layout.o: CFLAGS += -DGPU_FINGERPRINT='"$(shell cat $(GPU_TEXTS) | cksum | tr ' ' -)"'

# C++ for the emulator and what it expands only, and none of C++'s libraries. Its fibers and the
# sanitizers' idea of a stack don't go together; the checked kernels do that work.
EMU_OPT  ?= $(OPT)
CXXFLAGS += -x c++ -std=c++17 -D_GNU_SOURCE $(EMU_OPT) -Wall -Wextra -Wno-psabi -Wno-unused-parameter \
            -Wno-unknown-pragmas -Wno-pass-failed $(ERRORS) -ffp-contract=off -fvisibility=hidden -fPIC -pthread \
            -fno-exceptions -fno-rtti -fno-threadsafe-statics -MMD -MP -Isrc -Iinclude $(EXTRA) \
            -fno-sanitize=address,thread,undefined
$K/src/gpu/emu/%.o: src/gpu/emu/%.cpp $K/config.mk
	@mkdir -p $(@D)
	@echo "c++ $<"
	$Q$(CC) $(CXXFLAGS) -c $< -o $@
$K/src/gpu/kernels/%.cpp: src/gpu/kernels/%.gpu $(GPU_INC) tools/gpu-table
	@mkdir -p $(@D)
	$QCC="$(CC)" tools/gpu-table file $< > $@
$K/src/gpu/kernels/%_fast.o: $K/src/gpu/kernels/%.cpp
	@echo "c++ src/gpu/kernels/$*.gpu"
	$Q$(CC) $(CXXFLAGS) -c $< -o $@
$K/src/gpu/kernels/%_checked.o: $K/src/gpu/kernels/%.cpp
	@echo "c++ src/gpu/kernels/$*.gpu (checked)"
	$Q$(CC) $(CXXFLAGS) -DSIMT_CHECKED -c $< -o $@
$K/src/gpu/kernels/table.c: $(GPU_SRC) tools/gpu-table
	@mkdir -p $(@D)
	$Qtools/gpu-table all $(GPU_SRC) > $@
$K/src/gpu/kernels/table.o: $K/src/gpu/kernels/table.c
	$Q$(CC) $(CFLAGS) -c $< -o $@

# Kernels with mistakes in them, for planted_test.
$B/test/planted.cpp: test/planted.gpu $(GPU_INC) tools/gpu-table
	@mkdir -p $(@D)
	$QCC="$(CC)" tools/gpu-table file $< > $@
$B/test/planted_fast.o: $B/test/planted.cpp
	$Q$(CC) $(CXXFLAGS) -I. -c $< -o $@
$B/test/planted_checked.o: $B/test/planted.cpp
	$Q$(CC) $(CXXFLAGS) -I. -DSIMT_CHECKED -c $< -o $@
$B/test/planted_test: $B/test/planted_fast.o $B/test/planted_checked.o
ifneq ($(STANDIN),)
$B/test/planted_test: $B/standin/planted.o
endif

# CUDA kernels, when there is an nvcc: a fatbin of each kernel file, inside the library.
NVCC    ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
SM      ?= 90
# Lists of CUDA's have none of unstaged*.gpu and tensor.gpu.
ifneq ($(NVCC),)
FATBINS := $(patsubst src/%,$B/src/%.fatbin,$(filter-out $(wildcard src/gpu/kernels/unstaged*.gpu) %/tensor.gpu, \
             $(wildcard src/gpu/kernels/*.gpu src/gpu/native/*.cu)))
endif
OBJ     += $B/src/gpu/fatbins.o
# No contraction and no fast-math: rounding is the program's. The PTX is for chips yet to come.
# Kernels of native/ use what Hopper alone has (90a). No warnings of
# casts to CONST(T), whose __restrict__ means nothing there (191), nor of code for zero bytes (186).
CHIPS   = $(if $(findstring native,$<),$(patsubst 90,90a,$(SM)),$(SM))
NVFLAGS = -x cu -std=c++17 -O3 -fmad=false -diag-suppress 186,191 -Isrc \
          $(foreach a,$(CHIPS),-gencode arch=compute_$a,code=sm_$a) \
          -gencode arch=compute_$(lastword $(SM)),code=compute_$(lastword $(SM))
$B/src/gpu/%.fatbin: src/gpu/% tools/gpu.mk
	@mkdir -p $(@D)
	@echo "nvcc $<"
	$Q$(NVCC) $(NVFLAGS) -fatbin -MMD -MP -MF $(@:.fatbin=.d) -MT $@ $< -o $@
$B/src/gpu/fatbins.o: src/gpu/fatbins.S $(FATBINS)
	@mkdir -p $(@D)
	$Q$(CC) $(if $(FATBINS),-DFATBINS='$(foreach f,$(FATBINS),BLOB("$f"))') -c $< -o $@

# Metal: the driver and one text with all kernels. On macOS both are part of the library.
METAL_SRC := $(wildcard src/gpu/*.m)
OBJCFLAGS += -x objective-c -std=gnu11 $(OPT) -Wall -Wextra $(ERRORS) -fno-objc-arc -fPIC \
             -fvisibility=hidden -MMD -MP -Isrc -Iinclude
$K/src/gpu/kernels.metal: $(GPU_SRC) $(GPU_INC) tools/gpu-text tools/gpu-table
	@mkdir -p $(@D)
	$QCC="$(CC)" tools/gpu-text $(GPU_SRC) > $@.tmp && mv $@.tmp $@
$B/src/gpu/metal_text.o: src/gpu/metal_text.S $K/src/gpu/kernels.metal
	$Q$(CC) -DMETAL_TEXT='"$K/src/gpu/kernels.metal"' -c $< -o $@

ifeq ($(SYSTEM),Darwin)
OBJ       += $(METAL_SRC:%.m=$B/%.o) $B/src/gpu/metal_text.o
LIBS      += $(FRAMEWORKS)
OBJCFLAGS += -Wno-deprecated-declarations -Wno-unguarded-availability-new
$B/src/gpu/%.o: src/gpu/%.m $B/config.mk
	@mkdir -p $(@D)
	@echo "cc $<"
	$Q$(CC) $(OBJCFLAGS) -c $< -o $@
else ifneq ($(STANDIN),)
# Elsewhere the driver is built for tests, on a stand-in framework that runs the text itself.
STANDIN_METAL := $(METAL_SRC:src/gpu/%.m=$B/standin/%.o) $B/standin/Metal.o $B/standin/Foundation.o \
                 $K/standin/kernels.o $K/standin/tensor.o $B/src/gpu/metal_text.o
STANDIN_LIBS  := -lobjc
STANDIN_OBJC  := $(OBJCFLAGS) $(STANDIN) -Itest/standin -fobjc-runtime=gcc \
                 -fconstant-string-class=NSConstantString
# Apple's compiler takes the text by its own rules, which are those of C++14; C++ for OpenCL has
# nearly the same, and more of C++17.
OPENCL        := -x cl -cl-std=clc++2021 -cl-no-stdinc -Xclang \
                 -cl-ext=-all,+cl_khr_fp16,+__opencl_c_generic_address_space
METAL_CHECK   := -D__METAL_VERSION__=300 -Wall $(ERRORS) -Wno-unknown-attributes \
                 -Wno-unused-function -Wno-pass-failed -Wno-tautological-compare -Itest/standin/msl
$B/standin/planted.metal: test/planted.gpu $(GPU_INC) tools/gpu-text tools/gpu-table
	@mkdir -p $(@D)
	$QCC="$(CC)" tools/gpu-text $< > $@.tmp && mv $@.tmp $@
$K/standin/kernels.cpp: $K/src/gpu/kernels.metal
$B/standin/planted.cpp: $B/standin/planted.metal
$K/standin/kernels.cpp $B/standin/planted.cpp: $(wildcard test/standin/msl/*)
	@mkdir -p $(@D)
	@echo "metal $(filter %.metal,$^)"
	$Qclang $(OPENCL) $(METAL_CHECK) -fsyntax-only $(filter %.metal,$^)
	$Qpython3 test/standin/msl/table.py $(filter %.metal,$^) $@
$K/standin/kernels.o $B/standin/planted.o: %.o: %.cpp
	$Qclang $(filter-out $(EXTRA),$(CXXFLAGS)) -std=c++14 -Werror=c++17-extensions $(METAL_CHECK) \
	    -Wno-duplicate-decl-specifier -c $< -o $@
# The text of tensor.gpu as newer devices get it (metal_library.m): types of C++20 as parameters of
# templates are Apple's own extension.
$K/standin/tensor.metal: src/gpu/kernels/tensor.gpu $(GPU_INC) tools/gpu-text tools/gpu-table
	@mkdir -p $(@D)
	$QCC="$(CC)" tools/gpu-text $< > $@.tmp && mv $@.tmp $@
$K/standin/tensor.cpp: $K/standin/tensor.metal $(wildcard test/standin/msl/* test/standin/msl/*/*)
	$Qpython3 test/standin/msl/table.py $< $@ emu_tensor GPU_TENSOR
$K/standin/tensor.o: $K/standin/tensor.cpp
	$Qclang $(filter-out $(EXTRA),$(CXXFLAGS)) -std=c++20 $(METAL_CHECK:300=400) \
	    -Wno-duplicate-decl-specifier -c $< -o $@
$B/standin/%.o: test/standin/%.m $B/config.mk
	@mkdir -p $(@D)
	@echo "cc $<"
	$Qclang $(STANDIN_OBJC) -c $< -o $@
$B/standin/%.o: src/gpu/%.m $B/config.mk
	@mkdir -p $(@D)
	@echo "cc $< (on stand-ins)"
	$Qclang $(STANDIN_OBJC) -c $< -o $@
endif

# CUDA: a libcuda.so.1 on the emulator, for machines that have none. What is in fatbins doesn't matter
# to it; with those that are there, the tests can be carried to a machine with a GPU.
ifneq ($(filter-out Darwin,$(SYSTEM)),)
ifeq ($(shell command -v ldconfig > /dev/null && ldconfig -p | grep libcuda.so.1),)
STANDIN_CUDA := $(if $(FATBINS),,$B/standin/fatbins.o) $B/standin/libcuda.so.1
STANDIN_RUN  := -Wl,-rpath,$(abspath $B/standin)
endif
endif
$B/standin/fatbins.o: src/gpu/fatbins.S $B/config.mk
	@mkdir -p $(@D)
	$Q$(CC) -DFATBINS='BLOB("$B/config.mk")' -c $< -o $@
$B/standin/libcuda.o: test/standin/libcuda.c $B/config.mk
	@mkdir -p $(@D)
	@echo "cc $<"
	$Q$(CC) $(CFLAGS) -Itest/standin -Wno-missing-prototypes -c $< -o $@
$B/standin/libcuda.so.1: $B/standin/libcuda.o $(EMU_OBJ) $(patsubst %,$B/src/base/%.o,base err pool os_linux)
	$Q$(CC) $(LDFLAGS) $(EXTRA) -shared -Wl,-soname,libcuda.so.1 $^ -o $@ $(LIBS)

# Programs that find every driver, real or on a stand-in: fletch, and tests of drivers and kernels.
STANDINS := $(STANDIN_METAL) $(STANDIN_CUDA)
link_standins = $(filter %.o,$^) $(filter %.a %.so.1,$^) -o $@
$B/standin/fletch: $(APP_OBJ) $(STANDINS) $B/libfletch.a
	@mkdir -p $(@D)
	$Q$(CC) $(LDFLAGS) $(EXTRA) $(link_standins) $(PKG_LIBS) $(APP_LIBS) $(LIBS) \
	    $(STANDIN_LIBS) $(STANDIN_RUN)
$B/test/driver_test $B/test/metal_test $B/test/tune_test $B/src/gpu/op_test: $(STANDINS)

# On a Mac: one file that tells all, to send back; a GPU trace of one token for Xcode, which is not
# written where an older one lies.
.PHONY: mac-report capture
mac-report: $B/fletch $B/src/gpu/op_test $B/test/driver_test $B/tools/mac_probe
	$Qtools/mac-report $B $B/mac-report.txt
capture: $B/fletch
	@rm -rf $B/token.gputrace
	MTL_CAPTURE_ENABLED=1 $B/fletch run --backend metal -p "Once upon a time" -n 1 \
	    --capture $B/token.gputrace
	@echo "open $B/token.gputrace"
