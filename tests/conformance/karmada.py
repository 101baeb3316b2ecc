"""Karmada's suites: their objects to our values, our answers in their words. The decisions are made in `engine.fleet`.

The objects are read loosely here because the vectors hold cases admission would not let through (unknown operators, no
preference): what the engine makes of them is what is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.engine.fleet.assign import Assigned, assign, ranked
from wharfinger.engine.fleet.filters import Question, all_refusals, first_refusal
from wharfinger.engine.fleet.select import LOCALITY, Unselectable, constrained, region_groups, select
from wharfinger.engine.fleet.trigger import ANY_CLUSTER, placement_changed, replicas_changed

Json = dict[str, Any]
V = TypeVar("V")

MAX_INT32 = 2**31 - 1

REASON_OF = {
    "NoClusterFit": "NoClusterFit",
    "Unschedulable": "Unschedulable",
    "SpreadConstraint": "SchedulerError",
    "InvalidPlacement": "SchedulerError",
}
PLUGIN_OF = {
    "ClusterAffinity": "ClusterAffinity",
    "TaintToleration": "TaintToleration",
    "APIEnablement": "APIEnablement",
    "SpreadConstraint": "SpreadConstraint",
    "Evicted": "ClusterEviction",
}


class UnknownStrategyError(ValueError):
    """A strategy our placement cannot say: refused while reading."""


@dataclass(frozen=True, slots=True)
class Case:
    """One recorded case, its binding read."""

    clusters: list[Cluster]
    terminating: frozenset[str]
    placement: Placement
    spec: Json
    status: Json

    @property
    def held(self) -> dict[str, int]:
        return {c["name"]: c.get("replicas", 0) for c in self.spec.get("clusters") or []}

    @property
    def replicas(self) -> int:
        return int(self.spec.get("replicas", 0))

    @property
    def counted(self) -> bool:
        """Whether this is a workload: it has replicas or says what one needs."""
        return self.replicas > 0 or self.spec.get("replicaRequirements") is not None

    @property
    def strategy_given(self) -> bool:
        """Where a placement names no strategy Karmada asks for replicas last, under the cause of Duplicated."""
        return (self.spec.get("placement") or {}).get("replicaScheduling") is not None

    @property
    def uid(self) -> str:
        return str(self.spec["resource"].get("uid", ""))

    @property
    def fresh(self) -> bool:
        asked, last = self.spec.get("rescheduleTriggeredAt"), self.status.get("lastScheduledTime")
        return bool(asked and last and asked > last)


def read_case(given: Json) -> Case:
    binding = given["binding"]
    return Case(
        [cluster_of(c) for c in given["clusters"]],
        frozenset(c["metadata"]["name"] for c in given["clusters"] if c["metadata"].get("deletionTimestamp")),
        placement_of(binding["spec"].get("placement") or {}),
        binding["spec"],
        binding.get("status") or {},
    )


def division(given: Json) -> Json:
    try:
        case = read_case(given)
    except UnknownStrategyError:
        return {"error": {"reason": "SchedulerError"}}
    estimates = estimates_of(given, case)
    answer = assign(
        case.placement,
        case.clusters,
        estimates,
        case.held,
        case.replicas,
        counted=case.counted,
        fresh=case.fresh,
        uid=case.uid,
    )
    if isinstance(answer, Assigned):
        return {"clusters": [{"name": n, "replicas": r} for n, r in sorted(answer.replicas.items())]}
    return {"error": {"reason": REASON_OF[answer.reason]}}


def spread(given: Json) -> Json:
    case = read_case(given)
    estimates = estimates_of(given, case)
    order = ranked(case.clusters, estimates, case.held)
    chosen = select(order, case.placement, case.replicas)
    out = division(given)
    out["selected"] = [] if isinstance(chosen, Unselectable) else sorted(c.name for c in chosen)
    by_field = {c.field: c for c in case.placement.spread}
    if "region" in by_field and constrained(case.placement):
        groups = region_groups(
            order,
            by_field["region"],
            by_field.get("cluster") or msgspec.structs.replace(by_field["region"], min_groups=0, max_groups=0),
            case.replicas,
            case.placement.replicas.type == "Divided",
        )
        out["groups"] = {g.name: g.score for g in groups}
    return out


def filters(given: Json) -> Json:
    case = read_case(given)
    evicted = [t["fromCluster"] for t in case.spec.get("gracefulEvictionTasks") or []]
    resource = case.spec["resource"]
    observed = case.status.get("schedulerObservingAffinityName", "")
    terms = {a.name: a for a in case.placement.affinities}
    named = any(terms)
    affinity = (terms.get(observed) if named else next(iter(terms.values()), None)) or ANY_CLUSTER
    question = Question(case.placement, affinity, f"{resource['apiVersion']}/{resource['kind']}", (), evicted)
    held = case.held
    failures = {c.name: [PLUGIN_OF[r] for r in all_refusals(question, c, c.name in held)] for c in case.clusters}
    feasible = sorted(c.name for c in case.clusters if first_refusal(question, c, c.name in held) is None)
    return {"feasible": feasible, "perCluster": {name: sorted(plugins) for name, plugins in failures.items()}}


def score(given: Json) -> Json:
    case = read_case(given)
    return {"total": {c.name: LOCALITY if c.name in case.held else 0 for c in case.clusters}}


def trigger(given: Json) -> Json:
    case = read_case(given)
    applied = given.get("appliedPlacement")
    cause = "none"
    if given["binding"]["metadata"].get("deletionTimestamp"):
        return {"scheduled": False, "cause": "deleting"}
    duplicated = case.placement.replicas.type == "Duplicated"
    if applied is None or placement_changed(
        placement_of(applied), case.placement, case.status.get("schedulerObservingAffinityName", "")
    ):
        cause = "placementChanged"
    elif case.strategy_given and replicas_changed(case.held, case.replicas, duplicated=duplicated):
        cause = "replicasChanged"
    elif case.fresh:
        cause = "rescheduleRequested"
    elif duplicated or not case.counted:
        cause = "duplicatedOrNonWorkload"
    elif case.terminating & set(case.held):
        cause = "targetClusterTerminating"
    return {"scheduled": cause != "none", "cause": cause}


SUITES: dict[str, Callable[[Json], Json]] = {
    "division": division,
    "spread": spread,
    "filter": filters,
    "score": score,
    "trigger": trigger,
}
"""The suites asked so far, each with the function that answers a case."""


def expected(suite: str, expect: Json) -> Json:
    """What of the recorded answer is compared, in the shape of our answer."""
    match suite:
        case "division":
            if "error" in expect:
                return {"error": {"reason": expect["error"]["reason"]}}
            return {"clusters": expect["clusters"]}
        case "spread":
            out = expected("division", expect) if "clusters" in expect or "error" in expect else {}
            if "selected" in expect:
                out["selected"] = sorted(expect["selected"])
            if "groups" in expect:
                out["groups"] = {n: g["score"] for n, g in expect["groups"].get("regions", {}).items()}
                if not out["groups"]:
                    del out["groups"]  # groups by zone or provider choose nothing
            return out
        case "filter":
            return {
                "feasible": sorted(expect["feasible"] or []),
                "perCluster": {
                    name: sorted(f["plugin"] for f in answer.get("failures") or [])
                    for name, answer in expect["perCluster"].items()
                },
            }
        case "score":
            return {"total": expect["total"]}
        case _:
            return {"scheduled": expect["scheduled"], "cause": expect["cause"]}


def agrees(answer: Json, expect: Json) -> bool:
    """Every compared key of the recorded answer is answered the same."""
    return all(answer.get(key) == value for key, value in expect.items()) and ("error" in answer) == ("error" in expect)


def estimates_of(given: Json, case: Case) -> list[int]:
    """Several estimators: the least of those that know; nobody knows: what is wanted. Over-used is nothing, not debt."""
    answers = [e for e in (given.get("estimates") or {}).values() if e is not None]
    out = []
    for cluster in case.clusters:
        known = [n for e in answers if (n := e.get(cluster.name, -1)) != -1]
        fits = min(known, default=MAX_INT32)
        out.append(case.replicas if fits >= MAX_INT32 else max(0, fits))
    return out


def cluster_of(given: Json) -> Cluster:
    meta, spec, status = given["metadata"], given.get("spec") or {}, given.get("status") or {}
    kinds = [
        f"{e['groupVersion']}/{r['kind']}" for e in status.get("apiEnablements") or [] for r in e.get("resources") or []
    ]
    return convert(
        {
            "name": meta["name"],
            "labels": meta.get("labels") or {},
            "provider": spec.get("provider", ""),
            "region": spec.get("region", ""),
            "zones": spec.get("zones") or [],
            "taints": [
                {"key": t["key"], "effect": t["effect"], "value": t.get("value", "")} for t in spec.get("taints") or []
            ],
            "api_kinds": kinds,
        },
        Cluster,
    )


def placement_of(given: Json) -> Placement:
    affinities = given.get("clusterAffinities") or (
        [given["clusterAffinity"]] if given.get("clusterAffinity") is not None else []
    )
    scheduling = given.get("replicaScheduling") or {}
    weights = scheduling.get("weightPreference") or {}
    if scheduling.get("replicaSchedulingType") == "Divided" and not scheduling.get("replicaDivisionPreference"):
        raise UnknownStrategyError("Divided without a preference")
    return convert(
        {
            "affinities": [affinity_of(a) for a in affinities],
            "tolerations": [
                {
                    "key": t.get("key", ""),
                    "operator": t.get("operator") or "Equal",
                    "value": t.get("value", ""),
                    "effect": t.get("effect", ""),
                    "seconds": t.get("tolerationSeconds"),
                }
                for t in given.get("clusterTolerations") or []
            ],
            "spread": [
                {
                    "field": s.get("spreadByField", ""),
                    "label": s.get("spreadByLabel", ""),
                    "min_groups": s.get("minGroups", 0),
                    "max_groups": s.get("maxGroups", 0),
                }
                for s in given.get("spreadConstraints") or []
            ],
            "replicas": {
                "type": scheduling.get("replicaSchedulingType") or "Duplicated",
                "preference": scheduling.get("replicaDivisionPreference") or "Weighted",
                "static": [
                    {"target": affinity_of(w["targetCluster"]), "weight": w["weight"]}
                    for w in weights.get("staticWeightList") or []
                ],
                "dynamic": bool(weights.get("dynamicWeight")),
            },
        },
        Placement,
    )


def affinity_of(given: Json) -> Json:
    return {
        "name": given.get("affinityName", ""),
        "cluster_names": given.get("clusterNames") or [],
        "exclude": given.get("exclude") or [],
        "labels": labels_of(given["labelSelector"]) if given.get("labelSelector") is not None else None,
        "fields": [requirement_of(r) for r in (given.get("fieldSelector") or {}).get("matchExpressions") or []],
    }


def labels_of(given: Json) -> Json:
    return {
        "match_labels": given.get("matchLabels") or {},
        "match_expressions": [requirement_of(r) for r in given.get("matchExpressions") or []],
    }


def requirement_of(given: Json) -> Json:
    return {"key": given["key"], "operator": given["operator"], "values": given.get("values") or []}


def convert(given: Json, kind: type[V]) -> V:
    return msgspec.convert(given, kind)
