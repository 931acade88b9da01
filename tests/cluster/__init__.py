"""The product on a real Kubernetes cluster: harness, observer, scenarios (`python -m tests.cluster --help`).

Nothing here imports the product: what is judged must not be its own judge.
"""
