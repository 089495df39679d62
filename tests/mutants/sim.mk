# SPDX-License-Identifier: GPL-2.0-or-later
# The simulator on the shared library of the rooms; see unit.mk.  Run in
# tests/sim, with BUILD and ROOMS_LIBRARY (the library's folder).
CFLAGS := -O2 -w
include Makefile

shared: $(BUILD)/shared/idletime-sim
$(BUILD)/shared/idletime-sim: $(filter-out $(OVERLAY)/%,$(SOURCES)) $(HEADERS) Makefile $(ROOMS_LIBRARY)/librooms.so
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -ffp-contract=off -std=gnu11 -I. -I../unit/include -I$(OVERLAY) -o $@ $(filter %.c,$^) -L$(ROOMS_LIBRARY) -lrooms -lm

say-cases: ; @$(foreach c,$(CASES),echo '$c $(OPTIONS_$c)';)

.PHONY: shared say-cases
