"""RBAC in short: who may not do what, and the API server's words for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from reconciler.sim.failures import ApiFailure
from reconciler.sim.requests import Request, Target

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass
class Rights:
    """Everybody may do everything but what was taken away."""

    denied: set[tuple[str, str, str]] = field(default_factory=set)
    """First letters of the user's name, verb, and resource (`pods`, `noderuntimes/status`)."""

    def take(self, user: str, verb: str, resource: str) -> None:
        self.denied.add((user, verb, resource))

    def give(self, user: str, verb: str, resource: str) -> None:
        self.denied.discard((user, verb, resource))

    def check(self, request: Request, goal: Target) -> None:
        """Raises ApiFailure 403, worded as `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters` does."""
        verb = verb_of(request, goal)
        resource = "/".join(filter(None, (goal.kind.plural, goal.subresource)))
        if not any(request.user.startswith(u) and (v, r) == (verb, resource) for u, v, r in self.denied):
            return
        where = f'in the namespace "{goal.namespace}"' if goal.namespace else "at the cluster scope"
        what = f'{goal.kind.plural} "{goal.name}"' if goal.name else goal.kind.plural
        raise ApiFailure(
            403,
            "Forbidden",
            f'{what} is forbidden: User "{request.user}" cannot {verb} resource "{resource}" '
            f'in API group "{goal.kind.group}" {where}',
        )


def verb_of(request: Request, goal: Target) -> str:
    """The verb of a request, as RBAC names it."""
    if request.is_watch:
        return "watch"
    if request.method == "GET":
        return "get" if goal.name else "list"
    return _VERBS[request.method]
