"""Deliberate defects, each of which the soak must catch: `python -m tests.mutants` prints the table."""
