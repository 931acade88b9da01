"""The three patterns that break controllers (Sieve, OSDI 2022), at every point of recorded runs.

`stories` are the runs, `points` enumerates what can be done to one, `faults` does it, `run` runs and judges.
`python -m tests.sieve` runs them all, `make test` every n-th.
"""
