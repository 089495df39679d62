# SPDX-License-Identifier: GPL-2.0-or-later
"""What keeps this host from working as it should: facts are gathered, checks judge them, the command prints.

    facts     data: the host, its running domains; None is not known
    sources   reads them: libvirt, QMP, /proc, /sys, /etc                                   the only I/O
    checks    facts in, diagnoses out: what is wrong, how bad it is, what to do, how long that takes
"""

from .checks import CHECKS, Diagnosis, Report, examine
from .facts import DomainFacts, Emulator, Generation, HostFacts, Nic
from .sources import gather

__all__ = ["CHECKS", "Diagnosis", "DomainFacts", "Emulator", "Generation", "HostFacts", "Nic", "Report", "examine", "gather"]
