# SPDX-License-Identifier: GPL-2.0-or-later
"""virt-idletime top: what this host's resources and devices do, again and again.

    sample   looks: all I/O (libvirt, QEMU, files); what a look costs decides how often
    model    two looks make rates, a minute of them a strip of states; pure
    table    the model as cells, for the view and for --batch; pure
    view     the terminal (urwid), and the keys
"""
