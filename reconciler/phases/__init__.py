"""The core: what happens next on a node, and which nodes may work. Pure; imports only `reconciler.api`."""
