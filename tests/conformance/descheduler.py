"""The descheduler's suites: its objects read as manifests, one pass of one strategy in its own way,
our answer in its words.

Pods are listed as the case lists them, so that everything recorded is compared, the order of
evictions where it has one. What its API server would refuse is held; a priority that nobody set is
below all that can be set."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from pydantic import ValidationError

from wharfinger.domain.cluster_objects import ClusterObject, ClusterObjects
from wharfinger.domain.descheduling import (
    BALANCES,
    DeschedulerProfile,
    DeschedulingPolicy,
    EvictorArgs,
    LowNodeUtilization,
    Strategy,
)
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.quantities import parse_quantity
from wharfinger.engine.descheduling.evictor import Evictor, Pass, UnknownPriorityClassError
from wharfinger.engine.descheduling.run import Passed, passed
from wharfinger.engine.descheduling.usage import smoothed
from wharfinger.engine.descheduling.utilisation import NodeUtilisation
from wharfinger.engine.descheduling.view import ClusterView, DeschedulingCluster, Measured
from wharfinger.manifests.descheduler.args import evictor_of, strategy_of
from wharfinger.manifests.kubernetes import core as kubernetes
from wharfinger.manifests.kubernetes.cluster_objects import PodDisruptionBudget

Json = dict[str, Any]

SUITES = (
    "evictor",
    "high_node_utilization",
    "low_node_utilization",
    "low_node_utilization_metrics",
    "node_affinity",
    "node_taints",
    "remove_duplicates",
    "topology_spread",
)

NO_PRIORITY = -(2**31) - 1
"""Below every priority that can be written."""

DIGITS = 10**8
"""Recorded percentages have eight decimals."""

PROFILE = "recorded"


def answer(suite: str, case: Json) -> Json:
    try:
        evictor = evictor_of(case["evictor"])
        strategy = None if suite == "evictor" else strategy_of(case["strategy"], case["args"])
    except ValidationError:
        return {"rejected": True}
    view = view_of(case, strategy)
    if strategy is None:
        return verdicts(evictor, view)
    done = passed(policy_of(case, evictor, strategy), view)
    if any(PRIORITY_CLASS in failure.why for failure in done.failures):
        return {"rejected": True}
    return pass_answer(case, done, view)


PRIORITY_CLASS = "priority class"


def expected(suite: str, case: Json) -> Json:
    """Why arguments are refused is said in other words."""
    want = dict(case["expect"])
    want.pop("order", None)
    want.pop("podListOrderMatters", None)
    if want.get("rejected"):
        return {"rejected": True}
    return (
        want | {"classification": rounded(want["classification"])}
        if "classification" in want
        else want
    )


def path(suite: str, case: Json) -> str:
    """Always what a plane runs."""
    return ""


def agrees(suite: str, got: Json, case: Json) -> bool:
    """Where the recorded order is of chance, the list was sorted."""
    want = expected(suite, case)
    if "classification" not in want:
        got.pop("classification", None)
    if case["expect"].get("order") == "set":
        got["evicted"] = sorted(got["evicted"])
    return got == want


def verdicts(args: EvictorArgs, view: ClusterView) -> Json:
    going = Pass.of(DeschedulingPolicy(strict=True), DeschedulingCluster.of(view))
    try:
        evictor = Evictor.of(going, args, PROFILE, "")
    except UnknownPriorityClassError:
        return {"rejected": True}
    return {
        pod.uid: {"filter": evictor.may(pod), "preEviction": evictor.lets_go(pod)}
        for pod in view.pods
    }


def pass_answer(case: Json, done: Passed, view: ClusterView) -> Json:
    out: Json = {
        "evicted": [eviction.pod for eviction in done.evictions],
        "failed": bool(done.failures),
    }
    for survey in done.surveys:
        out["classification"] = rounded(classified(survey, case))
    return out


def classified(survey: NodeUtilisation, case: Json) -> Json:
    """By deviations it tells of the resources that are named, and of no others."""
    named = set(case["args"]["thresholds"]) if case["args"].get("useDeviationThresholds") else None
    return {
        "usagePercent": {
            node: {r: p for r, p in percents.items() if named is None or r in named}
            for node, percents in survey.percents.items()
        },
        "lowThreshold": survey.bounds.low,
        "highThreshold": survey.bounds.high,
        "underutilized": sorted(survey.low),
        "overutilized": sorted(survey.high),
    }


def rounded(value: Any) -> Any:
    """Halves up, as the recorder rounded."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    return math.floor(value * DIGITS + 0.5) / DIGITS if isinstance(value, int | float) else value


# What is given.


def policy_of(case: Json, evictor: EvictorArgs, strategy: Strategy) -> DeschedulingPolicy:
    limits = case["limits"]
    profile = DeschedulerProfile(PROFILE, evictor)
    if isinstance(strategy, BALANCES):
        profile = msgspec.structs.replace(profile, balance=(strategy,))
    else:
        profile = msgspec.structs.replace(profile, deschedule=(strategy,))
    return DeschedulingPolicy(
        (profile,),
        limits.get("perNode"),
        limits.get("perNamespace"),
        limits.get("total"),
        strict=True,
    )


def view_of(case: Json, strategy: Strategy | None) -> ClusterView:
    nodes = tuple(node_of(raw) for raw in case["nodes"])
    pods = tuple(pod_of(raw) for raw in case["pods"])
    return ClusterView(
        0,
        nodes,
        pods,
        objects_of(case),
        {raw["metadata"]["name"]: raw["value"] for raw in case.get("priorityClasses") or ()},
        measured_of(case, strategy) if isinstance(strategy, LowNodeUtilization) else None,
        held={pod: str(status) for pod, status in (case.get("refused") or {}).items()},
    )


def node_of(raw: Json) -> Node:
    return kubernetes.NodeManifest.model_validate(raw).to_domain()


def pod_of(raw: Json) -> Pod:
    pod = kubernetes.pod_of(kubernetes.PodManifest.model_validate(raw))
    unset = raw["spec"].get("priority") is None
    return msgspec.structs.replace(
        pod,
        uid=f"{pod.requirements.traits.home}/{pod.name}",
        priority=NO_PRIORITY if unset else pod.priority,
    )


def objects_of(case: Json) -> ClusterObjects:
    found: list[ClusterObject] = [
        kubernetes.Namespace.model_validate(raw).to_domain() for raw in case.get("namespaces") or ()
    ]
    found += [
        PodDisruptionBudget.model_validate(raw).to_domain()
        for raw in case.get("podDisruptionBudgets") or ()
    ]
    return ClusterObjects.of(found)


def measured_of(case: Json, strategy: LowNodeUtilization) -> Measured:
    if (told := case.get("prometheus")) is not None:
        shares = {} if told.get("type", "vector") != "vector" else {strategy.query: told["samples"]}
        return Measured(shares=shares)
    nodes: dict[str, dict[str, int]] = {}
    for collected in case.get("nodeMetricsRounds") or ():
        for name, said in collected.items():
            now = amounts(said)
            before = nodes.get(name)
            nodes[name] = now if before is None else {r: smoothed(before[r], now[r]) for r in now}
    return Measured(
        nodes, {pod: amounts(said) for pod, said in (case.get("podMetrics") or {}).items()}
    )


def amounts(said: list[str]) -> dict[str, int]:
    """Milli-cores and bytes."""
    cpu, memory = map(parse_quantity, said)
    return {"cpu": cpu.milli, "memory": memory.units}
