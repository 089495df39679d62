"""Shared resources that cannot be preempted, with a log of who used them when."""
