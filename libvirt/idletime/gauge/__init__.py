# SPDX-License-Identifier: GPL-2.0-or-later
"""The gauge: how much of each resource the foreground leaves spare, also where nobody is background.

    boards      what the foreground's slots and the observer show               reads shared memory
    kernel      what the kernel counts of a device of this host                 reads /sys
    place       which resources a host has, and what stands behind them         reads /sys
    spare       shares of time: last second, minute, hour, forecast, steady     none
    measure     two looks at a resource -> how busy it was between              none
    said        the file in which idletimed says it: idletime-gauge(5)          files

Three sources, the best first: the observer with the slots (all foreground); the kernel's counters of the device while no
background runs (then all is foreground); the slots alone, which show only what passes our QEMU.
"""
