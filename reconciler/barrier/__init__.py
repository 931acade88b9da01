"""The retry barrier and the classes of errors (design section 5). May import `cri.api` and `api`."""

from reconciler.barrier.barrier import BarrierMetrics, RetryBarrier, State
from reconciler.barrier.errors import BarrierError, BarrierFailed, BarrierTimeout, ErrorClass, classify

__all__ = [
    "BarrierError",
    "BarrierFailed",
    "BarrierMetrics",
    "BarrierTimeout",
    "ErrorClass",
    "RetryBarrier",
    "State",
    "classify",
]
