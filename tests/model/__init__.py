"""The stage machine and its environment, explored breadth first: every order of events, not a sample of them.

The controller's part is the real code (`phases.decide`, `phases.rollout`, `controller.goals`, `outlooks`,
`node.patch_of`, the end of a NodeRuntime); `real` asks it. The environment is abstract and small (`environment`).
Time is abstract, too: that a backoff or a deadline is over is an event, mapped on real times when `decide` is asked.
What each instance covers, and what none does, is in `instances`.
"""
