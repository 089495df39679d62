# SPDX-License-Identifier: GPL-2.0-or-later
"""Hypothesis for these tests: no database of examples in the tree, no deadlines on a busy machine."""

from hypothesis import settings

settings.register_profile("idletime", database=None, deadline=None)
settings.load_profile("idletime")
