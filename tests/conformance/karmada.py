"""Karmada's suites: their objects, read as manifests, to our values, and our answers in their
words.

Whole cycles and their causes are asked of the fleet stage (`karmada_stage`), their parts of
`engine.fleet`, each for placements that are `strict`: what is asked is what Karmada does. What a
plane does not do is answered by `tests.reference`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec
from tests.conformance import karmada_estimators, karmada_stage
from tests.reference.karmada_cycle import (
    RETRIED,
    Asked,
    all_admitted,
    condition_of,
    least_of,
    reconcile,
    schedule,
)
from tests.reference.karmada_trigger import cause_of, claimed, taken_up

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ANY_CLUSTER, ClusterAffinity, Placement, SpreadConstraint
from wharfinger.engine.fleet.assign import (
    ReplicaDivision,
    Unassignable,
    assign,
    one_cluster,
    ranked,
    selected,
)
from wharfinger.engine.fleet.select import (
    LOCALITY,
    ClusterCandidate,
    Unselectable,
    constrained,
    groups_by,
)
from wharfinger.engine.fleet.trigger import observed_term
from wharfinger.events.decisions import ScheduleDecided, ScheduleRefused
from wharfinger.manifests.karmada import objects as manifests
from wharfinger.manifests.karmada.placement import KarmadaPlacementManifest as PlacementManifest
from wharfinger.manifests.parse import read_object
from wharfinger.rules.clusters.affinity import in_force
from wharfinger.rules.clusters.filters import sentences
from wharfinger.rules.clusters.rule import ClusterQuery
from wharfinger.rules.clusters.workload_affinity import peers

Json = dict[str, Any]

PLUGIN_OF: dict[str, str] = {
    "ClusterAffinity": "ClusterAffinity",
    "TaintToleration": "TaintToleration",
    "APIEnablement": "APIEnablement",
    "SpreadConstraint": "SpreadConstraint",
    "WorkloadAffinity": "WorkloadAffinity",
    "WorkloadAntiAffinity": "WorkloadAntiAffinity",
    "Evicted": "ClusterEviction",
}
"""Our reasons under the names of the plugins that give them there. What has no name here is not
asked there."""

GROUPS_OF = {"regions": "region", "zones": "zone", "providers": "provider"}

COMPONENTS = "MultiplePodTemplatesScheduling"


@dataclass(frozen=True, slots=True)
class Case:
    """One recorded input, read."""

    clusters: list[Cluster]
    binding: Binding
    model: manifests.ResourceBinding
    estimators: list[Mapping[str, int]]
    features: Collection[str]
    empties: bool
    peers: list[Binding]

    @property
    def placement(self) -> Placement:
        return self.binding.placement

    @property
    def held(self) -> dict[str, int]:
        return {target.cluster: target.replicas for target in self.binding.clusters}

    @property
    def counted(self) -> bool:
        return self.binding.replicas > 0 or self.model.spec.replica_requirements is not None

    @property
    def sets(self) -> bool:
        return COMPONENTS in self.features and bool(self.binding.components)

    @property
    def observed(self) -> str:
        return self.model.status.scheduler_observing_affinity_name

    @property
    def fresh(self) -> bool:
        asked, last = self.model.spec.reschedule_triggered_at, self.model.status.last_scheduled_time
        return bool(asked and last and asked > last)

    @property
    def uid(self) -> str:
        return self.model.spec.resource.uid

    @property
    def evicted(self) -> list[str]:
        return [task.from_cluster for task in self.model.spec.graceful_eviction_tasks]

    @property
    def affinity(self) -> ClusterAffinity:
        return in_force(
            observed_term(self.placement, self.observed) or ANY_CLUSTER, self.counted or self.sets
        )

    @property
    def estimates(self) -> dict[str, int]:
        return least_of(
            self.estimators,
            [c.name for c in self.clusters],
            self.binding.replicas,
            components=bool(self.binding.components),
        )

    def group(self, of: Callable[[Binding], str]) -> list[list[str]]:
        """The targets of each other binding of its namespace and group."""
        mine, namespace = of(self.binding), self.binding.name.partition("/")[0]
        return [
            [target.cluster for target in peer.clusters]
            for peer in self.peers
            if mine
            and of(peer) == mine
            and peer.name.partition("/")[0] == namespace
            and peer.name != self.binding.name
        ]

    @property
    def together(self) -> set[str] | None:
        return peers(self.group(lambda b: b.affinity_group))

    @property
    def apart(self) -> set[str]:
        return {name for targets in self.group(lambda b: b.anti_affinity_group) for name in targets}

    @property
    def asked(self) -> Asked:
        return Asked(
            self.placement,
            self.binding.resource.gvk,
            self.binding.replicas,
            self.held,
            self.observed,
            self.counted,
            self.fresh,
            self.uid,
            self.sets,
            self.empties,
            self.evicted,
            self.together,
            self.apart,
        )


def read_case(given: Json) -> Case:
    """Raises ValueError for an object that our manifests refuse."""
    models = [cast(manifests.ClusterManifest, read_object(c, "Cluster")) for c in given["clusters"]]
    binding, model = _binding(given["binding"])
    return Case(
        [c.to_domain(admitted=True) for c in models],
        binding,
        model,
        [e for e in (given.get("estimates") or {}).values() if e is not None],
        given.get("features") or (),
        bool((given.get("options") or {}).get("enableEmptyWorkloadPropagation")),
        [_binding(peer)[0] for peer in given.get("peerBindings") or []],
    )


def _binding(raw: Json) -> tuple[Binding, manifests.ResourceBinding]:
    """Its placement as Karmada would have it."""
    model = cast(manifests.ResourceBinding, read_object(raw, "ResourceBinding"))
    binding = model.to_domain()
    strict = msgspec.structs.replace(binding.placement, strict=True)
    return msgspec.structs.replace(binding, placement=strict), model


# What is asked


def division(given: Json) -> Json:
    case = read_case(given)
    return _said(
        case, assign(*all_admitted(case.asked, case.clusters, case.estimates, case.affinity))
    )


def spread(given: Json) -> Json:
    case = read_case(given)
    question, term = all_admitted(
        replace(case.asked, fresh=False), case.clusters, case.estimates, case.affinity
    )
    order, chosen = ranked(question, term), selected(question, term)
    return {
        **division(given),
        "ranking": [
            {"name": c.name, "score": c.score, "availableReplicas": c.available} for c in order
        ],
        "selected": [] if isinstance(chosen, Unselectable) else sorted(c.name for c in chosen),
        "groups": _groups(case, order),
    }


def _groups(case: Case, order: Sequence[ClusterCandidate]) -> Json:
    by_field = (
        {c.field: c for c in case.placement.spread if c.field}
        if constrained(case.placement)
        else {}
    )
    cluster = by_field.get("cluster", SpreadConstraint())
    divided = case.placement.replicas.type == "Divided"
    return {
        kind: {
            g.name: {
                "score": g.score,
                "availableReplicas": sum(c.available for c in g.members),
                "clusters": [c.name for c in g.members],
            }
            for g in groups_by(order, by_field[field], cluster, case.binding.replicas, divided)
        }
        for kind, field in GROUPS_OF.items()
        if field in by_field
    }


def filters(given: Json) -> Json:
    case = read_case(given)
    asked = case.asked
    question = ClusterQuery(
        asked.placement, case.affinity, asked.gvk, (), asked.evicted, asked.together, asked.apart
    )
    per_cluster = {
        c.name: [
            {"plugin": PLUGIN_OF[reason], "reason": sentence}
            for reason, sentence in sentences(question, c, c.name in asked.held)
            if reason in PLUGIN_OF
        ]
        for c in case.clusters
    }
    return {
        "feasible": sorted(name for name, failures in per_cluster.items() if not failures),
        "perCluster": {name: _sorted(failures) for name, failures in per_cluster.items()},
    }


def score(given: Json) -> Json:
    """All scores but locality are 0 there, and not computed here: locality alone ranks."""
    case = read_case(given)
    order = ranked(
        *all_admitted(case.asked, case.clusters, dict.fromkeys((c.name for c in case.clusters), 0))
    )
    total = {c.name: c.score for c in order}
    assert set(total.values()) <= {0, LOCALITY}
    return {
        "scores": {"ClusterLocality": total, "ClusterAffinity": dict.fromkeys(total, 0)},
        "total": total,
    }


def whole_schedule(given: Json) -> Json:
    """What the fleet stage decides."""
    case = read_case(given)
    if _lists_empties(given):
        return reference_schedule(given)
    decided = _decided(case)
    if isinstance(decided, ScheduleRefused):
        reason, retry = RETRIED[decided.reason]
        return {"error": {"reason": reason, "retry": retry}}
    return {"clusters": _targets(case, _by_cluster(decided))}


def cycle(given: Json) -> Json:
    """What the fleet stage decides, as a condition."""
    case = read_case(given)
    if _lists_empties(given):
        return reference_cycle(given)
    decided = _decided(case)
    reason, retry, observed = "Success", False, decided.affinity or case.observed
    if isinstance(decided, ScheduleRefused):
        (reason, retry), observed = RETRIED[decided.reason], case.observed
    return {
        "clusters": _targets(case, _by_cluster(decided)),
        "observedAffinityName": observed,
        "condition": {"status": "True" if reason == "Success" else "False", "reason": reason},
        "requeue": retry,
    }


def _decided(case: Case) -> ScheduleDecided | ScheduleRefused:
    return karmada_stage.cycle(
        case.binding,
        case.clusters,
        case.estimates,
        case.held,
        case.observed,
        fresh=case.fresh,
        evicted=case.evicted,
    )


def _by_cluster(decided: ScheduleDecided | ScheduleRefused) -> dict[str, int]:
    return {target.cluster: target.replicas for target in decided.targets}


def _lists_empties(given: Json) -> bool:
    """Whether the answer has a cluster that was selected and gets nothing: an option that a plane
    has not."""
    if not read_case(given).empties:
        return False
    without = {**given, "options": {**given["options"], "enableEmptyWorkloadPropagation": False}}
    return reference_cycle(given) != reference_cycle(without) or reference_schedule(
        given
    ) != reference_schedule(without)


def trigger(given: Json) -> Json:
    """Why the fleet stage decides, or looks at it. Whether a binding is left alone is asked of the
    stage, too."""
    case = read_case(given)
    if not claimed(case.binding):
        return reference_trigger(given)
    applied = _strict(given.get("appliedPlacement"))
    cause = karmada_stage.caused(
        applied,
        case.binding,
        case.clusters,
        case.held,
        case.observed,
        fresh=case.fresh,
        strategy=case.model.spec.placement.replica_scheduling is not None,
        deleted=case.model.metadata.deletion_timestamp is not None,
    )
    return {
        "acceptedByEventFilter": not karmada_stage.left_alone(case.binding),
        "scheduled": cause not in ("none", "deleting"),
        "cause": cause,
    }


def _strict(raw: Json | None) -> Placement | None:
    """A placement as Karmada would have it."""
    if raw is None:
        return None
    return msgspec.structs.replace(PlacementManifest.model_validate(raw).to_domain(), strict=True)


# The same by code that is only compared with


def reference_schedule(given: Json) -> Json:
    case = read_case(given)
    return _said(case, schedule(case.asked, case.affinity, case.clusters, case.estimates))


def reference_cycle(given: Json) -> Json:
    case = read_case(given)
    done = reconcile(case.asked, case.clusters, case.estimates)
    return {
        "clusters": _targets(case, done.clusters),
        "observedAffinityName": done.observed,
        "condition": {
            "status": "True" if done.condition == "Success" else "False",
            "reason": done.condition,
        },
        "requeue": done.retry,
    }


def reference_trigger(given: Json) -> Json:
    case = read_case(given)
    before = _strict(given.get("appliedPlacement"))
    cause = "deleting"
    if case.model.metadata.deletion_timestamp is None:
        cause = cause_of(
            before,
            case.placement,
            case.observed,
            case.held,
            case.binding.replicas,
            counted=case.counted,
            strategy=case.model.spec.placement.replica_scheduling is not None,
            rescheduled=case.fresh,
            leaving=[c.name for c in case.clusters if c.deleting],
        )
    return {
        "acceptedByEventFilter": taken_up(case.binding),
        "scheduled": cause not in ("none", "deleting"),
        "cause": cause,
    }


def _said(case: Case, answer: ReplicaDivision | Unassignable) -> Json:
    if isinstance(answer, Unassignable):
        reason, retry = condition_of(answer.reason)
        return {"error": {"reason": reason, "retry": retry}}
    return {"clusters": _targets(case, answer.replicas)}


def _targets(case: Case, replicas: Mapping[str, int]) -> list[Json]:
    targets: list[Json] = [{"name": name, "replicas": n} for name, n in sorted(replicas.items())]
    if case.sets and one_cluster(case.placement):
        components = [{"name": c.name, "replicas": c.replicas} for c in case.binding.components]
        targets = [{**target, "components": components} for target in targets]
    return targets


def _sorted(failures: list[Json]) -> list[Json]:
    return sorted(failures, key=lambda f: (f["plugin"], f["reason"]))


# What is compared

_SUITES: dict[str, Callable[[Json], Json]] = {
    "division": division,
    "spread": spread,
    "filter": filters,
    "score": score,
    "schedule": whole_schedule,
    "reconcile": cycle,
    "trigger": trigger,
}

SUITES: Collection[str] = (*_SUITES, *karmada_estimators.SUITES)


def answer(suite: str, case: Json) -> Json:
    if suite in karmada_estimators.SUITES:
        return karmada_estimators.SUITES[suite](case["input"])
    return _SUITES[suite](case["input"])


def expected(suite: str, case: Json) -> Json:
    """What of the recorded answer is compared, in the shape of our answer."""
    expect = case["expect"]
    if suite in karmada_estimators.SUITES:
        return karmada_estimators.expected(suite, expect)
    match suite:
        case "division" | "schedule":
            return _outcome(expect)
        case "spread":
            out = _outcome(expect)
            out["ranking"] = expect["ranking"]
            if "selected" in expect:
                out["selected"] = sorted(expect["selected"])
            out["groups"] = expect.get("groups") or {}
            return out
        case "filter":
            return {
                "feasible": sorted(expect["feasible"] or []),
                "perCluster": {
                    n: _sorted(a.get("failures") or []) for n, a in expect["perCluster"].items()
                },
            }
        case "reconcile":
            condition = {key: expect["condition"][key] for key in ("status", "reason")}
            return {
                **{k: expect[k] for k in ("clusters", "observedAffinityName", "requeue")},
                "condition": condition,
            }
        case "trigger":
            return {key: expect[key] for key in ("acceptedByEventFilter", "scheduled", "cause")}
        case _:
            return {key: expect[key] for key in ("scores", "total")}


def path(suite: str, case: Json) -> str:
    if suite == "trigger":
        found = claimed(read_case(case["input"]).binding)
        return "" if found else "a plane takes up whatever is applied"
    if suite in ("schedule", "reconcile") and _lists_empties(case["input"]):
        return "a cluster that gets nothing is no target"
    return ""


def agrees(suite: str, got: Json, case: Json) -> bool:
    """Every compared key of the recorded answer is answered the same."""
    expect = expected(suite, case)
    if suite in karmada_estimators.SUITES:
        return karmada_estimators.agrees(suite, got, expect)
    return all(got.get(key) == value for key, value in expect.items()) and ("error" in got) == (
        "error" in expect
    )


def _outcome(expect: Json) -> Json:
    if "error" in expect:
        return {"error": {"reason": expect["error"]["reason"], "retry": expect["error"]["retry"]}}
    return {"clusters": expect["clusters"]}
