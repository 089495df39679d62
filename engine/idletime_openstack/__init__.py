# SPDX-License-Identifier: GPL-2.0-or-later
"""Idletime in OpenStack: Placement knows how much of each host's disks and uplinks is spare, and Nova places by it.

    room        one sentence                                                      I/O
    gauge       what idletimed says of this host: idletime-gauge(5)               reads a file
    providers   the gauge -> child resource providers -> what Placement lacks     none
    placement   Placement's API, as far as it is needed here                      HTTP
    settings    what the operator set                                             reads files
    agent       the program idletime-openstack, on each compute node              all
    candidates  Placement's answer -> how idle each host is                       none
    weigher     sends background servers to the idlest host; loaded by Nova       HTTP, in nova-scheduler
    account     hosts and servers of one time, and the sums over them             none
    eviction    who leaves a host that is not idle any more                       none
    facts       what Placement and Nova say -> hosts and servers                  none
    compute     Nova's API, as far as eviction needs it                           HTTP, by openstacksdk
    leader      which of several evictors acts                                    tooz
    evictor     facts, decision, acts                                             all of these
    evict       the program idletime-openstack-evict, on a controller             all
"""

VERSION = "0.1"
