# SPDX-License-Identifier: GPL-2.0-or-later
"""Idletime for libvirt and for other QEMUs: policies of VMs, carried out while they run.

Policy goes down: policy, conf -> verdict -> plan -> steps -> hostd. Numbers come up: qmp -> status.

    room        one sentence                                                     I/O
    policy      the policy element: model, units, parser, exact errors           none
    conf        what the operator wrote in resources.d and rules.d               reads these
    devices     disks and interfaces in libvirt's XML                            none
    resolve     names the host resource behind a disk source or an interface     reads /sys, /proc
    plan        policy and facts -> which device joins which resource, as what   none
    verdict     who a VM is, and its plan                                        by resolve
    steps       what a running QEMU lacks of a plan, as QMP commands             none
    qmp         QMP commands, through libvirt or by a socket                     libvirt, sockets
    hostd       idletimed: events in, plans carried out; libvirt's hook          all
    state       what idletimed says of the host, for everyone to read            files
    status      what is wanted beside what is, as one model                      libvirt
    sockets     the same of VMs without libvirt                                  files, sockets
    gauge       how much of each resource is spare, whoever uses it              files, sockets
    doctor      what keeps a host from working as it should                      reads the host
    cli         the program virt-idletime                                        all
"""

VERSION = "0.1"
