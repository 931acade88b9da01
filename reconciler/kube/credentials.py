"""Where the cluster is and what opens it, as kubernetes-asyncio loads it. Only `kube.cluster` uses this."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from kubernetes_asyncio import config
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

from reconciler.api.clock import Clock

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_PERIOD = timedelta(minutes=2)
"""A pod's token is read again this often: kubelet renews it long (20 % of its life) before it expires."""


class ConfigError(Exception):
    """There is no usable cluster configuration; the message is one line that says what to do."""


class Credentials(Protocol):
    """`load` fills a kubernetes-asyncio Configuration: host, CA, token or client certificate."""

    @property
    def source(self) -> str:
        """What to name in an error."""

    @property
    def expiry(self) -> datetime | None:
        """Wall clock; None when nobody knows or they do not expire."""

    async def load(self, configuration: Any) -> None:
        """Raises ConfigError."""


class InCluster:
    """The service account that every pod has."""

    source = "in-cluster service account"

    def __init__(self, clock: Clock, *, directory: Path = SERVICE_ACCOUNT) -> None:
        self.expiry: datetime | None = None
        self._clock = clock
        self._directory = directory

    async def load(self, configuration: Any) -> None:
        loader: Any = InClusterConfigLoader(
            token_filename=str(self._directory / "token"),
            cert_filename=str(self._directory / "ca.crt"),
            try_refresh_token=False,  # we renew: its own refresh reads the file on the event loop
        )
        try:
            await asyncio.to_thread(loader.load_and_set, configuration)
        except (config.ConfigException, OSError) as error:
            raise ConfigError(f"{self.source}: {_line(error)}; is automountServiceAccountToken off?") from error
        self.expiry = self._clock.now() + TOKEN_PERIOD


class Kubeconfig:
    """`paths` is one file, or several parted by `:` as in $KUBECONFIG; `context` is the current one when empty."""

    def __init__(self, paths: str, context: str = "") -> None:
        self.source = f"kubeconfig {paths}" + (f", context {context}" if context else "")
        self.expiry: datetime | None = None
        self._paths = paths
        self._context = context or None

    async def load(self, configuration: Any) -> None:
        """Read it again and run its exec plugin, if it has one."""
        if not await asyncio.to_thread(self._there):
            raise ConfigError(f"{self.source}: no such file; name one with --kubeconfig or $KUBECONFIG")
        load: Any = config.load_kube_config
        try:
            loader = await load(
                config_file=self._paths,
                context=self._context,
                client_configuration=configuration,
                persist_config=False,
            )
        except FileNotFoundError as error:
            raise ConfigError(f"{self.source}: {error.filename} is not there; {REPAIR}") from error
        except Exception as error:  # the loader meets a wrong shape with whatever it runs into
            raise ConfigError(f"{self.source} cannot be used: {_line(error)}; {REPAIR}") from error
        self.expiry = getattr(loader, "exec_plugin_expiry", None)

    def _there(self) -> bool:
        return any(Path(path).expanduser().is_file() for path in self._paths.split(os.pathsep) if path)


REPAIR = "check it with `kubectl config view`, or name another with --kubeconfig"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
