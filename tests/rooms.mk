# SPDX-License-Identifier: GPL-2.0-or-later
# The pure rooms of the scheduler, compiled here without QEMU.  Before it is
# included, OVERLAY has to name qemu-patches/overlay.
room = $(sort $(wildcard $(OVERLAY)/idletime/$(1)/*.c))
CORE := $(call room,core)
ARENA := $(call room,arena)
LEARNER := $(call room,learner)
UPLINK := $(call room,uplink)
PACKET := $(call room,packet)
ROOM_HEADERS := $(wildcard $(OVERLAY)/idletime/*/*.h)
