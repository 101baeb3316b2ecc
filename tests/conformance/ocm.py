"""Open Cluster Management's suites: its objects read as manifests, one reconcile of a placement,
our answer in its words.

Placements are asked with `strict`: what it does, not what we would rather do. What a reconcile
leaves is put back as what stands, until nothing changes or it is plain that it will never end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError
from tests.reference.ocm_objects import DecisionObject, ObjectChanges, difference, group_statuses

from wharfinger.domain.policy import Policy
from wharfinger.domain.value import canonical
from wharfinger.engine.cluster_sets.fleet import PlacementFleet
from wharfinger.engine.cluster_sets.select import PLACEMENT_LABEL, SelectionResult, choose
from wharfinger.manifests import ocm
from wharfinger.manifests.model import Object, micros

Json = dict[str, Any]
M = TypeVar("M", bound=Object)

SUITES = ("article", "groups", "predicates", "prioritizers", "taints", "whole")

SYNCS_MAX = 13
"""After so many reconciles that each changed something, it is taken to go on forever."""

MODELS: dict[str, type[Object]] = {
    "placement": ocm.PlacementManifest,
    "managedClusters": ocm.ManagedCluster,
    "managedClusterSets": ocm.ManagedClusterSet,
    "managedClusterSetBindings": ocm.ManagedClusterSetBinding,
    "placementDecisions": ocm.PlacementDecision,
    "addOnPlacementScores": ocm.AddOnPlacementScore,
}


@dataclass(frozen=True, slots=True)
class World:
    """One case, read. `standing`: every decision object of every namespace, with its namespace."""

    placement: Policy
    defaults: list[list[object]]
    fleet: PlacementFleet
    standing: tuple[tuple[str, DecisionObject], ...]
    at: int


def answer(suite: str, case: Json) -> Json:
    given = case["input"]
    world = read(given, case["now"])
    out: Json = {"defaulted": world.defaults, "refused": refused(given)}
    choice = choose(world.fleet, world.placement, world.at)
    if (wanted := world.placement.selection) is not None and (wanted.wanted or 0) < 0:
        return out | {"panic": choice.status.message}
    own = [o for namespace, o in world.standing if namespace == world.placement.namespace]
    difference_ = difference(choice, own)
    return (
        out
        | stages(choice)
        | outcome(choice, difference_)
        | {"settled": settled(world, difference_)}
    )


def stages(choice: SelectionResult) -> Json:
    """What the scheduler saw on the way, as far as it went."""
    if choice.skipped:
        return {}
    out: Json = {
        "validBindings": list(choice.valid_bindings),
        "eligibleClusterSets": list(choice.eligible_sets),
    }
    if choice.sets_trouble:
        return out | {"candidateError": choice.sets_trouble}
    filters = [("Predicate", choice.matched), ("Predicate,TaintToleration", choice.passed)]
    status = choice.status
    out |= {
        "availableClusters": choice.named(choice.available),
        "filters": [
            {"name": n, "clusters": choice.named(at)} for n, at in filters if at is not None
        ],
        "selected": list(choice.selected),
        "unscheduled": choice.unscheduled,
        "scheduleStatus": {"code": status.code, "plugin": status.plugin, "message": status.message},
        "requeueAt": None if choice.requeue_at is None else instant(choice.requeue_at),
    }
    if choice.scores is not None:
        out["prioritizers"] = [
            {"name": s.name, "weight": s.weight, "scores": choice.scores_of(s)}
            for s in choice.scores
        ]
        out["totals"] = dict(choice.total_of)
    return out


def outcome(choice: SelectionResult, difference: ObjectChanges) -> Json:
    """What the reconcile wrote, and said."""
    placement = choice.key.partition("/")[2]
    out: Json = {
        "placementDecisions": [shown(o) for o in difference.after],
        "events": [f"{e.type} {e.action} {e.note}" for e in difference.events],
        "writes": [f"{w.verb} {w.resource} {w.name}" for w in difference.writes],
        "conditions": [],
        "syncError": difference.refused,
    }
    if choice.sets_trouble:
        return out | {"syncError": choice.sets_trouble}
    out |= {
        "numberOfSelectedClusters": 0,
        "decisionGroups": [],
        "deletedPlacementDecisions": list(difference.deleted),
    }
    if choice.skipped or difference.refused:
        return out
    status = choice.status_trouble
    return out | {
        "numberOfSelectedClusters": len(choice.selected),
        "decisionGroups": [
            {
                "decisionGroupIndex": g.index,
                "decisionGroupName": g.name,
                "decisions": list(g.decisions),
                "clusterCount": g.clusters,
            }
            for g in group_statuses(placement, choice.groups)
        ],
        "conditions": [
            {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
            for c in choice.conditions
        ],
        "writes": [*out["writes"], f"patch placements/status {placement}"],
        "syncError": "" if status.code == "Success" else status.message,
    }


def settled(world: World, first: ObjectChanges) -> Json:
    """Reconciles again with what the last one left, until one leaves everything as it was."""
    last = first
    for syncs in range(1, SYNCS_MAX + 1):
        world = with_own(world, last.everything)
        latest = choose(world.fleet, world.placement, world.at)
        again = difference(
            latest, [o for namespace, o in world.standing if namespace == world.placement.namespace]
        )
        if not [w for w in again.writes if not last.refused]:
            out: Json = {"syncs": syncs, "stable": True, "selected": selected_in(last.after)}
            if last.after != first.after:
                out["placementDecisions"] = [shown(o) for o in last.after]
            return out
        last = again
    return {"stable": False}


def selected_in(objects: Iterable[DecisionObject]) -> list[str]:
    return sorted(name for o in objects for name in o.clusters)


# Reading.


def read(given: Json, now: str) -> World:
    fleet = PlacementFleet()
    model = stored(ocm.PlacementManifest, given["placement"])
    placement = model.to_domain(canonical(given["placement"]).decode())
    assert placement.selection is not None, "a placement selects"
    strict = msgspec.structs.replace(placement.selection, strict=True)
    placement = msgspec.structs.replace(placement, selection=strict)
    for raw in given["managedClusters"]:
        fleet.observe(stored(ocm.ManagedCluster, raw).to_domain(canonical(raw).decode()))
    for kind, to_policy in POLICIES.items():
        for raw in given[kind]:
            fleet.apply(to_policy(raw))
    fleet.apply(placement)
    standing = [
        decision_object(stored(ocm.PlacementDecision, raw)) for raw in given["placementDecisions"]
    ]
    world = World(
        placement, [list(d) for d in model.defaults()], fleet, tuple(standing), micros(now)
    )
    tell_decisions(world)
    return world


POLICIES: dict[str, Callable[[Json], Policy]] = {
    "managedClusterSets": lambda raw: stored(ocm.ManagedClusterSet, raw).to_domain(),
    "managedClusterSetBindings": lambda raw: stored(ocm.ManagedClusterSetBinding, raw).to_domain(),
    "addOnPlacementScores": lambda raw: stored(ocm.AddOnPlacementScore, raw).to_domain(),
}


def stored(model: type[M], raw: Json) -> M:
    """The controller reads what the API server holds, whatever its schema says of it."""
    return model.model_validate(raw, context=ocm.STORED)


def decision_object(model: ocm.PlacementDecision) -> tuple[str, DecisionObject]:
    return model.namespace, DecisionObject(model.name, dict(model.metadata.labels), model.clusters)


def tell_decisions(world: World) -> None:
    """By placement: the label says whose an object is, and one without a label is nobody's."""
    told: dict[str, list[str]] = {}
    for namespace, one in world.standing:
        told.setdefault(f"{namespace}/{one.labels.get(PLACEMENT_LABEL, '')}", []).extend(
            one.clusters
        )
    own = f"{world.placement.namespace}/{world.placement.name}"
    world.fleet.decided(own, ())
    for key, clusters in told.items():
        world.fleet.decided(key, clusters)


def with_own(world: World, everything: Sequence[DecisionObject]) -> World:
    """The world after a write: these are all objects of the placement's namespace."""
    namespace = world.placement.namespace
    for ns, o in world.standing:
        world.fleet.decided(f"{ns}/{o.labels.get(PLACEMENT_LABEL, '')}", ())
    others = [(ns, o) for ns, o in world.standing if ns != namespace]
    after = replace(world, standing=(*others, *((namespace, o) for o in everything)))
    tell_decisions(after)
    return after


def refused(given: Json) -> list[str]:
    """Where the schema refuses the objects, as `kind/path`."""
    found: list[str] = []
    for kind, model in MODELS.items():
        objects = given[kind]
        for i, raw in enumerate([objects] if isinstance(objects, dict) else objects):
            where = kind if isinstance(objects, dict) else f"{kind}/{i}"
            try:
                model.model_validate(raw)
            except ValidationError as invalid:
                for error in invalid.errors(include_url=False):
                    field = getattr(error.get("ctx", {}).get("error"), "field", ())
                    found.append("/".join(map(str, (where, *error["loc"], *field))))
    return found


# Comparing.


def expected(suite: str, case: Json) -> Json:
    return compared(case, case["expected"])


def compared(case: Json, expect: Json) -> Json:
    """The recorded outcome with where the schema refuses the input."""
    where = [error.rpartition(": ")[0] for error in case.get("schemaErrors") or []]
    return {"defaulted": case["expected"]["defaulted"], **expect, "refused": where}


def path(suite: str, case: Json) -> str:
    """Always what a plane runs."""
    return ""


def agrees(suite: str, got: Json, case: Json) -> bool:
    """Every recorded key is answered the same, in the recorded outcome or in one of the others
    seen."""
    return any(
        same(got, compared(case, o)) for o in (case["expected"], *(case.get("alternatives") or ()))
    )


def same(got: Json, expect: Json) -> bool:
    if "panic" in expect:  # any orderly refusal
        return bool(got.get("panic")) and got["defaulted"] == expect["defaulted"]
    return all(key in got and got[key] == value for key, value in expect.items())


def shown(one: DecisionObject) -> Json:
    return {"name": one.name, "labels": dict(one.labels), "decisions": list(one.clusters)}


def instant(us: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
    return moment.isoformat().replace("+00:00", "Z")
