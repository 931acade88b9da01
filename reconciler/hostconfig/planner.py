"""Plans of one host, each from a fresh look at its files. Blocks on the disk; writes the last good copy only."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reconciler.api.noderuntime import RevisionData
from reconciler.hostconfig.distribution import is_generated, refuse_unsupported
from reconciler.hostconfig.dump import Dump
from reconciler.hostconfig.hostroot import HostRoot
from reconciler.hostconfig.last_good import LastGood
from reconciler.hostconfig.planning import plan_apply, plan_remove
from reconciler.hostconfig.repairing import plan_repair
from reconciler.hostconfig.snapshot import Plan, Snapshot
from reconciler.hostconfig.state import State
from reconciler.hostconfig.template import template_of
from reconciler.hostconfig.version import Version, supported


class Planner:
    """What would be changed for a runtime on `host`, whose daemon reads `config_path` and has `version`."""

    def __init__(
        self,
        host: HostRoot,
        config_path: str,
        version: Version,
        state: State,
        *,
        dump: Dump | None,
        last_good: LastGood,
    ) -> None:
        self._host, self._config_path, self._version = host, config_path, version
        self._state, self._dump, self._last_good = state, dump, last_good
        self._template = template_of(host, config_path, version)

    def snapshot(self) -> Snapshot:
        return Snapshot(self._host, self._config_path, self._version, self._dump, self._last_good, self._template)

    def apply(self, name: str, data: RevisionData) -> Plan:
        """Raises Refused."""
        supported(self._version)
        refuse_unsupported(self._host)
        return self._planned(lambda snapshot: plan_apply(snapshot, name, data, self._held(name)))

    def remove(self, name: str) -> Plan:
        """Raises Refused."""
        return self._planned(lambda snapshot: plan_remove(snapshot, name, self._held(name)))

    def repair(self) -> Plan:
        """Raises Refused."""
        return plan_repair(self.snapshot())

    def no_worse(self, change: Mapping[str, bytes | None]) -> bool:
        """Whether the files, with those of `change` (None: gone), load and serve if they do so now."""
        snapshot = self.snapshot()
        now = snapshot.examine(snapshot.effective())
        for path, data in change.items():
            snapshot.put(path, data)
        then = snapshot.examine(snapshot.effective())
        return (then.loads or not now.loads) and (then.serves or not now.serves)

    def keep_last_good(self) -> None:
        """The main file as it is, while something of ours is on the host and no change of ours is open."""
        journal, snapshot = self._state.load(), Snapshot(self._host, self._config_path, self._version)
        found = snapshot.examine(snapshot.effective())
        if not journal.runtimes:
            self._last_good.forget()
        elif found.serves and journal.pending is None and not is_generated(self._config_path):
            self._last_good.keep(snapshot.main)

    def _planned(self, plan: Callable[[Snapshot], Plan]) -> Plan:
        snapshot = self.snapshot()
        planned = plan(snapshot)
        snapshot.compare(planned)
        return planned

    def _held(self, name: str) -> tuple[str, ...] | None:
        held = self._state.load().runtimes.get(name)
        return None if held is None else held.handlers
