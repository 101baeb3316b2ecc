"""Decides which pods may be evicted, how many, and whether another node would take them. Every
strategy calls it before it names a pod.

Three checks, in this order. `Evictor.may`: is the pod unprotected (the descheduler's
DefaultEvictor)? `Evictor.lets_go`: is its namespace selected, and would another node take it
(NodeFit)? `Evictor.evict`: does a limit, a disruption budget, a plan in progress or the workload's
cool-down prevent it now?

Without `strict` we differ from the descheduler. A pod needs another place unless the policy
disables that, and the place is reserved, so that two pods are never sent to the same gap. No pod is
named twice. `evict: "false"` and disabled protections are honoured. PodDisruptionBudgets are
checked here, not only by the API server at eviction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from wharfinger.domain.cluster_objects import DisruptionBudget
from wharfinger.domain.descheduling import DeschedulingPolicy, EvictorArgs
from wharfinger.domain.node import Pod
from wharfinger.domain.time import SECOND
from wharfinger.engine.descheduling.fit import Fit, Mask
from wharfinger.engine.descheduling.steadiness import Memory
from wharfinger.engine.descheduling.view import (
    DeschedulingCluster,
    Group,
    group_of,
    owners,
    upkeep,
    workload,
)
from wharfinger.engine.framework.budgets import allowed, covers

SYSTEM_CRITICAL = 2_000_000_000
"""A pod with this priority or a higher one is critical to the system (Kubernetes)."""

EVICT = "descheduler.alpha.kubernetes.io/evict"
"""Pod annotation: the pod may be evicted in spite of every protection."""
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""Pod annotation: other pods are evicted before this one, or it is never evicted
(`EvictorArgs.no_eviction`)."""


class EvictionResult(Enum):
    """Names the result of one attempted eviction.

    EVICTED: the pod is on the list of evictions. STAYS: this pod stays, the strategy may try
    others. NODE_LIMIT: the pod's node reached its limit of evictions. TOTAL_LIMIT: the pass reached
    its limit.
    """

    EVICTED = "evicted"
    STAYS = "stays"
    NODE_LIMIT = "node limit"
    TOTAL_LIMIT = "total limit"


@dataclass(frozen=True, slots=True)
class Eviction:
    """Describes one pod that should leave `node`: a replica of a binding (`binding`, `ordinal`), or
    another pod by its uid. `reason`: a sentence with the numbers. `target`: a node that would take
    the pod; empty if no node was searched. `finished`: the pod has ended, and only its object is to
    be removed; None: the pod runs."""

    pod: str
    binding: str
    ordinal: int
    node: str
    strategy: str
    profile: str
    reason: str
    target: str = ""
    finished: Pod | None = None


@dataclass(slots=True)
class EvictionBudgets:
    """Tracks how many more pods each PodDisruptionBudget of the cluster allows to evict in this
    pass.

    The number is computed when the first pod that the budget covers is checked, and decreases with
    each eviction. A pod that a budget already lists as disrupted does not decrease it again. `of`:
    namespace -> budgets; `left`: (namespace, name) -> evictions still allowed; `known`: group of
    pods -> the budgets that cover it.
    """

    of: Mapping[str, list[DisruptionBudget]]
    pods: Sequence[Pod]
    left: dict[tuple[str, str], int] = field(default_factory=dict)
    known: dict[Group, list[DisruptionBudget]] = field(default_factory=dict)
    groups: dict[Group, list[Pod]] = field(default_factory=dict)

    @classmethod
    def of_cluster(cls, cluster: DeschedulingCluster) -> EvictionBudgets:
        budgets: dict[str, list[DisruptionBudget]] = {}
        for budget in cluster.view.objects.budgets:
            budgets.setdefault(budget.namespace, []).append(budget)
        return cls(budgets, cluster.view.pods)

    def covering(self, pod: Pod) -> list[DisruptionBudget]:
        there = self.of.get(pod.requirements.traits.home)
        if there is None:
            return []
        group = group_of(pod)
        found = self.known.get(group)
        if found is None:
            found = self.known[group] = [budget for budget in there if covers(budget, pod)]
        return found

    def let_go(self, pod: Pod) -> bool:
        return all(pod.name in b.disrupted or self._left(b) > 0 for b in self.covering(pod))

    def count(self, pod: Pod) -> None:
        for budget in self.covering(pod):
            if pod.name not in budget.disrupted:
                self.left[budget.namespace, budget.name] = self._left(budget) - 1

    def _left(self, budget: DisruptionBudget) -> int:
        key = (budget.namespace, budget.name)
        if key not in self.left:
            self.left.update(allowed((budget,), self._covered(budget)))
        return self.left[key]

    def _covered(self, budget: DisruptionBudget) -> list[Pod]:
        if not self.groups:
            for pod in self.pods:
                self.groups.setdefault(group_of(pod), []).append(pod)
        return [
            pod for pods in self.groups.values() if budget in self.covering(pods[0]) for pod in pods
        ]


@dataclass(slots=True)
class Limits:
    """Counts the evictions of one pass over all strategies and profiles, and checks them against
    the limits of the policy: total, per node, per namespace."""

    policy: DeschedulingPolicy
    budgets: EvictionBudgets
    by_node: dict[str, int] = field(default_factory=dict)
    by_namespace: dict[str, int] = field(default_factory=dict)
    total: int = 0

    @classmethod
    def of(cls, policy: DeschedulingPolicy, cluster: DeschedulingCluster) -> Limits:
        """Creates the limits of one pass with all counters at zero."""
        return cls(policy, EvictionBudgets.of_cluster(cluster))

    def reached(self, pod: Pod) -> EvictionResult | None:
        """Returns which limit of the policy forbids the eviction of the pod; None: no limit does.

        Three limits are checked in this order. Evictions of the whole pass: TOTAL_LIMIT. Evictions
        from the pod's node: NODE_LIMIT. Evictions from the pod's namespace: STAYS, because pods of
        other namespaces on the node may still be evicted.
        """
        policy, namespace = self.policy, pod.requirements.traits.home
        if policy.total is not None and self.total >= policy.total:
            return EvictionResult.TOTAL_LIMIT
        if policy.per_node is not None and self.by_node.get(pod.node, 0) >= policy.per_node:
            return EvictionResult.NODE_LIMIT
        if (
            policy.per_namespace is not None
            and self.by_namespace.get(namespace, 0) >= policy.per_namespace
        ):
            return EvictionResult.STAYS
        return None

    def count(self, pod: Pod, finished: bool = False) -> None:
        """Counts one eviction. A `finished` pod is in no disruption budget."""
        namespace = pod.requirements.traits.home
        self.total += 1
        self.by_node[pod.node] = self.by_node.get(pod.node, 0) + 1
        self.by_namespace[namespace] = self.by_namespace.get(namespace, 0) + 1
        if not finished:
            self.budgets.count(pod)


@dataclass(slots=True)
class Pass:
    """The state that all strategies of one pass share: the cluster, the remaining limits and the
    pods named so far. `memory` is None with `strict`."""

    cluster: DeschedulingCluster
    fit: Fit
    limits: Limits
    strict: bool
    memory: Memory | None = None
    found: list[Eviction] = field(default_factory=list)
    named: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, policy: DeschedulingPolicy, cluster: DeschedulingCluster, memory: Memory | None = None
    ) -> Pass:
        """Creates the shared state of one pass over the cluster. Copies the policy's settings into
        `memory`; ignores `memory` with `strict`."""
        remembered = None if policy.strict else memory
        if remembered is not None:
            remembered.follow(policy)
        fit = Fit.of(cluster, by_domain=not policy.strict)
        return cls(cluster, fit, Limits.of(policy, cluster), policy.strict, remembered)


class UnknownPriorityClassError(Exception):
    """Raised when the evictor's priority threshold names a priority class that the cluster does not
    have, or whose value is above the highest allowed threshold."""


@dataclass(slots=True)
class Evictor:
    """Checks pods before their eviction and collects the evictions, for one strategy in one
    profile.

    A strategy calls `may` (is the pod unprotected?), then `lets_go` (would another node take it?),
    then `evict`, which checks limits and disruption budgets. `threshold`: pods with this priority
    or a higher one are protected; None: no threshold. `among`: bool[nodes], the nodes that count as
    destinations; None: all. `namespaces`: the namespaces that the policy selects; None: all.
    """

    going: Pass
    args: EvictorArgs
    profile: str
    strategy: str
    threshold: int | None
    fit_wanted: bool
    among: Mask | None
    namespaces: frozenset[str] | None
    known: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, going: Pass, args: EvictorArgs, profile: str, strategy: str) -> Evictor:
        """Creates the evictor for one strategy in one profile. An evictor decides whether a pod may
        be evicted, and records the evictions.

        `going`: the pass, with the policy, the cluster and the limits.
        `args`: the arguments of the profile's DefaultEvictor. `args.node_fit` decides whether
          NodeFit applies (evict only a pod that another node would take). If it is None, NodeFit
          applies unless the policy is `strict`.
        `profile`, `strategy`: names that are recorded with every eviction.

        Raises UnknownPriorityClassError if the priority threshold names a priority class that
        cannot be used.
        """
        wanted = args.node_fit if args.node_fit is not None else not going.strict
        return cls(
            going,
            args,
            profile,
            strategy,
            _threshold(args, going.cluster.view.priority_classes),
            wanted,
            going.fit.selected(args.node_selector) if wanted else None,
            _selected_namespaces(args, going.cluster),
        )

    # May it ever?

    def refusal(self, pod: Pod) -> str:
        """Returns the name of the protection or rule that forbids the eviction of the pod; empty if
        none does. The result is cached until the pod is named for eviction."""
        if (known := self.known.get(pod.uid)) is None:
            known = self.known[pod.uid] = self._refusal(pod)
        return known

    def may(self, pod: Pod) -> bool:
        return not self.refusal(pod)

    def _refusal(self, pod: Pod) -> str:
        if self._forced(pod):
            return ""
        if not self.going.strict and pod.uid in self.going.named:
            return "named already"
        return next((name for name, holds in RULES if holds(self, pod)), "")

    def _forced(self, pod: Pod) -> bool:
        """Returns whether the pod's `evict` annotation overrides all protections. With `strict` any
        value of the annotation counts, as in the descheduler. Otherwise the value `false` does not
        count, and static or terminating pods stay protected."""
        said = upkeep(pod).annotations.get(EVICT)
        if said is None:
            return False
        return self.going.strict or (
            said.lower() != "false" and not (upkeep(pod).static or pod.terminating)
        )

    # Is there a place?

    def lets_go(self, pod: Pod) -> bool:
        """Returns whether the policy selects the pod's namespace and, where NodeFit applies,
        another node would take the pod. Strategies call it right before they name a pod, also for a
        pod that is annotated for eviction."""
        if self.namespaces is not None and pod.requirements.traits.home not in self.namespaces:
            return False
        return not self._place_wanted(pod) or bool(self.places(pod).any())

    def _place_wanted(self, pod: Pod) -> bool:
        """Returns whether the pod may only go if another node would take it. A finished pod needs
        no other node; with `strict` it is treated as any other, as by the descheduler."""
        return self.fit_wanted and (self.going.strict or not self._has_finished(pod))

    def _has_finished(self, pod: Pod) -> bool:
        return pod.uid in self.going.cluster.finished

    def places(self, pod: Pod, among: Mask | None = None) -> Mask:
        """Returns bool[nodes], true for each node other than the pod's own that would take the pod.

        Three restrictions apply besides. A node is false if the node selector of the evictor's
        arguments does not match it. It is false if the workload of the pod left the node less than
        `Memory.return_s` seconds ago. It is false if `among` (bool[nodes]; None: no restriction) is
        false for it.
        """
        mask = self.going.fit.elsewhere(
            pod,
            among if self.among is None else self.among if among is None else self.among & among,
        )
        if self.going.memory is not None:
            for name in self.going.memory.left_lately(workload(pod), self.going.cluster.view.at):
                if (row := self.going.fit.position.get(name)) is not None:
                    mask[row] = False
        return mask

    # Now?

    def evict(
        self, pod: Pod, reason: str, among: Mask | None = None, target: int | None = None
    ) -> EvictionResult:
        """Adds the pod to the evictions of the pass, and returns the result (`EvictionResult`). The
        pod stays if one of these forbids the eviction: a limit of the policy, a
        PodDisruptionBudget, the cool-down of its workload after an earlier eviction, or the cluster
        stream, which reports pods that it will not evict now (`ClusterView.held`). Without
        `strict`, a pod that is already among the evictions is not added again.

        `reason`: a sentence for the record.
        `among`: bool[nodes], the nodes among which a destination may be chosen; None: all nodes.
        `target`: row of the destination, if the strategy has chosen a destination.

        NodeFit means: evict only a pod that another node would take. If `target` is None, NodeFit
        applies and the policy is not `strict`, this function chooses the destination: of the nodes
        that would take the pod, the one with the most free capacity. If no node would take the pod,
        the pod stays. The pod's requests are subtracted from the free amounts of the destination,
        so that later pods of the pass do not use the same capacity.

        Of a pod that has finished only the object is removed. It needs no destination, is in no
        disruption budget, and neither starts nor observes a cool-down.
        """
        going = self.going
        if not going.strict and pod.uid in going.named:
            return EvictionResult.STAYS
        if (reached := going.limits.reached(pod)) is not None:
            return reached
        if pod.uid in going.cluster.view.held:
            return EvictionResult.STAYS
        if self._has_finished(pod):
            self._name(pod, reason, None)
            return EvictionResult.EVICTED
        if not going.limits.budgets.let_go(pod):
            return EvictionResult.STAYS
        if going.memory is not None and going.memory.resting(workload(pod), going.cluster.view.at):
            return EvictionResult.STAYS
        if self.fit_wanted and not going.strict and target is None:
            places = self.places(pod, among)
            if not places.any():
                return EvictionResult.STAYS
            target = self._roomiest(places, pod)
        self._name(pod, reason, target)
        return EvictionResult.EVICTED

    def _roomiest(self, places: Mask, pod: Pod) -> int:
        """Chooses the node with the most free capacity relative to the pod's requests, and returns
        its row.

        For each resource that the pod requests, (free amount - request) // request is computed. The
        smallest of these numbers is the value of the node. The node with the largest value is
        chosen; of equal nodes, the first listed.

        `places`: bool[nodes], the nodes to choose from.

        Example: a pod requests 500m CPU and 1 GiB. 2500m CPU and 3 GiB are free on a node. The
        numbers are 4 and 2, so the node has the value 2.
        """
        fit = self.going.fit
        asked = fit.vector(pod)
        rows = places.nonzero()[0]
        rest = ((fit.free[rows] - asked) // asked.clip(min=1))[:, asked > 0].min(axis=1)
        return int(rows[int(rest.argmax())])

    def _name(self, pod: Pod, reason: str, target: int | None) -> None:
        going = self.going
        finished = self._has_finished(pod)
        going.limits.count(pod, finished)
        going.named.add(pod.uid)
        place = "" if target is None else going.fit.nodes[target].name
        if target is not None:
            going.fit.move(pod, target)
        if going.memory is not None and not finished:
            going.memory.took(workload(pod), pod.node, going.cluster.view.at)
        self.known.pop(pod.uid, None)
        going.found.append(
            Eviction(
                pod.uid,
                pod.binding,
                pod.ordinal,
                pod.node,
                self.strategy,
                self.profile,
                reason,
                place,
                pod if finished else None,
            )
        )


def _threshold(args: EvictorArgs, classes: Mapping[str, int]) -> int | None:
    if not args.priority_class:
        return args.priority
    value = classes.get(args.priority_class)
    if value is None:
        raise UnknownPriorityClassError(f"no priority class is called {args.priority_class}")
    if value > SYSTEM_CRITICAL:
        raise UnknownPriorityClassError(
            f"priority class {args.priority_class} is {value}; a threshold is at most "
            f"{SYSTEM_CRITICAL}"
        )
    return value


def _selected_namespaces(args: EvictorArgs, cluster: DeschedulingCluster) -> frozenset[str] | None:
    selector = args.namespace_selector
    if selector is None:
        return None
    return frozenset(
        name for name, labels in cluster.namespaces.items() if selector.matches(labels)
    )


# What keeps a pod where it is, in the order in which it is asked.


def _on(protection: str, holds: Callable[[Evictor, Pod], bool]) -> Callable[[Evictor, Pod], bool]:
    return lambda evictor, pod: protection in evictor.args.protections and holds(evictor, pod)


def _bare(evictor: Evictor, pod: Pod) -> bool:
    """Returns whether the pod has no owner that would recreate it. A failed pod without an owner
    counts only if the protection `FailedBarePods` is enabled."""
    if owners(pod):
        return False
    return "FailedBarePods" in evictor.args.protections or upkeep(pod).phase != "Failed"


def _too_high(evictor: Evictor, pod: Pod) -> bool:
    """Returns whether the pod's priority is at or above the threshold. With `strict` the threshold
    is ignored when the protection of critical pods is disabled, as in the descheduler."""
    if evictor.going.strict and "SystemCriticalPods" not in evictor.args.protections:
        return False
    return evictor.threshold is not None and pod.priority >= evictor.threshold


def _claims(evictor: Evictor, pod: Pod) -> bool:
    claims = upkeep(pod).claims
    classes = evictor.args.storage_classes
    if not classes or not claims:
        return bool(claims)
    objects = evictor.going.cluster.view.objects
    found = (objects.claim(pod.requirements.traits.home, name) for name in claims)
    return any(claim is not None and claim.storage_class in classes for claim in found)


def _few(evictor: Evictor, pod: Pod) -> bool:
    """Returns whether the pod's owner has fewer than `min_replicas` pods. False for a pod with
    several owners."""
    least, whose = evictor.args.min_replicas, owners(pod)
    return least > 1 and len(whose) == 1 and evictor.going.cluster.owned[whose[0].uid] < least


def _young(evictor: Evictor, pod: Pod) -> bool:
    least = evictor.args.min_age_s * SECOND
    return least > 0 and (
        pod.started_us == 0 or evictor.going.cluster.view.at - pod.started_us < least
    )


def _not_selected(evictor: Evictor, pod: Pod) -> bool:
    selector = evictor.args.label_selector
    return selector is not None and not selector.matches(pod.requirements.traits.labels)


RULES: tuple[tuple[str, Callable[[Evictor, Pod], bool]], ...] = (
    ("static", lambda _, pod: upkeep(pod).static),
    ("terminating", lambda _, pod: pod.terminating),
    ("bare", _bare),
    ("DaemonSetPods", _on("DaemonSetPods", lambda _, pod: upkeep(pod).of_daemon)),
    ("PodsWithLocalStorage", _on("PodsWithLocalStorage", lambda _, pod: upkeep(pod).local_storage)),
    (
        "SystemCriticalPods",
        _on("SystemCriticalPods", lambda _, pod: pod.priority >= SYSTEM_CRITICAL),
    ),
    ("priority", _too_high),
    ("PodsWithPVC", _on("PodsWithPVC", _claims)),
    (
        "PodsWithoutPDB",
        _on("PodsWithoutPDB", lambda evictor, pod: not evictor.going.limits.budgets.covering(pod)),
    ),
    (
        "PodsWithResourceClaims",
        _on("PodsWithResourceClaims", lambda _, pod: bool(pod.requirements.traits.resource_claims)),
    ),
    ("label selector", _not_selected),
    ("minimum of replicas", _few),
    ("minimum age", _young),
    (
        "no eviction",
        lambda evictor, pod: (
            evictor.args.no_eviction == "Mandatory"
            and PREFER_NO_EVICTION in upkeep(pod).annotations
        ),
    ),
)
