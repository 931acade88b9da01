"""Each phase pod of a revision is offered to the API server as a dry run before the first node is touched.

So a volume that is not there, a misspelt field, a missing ServiceAccount, a policy, or a right that we lack is told
of once, on the NodeRuntime, and not by a node that cannot go on.
"""

from __future__ import annotations

from datetime import datetime

from reconciler.api.node import NodeState, Problem, Stage
from reconciler.api.noderuntime import NodeRuntime, RevisionData
from reconciler.controller import pods, problems
from reconciler.kube.client import Client
from reconciler.kube.errors import AlreadyExists, ApiError, Forbidden
from reconciler.kube.resources import PODS

NODE = "rehearsal"
"""Name of no node: the API server does not look it up."""
NO_DRY_RUN = "does not support dry run"
"""Of a 400 by a webhook that has side effects, which has no reason of its own to go by
(`k8s.io/apiserver/pkg/admission/plugin/webhook/errors/statuserror.go`)."""


class Rehearsal:
    """Remembers, for each NodeRuntime, the revision whose pods were accepted last."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._passed: dict[str, tuple[str, str]] = {}

    def forget(self, runtime: str) -> None:
        self._passed.pop(runtime, None)

    async def refused(self, runtime: NodeRuntime, revision: str, data: RevisionData, now: datetime) -> Problem | None:
        """Why the API server would not take a pod of this revision, None when it would.

        Raises ApiError (429 and 5xx) and TransportError: nobody knows.
        """
        name, asked = runtime.metadata.name, (runtime.metadata.uid, revision)
        if self._passed.get(name) == asked:
            return None
        for stage in (Stage.PRE_INSTALL, Stage.INSTALL, Stage.UNINSTALL, Stage.POST_UNINSTALL):
            if pods.phase_of(data, stage) is None:
                continue
            state = NodeState(uid=runtime.metadata.uid, stage=stage, target=revision, since=now)
            if (problem := await self._offer(pods.build(name, NODE, self._namespace, state, data), stage)) is not None:
                return problem
        self._passed[name] = asked
        return None

    async def _offer(self, pod: dict[str, object], stage: Stage) -> Problem | None:
        try:
            await self._client.create(PODS, pod, self._namespace, rehearse=True)
        except AlreadyExists:
            return None
        except Forbidden as error:
            return problems.forbidden(f"phase {stage}: {error.message}")
        except ApiError as error:
            if error.status not in (400, 422):
                raise
            if NO_DRY_RUN in error.message:
                return None
            return Problem("InvalidPhase", f"phase {stage}: {error.message}")
        return None
