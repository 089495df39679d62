# SPDX-License-Identifier: GPL-2.0-or-later
"""The program virt-idletime: arguments in, model out, one exit code."""
