"""The controller: wiring, node and runtime reconcilers. The shell around `reconciler.phases`."""

from reconciler.controller.service import Controller

__all__ = ["Controller"]
