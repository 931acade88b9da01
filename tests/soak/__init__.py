"""Thousands of faulty rollouts under a virtual clock: `python -m tests.soak --seeds 1000`."""
