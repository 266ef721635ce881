# fletch. Everything is built under $B; `make run` and `make test` are all a newcomer needs.
B       ?= build
CC      ?= cc
OPT     ?= -O2 -g
PREFIX  ?= /usr/local
VERSION := $(shell sed -n 's/.*FLETCH_VERSION "\(.*\)".*/\1/p' include/fletch.h)
SOVER   := $(firstword $(subst ., ,$(VERSION)))

PKGS    := jansson libpcre2-8 libutf8proc
WARN    := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Werror
CFLAGS  += -std=c11 -D_GNU_SOURCE $(OPT) $(WARN) -ffp-contract=off -fvisibility=hidden -fPIC \
           -pthread -MMD -MP -Isrc -Iinclude $(EXTRA) $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LIBS    := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -lm -pthread

SRC     := $(filter-out %_test.c,$(wildcard src/*.c src/*/*.c src/*/*/*.c))
APP     := $(wildcard app/*.c)
TESTS   := $(wildcard src/*_test.c src/*/*_test.c src/*/*/*_test.c test/*_test.c)
FUZZ    := $(wildcard test/fuzz/*.c)
OBJ     := $(SRC:%.c=$B/%.o)
TESTBIN := $(TESTS:%.c=$B/%)

all: $B/fletch $B/libfletch.a $B/libfletch.so.$(VERSION)

$B/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@

$B/libfletch.a: $(OBJ)
	@rm -f $@
	ar rcs $@ $^

$B/fletch: $(APP:%.c=$B/%.o) $B/libfletch.a
	$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ $(LIBS)

$B/%_test: $B/%_test.o $B/libfletch.a
	$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ -lcmocka $(LIBS)

-include $(shell find $B -name '*.d' 2>/dev/null)
