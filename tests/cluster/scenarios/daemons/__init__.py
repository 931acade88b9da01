"""Scenario 11: the same rows with each release of containerd as the daemon of a node."""
