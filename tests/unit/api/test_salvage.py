"""An object that cannot be read as a NodeRuntime still has metadata and status."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from reconciler.api.noderuntime import NodeRuntime, UnreadableNodeRuntime
from reconciler.kube.resources import NODERUNTIMES


def raw(**fields: Any) -> bytes:
    return json.dumps({"metadata": {"name": "kata", "uid": "u"}, **fields}).encode()


def test_a_good_object_is_a_plain_noderuntime() -> None:
    assert type(NODERUNTIMES.decode(raw(spec={"paused": True}))) is NodeRuntime


def test_a_wrong_type_is_told_and_metadata_and_status_are_kept() -> None:
    found = NODERUNTIMES.decode(raw(spec={"paused": "yes"}, status={"inWork": ["n1"], "revision": "abc"}))
    assert isinstance(found, UnreadableNodeRuntime)
    assert found.error == "Expected `bool`, got `str` - at `$.spec.paused`"
    assert (found.metadata.name, found.metadata.uid) == ("kata", "u")
    assert (found.status.in_work, found.status.revision) == (("n1",), "abc")


def test_a_status_that_cannot_be_read_is_begun_anew() -> None:
    found = NODERUNTIMES.decode(raw(status={"nodes": 3}))
    assert isinstance(found, UnreadableNodeRuntime)
    assert found.status.in_work == ()


def test_without_metadata_there_is_nothing_to_tell_of() -> None:
    with pytest.raises(msgspec.ValidationError):
        NODERUNTIMES.decode(b'{"metadata": [], "spec": 1}')
