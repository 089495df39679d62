"""Nova, Placement, Keystone, Glance, their data base and broker, and three hypervisors, in namespaces of one machine."""
