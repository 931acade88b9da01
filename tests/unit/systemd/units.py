"""Units as systemd shows them, for every test that needs one."""

from __future__ import annotations

from dataclasses import replace

from reconciler.systemd.api import SystemdError, UnitState

RUNNING = UnitState(
    load_state="loaded",
    active_state="active",
    sub_state="running",
    result="success",
    restart="always",
    main_pid=700,
    invocation_id="01",
    active_enter_monotonic=1.0,
    job=False,
    unit_file_state="enabled",
    exec_start=("/usr/bin/containerd",),
)
MISSING = replace(RUNNING, load_state="not-found", active_state="inactive", sub_state="dead", exec_start=())


class Units:
    """The part of systemd that only looks. `silent`: it does not answer for what it does not know."""

    def __init__(self, units: dict[str, UnitState], *, silent: bool = False) -> None:
        self._units, self._silent = units, silent

    async def unit(self, name: str, *, timeout: float = 5) -> UnitState:
        if name not in self._units and self._silent:
            raise SystemdError("NoSuchUnit", name)
        return self._units.get(name, MISSING)

    async def close(self) -> None:
        return None
