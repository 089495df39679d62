"""HTCondor of Debian 13 on two nodes, in namespaces of one machine: jobs in VMs where the foreground leaves room."""
