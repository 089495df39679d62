# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's side of a policy while domains live: idletimed, and libvirt's hook. Facts, a pure decision, an act.

    room        one sentence                                                      I/O
    settings    what the operator set in idletimed.toml                           reads that file
    protocol    the guest agent's messages, as data                               none
    pace        how much of a guest is read, and when                             none
    rights      what a guest may ask for, and what its VM gets                    none
    verdict     whether a domain may start, and which arenas it needs             none
    owner       who runs a domain's QEMU                                        reads qemu.conf
    arena       makes the directories of arenas                                   files
    wish        what a guest was granted, kept in the live domain                 libvirt
    settle      brings one domain to what its policy says                         libvirt
    hands       threads with connections that carry out what may take long        libvirt
    channel     one guest agent's line                                            sockets
    waiting     which domains there are, and which of them wait to be settled     none
    ways        watches by which ways packets leave the host                      netlink
    daemon      joins all of it: events in, work out                              all
    hook        what libvirt asks before a start, a restore, a migration          files
"""
