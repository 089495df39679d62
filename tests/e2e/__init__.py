"""Tests with real guests on real QEMU processes: orders, counts and shares, never times."""
