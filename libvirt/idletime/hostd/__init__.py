# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's side of policies while VMs live: idletimed, and libvirt's hook. Facts, a pure decision, an act.

    room        one sentence                                                      I/O
    settings    what the operator set in idletimed.toml                           reads that file
    alive       whether idletimed is alive                                        a lock
    protocol    the guest agent's messages, as data                               none
    pace        how much of a guest is read, and when                             none
    rights      what a guest may ask for, and what its VM gets                    none
    arena       makes the directories of arenas                                   files
    act         brings one QEMU to a plan                                         QMP
    native      processor and memory of a domain                                  libvirt, the scheduler
    watched     what observers have to know of a VM: its part in resources, its cgroup, taps    /proc, /sys
    observe     which observers should run, on what, and whom they leave out      none
    observers   starts, finds, replaces and stops them                            processes
    memory      has background VMs give memory back                               /proc, cgroups
    reclaim     balloons, saves, starts; what was taken is kept in the domain         libvirt
    kept        reads and writes an element of ours in a domain                       libvirt
    space       has scratch disks trimmed and dropped while space is short            none
    overlay     trims and empties them; that we did is kept in the domain             libvirt, files
    follow      what memory and space have in common                                  threads
    stopped     that it was idletimed who stopped a VM, kept in the live domain       libvirt
    usage       what processors, disks and uplinks did, and what of it background did /proc, arenas, libvirt
    police      stops whole background VMs while the foreground needs what they use   none
    wish        what a guest was granted, kept in the live domain                 none
    settle      brings one libvirt domain to what its policy says                 libvirt
    vms         brings one VM without libvirt to what rules say                   QMP
    folder      looks at all of those, by the clock                               threads
    host        libvirt's events                                                  libvirt
    hands       threads with connections that carry out what may take long        libvirt
    channel     one guest agent's line                                            sockets
    guests      what is known of one guest's agent                                none
    waiting     which domains there are, and which of them wait to be settled     none
    records     watches what libvirt writes down of domains                       inotify
    ways        watches by which ways packets leave the host                      netlink
    gauge       keeps the gauge: how much of each resource is spare               arenas, /sys, files
    metrics_facts   what metrics are made of                                      reads RUN_DIR/.state
    metrics_ledger  sums that only grow                                           none
    metrics_table   all metrics, as data                                          none
    metrics     facts to metric families                                          none
    metrics_server  serves a page and the API on sockets                          a thread, sockets
    metrics_look    takes figures by the clock, and has them served               libvirt
    timeline    what a resource did in the last ten seconds                       none
    api_host    VMs and resources, as the API shows them                          the boards
    api         what Cockpit's page asks and changes                              libvirt, the boards
    daemon      joins all of it: events in, work out                              all
    hook        what libvirt asks before a start: the strict setting only         files
"""
