"""What the handlers of an informer are told, and what a collection is, in one form."""

from __future__ import annotations

from typing import Any

from reconciler.kube.store import version_of


class Story:
    """What the handlers of one informer were told, folded; each word must be possible after the ones before it."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], tuple[str, int]] = {}
        """Key → UID and version."""

    def hear(self, kind: str, old: Any, new: Any, initial: bool) -> None:
        obj = new if new is not None else old
        key, uid, version = (obj.metadata.namespace, obj.metadata.name), obj.metadata.uid, version_of(obj)
        before = self.known.get(key)
        if kind == "added":
            assert before is None, f"{key} is added, but was there as {before}"
        elif kind == "modified":
            assert before is not None and before[0] == uid, f"{key} {uid} is modified, but what was there is {before}"
            assert before[1] <= version, f"{key} goes back from version {before[1]} to {version}"
        else:
            assert before is not None and before[0] == uid, f"{key} {uid} is deleted, but what was there is {before}"
            del self.known[key]
            return
        self.known[key] = (uid, version)


def state(objects: Any) -> dict[tuple[str, str], tuple[str, int]]:
    return {(o.metadata.namespace, o.metadata.name): (o.metadata.uid, version_of(o)) for o in objects}
