"""Measures what a foreground VM keeps of its uplink beside a greedy background VM; asserts nothing."""
