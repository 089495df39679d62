"""The evaluation: every way to hold a background back, on every workload, on one disk in one run."""
