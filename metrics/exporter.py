"""/metrics, /healthz and /readyz: the agent and the controller share them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from metrics.server import Answer, Request, Route, Server


class Exporter(Server):
    """`async with Exporter(port, ready=…)`: `ready` says what /readyz answers, `alive` what /healthz does."""

    def __init__(
        self,
        port: int,
        *,
        ready: Callable[[], bool],
        alive: Callable[[], bool] = lambda: True,
        host: str = "0.0.0.0",
        registry: CollectorRegistry = REGISTRY,
        routes: Mapping[str, Route] | None = None,
    ) -> None:
        """`routes`: what else is served here, by path."""

        async def metrics(_: Request) -> Answer:
            return Answer(kind=CONTENT_TYPE_LATEST, body=generate_latest(registry))

        own = {"/metrics": metrics, "/healthz": _check(alive), "/readyz": _check(ready)}
        super().__init__(port, {**(routes or {}), **own}, host=host)


def _check(good: Callable[[], bool]) -> Route:
    async def answer(_: Request) -> Answer:
        if good():
            return Answer(body=b"ok\n")
        return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body=b"not yet\n")

    return answer
