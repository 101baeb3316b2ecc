"""PodTopologySpread: pods of one application stand evenly in the domains of a node label, zones or nodes.

A hard constraint is a filter: in the node's domain, the pods it counts and the one to come exceed the emptiest domain's by at most
the skew. A soft one is a score: fewer in the domain is better, and a label with few domains, where each weighs more, counts less
(by the logarithm of how many there are). Pods without constraints of their own get the profile's; the built-in ones are soft, over
nodes and zones, and do not ask that a node has both labels. [kube-scheduler]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import lru_cache

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import TopologySpread
from wharfinger.domain.scheduler import Arguments, SpreadArgs
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import first_untolerated
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.pod_terms import application, counts, spread_selector
from wharfinger.engine.framework.protocols import SCORE_MAX, Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo, Snapshot
from wharfinger.engine.framework.status import SKIP, Status, unresolvable, unschedulable

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

REASON = "node(s) didn't match pod topology spread constraints"
REASON_NO_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"

BUILT_IN = (TopologySpread(HOSTNAME, 3, hard=False), TopologySpread(ZONE, 5, hard=False))
"""What pods get that say nothing, where the profile's arguments say nothing either."""

_SCORE = "PodTopologySpread.score"

_CONTEXT = Context(prec=50)


@lru_cache(maxsize=8192)
def domains_weight(domains: int) -> float:
    """ln(domains + 2), the double next to it: by decimal arithmetic, since what a machine's own logarithm makes of the last bit
    differs from machine to machine."""
    return float(_CONTEXT.ln(Decimal(domains + 2)))


def half_away(x: float) -> int:
    """The nearest integer; halves go away from zero."""
    whole = int(x)
    return whole + (1 if x > 0 else -1) if abs(x - whole) >= 0.5 else whole


def part_score(count: int, max_skew: int, weight: float) -> float:
    """What `count` pods in a node's domain make of its raw score; lower is better. The parts are summed in order of the
    constraints and rounded by `half_away`."""
    return count * weight + float(max_skew - 1)


def evened(raw: int, lowest: int, highest: int) -> int:
    """0..100 of a raw score among the feasible nodes' lowest and highest."""
    return SCORE_MAX if highest == 0 else SCORE_MAX * (highest + lowest - raw) // highest


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint as it is asked: `selector` None counts nobody. `itself`: it matches the pod that is placed."""

    said: TopologySpread
    selector: LabelSelector | None
    itself: bool

    @property
    def key(self) -> str:
        return self.said.key


@dataclass(slots=True)
class _Hard:
    """`matching[i]`: domain of constraint i -> pods it counts there, of every domain that is one. `emptiest[i]`: pods in the
    emptiest one; -1: to be sought."""

    constraints: tuple[Constraint, ...]
    matching: list[dict[str, int]]
    emptiest: list[int]

    def copy(self) -> _Hard:
        return _Hard(self.constraints, [dict(m) for m in self.matching], list(self.emptiest))

    def add(self, i: int, domain: str, pods: int) -> None:
        """The emptiest has to be sought again only where it may be another one with more pods than before."""
        before = self.matching[i].get(domain)
        after = (before or 0) + pods
        self.matching[i][domain] = after
        if before is None or (pods > 0 and before == self.emptiest[i]):
            self.emptiest[i] = -1
        elif self.emptiest[i] >= 0:
            self.emptiest[i] = min(self.emptiest[i], after)

    def fewest(self, i: int) -> int:
        """Pods in the emptiest domain; 0 where there are fewer domains than are asked for."""
        matching = self.matching[i]
        if len(matching) < self.constraints[i].said.min_domains:
            return 0
        if self.emptiest[i] < 0:
            self.emptiest[i] = min(matching.values())
        return self.emptiest[i]


@dataclass(slots=True)
class _Soft:
    """`weights`: of the constraints. `ignored`: feasible nodes that lack a label. `matching` as of `_Hard`, without hostnames."""

    constraints: tuple[Constraint, ...]
    weights: list[float]
    ignored: frozenset[str]
    matching: list[dict[str, int]] = field(default_factory=list)


class PodTopologySpread:
    name = "PodTopologySpread"

    def __init__(self, arguments: Arguments) -> None:
        self._defaults = _defaults(arguments.spread)
        self._all_labels_of_defaults = not arguments.spread.system

    # The filter.

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        constraints = self._asked(cycle.snapshot, pod, hard=True)
        if not constraints:
            return SKIP
        hard = _Hard(constraints, [{} for _ in constraints], [-1] * len(constraints))
        for info in cycle.snapshot.nodes.values():
            _count(hard, pod, info, info.pods)
        cycle.data[self.name] = hard
        return None

    def pod_added(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None:
        _count(cycle.data[self.name], pod, node, (other,), 1)

    def pod_removed(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None:
        _count(cycle.data[self.name], pod, node, (other,), -1)

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        hard: _Hard = cycle.data[self.name]
        for i, constraint in enumerate(hard.constraints):
            domain = node.node.labels.get(constraint.key)
            if domain is None:
                return unresolvable(REASON_NO_LABEL)
            there = hard.matching[i].get(domain, 0) + constraint.itself
            if there - hard.fewest(i) > constraint.said.max_skew:
                return unschedulable(REASON)
        return None

    # The score.

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        constraints = self._asked(cycle.snapshot, pod, hard=False)
        if not constraints:
            return SKIP
        every_label = bool(pod.requirements.traits.spread) or self._all_labels_of_defaults
        soft = _domains(constraints, nodes, every_label)
        for info in cycle.snapshot.nodes.values():
            if not every_label or _has_all(info.node, constraints):
                _count_soft(soft, pod, info)
        cycle.data[_SCORE] = soft
        return None

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        """Higher is worse, until it is normalised."""
        soft: _Soft = cycle.data[_SCORE]
        if node.name in soft.ignored:
            return 0
        total = 0.0
        for i, constraint in enumerate(soft.constraints):
            if (domain := node.node.labels.get(constraint.key)) is not None:
                own = constraint.key == HOSTNAME
                there = _matching(constraint, pod, node.pods) if own else soft.matching[i].get(domain, 0)
                total += part_score(there, constraint.said.max_skew, soft.weights[i])
        return half_away(total)

    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        ignored = cycle.data[_SCORE].ignored
        compared = [score for name, score in scores.items() if name not in ignored]
        lowest, highest = min(compared, default=0), max(compared, default=0)
        return {name: 0 if name in ignored else evened(score, lowest, highest) for name, score in scores.items()}

    def hints(self) -> tuple[Hint, ...]:
        """Who comes or goes matters where a constraint counts it; a node, where it is or becomes a domain."""
        return (
            Hint("pod/add", _counted),
            Hint("pod/remove", _counted),
            Hint("pod/label", _counted_otherwise),
            Hint("node/add", _in_a_domain),
            Hint("node/remove", _was_in_a_domain),
            Hint("node/label", _in_another_domain),
            Hint("node/taint", _taints_count),
        )

    def _asked(self, snapshot: Snapshot, pod: Pod, hard: bool) -> tuple[Constraint, ...]:
        """The constraints of the pod, or else those of the profile over the pods of its application."""
        traits = pod.requirements.traits
        if traits.spread:
            said = [(c, spread_selector(c, traits.labels)) for c in traits.spread if c.hard == hard]
        elif defaults := [c for c in self._defaults if c.hard == hard]:
            selector = application(pod, snapshot.objects)
            said = [(c, selector) for c in defaults] if selector is not None else []
        else:
            said = []
        return tuple(Constraint(c, s, s is not None and s.matches(traits.labels)) for c, s in said)


def _defaults(arguments: SpreadArgs) -> tuple[TopologySpread, ...]:
    return BUILT_IN if arguments.system else arguments.constraints


def _has_all(node: Node, constraints: Sequence[Constraint]) -> bool:
    return all(c.key in node.labels for c in constraints)


def _included(constraint: TopologySpread, requirements: Requirements, node: Node) -> bool:
    """Whether the node is in one of the constraint's domains, as the pod's own node claims and tolerations have it."""
    if constraint.honours_affinity and not _claimed(requirements, node):
        return False
    if not constraint.honours_taints:
        return True
    return first_untolerated(node.taints, requirements.tolerations, ("NoSchedule", "NoExecute")) is None


def _claimed(requirements: Requirements, node: Node) -> bool:
    labels = node.labels
    return all(labels.get(key) == value for key, value in requirements.node_selector.items()) and (
        not requirements.node_terms or any(term.matches(labels, node.name) for term in requirements.node_terms)
    )


def _matching(constraint: Constraint, pod: Pod, others: Sequence[Pod]) -> int:
    namespace = pod.requirements.traits.home
    return sum(counts(constraint.selector, namespace, other) for other in others)


def _count(hard: _Hard, pod: Pod, info: NodeInfo, others: Sequence[Pod], sign: int = 1) -> None:
    """Takes the node's domains in, and `others` on it."""
    if not _has_all(info.node, hard.constraints):
        return
    for i, constraint in enumerate(hard.constraints):
        if _included(constraint.said, pod.requirements, info.node):
            hard.add(i, info.node.labels[constraint.key], sign * _matching(constraint, pod, others))


def _domains(constraints: tuple[Constraint, ...], nodes: Sequence[NodeInfo], every_label: bool) -> _Soft:
    """The domains that feasible nodes are in, still empty. A node that lacks a label which it need not have is in the domain of
    those that lack it."""
    ignored = frozenset(n.name for n in nodes if every_label and not _has_all(n.node, constraints))
    scored = [n for n in nodes if n.name not in ignored]
    matching = [
        {} if c.key == HOSTNAME else dict.fromkeys((n.node.labels.get(c.key, "") for n in scored), 0)
        for c in constraints
    ]
    sizes = [len(scored) if c.key == HOSTNAME else len(m) for c, m in zip(constraints, matching, strict=True)]
    return _Soft(constraints, [domains_weight(size) for size in sizes], ignored, matching)


def _count_soft(soft: _Soft, pod: Pod, info: NodeInfo) -> None:
    for constraint, matching in zip(soft.constraints, soft.matching, strict=True):
        domain = info.node.labels.get(constraint.key, "")
        if domain in matching and _included(constraint.said, pod.requirements, info.node):
            matching[domain] += _matching(constraint, pod, info.pods)


# What may help a pod that was refused (old, new: what the event is about).


def _hard(pod: Pod) -> list[TopologySpread]:
    return [c for c in pod.requirements.traits.spread if c.hard]


def _counted(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    """A pod came or went that a constraint counts. Constraints that the profile adds are not looked at: any pod may matter."""
    other = new or old
    constraints = _hard(pod)
    if other is None or not constraints:
        return True
    traits, theirs = pod.requirements.traits, other.requirements.traits
    return traits.home == theirs.home and any(_selects(c, pod, other) for c in constraints)


def _counted_otherwise(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    """A pod's labels changed, so that a constraint counts it that did not, or no longer does; or they are the pod's own."""
    constraints = _hard(pod)
    if old is None or new is None or not constraints or new.uid == pod.uid:
        return True
    if pod.requirements.traits.home != new.requirements.traits.home:
        return False
    return any(_selects(c, pod, old) != _selects(c, pod, new) for c in constraints)


def _selects(constraint: TopologySpread, pod: Pod, other: Pod) -> bool:
    selector = spread_selector(constraint, pod.requirements.traits.labels)
    return selector is not None and selector.matches(other.requirements.traits.labels)


def _labelled(pod: Pod, node: Node | None) -> bool:
    return node is not None and all(c.key in node.labels for c in _hard(pod))


def _in_a_domain(pod: Pod, old: Node | None, new: Node | None) -> bool:
    return new is None or _labelled(pod, new)


def _was_in_a_domain(pod: Pod, old: Node | None, new: Node | None) -> bool:
    """With its last node an empty domain is gone, and the emptiest is another."""
    return old is None or _labelled(pod, old)


def _in_another_domain(pod: Pod, old: Node | None, new: Node | None) -> bool:
    """The node moved to another domain, became part of one or left one; a pod's own node claims may do that, too."""
    if old is None or new is None or pod.requirements.node_selector or pod.requirements.node_terms:
        return True
    before, after = _labelled(pod, old), _labelled(pod, new)
    if before and after:
        return any(old.labels[c.key] != new.labels[c.key] for c in _hard(pod))
    return before != after


def _taints_count(pod: Pod, old: Node | None, new: Node | None) -> bool:
    """Taints make domains only where a constraint honours them."""
    constraints = _hard(pod)
    return not constraints or any(c.honours_taints for c in constraints)
