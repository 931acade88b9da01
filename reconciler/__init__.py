"""runtime-reconciler: container runtimes on Kubernetes nodes, added and removed without breaking a node."""

__version__ = "0.1.0"
