"""Objects that are copied from a hub to a member cluster, as JSON has them: which kinds these are,
where they lie, by what a copy is known, and which are decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wharfinger.domain.actuation import COPIED, COPIED_FOR, COPIED_FROM
from wharfinger.stages.actuator.effects import EffectObject
from wharfinger.stages.actuator.requests import MERGE_PATCH, ApiRequest

if TYPE_CHECKING:
    from wharfinger.events.rendering import Rendered
    from wharfinger.stages.actuator.hub import HubObjects

ROOTS = {
    "ConfigMap": ("v1", "/api/v1", "configmaps"),
    "Secret": ("v1", "/api/v1", "secrets"),
    "ServiceAccount": ("v1", "/api/v1", "serviceaccounts"),
    "PersistentVolumeClaim": ("v1", "/api/v1", "persistentvolumeclaims"),
    "Deployment": ("apps/v1", "/apis/apps/v1", "deployments"),
    "StatefulSet": ("apps/v1", "/apis/apps/v1", "statefulsets"),
}
"""Kinds that are copied, what others name before those that name it."""

COPIED_PATHS = {
    kind: f"{root}/{plural}" for kind, (_, root, plural) in ROOTS.items() if kind != "Secret"
}
"""Kind that is copied -> the path of all of its objects. Secrets are read in single namespaces."""

WORKLOADS = ("Deployment", "StatefulSet")
"""Those with replicas; all else goes with the workload that names it."""

CLAIM = "PersistentVolumeClaim"

USED_AS_IT_IS = ("ServiceAccount", CLAIM)
"""Kinds of which a workload needs one of the name. It need not be our copy."""

OPTIONAL_KINDS = ("ServiceAccount", CLAIM)
"""Where hub or member may not be asked for them, the others are copied: accounts that were given
their rights by an earlier version lack these."""

HIDDEN = "(not shown)"
"""Instead of the content of a Secret."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A workload of `binding` that cannot be copied."""

    binding: str
    why: str


@dataclass(frozen=True, slots=True)
class DecidedCopies:
    """Of one cluster. `wanted`: kind and name -> the object as it shall be there. `bindings`: those
    that the cluster shall have. `left_out`: of these the workloads that cannot be copied. `unread`:
    kinds of which it is not known what is there."""

    wanted: Mapping[tuple[str, str], Rendered]
    bindings: frozenset[str]
    left_out: Mapping[EffectObject, LeftOut] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()

    def accounts(self, there: HubObjects) -> dict[str, Rendered]:
        """Namespace and name -> the ServiceAccounts that pods find: those that are `there`, and
        those that shall be."""
        kind = "ServiceAccount"
        wanted = {key: one for (of, key), one in self.wanted.items() if of == kind}
        return wanted | there.of(kind)


def secrets_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


def shown_body(body: Rendered) -> Rendered:
    """The body of a request without what a Secret holds; its keys are shown."""
    if body.get("kind") != "Secret" or "data" not in body:
        return body
    return {**body, "data": dict.fromkeys(body["data"] or {}, HIDDEN)}


def given_back(now: Rendered) -> tuple[EffectObject, ApiRequest] | None:
    """A copied object, from whichever hub, and the request that makes it an object like any other:
    it stays, and no plane changes it any more. None: it is no copy."""
    metadata = now["metadata"]
    if not said_by(now, COPIED_FROM):
        return None
    gone = dict.fromkeys((COPIED_FOR, COPIED, COPIED_FROM))
    metadata_patch = {"uid": metadata["uid"], "annotations": gone}
    return named(now), ApiRequest("PATCH", path_of(now), {"metadata": metadata_patch}, MERGE_PATCH)


def said_by(one: Rendered, annotation: str) -> str:
    return str((one["metadata"].get("annotations") or {}).get(annotation, ""))


def ends(now: Rendered) -> bool:
    """It is being deleted."""
    return bool(now["metadata"].get("deletionTimestamp"))


def path_of(one: Rendered) -> str:
    _, root, plural = ROOTS[one["kind"]]
    metadata = one["metadata"]
    return f"{root}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"


def named(one: Rendered) -> EffectObject:
    metadata = one["metadata"]
    uid = metadata.get("uid", "")
    return EffectObject(one["kind"], metadata["namespace"], metadata["name"], uid)
