"""The alerts against Prometheus' own unit tests: `python -m tests.rules`."""
