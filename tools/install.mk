# The shared library's names, and where everything goes. Included by Makefile.
ifeq ($(SYSTEM),Darwin)
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

# The archive to install is one object whose internal names are local, so that only fletch_* can
# clash with a program's own. Where there is no objcopy (macOS) it is the plain one.
$B/public/libfletch.a: $(OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$Qif [ $(SYSTEM) != Darwin ] && command -v objcopy > /dev/null; then ld -r $^ -o $(@D)/fletch.o && \
	    objcopy --localize-hidden $(@D)/fletch.o && $(AR) rcs $@ $(@D)/fletch.o; \
	else $(AR) rcs $@ $^; fi

# The installed program shares the installed library, which it finds beside itself; what it takes from
# base/os.h and src/chat, which the library shows nobody, is in both.
CHAT_OBJ := $(patsubst %.c,$B/%.o,$(filter-out %_test.c,$(wildcard src/chat/*.c)))
ifeq ($(SYSTEM),Darwin)
ORIGIN  := @executable_path
else
ORIGIN  := $$ORIGIN
endif
$B/shared/fletch: $(APP_OBJ) $(CHAT_OBJ) $(patsubst %,$B/src/base/%.o,base os_linux os_macos) $B/$(SO)
	@mkdir -p $(@D)
	$Q$(CC) $(LDFLAGS) $(EXTRA) $^ -o $@ '-Wl,-rpath,$(ORIGIN)/../lib' $(PKG_LIBS) $(APP_LIBS) $(LIBS)

# What shells complete.
COMPLETE := bash:share/bash-completion/completions/fletch zsh:share/zsh/site-functions/_fletch \
            fish:share/fish/vendor_completions.d/fletch.fish
$B/completion/%: $B/fletch
	@mkdir -p $(@D)
	$Q$< completion $* > $@

# Debug information stays in the build folder; STRIP=: keeps it.
STRIP ?= strip
D := $(DESTDIR)$(PREFIX)
part = $(word $1,$(subst :, ,$2))
install: all $B/public/libfletch.a $B/shared/fletch $(foreach c,$(COMPLETE),$B/completion/$(call part,1,$c))
	install -d $D/bin $D/include $D/lib/pkgconfig $D/share/man/man1
	install -m 755 $B/shared/fletch $D/bin/
	install -m 644 include/fletch.h $D/include/
	install -m 644 $B/public/libfletch.a $D/lib/
	install -m 755 $B/$(SO) $D/lib/
	$(STRIP) -S $D/bin/fletch
	$(STRIP) -S $D/lib/libfletch.a
	$(STRIP) -S -x $D/lib/$(SO)
	ln -sf $(SO) $D/lib/$(SONAME)
	ln -sf $(SONAME) $D/lib/$(SOLINK)
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@PKGS@|$(PKGS)|; s|@LIBS@|$(strip $(LIBS))|' tools/fletch.pc.in \
	    > $D/lib/pkgconfig/fletch.pc
	$(if $(MAN),install -m 644 $(MAN) $D/share/man/man1/)
	$(foreach c,$(COMPLETE),install -d $D/$(dir $(call part,2,$c)) && \
	    install -m 644 $B/completion/$(call part,1,$c) $D/$(call part,2,$c) &&) true
uninstall:
	rm -f $D/bin/fletch $D/include/fletch.h $D/lib/libfletch.a $D/lib/pkgconfig/fletch.pc \
	    $(addprefix $D/lib/,$(SO) $(SONAME) $(SOLINK)) $(MAN:docs/%=$D/share/man/man1/%) \
	    $(foreach c,$(COMPLETE),$D/$(call part,2,$c))
