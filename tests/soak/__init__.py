"""Everything that may happen to a VM, in random order, for hours."""
