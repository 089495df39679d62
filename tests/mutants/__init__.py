"""Mutation testing: small changes of the scheduler's C code, and which of them the tests notice.  See README.md."""
