"""Tests of idletime-observer on this machine's own kernel, as root: `make observer-check`."""
