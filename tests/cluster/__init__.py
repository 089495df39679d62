"""The test cluster: hypervisor nodes in namespaces of this machine, reached by SSH as real hosts are."""
