# SPDX-License-Identifier: GPL-2.0-or-later
# The unit tests with the rooms in a shared library, so that a mutant needs
# one compilation and one link for all of them.  For tests/mutants; run in
# tests/unit, with BUILD.
# No debug information: equal code gives equal objects.  Sections, so that a
# program does not refer to the rooms for functions of util.c it does not use.
CFLAGS := -O2 -fPIC -w -ffunction-sections
include Makefile

define shared
$(BUILD)/$(1)/librooms.so: $(ROOMS:$(OVERLAY)/idletime/%.c=$(BUILD)/$(1)/rooms/%.o)
	$(call compile,$(1)) -shared -Wl,-Bsymbolic -o $$@ $$^

$(BUILD)/$(1)/shared/test-%: test-%.c $(COMMON) $$$$(EXTRA_test-$$$$*) $(HEADERS) Makefile $(BUILD)/$(1)/librooms.so
	@mkdir -p $$(@D)
	$(call compile,$(1)) -Wl,--gc-sections -o $$@ $$(filter %.c,$$^) -L$(BUILD)/$(1) -lrooms $(GLIB_LIBS) -lm
endef
$(foreach f,plain sanitized,$(eval $(call shared,$(f))))

shared: $(foreach f,plain sanitized,$(addprefix $(BUILD)/$(f)/shared/,$(TESTS) $(THREADED)))

# What tests/mutants compiles a room with, and how the programs are called.
say-compile-%: ; @echo '$(call compile,$*)'
say-programs: ; @echo '$(TESTS) $(THREADED)'

.PHONY: shared say-programs
