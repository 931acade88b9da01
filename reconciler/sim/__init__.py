"""A whole cluster in one process: API server, kubelets, containerds, payloads, and a judge who looks at the world.

The controller and the agents that run on it are the real ones. May import everything but `cli`.
"""
