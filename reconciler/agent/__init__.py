"""The node agent: the only process that edits containerd's configuration or restarts it on purpose.

Runs on every node, so it imports nothing heavy (design section 10).
"""

from reconciler.agent.deps import AgentMetrics, Deps, SocketWatch
from reconciler.agent.service import Agent

__all__ = ["Agent", "AgentMetrics", "Deps", "SocketWatch"]
