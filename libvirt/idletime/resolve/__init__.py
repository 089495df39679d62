# SPDX-License-Identifier: GPL-2.0-or-later
"""Names the host resource behind a disk source or an interface. Reads /sys, /proc and image headers below one root."""

from .gather import Host, gather, resolve
from .lookup import Lookup, Network

__all__ = ["Host", "Lookup", "Network", "gather", "resolve"]
