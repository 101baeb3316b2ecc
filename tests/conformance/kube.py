"""kube-scheduler's suites: its objects read as manifests, one cycle of our framework, our answer in
its words.

Everything recorded is compared, but for what its README calls advisory: how many nodes it looked at
(we look at all), and the sentence after the post-filters, which differs between releases. `best`
are the nodes it takes one of by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec
from pydantic import ValidationError
from tests.reference.kube_sampling import feasible_nodes_wanted

from wharfinger.domain.cluster_objects import ClusterObject, ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.scheduler import PreemptionArgs, Profile
from wharfinger.engine.backoff import backoff_s
from wharfinger.engine.framework import extenders, gang, preemption
from wharfinger.engine.framework.cycle import CycleOutcome, Framework, PluginError, PluginScores
from wharfinger.engine.framework.formulas import balance_change, balanced
from wharfinger.engine.framework.profile import default_profile, framework
from wharfinger.engine.framework.protocols import Narrowed
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.framework.status import Status
from wharfinger.manifests.kinds import BY_NAME
from wharfinger.manifests.kubernetes import core as kubernetes
from wharfinger.manifests.kubernetes.cluster_objects import PodDisruptionBudget
from wharfinger.manifests.kubernetes.scheduler import KubeSchedulerConfiguration
from wharfinger.manifests.model import Resource

Json = dict[str, Any]

SUITES = ("cycle", "derived", "filters", "numbers", "preemption", "scores")

ADVISORY = ("evaluated", "feasible", "messageAfterPostFilter")

OURS = ("Devices", "Dynamic")
"""Plugins that the reference does not have."""


def answer(suite: str, case: Json) -> Json:
    try:
        return ANSWERS[case["kind"]](case)
    except ValidationError as error:
        raise ValueError(
            "; ".join(f"{e['loc']}: {e['msg']}" for e in error.errors(include_url=False))
        ) from None
    except PluginError as error:
        raise ValueError(str(error)) from None


def expected(suite: str, case: Json) -> Json:
    return {key: value for key, value in case["expected"].items() if key not in ADVISORY}


def path(suite: str, case: Json) -> str:
    return "every node is looked at" if case["kind"] == "numFeasibleNodes" else ""


def agrees(suite: str, got: Json, case: Json) -> bool:
    """Any node that the reference may nominate is right, and none where it nominates none."""
    want = expected(suite, case)
    anyone = want.pop("nominatedNodeAnyOf", [None])
    nominated = got.pop("nominated", None)
    return got == want and nominated in anyone


# One cycle.


def cycle(case: Json) -> Json:
    chosen, snapshot, pod = read(case)
    outcome = chosen.run(snapshot, pod)
    answers: Json = {
        "preFilterSkipped": _of_the_reference(outcome.skipped),
        "filterFailures": {
            p: _by_node(nodes) for p, nodes in outcome.failures.items() if p not in OURS
        },
        "feasibleNodes": list(outcome.feasible),
    }
    if outcome.pre_filter:
        answers["preFilter"] = {
            plugin: _pre_filtered(said) for plugin, said in outcome.pre_filter.items()
        }
    return answers | (
        _scheduled(chosen, outcome) if outcome.feasible else _unschedulable(chosen, outcome, pod)
    )


def _scheduled(chosen: Framework, outcome: CycleOutcome) -> Json:
    return {
        "result": "scheduled",
        "scores": {
            name: _scored(chosen, name, said)
            for name, said in outcome.scores.items()
            if name not in OURS
        },
        "total": outcome.totals,
        "best": list(outcome.best),
    }


def _unschedulable(chosen: Framework, outcome: CycleOutcome, pod: Pod) -> Json:
    nominated, _ = chosen.post_filter(outcome, pod)
    return {
        "result": "unschedulable",
        "message": outcome.message,
        "unschedulablePlugins": list(outcome.refusing),
        "nominated": nominated.node if nominated else None,
    }


def preempting(case: Json) -> Json:
    chosen, snapshot, pod = read(case)
    outcome = chosen.begin(snapshot, pod)
    curable = preemption.curable(chosen.refused(chosen.run(snapshot, pod)))
    found = preemption.survey(outcome.cycle, pod, curable, chosen.profile.arguments.preemption)
    return cycle(case) | {
        "victimsPerNode": {name: _tried(found.get(name)) for name in snapshot.nodes}
    }


def _tried(tried: preemption.PreemptionCandidate | Status | None) -> Json:
    """None: not tried, since eviction cannot help there."""
    if tried is None:
        return {"potential": False}
    out: Json = {"potential": True, "victims": [], "pdbViolations": 0}
    if isinstance(tried, Status):
        return out | {"status": _status(tried)}
    names = [f"{victim.requirements.traits.home}/{victim.name}" for victim in tried.victims]
    return out | {"victims": names, "pdbViolations": tried.violations}


def read(case: Json) -> tuple[Framework, Snapshot, Pod]:
    pod = kubernetes.pod_of(kubernetes.PodManifest.model_validate(case["pod"]), pending=True)
    nodes: list[Node] = []
    pods: list[Pod] = []
    objects: list[ClusterObject] = []
    for found in map(_read, case["objects"]):
        match found:
            case kubernetes.NodeManifest():
                nodes.append(found.to_domain())
            case kubernetes.PodManifest():
                pods.append(kubernetes.pod_of(found))
            case PodDisruptionBudget():
                budget = found.to_domain()  # to Go a number that is not reported is 0
                objects.append(msgspec.structs.replace(budget, allowed=budget.allowed or 0))
            case _:
                objects.append(cast(Any, found).to_domain())
    profile = _profile(case.get("config"), pod)
    return framework(profile), Snapshot.of(nodes, pods, ClusterObjects.of(objects)), pod


def _read(raw: Json) -> Resource:
    kind = BY_NAME.get((raw["apiVersion"], raw["kind"]))
    if kind is None:
        raise ValueError(f"{raw['apiVersion']} {raw['kind']}: no kind that is read")
    return kind.model.model_validate(raw)


def _profile(config: Json | None, pod: Pod) -> Profile:
    if config is None:
        return default_profile()
    said = KubeSchedulerConfiguration.model_validate(config).to_domain("").scheduler
    assert said is not None
    found = said.profile(pod.requirements.traits.scheduler)
    if found is None:
        raise ValueError(
            f"no profile is called {pod.requirements.traits.scheduler or 'default-scheduler'}"
        )
    return found


def _of_the_reference(plugins: Iterable[str]) -> list[str]:
    return sorted(plugin for plugin in plugins if plugin not in OURS)


def _pre_filtered(said: Narrowed | Status) -> Json:
    return {"nodeNames": sorted(said.nodes)} if isinstance(said, Narrowed) else _status(said)


def _by_node(statuses: Mapping[str, Status]) -> Json:
    return {node: _status(status) for node, status in statuses.items()}


def _status(status: Status) -> Json:
    return {"code": status.code, "reasons": list(status.reasons)}


def _scored(chosen: Framework, plugin: str, said: PluginScores | None) -> Json:
    if said is None:
        return {"weight": chosen.weights[plugin], "skipped": True}
    return {"weight": said.weight, "raw": said.raw, "normalized": said.normalised}


# What takes an input in place of objects.


def feasible_nodes(case: Json) -> Json:
    given = case["input"]
    return {
        "count": feasible_nodes_wanted(
            given["nodes"], given["globalPercentage"], given.get("profilePercentage")
        )
    }


def back_off(case: Json) -> Json:
    given = case["input"]
    return {"seconds": backoff_s(given["attempts"], given["initialSeconds"], given["maxSeconds"])}


def balance(case: Json) -> Json:
    given = case["input"]
    size, used, asked = given["allocatable"], given["requestedByNode"], given["requestedByPod"]
    with_pod = balanced([u + a for u, a in zip(used, asked, strict=True)], size)
    without = balanced(used, size)
    return {"withPod": with_pod, "withoutPod": without, "score": balance_change(with_pod, without)}


def extender_score(case: Json) -> Json:
    given = case["input"]
    totals = extenders.with_priorities(
        given["pluginTotal"], [(e["weight"], e["hostPriorities"]) for e in given["extenders"]]
    )
    highest = max(totals.values())
    return {
        "total": totals,
        "best": sorted(name for name, total in totals.items() if total == highest),
    }


def extender_filter(case: Json) -> Json:
    given = case["input"]
    said = extenders.ExtenderFilterResult(
        None, given["response"]["failed"], given["response"]["failedAndUnresolvable"]
    )
    feasible, refused = extenders.filtered(given["feasibleBefore"], said)
    return {
        "status": {name: status.code for name, status in refused.items()},
        "feasibleAfter": list(feasible),
    }


def gang_feasible(case: Json) -> Json:

    given = case["input"]
    status = gang.feasible(given["minCount"], given["scheduled"], given["remaining"])
    return (
        {"code": "Success"}
        if status is None
        else {"code": status.code, "reason": status.reasons[0]}
    )


def candidates(case: Json) -> Json:
    given = case["input"]
    wanted = PreemptionArgs(
        given["minCandidateNodesPercentage"], given["minCandidateNodesAbsolute"]
    )
    return {"count": preemption.candidates_wanted(given["nodes"], wanted)}


ANSWERS: dict[str, Callable[[Json], Json]] = {
    "cycle": cycle,
    "preemption": preempting,
    "numFeasibleNodes": feasible_nodes,
    "backoff": back_off,
    "balancedAllocationDelta": balance,
    "extenderScore": extender_score,
    "extenderFilter": extender_filter,
    "gangFeasible": gang_feasible,
    "preemptionCandidates": candidates,
}
"""By the kind of a case."""
