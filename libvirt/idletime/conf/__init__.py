# SPDX-License-Identifier: GPL-2.0-or-later
"""What the operator wrote below /etc/idletime: resources.d and rules.d. Files are read below one root; all else is pure.

A file with a mistake in it is left out as a whole, and each mistake is a finding with file, line, value and remedy:
nothing that is wrong there stops a domain or the daemon.
"""
