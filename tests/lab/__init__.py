"""Hosts of a lab in namespaces of this machine, above a tree of Debian: a cloud of OpenStack, a pool of HTCondor."""
