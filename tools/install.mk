# The shared library's names, and where everything goes. Included by Makefile.
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
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@PKGS@|$(PKGS)|; s|@LIBS@|$(strip $(LIBS))|' tools/fletch.pc.in \
	    > $D/lib/pkgconfig/fletch.pc
	$(if $(MAN),install -m 644 $(MAN) $D/share/man/man1/)
uninstall:
	rm -f $D/bin/fletch $D/include/fletch.h $D/lib/libfletch.a $D/lib/pkgconfig/fletch.pc \
	    $(addprefix $D/lib/,$(SO) $(SONAME) $(SOLINK)) $(MAN:docs/%=$D/share/man/man1/%)
