"""How commands reach a cluster: the options that they share, a client, and what goes wrong as one line.

Exit statuses that all of them share: 1 refused, 2 usage or no cluster.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, NoReturn, TypeVar

import typer

from reconciler.api import names
from reconciler.kube.client import Client
from reconciler.kube.cluster import ConfigError, connect
from reconciler.kube.errors import ApiError, TransportError, Unauthorized

T = TypeVar("T")

REFUSED = 1
"""Exit status: by us, or by the API server; nothing was changed."""
NO_CLUSTER = 2
"""Exit status: there is none, it does not answer, or it does not know who asks. The same as of a wrong usage."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

Kubeconfig = Annotated[
    str,
    typer.Option("--kubeconfig", envvar="KUBECONFIG", help="Else the pod's own credentials, else ~/.kube/config."),
]
Context = Annotated[str, typer.Option("--context", help="Context of the kubeconfig; its current one by default.")]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace that the controller and the agents run in.")
]
NAMESPACE = names.NAMESPACE
"""Default of `Namespace`."""


class Refused(Exception):
    """What a command does not do: one line that says what was wrong, where, and what to do."""


def run(work: Callable[[Client], Awaitable[T]], *, kubeconfig: str = "", context: str = "") -> T:
    """Connect, await `work(client)`, close. What goes wrong is told on stderr and ends the command.

    Raises typer.Exit: REFUSED for Refused and errors of the API server, NO_CLUSTER where there is no answer.
    """
    try:
        return asyncio.run(_connected(work, kubeconfig, context))
    except Refused as error:
        _end(str(error), REFUSED)
    except (ConfigError, TransportError, Unauthorized) as error:
        _end(str(error), NO_CLUSTER)
    except ApiError as error:
        _end(f"the API server refused: {error.message}", REFUSED)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


async def _connected(work: Callable[[Client], Awaitable[T]], kubeconfig: str, context: str) -> T:
    client = Client(await connect(kubeconfig or None, context=context))
    try:
        return await work(client)
    finally:
        await client.close()


def _end(line: str, status: int) -> NoReturn:
    print(f"reconciler: {line}", file=sys.stderr)
    raise typer.Exit(status)
