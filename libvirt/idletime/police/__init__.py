# SPDX-License-Identifier: GPL-2.0-or-later
"""What holds a background VM back on the time scale of seconds: processor, memory, space, rates, whole VMs (papers 003, 004).

Facts are read in facts.py; all the rest decides and is pure: time comes in as seconds, what to do goes out as data.
"""
