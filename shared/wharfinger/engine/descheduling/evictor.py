"""Which pods may be let go, how many of them, and who takes them: what every strategy asks before it names a pod.

Three questions, in this order. `refusal`: may this pod ever be evicted (the descheduler's DefaultEvictor)? `place`:
is there another node for it? `evict`: does a limit, a budget or somebody else's plan hold it back now?

Where the policy is not strict we differ from the descheduler: a pod needs a place unless the policy says otherwise,
and the place is kept for it, so that two pods are never sent into one gap; no pod is named twice; `evict: "false"`
and turned-off protections mean what they say. PodDisruptionBudgets are asked here, and not only of the cluster when
it is too late."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from wharfinger.domain.cluster_objects import DisruptionBudget
from wharfinger.domain.descheduling import DeschedulingPolicy, EvictorArgs
from wharfinger.domain.node import Pod
from wharfinger.engine.descheduling.fit import Fit, Mask
from wharfinger.engine.descheduling.steadiness import Memory
from wharfinger.engine.descheduling.view import Cluster, Group, group_of, owners, upkeep, workload
from wharfinger.engine.framework.budgets import allowed, covers

SYSTEM_CRITICAL = 2_000_000_000
"""From this priority on a pod is critical to the system (Kubernetes)."""

EVICT = "descheduler.alpha.kubernetes.io/evict"
"""Annotation of a pod: it may be evicted whatever protects it."""
PREFER_NO_EVICTION = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""Annotation of a pod: another should go first, or none (`EvictorArgs.no_eviction`)."""

SECOND_US = 1_000_000


class Answer(Enum):
    """What became of an eviction: done; this pod not; none of this node any more; none at all any more."""

    EVICTED = "evicted"
    STAYS = "stays"
    NODE_LIMIT = "node limit"
    TOTAL_LIMIT = "total limit"


@dataclass(frozen=True, slots=True)
class Eviction:
    """One pod that should leave `node`: a replica (`binding`, `ordinal`) or a pod of somebody else's by its uid.
    `reason`: in words, with the numbers. `target`: where it would fit, as far as could be seen; empty where no place
    was asked for."""

    pod: str
    binding: str
    ordinal: int
    node: str
    strategy: str
    profile: str
    reason: str
    target: str = ""


@dataclass(slots=True)
class Budgets:
    """PodDisruptionBudgets, and how many more pods of each may go: counted when the first pod of one is asked about."""

    of: Mapping[str, list[DisruptionBudget]]
    pods: Sequence[Pod]
    left: dict[tuple[str, str], int] = field(default_factory=dict)
    known: dict[Group, list[DisruptionBudget]] = field(default_factory=dict)
    groups: dict[Group, list[Pod]] = field(default_factory=dict)

    @classmethod
    def of_cluster(cls, cluster: Cluster) -> Budgets:
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
        return [pod for pods in self.groups.values() if budget in self.covering(pods[0]) for pod in pods]


@dataclass(slots=True)
class Limits:
    """Evictions of one pass, counted over all strategies and profiles."""

    policy: DeschedulingPolicy
    budgets: Budgets
    by_node: dict[str, int] = field(default_factory=dict)
    by_namespace: dict[str, int] = field(default_factory=dict)
    total: int = 0

    @classmethod
    def of(cls, policy: DeschedulingPolicy, cluster: Cluster) -> Limits:
        return cls(policy, Budgets.of_cluster(cluster))

    def reached(self, pod: Pod) -> Answer | None:
        """Of the whole pass first: then nothing else matters."""
        policy, namespace = self.policy, pod.requirements.traits.home
        if policy.total is not None and self.total >= policy.total:
            return Answer.TOTAL_LIMIT
        if policy.per_node is not None and self.by_node.get(pod.node, 0) >= policy.per_node:
            return Answer.NODE_LIMIT
        if policy.per_namespace is not None and self.by_namespace.get(namespace, 0) >= policy.per_namespace:
            return Answer.STAYS
        return None

    def count(self, pod: Pod) -> None:
        namespace = pod.requirements.traits.home
        self.total += 1
        self.by_node[pod.node] = self.by_node.get(pod.node, 0) + 1
        self.by_namespace[namespace] = self.by_namespace.get(namespace, 0) + 1
        self.budgets.count(pod)


@dataclass(slots=True)
class Pass:
    """What all strategies of one pass share: the cluster, what is left of limits, what has been found."""

    cluster: Cluster
    fit: Fit
    limits: Limits
    strict: bool
    memory: Memory | None = None
    found: list[Eviction] = field(default_factory=list)
    named: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, policy: DeschedulingPolicy, cluster: Cluster, memory: Memory | None = None) -> Pass:
        remembered = None if policy.strict else memory
        if remembered is not None:
            remembered.follow(policy)
        fit = Fit.of(cluster, by_domain=not policy.strict)
        return cls(cluster, fit, Limits.of(policy, cluster), policy.strict, remembered)


class UnknownPriorityClassError(Exception):
    """The evictor's priority threshold names a class that the cluster does not have, or that is beyond what may be a
    threshold."""


@dataclass(slots=True)
class Evictor:
    """The evictor of one profile, as the strategy `strategy` uses it. `threshold`: pods of at least this priority stay."""

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
        """Raises UnknownPriorityClassError."""
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
        """Why this pod may not be evicted; empty: it may. One word of the protection or rule."""
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
        """Of the descheduler any value of the annotation will do; of us `false` means no."""
        said = upkeep(pod).annotations.get(EVICT)
        if said is None:
            return False
        return self.going.strict or (said.lower() != "false" and not (upkeep(pod).static or pod.terminating))

    # Is there a place?

    def lets_go(self, pod: Pod) -> bool:
        """What is asked last, right before a pod is named, even of one that is annotated to be evicted whatever
        protects it: whether it is in a namespace that the policy is for, and whether another node would take it."""
        if self.namespaces is not None and pod.requirements.traits.home not in self.namespaces:
            return False
        return not self.fit_wanted or bool(self.places(pod).any())

    def places(self, pod: Pod, among: Mask | None = None) -> Mask:
        """bool[nodes]: where it could go."""
        mask = self.going.fit.elsewhere(
            pod, among if self.among is None else self.among if among is None else self.among & among
        )
        if self.going.memory is not None:
            for name in self.going.memory.left_lately(workload(pod), self.going.cluster.view.at):
                if (row := self.going.fit.position.get(name)) is not None:
                    mask[row] = False
        return mask

    # Now?

    def evict(self, pod: Pod, reason: str, among: Mask | None = None, target: int | None = None) -> Answer:
        """Name it, if nothing holds it back. `target`: the row of the node that the strategy has chosen for it."""
        going = self.going
        if not going.strict and pod.uid in going.named:
            return Answer.STAYS
        if (reached := going.limits.reached(pod)) is not None:
            return reached
        if pod.uid in going.cluster.view.held or not going.limits.budgets.let_go(pod):
            return Answer.STAYS
        if going.memory is not None and going.memory.resting(workload(pod), going.cluster.view.at):
            return Answer.STAYS
        if self.fit_wanted and not going.strict and target is None:
            places = self.places(pod, among)
            if not places.any():
                return Answer.STAYS
            target = self._roomiest(places, pod)
        self._name(pod, reason, target)
        return Answer.EVICTED

    def _roomiest(self, places: Mask, pod: Pod) -> int:
        """The node with the most of the scarcest thing that the pod asks for left; the first listed of equals."""
        fit = self.going.fit
        asked = fit.vector(pod)
        rows = places.nonzero()[0]
        rest = ((fit.free[rows] - asked) // asked.clip(min=1))[:, asked > 0].min(axis=1)
        return int(rows[int(rest.argmax())])

    def _name(self, pod: Pod, reason: str, target: int | None) -> None:
        going = self.going
        going.limits.count(pod)
        going.named.add(pod.uid)
        place = "" if target is None else going.fit.nodes[target].name
        if target is not None:
            going.fit.move(pod, target)
        if going.memory is not None:
            going.memory.took(workload(pod), pod.node, going.cluster.view.at)
        self.known.pop(pod.uid, None)
        going.found.append(
            Eviction(pod.uid, pod.binding, pod.ordinal, pod.node, self.strategy, self.profile, reason, place)
        )


def _threshold(args: EvictorArgs, classes: Mapping[str, int]) -> int | None:
    if not args.priority_class:
        return args.priority
    value = classes.get(args.priority_class)
    if value is None:
        raise UnknownPriorityClassError(f"no priority class is called {args.priority_class}")
    if value > SYSTEM_CRITICAL:
        raise UnknownPriorityClassError(
            f"priority class {args.priority_class} is {value}; a threshold is at most {SYSTEM_CRITICAL}"
        )
    return value


def _selected_namespaces(args: EvictorArgs, cluster: Cluster) -> frozenset[str] | None:
    selector = args.namespace_selector
    if selector is None:
        return None
    return frozenset(name for name, labels in cluster.namespaces.items() if selector.matches(labels))


# What keeps a pod where it is, in the order in which it is asked.


def _on(protection: str, holds: Callable[[Evictor, Pod], bool]) -> Callable[[Evictor, Pod], bool]:
    return lambda evictor, pod: protection in evictor.args.protections and holds(evictor, pod)


def _bare(evictor: Evictor, pod: Pod) -> bool:
    """Nobody would make it again. Without that protection those that have failed may go, for there is nothing to lose."""
    if owners(pod):
        return False
    return "FailedBarePods" in evictor.args.protections or upkeep(pod).phase != "Failed"


def _too_high(evictor: Evictor, pod: Pod) -> bool:
    """The descheduler forgets its threshold where the protection of critical pods is turned off."""
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
    """Of pods with several owners nobody can say."""
    least, whose = evictor.args.min_replicas, owners(pod)
    return least > 1 and len(whose) == 1 and evictor.going.cluster.owned[whose[0].uid] < least


def _young(evictor: Evictor, pod: Pod) -> bool:
    least = evictor.args.min_age_s * SECOND_US
    return least > 0 and (pod.started_us == 0 or evictor.going.cluster.view.at - pod.started_us < least)


def _not_selected(evictor: Evictor, pod: Pod) -> bool:
    selector = evictor.args.label_selector
    return selector is not None and not selector.matches(pod.requirements.traits.labels)


RULES: tuple[tuple[str, Callable[[Evictor, Pod], bool]], ...] = (
    ("static", lambda _, pod: upkeep(pod).static),
    ("terminating", lambda _, pod: pod.terminating),
    ("bare", _bare),
    ("DaemonSetPods", _on("DaemonSetPods", lambda _, pod: upkeep(pod).of_daemon)),
    ("PodsWithLocalStorage", _on("PodsWithLocalStorage", lambda _, pod: upkeep(pod).local_storage)),
    ("SystemCriticalPods", _on("SystemCriticalPods", lambda _, pod: pod.priority >= SYSTEM_CRITICAL)),
    ("priority", _too_high),
    ("PodsWithPVC", _on("PodsWithPVC", _claims)),
    ("PodsWithoutPDB", _on("PodsWithoutPDB", lambda evictor, pod: not evictor.going.limits.budgets.covering(pod))),
    ("PodsWithResourceClaims", _on("PodsWithResourceClaims", lambda _, pod: bool(pod.requirements.traits.resource_claims))),
    ("label selector", _not_selected),
    ("minimum of replicas", _few),
    ("minimum age", _young),
    ("no eviction", lambda evictor, pod: evictor.args.no_eviction == "Mandatory" and PREFER_NO_EVICTION in upkeep(pod).annotations),
)  # fmt: skip
