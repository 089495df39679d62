"""QEMU's own tests, on the patched and the unpatched tree, and whether the two results are equal."""
