# SPDX-License-Identifier: GPL-2.0-or-later
"""Idletime for libvirt: policy in domain XML, compiled into what stock libvirt passes to QEMU.

Policy goes down: policy -> compiler -> live. Numbers come up: qmp -> status.

    room        one sentence                                                     I/O
    policy      the policy element: model, units, parser, exact errors           none
    compiler    domain XML with a policy in, domain XML with its effect out      none
    conf        what the operator wrote in resources.d and rules.d               reads these
    resolve     names the host resource behind a disk source or an interface     reads /sys, /proc
    qmp         QMP commands to a running domain, through libvirt                libvirt
    live        what a running domain lacks, as QMP commands, and sends them     libvirt
    status      what is wanted beside what is, as one model                      libvirt
    cli         the program virt-idletime                                        all
"""

VERSION = "0.1"
