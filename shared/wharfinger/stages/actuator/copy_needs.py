"""Objects that copied workloads name and that are not copied with them: the pods of a workload do
not start without them.

A ConfigMap, ServiceAccount or claim is missing where neither hub nor member has it; a Secret too,
in a namespace whose Secrets are copied. In all others nothing may read Secrets. So one is named
while its workload is not available in the member: whether the Secret is there is not known. A
workload that is available has what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wharfinger.domain.actuation import COPIED
from wharfinger.events.rendering import Rendered
from wharfinger.stages.actuator.copied_objects import WORKLOADS, named, said_by
from wharfinger.stages.actuator.copy_ages import MemberCopies
from wharfinger.stages.actuator.effects import EffectObject
from wharfinger.stages.actuator.pod_references import workload_references


@dataclass(frozen=True, slots=True)
class NeededObject:
    """`missing`: it is not there; False: that is not known. `by`: the workload that names it, the
    first of them. `remedy`: what a person has to do."""

    object: EffectObject
    missing: bool
    by: EffectObject
    remedy: str

    @property
    def why(self) -> str:
        return f"named by {self.by}: {self.remedy}"


def needed_objects(copies: MemberCopies) -> list[NeededObject]:
    """By kind, namespace and name."""
    found: dict[EffectObject, NeededObject] = {}
    accounts = copies.decided.accounts(copies.there)
    for (kind, key), wanted in sorted(copies.decided.wanted.items()):
        if kind not in WORKLOADS or _is_available(copies.there.of(kind).get(key), wanted):
            continue
        workload = named(wanted)
        for (of, name), needed in workload_references(wanted, accounts).items():
            object = EffectObject(of, workload.namespace, name)
            if not needed or object in found or of in copies.decided.unread:
                continue
            one = _needed(object, workload, copies)
            if one is not None:
                found[object] = one
    return [found[object] for object in sorted(found)]


def _needed(
    object: EffectObject, workload: EffectObject, copies: MemberCopies
) -> NeededObject | None:
    kind, key = object.kind, f"{object.namespace}/{object.name}"
    if (kind, key) in copies.decided.wanted or key in copies.there.of(kind):
        return None
    if kind == "Secret" and object.namespace not in copies.secrets:
        remedy = f"Secrets are not copied; create it in {copies.member}, if it is not there"
        return NeededObject(object, False, workload, remedy)
    remedy = f"neither {copies.hub} nor {copies.member} has it; create it in {copies.hub}"
    if kind == "Secret":
        remedy = f"{copies.member} has none, and {copies.hub} none that can be copied; create it"
    return NeededObject(object, True, workload, remedy)


def _is_available(now: Rendered | None, wanted: Rendered) -> bool:
    """Whether all of its pods are of the template that is wanted, and ready."""
    if now is None or said_by(now, COPIED) != said_by(wanted, COPIED):
        return False
    replicas = int(now["spec"].get("replicas", 1))
    status: Mapping[str, Any] = now.get("status") or {}
    if status.get("observedGeneration", 0) != now["metadata"].get("generation", 0):
        return False
    ready = min(int(status.get(which, 0)) for which in ("updatedReplicas", "readyReplicas"))
    return ready >= replicas
