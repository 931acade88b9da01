"""What etcd's gateway is asked for beside the API server: to forget its history."""

from __future__ import annotations

import json

from reconciler.kube.light import LightTransport


async def compact(address: str) -> None:
    """Compact up to the present revision: continue tokens and watches of older versions are gone. Raises OSError."""
    gateway = LightTransport(address)
    try:
        answer = await gateway.request("POST", "/v3/kv/range", body=b'{"key": "AA=="}')
        revision = json.loads(answer.body)["header"]["revision"]
        body = json.dumps({"revision": revision, "physical": True}).encode()
        answer = await gateway.request("POST", "/v3/kv/compaction", body=body)
    finally:
        await gateway.close()
    if answer.status != 200:
        raise OSError(f"etcd at {address} does not compact: {answer.body[:300]!r}")
