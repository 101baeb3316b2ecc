"""The objects of a hub in which decisions of the fleet stand: what is still to be written to them.

    writes = hub_writes(decided objects, observed objects)

Both sides are objects as JSON has them: the decided ones as they are rendered from the ledger
(`events.rendering`), the observed ones as the hub sends them. A request holds the resourceVersion
that was observed, so what somebody else wrote meanwhile is never lost: the server answers with a
conflict, and the object is compared again once it is observed.

Karmada's ResourceBindings are written only where `schedulerName` is ours, OCM's PlacementDecisions
only where scheduling of their Placement is switched off by OCM's annotation and ours says that we
decide it. All else belongs to
their own schedulers. NodeClaims of a member cluster are made from open claims in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from wharfinger.domain.actuation import Verb
from wharfinger.domain.node_pool import CLAIM_LABEL
from wharfinger.domain.value import digest
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.hub_facts import read_hub_object
from wharfinger.events.rendering import PLACEMENT_LABEL, Rendered, resource_binding
from wharfinger.manifests.kinds import KINDS
from wharfinger.manifests.kubernetes.live import UnreadableError
from wharfinger.manifests.ocm import DISABLED, OURS
from wharfinger.manifests.wharfinger.options import DRIFT, SCHEDULER, WRITTEN
from wharfinger.stages.actuator.effects import EffectObject
from wharfinger.stages.actuator.requests import MERGE_PATCH, ApiRequest

APPLIED_PLACEMENT = "policy.karmada.io/applied-placement"
"""Karmada's annotation: the placement that the clusters of a binding were chosen by, as JSON. Its
controllers compare it with the placement in the spec."""

_KARMADA = "/apis/work.karmada.io/v1alpha2"
_OCM = "/apis/cluster.open-cluster-management.io/v1beta1"
_KARPENTER = "/apis/karpenter.sh/v1"

_ROOTS = {
    "ResourceBinding": (_KARMADA, "resourcebindings"),
    "ClusterResourceBinding": (_KARMADA, "clusterresourcebindings"),
    "Placement": (_OCM, "placements"),
    "PlacementDecision": (_OCM, "placementdecisions"),
    "NodeClaim": (_KARPENTER, "nodeclaims"),
}


KARMADA_PATHS = {
    kind: f"{root}/{plural}" for kind, (root, plural) in _ROOTS.items() if root == _KARMADA
}
_BINDING_KINDS = {kind.kind: kind for kind in KINDS if kind.kind in KARMADA_PATHS}
OCM_PATHS = {kind: f"{root}/{plural}" for kind, (root, plural) in _ROOTS.items() if root == _OCM}
CLAIM_PATHS = {"NodeClaim": f"{_KARPENTER}/nodeclaims"}
"""Kind -> the path of all of its objects."""


@dataclass(frozen=True, slots=True)
class HubWrite:
    """`request`: to be sent once. `what`: in a word or two, for logs."""

    verb: Verb
    object: EffectObject
    what: str
    request: ApiRequest

    @property
    def right(self) -> str:
        return self.verb

    @property
    def needs(self) -> tuple[str, ...]:
        """Kinds that must be known as they are."""
        decision = self.object.kind == "PlacementDecision"
        return ("Placement", "PlacementDecision") if decision else (self.object.kind,)

    @property
    def workload(self) -> str:
        return ""

    @property
    def key(self) -> tuple[str, EffectObject, str]:
        """Of this version of the object: a conflict is no attempt at the next one."""
        return self.what, self.object, _version_in(self.request)


@dataclass(slots=True)
class HubObjects:
    """What is observed: kind -> namespace and name -> object."""

    known: dict[str, dict[str, Rendered]] = field(default_factory=dict)

    def of(self, kind: str) -> dict[str, Rendered]:
        return self.known.setdefault(kind, {})


# --- Karmada


def binding_writes(
    decided: Iterable[Rendered],
    observed: HubObjects,
    scheduler: str,
    undecided: Collection[str] = (),
) -> list[HubWrite]:
    """The spec of a binding first; its status once the spec is observed as decided. `undecided`:
    bindings whose last request no decision has taken into account yet."""
    found: list[HubWrite] = []
    for one in decided:
        now = observed.of(one["kind"]).get(name_of(one))
        if now is None or "status" not in one or _deleted(now):
            continue
        if now["spec"].get("schedulerName") != scheduler:
            continue
        wanted = one["spec"].get("clusters", [])
        if _as_decided(now, wanted):
            if not _applied(now):
                found.append(_clusters_patch(now, wanted))
                continue
        elif not _changed_by_others(now, wanted) or _restored(now):
            found.append(_clusters_patch(now, wanted))
            continue
        else:
            continue
        is_decided = name_of(one) not in undecided
        if (status := _binding_status(now, one, is_decided=is_decided)) is not None:
            found.append(_status_patch("karmada", now, status))
    return found


def drifted_bindings(
    decided: Iterable[Rendered], observed: HubObjects, scheduler: str
) -> list[str]:
    """Bindings whose clusters somebody else has changed since they were written as decided. That is
    accepted, unless the binding says `wharfinger.io/drift: restore`."""
    return [
        name_of(one)
        for one in decided
        if (now := observed.of(one["kind"]).get(name_of(one))) is not None
        and now["spec"].get("schedulerName") == scheduler
        and not _as_decided(now, one["spec"].get("clusters", []))
        and _changed_by_others(now, one["spec"].get("clusters", []))
    ]


def _as_decided(now: Rendered, wanted: Sequence[Rendered]) -> bool:
    return _targets(wanted) == _targets(now["spec"].get("clusters", []))


def _changed_by_others(now: Rendered, wanted: Sequence[Rendered]) -> bool:
    """Whether these clusters were written already, and now there are others."""
    said = now["metadata"].get("annotations") or {}
    return bool(said.get(WRITTEN) == digest(_targets(wanted)))


def _restored(now: Rendered) -> bool:
    said = now["metadata"].get("annotations") or {}
    return bool(said.get(DRIFT) == "restore")


def _targets(clusters: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {target["name"]: target.get("replicas", 0) for target in clusters}


def _applied(now: Rendered) -> bool:
    """Whether the annotation says the placement that is in the spec."""
    said = (now["metadata"].get("annotations") or {}).get(APPLIED_PLACEMENT)
    try:
        return said is not None and msgspec.json.decode(said) == now["spec"].get("placement")
    except msgspec.DecodeError:
        return False


def _clusters_patch(now: Rendered, wanted: Sequence[Rendered]) -> HubWrite:
    placement = msgspec.json.encode(now["spec"].get("placement")).decode()
    metadata = {
        "resourceVersion": now["metadata"]["resourceVersion"],
        "annotations": {APPLIED_PLACEMENT: placement, WRITTEN: digest(_targets(wanted))},
    }
    body = {"metadata": metadata, "spec": {"clusters": list(wanted)}}
    request = ApiRequest("PATCH", path_of(now), body, MERGE_PATCH, strict=True)
    return HubWrite("karmada", _named(now), "clusters", request)


def _binding_status(now: Rendered, one: Rendered, *, is_decided: bool) -> Rendered | None:
    """What of the status is to be changed; None: nothing. Conditions of others are kept: a merge
    patch replaces a list as a whole. The generation is named once what it asks for is decided:
    Karmada ends evictions of a binding by it."""
    is_, decided = now.get("status") or {}, one["status"]
    conditions = _merged(is_.get("conditions") or [], decided["conditions"])
    wanted: Rendered = {
        "schedulerObservingAffinityName": decided.get("schedulerObservingAffinityName", "")
    }
    if "lastScheduledTime" in decided:
        wanted["lastScheduledTime"] = decided["lastScheduledTime"]
    generation = now["metadata"].get("generation", 0)
    if (
        is_decided
        and is_.get("schedulerObservedGeneration") != generation
        and _asked(now) == _without_clusters(one["spec"])
    ):
        wanted["schedulerObservedGeneration"] = generation
    changed = {key: value for key, value in wanted.items() if is_.get(key, "") != value}
    if conditions is not None:
        changed["conditions"] = conditions
    return changed or None


def _asked(now: Rendered) -> Rendered | None:
    """What of the spec is decided about, as it is rendered from the ledger. None: it cannot be
    read."""
    try:
        facts = read_hub_object(_BINDING_KINDS[now["kind"]], now).facts
    except UnreadableError:
        return None
    asked = next(fact.binding for fact in facts if isinstance(fact, BindingRequested))
    return _without_clusters(resource_binding(asked, None)["spec"])


def _without_clusters(spec: Rendered) -> Rendered:
    return {key: value for key, value in spec.items() if key != "clusters"}


# --- Open Cluster Management


def placement_writes(
    decisions: Iterable[Rendered], placements: Iterable[Rendered], observed: HubObjects
) -> list[HubWrite]:
    """Slices are made and changed first, then the Placement says which there are, and the ones that
    are too many go last: a reader finds every cluster at any moment."""
    slices: dict[str, dict[str, Rendered]] = {}
    for one in decisions:
        of = f"{one['metadata']['namespace']}/{one['metadata']['labels'][PLACEMENT_LABEL]}"
        slices.setdefault(of, {})[name_of(one)] = one
    found: list[HubWrite] = []
    for placement in placements:
        key = name_of(placement)
        now = observed.of("Placement").get(key)
        if now is None or "status" not in placement or _deleted(now) or not _left_to_us(now):
            continue
        wanted = slices.get(key, {})
        made = [
            write
            for name, one in sorted(wanted.items())
            if (write := _slice_write(one, observed.of("PlacementDecision").get(name), now))
        ]
        if not made and (status := _placement_status(now, placement["status"])) is not None:
            made = [_status_patch("ocm", now, status)]
        found += made or _surplus(key, wanted, observed)
    return found


def _left_to_us(placement: Rendered) -> bool:
    said = placement["metadata"].get("annotations") or {}
    return bool(said.get(DISABLED) == "true" and said.get(SCHEDULER) == OURS)


def _slice_write(wanted: Rendered, now: Rendered | None, placement: Rendered) -> HubWrite | None:
    metadata = wanted["metadata"]
    if now is None:
        owner = {
            "apiVersion": wanted["apiVersion"],
            "kind": "Placement",
            "name": placement["metadata"]["name"],
            "uid": placement["metadata"]["uid"],
            "controller": True,
        }
        body = {
            "apiVersion": wanted["apiVersion"],
            "kind": wanted["kind"],
            "metadata": {**metadata, "ownerReferences": [owner]},
        }
        path = path_of(wanted).rpartition("/")[0]
        request = ApiRequest("POST", path, body, strict=True)
        return HubWrite("ocm", _named(wanted), "create", request)
    if _deleted(now):
        return None
    is_ = now["metadata"]
    labels, annotations = is_.get("labels") or {}, is_.get("annotations") or {}
    missing = {
        key: part
        for key, part, has in (
            ("labels", metadata["labels"], labels),
            ("annotations", metadata["annotations"], annotations),
        )
        if any(has.get(name) != value for name, value in part.items())
    }
    # Clusters before the annotations that say which generation they are of.
    decisions = wanted["status"]["decisions"]
    if (now.get("status") or {}).get("decisions", []) != decisions:
        return _status_patch("ocm", now, {"decisions": decisions})
    if missing:
        body = {"metadata": {"resourceVersion": is_["resourceVersion"], **missing}}
        request = ApiRequest("PATCH", path_of(now), body, MERGE_PATCH, strict=True)
        return HubWrite("ocm", _named(now), "labels", request)
    return None


def _placement_status(now: Rendered, decided: Rendered) -> Rendered | None:
    is_ = now.get("status") or {}
    changed = {
        key: decided[key]
        for key in ("numberOfSelectedClusters", "decisionGroups")
        if is_.get(key, [] if key == "decisionGroups" else None) != decided[key]
    }
    generation = now["metadata"].get("generation", 0)
    wanted = [{**one, "observedGeneration": generation} for one in decided["conditions"]]
    conditions = _merged(is_.get("conditions") or [], wanted)
    if conditions is not None:
        changed["conditions"] = conditions
    return changed or None


def _surplus(
    placement: str, wanted: Mapping[str, Rendered], observed: HubObjects
) -> list[HubWrite]:
    found: list[HubWrite] = []
    for name, now in sorted(observed.of("PlacementDecision").items()):
        labels = now["metadata"].get("labels") or {}
        of = f"{now['metadata'].get('namespace', '')}/{labels.get(PLACEMENT_LABEL, '')}"
        if of != placement or name in wanted or _deleted(now):
            continue
        metadata = now["metadata"]
        conditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        request = ApiRequest("DELETE", path_of(now), body)
        found.append(HubWrite("ocm", _named(now), "delete", request))
    return found


# --- Karpenter


@dataclass(frozen=True, slots=True)
class DecidedClaims:
    """`open`: those that shall be there. `ended`: names of those that ended without a node.
    `removed`: node that may be taken away -> when that was decided, as Kubernetes writes times."""

    open: Sequence[Rendered] = ()
    ended: Collection[str] = ()
    removed: Mapping[str, str] = field(default_factory=dict)


def claim_writes(
    claims: DecidedClaims, observed: HubObjects, gone: Collection[str]
) -> list[HubWrite]:
    """`gone`: names that were observed and are no more: a claim is made once, and what became of it
    is for others to say.

    Only NodeClaims that carry their own name as our label are deleted, and of a node only the one
    that is older than the decision."""
    there = observed.of("NodeClaim")
    found: list[HubWrite] = []
    for claim in claims.open:
        name = name_of(claim)
        if name not in there and name not in gone:
            body = {key: value for key, value in claim.items() if key != "status"}
            path = path_of(claim).rpartition("/")[0]
            found.append(
                HubWrite(
                    "claims", _named(claim), "create", ApiRequest("POST", path, body, strict=True)
                )
            )
    for name, now in sorted(there.items()):
        metadata = now["metadata"]
        ours = (metadata.get("labels") or {}).get(CLAIM_LABEL) == name
        node = (now.get("status") or {}).get("nodeName", "")
        decided = claims.removed.get(node, "")
        goes = name in claims.ended or metadata["creationTimestamp"] <= decided
        if ours and goes and not _deleted(now):
            # Its uid is enough: this one is to go, with any status it has by now.
            conditions = {"uid": metadata["uid"]}
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
            request = ApiRequest("DELETE", path_of(now), body)
            found.append(HubWrite("claims", _named(now), "delete", request))
    return found


# --- all


def name_of(one: Rendered) -> str:
    """Namespace and name; the name alone of an object of the whole hub."""
    metadata = one["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}".removeprefix("/")


def path_of(one: Rendered) -> str:
    root, plural = _ROOTS[one["kind"]]
    namespace = one["metadata"].get("namespace", "")
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{within}/{plural}/{one['metadata']['name']}"


def _named(one: Rendered) -> EffectObject:
    metadata = one["metadata"]
    namespace, uid = metadata.get("namespace", ""), metadata.get("uid", "")
    return EffectObject(one["kind"], namespace, metadata["name"], uid)


def _deleted(now: Rendered) -> bool:
    return bool(now["metadata"].get("deletionTimestamp"))


def _status_patch(verb: Verb, now: Rendered, status: Rendered) -> HubWrite:
    body = {"metadata": {"resourceVersion": now["metadata"]["resourceVersion"]}, "status": status}
    request = ApiRequest("PATCH", f"{path_of(now)}/status", body, MERGE_PATCH, strict=True)
    return HubWrite(verb, _named(now), "status", request)


def _merged(now: Sequence[Rendered], wanted: Sequence[Rendered]) -> list[Rendered] | None:
    """The list with the wanted conditions in it; None: they are there. A condition is the same if
    it says the same; the time at which it began to is not compared."""
    ours = {one["type"]: one for one in wanted}
    kept = [one for one in now if one["type"] not in ours]
    same = {one["type"]: one for one in now if one["type"] in ours}
    if all(type in same and _said(same[type]) == _said(one) for type, one in ours.items()):
        return None
    return [*kept, *wanted]


def _said(condition: Rendered) -> Rendered:
    return {key: value for key, value in condition.items() if key != "lastTransitionTime"}


def _version_in(request: ApiRequest) -> str:
    body = request.body
    where = body.get("preconditions") or body.get("metadata") or {}
    return str(where.get("resourceVersion", ""))
