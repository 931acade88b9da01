"""The switch that stops everything: one ConfigMap, whose being there is all that counts.

A person may make it by hand (`kubectl create configmap`) where the command line is not at hand.
"""

from __future__ import annotations

import asyncio

from reconciler.api import names
from reconciler.api.clock import rfc3339
from reconciler.api.meta import ConfigMap
from reconciler.kube.client import Client
from reconciler.kube.errors import NotFound, TransportError
from reconciler.kube.resources import CONFIGMAPS

BELIEVED = 0.8
"""Seconds from the question for which the answer "nothing is stopped" holds: after a stop nothing begins within 1 s."""
TRIES = 5
"""Questions in a row whose answers come too late, before it is an error."""


class TooLate(TransportError):
    """Answers came, but took too long to be believed: another question may do better, and soon."""


async def ask(client: Client, namespace: str) -> ConfigMap | None:
    """The stop as the API server has it now; None when nothing is stopped, which is true of the last BELIEVED seconds.

    Raises ApiError, TransportError when no answer came, and TooLate when none came in time to be believed.
    """
    now = asyncio.get_running_loop().time
    for _ in range(TRIES):
        asked = now()
        try:
            return await client.get(CONFIGMAPS, names.STOP_NAME, namespace)
        except NotFound:
            if now() - asked <= BELIEVED:
                return None
    raise TooLate(f"ConfigMap {names.STOP_NAME}: answers take more than {BELIEVED} s, so nobody can tell now")


def words(stop: ConfigMap) -> str:
    """Who stopped everything, since when and why, as far as it says so."""
    created = stop.metadata.creation_timestamp
    at = stop.data.get(names.STOP_AT) or ("" if created is None else rfc3339(created))
    told = (
        (" by ", stop.data.get(names.STOP_BY, "")),
        (" since ", at),
        (": ", stop.data.get(names.STOP_REASON, "")),
    )
    return "everything is stopped" + "".join(f"{before}{what}" for before, what in told if what)
