"""Drives the product: boots guests on a QEMU, runs commands in them, and leaves nothing behind."""
