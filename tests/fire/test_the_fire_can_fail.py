"""Defects of the client that the fire finds, within ten runs against the embedded server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from reconciler.kube import informer
from reconciler.kube.client import Client
from reconciler.kube.informer import Informer
from reconciler.kube.reflector import Input
from tests.fire import embedded, trial


@pytest.fixture(autouse=True)
def few_words() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def _nothing_is_removed(self: Any, items: Any, version: str) -> None:
    self.store.version = int(version)
    for raw in items:
        self._merge(self._decode(raw), False)


def _a_list_is_not_looked_at(self: Any, resource: Any, response: Any) -> Any:
    return self._list.decode(response.body)


def test_deletes_that_a_new_list_does_not_deliver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Informer, "_replace", _nothing_is_removed)
    with pytest.raises(trial.Failed, match=r"seed \d+: .*after 200.0 s: held="):
        embedded.run(range(10))


def test_a_silence_that_nobody_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "SILENCE", 1e6)
    with pytest.raises(trial.Failed, match=r"seed \d+: .*after 200.0 s: held="):
        embedded.run(range(20))


def test_a_decoder_that_is_not_expected_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a page of a load balancer once ended the loops beside the informers."""
    monkeypatch.setattr(informer.msgspec, "MsgspecError", KeyError)
    monkeypatch.setattr(Client, "_page", _a_list_is_not_looked_at)
    with pytest.raises(Exception, match=r"JSON is malformed|truncated"):
        embedded.run(range(10))


def test_stores_that_somebody_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(Informer, "add_handler", lambda self, handler: kept.append(self.store))
    monkeypatch.setattr(trial._Run, "_settle", _does_not_look)
    with pytest.raises(AssertionError, match=r"objects=40.*objects=0"):
        embedded.run(range(10))


async def _does_not_look(self: Any, running: Any) -> None:
    """The handlers are told of nothing."""


async def _never_waits(self: Any) -> None:
    while True:
        came = await self._list()
        if came is Input.LISTED:
            await asyncio.Event().wait()


def test_lists_without_a_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of an outage is one that a list without a backoff breaks."""
    from tests.fire.test_two_hundred_runs import test_an_outage_costs_the_server_no_storm as outage

    monkeypatch.setattr(Informer, "run", _never_waits)
    with pytest.raises(AssertionError):
        outage()
