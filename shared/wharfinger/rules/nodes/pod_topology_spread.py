"""PodTopologySpread: spreads the pods that a selector matches evenly over the domains of a node
label, such as zones or nodes. [kube-scheduler]

A hard constraint (DoNotSchedule) is a filter: with the new pod, the number of matching pods in the
node's domain may exceed that of the emptiest domain by at most the maximum skew. A soft one
(ScheduleAnyway) is a score: domains with fewer pods score higher, and a label with few domains
weighs less, by the logarithm of their number. Pods without constraints get the profile's defaults.
The built-in defaults are soft, over nodes and zones, and do not require a node to have both labels.

Example: skew 1, pods in zones x, y, z: 2, 1, 1. The next pod may go to y or z (2 - 1 <= 1), not to
x (3 - 1 > 1).

In arrays each constraint is a range of counters, one for each domain, over the tally of the pods
that its selector matches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import HOSTNAME, PodTraits, TopologySpread
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments, SpreadArgs
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import first_untolerated
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.formulas import domains_weight
from wharfinger.engine.framework.pod_terms import application, counts, spread_selector
from wharfinger.engine.framework.protocols import SCORE_MAX, Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable, unschedulable
from wharfinger.engine.nodes.counting import Counting, SpreadCounter
from wharfinger.engine.nodes.forms import TopologyCounter
from wharfinger.engine.nodes.tallies import Counted, selector_key
from wharfinger.engine.nodes.verdicts import NodeVerdict

ZONE = "topology.kubernetes.io/zone"

SKEWED = NodeVerdict("PodTopologySpread", "node(s) didn't match pod topology spread constraints")
NO_DOMAIN = NodeVerdict("PodTopologySpread", f"{SKEWED.text} (missing required label)")

BUILT_IN = (TopologySpread(HOSTNAME, 3, hard=False), TopologySpread(ZONE, 5, hard=False))
"""The constraints of a pod without its own, where the profile's arguments have none either."""

_SCORE = "PodTopologySpread.score"


def half_away(x: float) -> int:
    """Round to the nearest integer, halves away from zero, as Go's `math.Round` does: 2.5 becomes
    3, -2.5 becomes -3."""
    whole = int(x)
    return whole + (1 if x > 0 else -1) if abs(x - whole) >= 0.5 else whole


def part_score(count: int, max_skew: int, weight: float) -> float:
    """Return the part that one soft constraint adds to a node's raw score; lower is better.
    `count`: number of matching pods in the node's domain. `max_skew`: of the constraint. `weight`:
    of the constraint (`domains_weight`). The parts are summed in order of the constraints, and
    `half_away` rounds the sum."""
    return count * weight + float(max_skew - 1)


def evened(raw: int, lowest: int, highest: int) -> int:
    """Normalise a raw score to 0..100 in reverse: the node with the lowest raw score gets 100.
    `lowest`, `highest`: the lowest and highest raw score of the feasible nodes. All nodes get 100
    where `highest` is 0. Example: raw scores 2 and 4 become 100 and 50."""
    return SCORE_MAX if highest == 0 else SCORE_MAX * (highest + lowest - raw) // highest


@dataclass(frozen=True, slots=True)
class Constraint:
    """A spread constraint resolved for one pod. `selector`: selects the pods that the constraint
    counts; None: it counts no pod. `itself`: the selector matches the pod that is being placed."""

    said: TopologySpread
    selector: LabelSelector | None
    itself: bool

    @property
    def key(self) -> str:
        return self.said.key


@dataclass(slots=True)
class _Hard:
    """Holds the filter's counts for the hard constraints. `matching[i]`: domain of constraint i ->
    number of matching pods, for every eligible domain, also with 0. `emptiest[i]`: the smallest of
    these numbers; -1: not computed yet."""

    constraints: tuple[Constraint, ...]
    matching: list[dict[str, int]]
    emptiest: list[int]

    def copy(self) -> _Hard:
        return _Hard(self.constraints, [dict(m) for m in self.matching], list(self.emptiest))

    def add(self, i: int, domain: str, pods: int) -> None:
        """Add `pods` (may be negative) to the number of matching pods of a domain, for constraint
        i. `emptiest` is marked for recomputation only where it may have risen or the domain is new.
        """
        before = self.matching[i].get(domain)
        after = (before or 0) + pods
        self.matching[i][domain] = after
        if before is None or (pods > 0 and before == self.emptiest[i]):
            self.emptiest[i] = -1
        elif self.emptiest[i] >= 0:
            self.emptiest[i] = min(self.emptiest[i], after)

    def fewest(self, i: int) -> int:
        """Return the number of matching pods in the emptiest domain of constraint i (the global
        minimum); 0 where there are fewer domains than `minDomains`."""
        matching = self.matching[i]
        if len(matching) < self.constraints[i].said.min_domains:
            return 0
        if self.emptiest[i] < 0:
            self.emptiest[i] = min(matching.values())
        return self.emptiest[i]


@dataclass(slots=True)
class _Soft:
    """Holds the score's counts for the soft constraints. `weights[i]`: weight of constraint i,
    computed from its number of domains. `ignored`: feasible nodes that lack a required label; they
    score 0. `matching[i]`: as in `_Hard`; empty for the hostname label, whose pods are counted on
    the node itself."""

    constraints: tuple[Constraint, ...]
    weights: list[float]
    ignored: frozenset[str]
    matching: list[dict[str, int]] = field(default_factory=list)


class PodTopologySpread:
    name = "PodTopologySpread"
    reason: NodeReason = "PodTopologySpread"
    verdicts = (NO_DOMAIN, SKEWED)

    def __init__(self, arguments: Arguments) -> None:
        self._defaults = _defaults(arguments.spread)
        self._all_labels_of_defaults = not arguments.spread.system

    # The filter.

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        constraints = self._constraints(pod, cycle.snapshot.objects, hard=True)
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
                return unresolvable(NO_DOMAIN.text)
            there = hard.matching[i].get(domain, 0) + constraint.itself
            if there - hard.fewest(i) > constraint.said.max_skew:
                return unschedulable(SKEWED.text)
        return None

    # The score.

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        constraints = self._constraints(pod, cycle.snapshot.objects, hard=False)
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
        """Return the node's raw score: the sum over the pod's soft constraints of `matching pods in
        the node's domain * weight + maxSkew - 1`, rounded. A higher raw score is worse;
        normalisation inverts it. The weight of a constraint is ln(number of domains + 2).
        A constraint whose topology label the node lacks adds nothing. A node that is ignored
        because it lacks a required label scores 0.
        Example: one constraint by zone with 3 zones and maxSkew 1, and 2 matching pods in the zone:
        2 * 1.61 = 3.22, rounded to 3."""
        soft: _Soft = cycle.data[_SCORE]
        if node.name in soft.ignored:
            return 0
        total = 0.0
        for i, constraint in enumerate(soft.constraints):
            if (domain := node.node.labels.get(constraint.key)) is not None:
                own = constraint.key == HOSTNAME
                there = (
                    _matching(constraint, pod, node.pods)
                    if own
                    else soft.matching[i].get(domain, 0)
                )
                total += part_score(there, constraint.said.max_skew, soft.weights[i])
        return half_away(total)

    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        ignored = cycle.data[_SCORE].ignored
        compared = [score for name, score in scores.items() if name not in ignored]
        lowest, highest = min(compared, default=0), max(compared, default=0)
        return {
            name: 0 if name in ignored else evened(score, lowest, highest)
            for name, score in scores.items()
        }

    def hints(self) -> tuple[Hint, ...]:
        """Return the events after which a pod that this plugin refused is tried again. "Constraint"
        below means a hard topology spread constraint of the pod. A pod without own constraints was
        refused by the default constraints of the profile; it is tried again after every event of
        the kinds below.
        - A pod that a constraint counts is added or removed, or a label change of a pod makes a
          constraint count it or stop counting it.
        - A node with the topology labels of all constraints is added or removed, or a label change
          moves a node into, out of or between domains.
        - A node's taints change, and a constraint honours taints (nodeTaintsPolicy)."""
        return (
            Hint("pod/add", _counted),
            Hint("pod/remove", _counted),
            Hint("pod/label", _counted_otherwise),
            Hint("node/add", _in_a_domain),
            Hint("node/remove", _was_in_a_domain),
            Hint("node/label", _in_another_domain),
            Hint("node/taint", _taints_count),
        )

    def _constraints(self, pod: Pod, objects: ClusterObjects, hard: bool) -> tuple[Constraint, ...]:
        """Return the pod's topology spread constraints of one sort: hard (DoNotSchedule) if `hard`,
        otherwise soft (ScheduleAnyway).
        A pod without constraints of either sort gets the default constraints of the profile.
        Default constraints count the pods that the pod's Services and controller select. A pod that
        no Service and no controller selects gets no constraints. `objects`: the objects of the
        cluster, in which Services and controllers are looked up."""
        traits = pod.requirements.traits
        if traits.spread:
            said = [(c, spread_selector(c, traits.labels)) for c in traits.spread if c.hard == hard]
        elif (defaults := [c for c in self._defaults if c.hard == hard]) and objects.selecting:
            selector = application(pod, objects)
            said = [(c, selector) for c in defaults] if selector is not None else []
        else:
            said = []
        return tuple(Constraint(c, s, s is not None and s.matches(traits.labels)) for c, s in said)

    # The array form.

    def form(self) -> TopologyCounter:
        return TopologyCounter(self.count, _has_constraints, scores="spread")

    def count(self, counting: Counting) -> None:
        relations = counting.relations
        if counting.filters:
            relations.hard = self._spread(counting, hard=True)
            relations.hard_verdicts = (counting.encoded(NO_DOMAIN), counting.encoded(SKEWED))
        if counting.scores:
            relations.soft = self._spread(counting, hard=False)
            relations.every_label = bool(counting.cls.traits.spread) or self._all_labels_of_defaults

    def _spread(self, counting: Counting, hard: bool) -> list[SpreadCounter]:
        cls, found = counting.cls, list[SpreadCounter]()
        for constraint in self._constraints(
            Pod("", "", cls.requirements), counting.table.objects, hard
        ):
            tally = None
            if constraint.selector is not None:
                home = cls.traits.home
                key = ("spread", home, selector_key(constraint.selector))
                tally = counting.tally(key, _counted_by(constraint.selector, home))
            found.append(SpreadCounter(constraint.said, tally, constraint.itself))
        return found


def _has_constraints(traits: PodTraits) -> bool:
    return bool(traits.spread)


def _counted_by(selector: LabelSelector, namespace: str) -> Callable[[Counted], int]:
    """Return the predicate of a tally: whether it counts a class of pods. The conditions are those
    of `pod_terms.counts`."""

    def meets(cls: Counted) -> int:
        if cls.terminating or selector == LabelSelector():
            return 0
        return int(cls.traits.home == namespace and selector.matches(cls.traits.labels))

    return meets


def _defaults(arguments: SpreadArgs) -> tuple[TopologySpread, ...]:
    return BUILT_IN if arguments.system else arguments.constraints


def _has_all(node: Node, constraints: Sequence[Constraint]) -> bool:
    return all(c.key in node.labels for c in constraints)


def _included(constraint: TopologySpread, requirements: Requirements, node: Node) -> bool:
    """Return whether the node's pods count for the constraint, by its `nodeAffinityPolicy` and
    `nodeTaintsPolicy`. Where these are honoured, the pod's node affinity must match the node, and
    the pod must tolerate the node's taints. `requirements`: of the pod that is being placed."""
    if constraint.honours_affinity and not _claimed(requirements, node):
        return False
    if not constraint.honours_taints:
        return True
    return (
        first_untolerated(node.taints, requirements.tolerations, ("NoSchedule", "NoExecute"))
        is None
    )


def _claimed(requirements: Requirements, node: Node) -> bool:
    labels = node.labels
    return all(labels.get(key) == value for key, value in requirements.node_selector.items()) and (
        not requirements.node_terms
        or any(term.matches(labels, node.name) for term in requirements.node_terms)
    )


def _matching(constraint: Constraint, pod: Pod, others: Sequence[Pod]) -> int:
    namespace = pod.requirements.traits.home
    return sum(counts(constraint.selector, namespace, other) for other in others)


def _count(hard: _Hard, pod: Pod, info: NodeInfo, others: Sequence[Pod], sign: int = 1) -> None:
    """Add the node's domains to the counts, and the number of matching pods among `others`. `sign`
    -1 subtracts these pods instead. A node that lacks a label of any constraint is not counted.
    `pod`: the pod that is being placed."""
    if not _has_all(info.node, hard.constraints):
        return
    for i, constraint in enumerate(hard.constraints):
        if _included(constraint.said, pod.requirements, info.node):
            hard.add(i, info.node.labels[constraint.key], sign * _matching(constraint, pod, others))


def _domains(
    constraints: tuple[Constraint, ...], nodes: Sequence[NodeInfo], every_label: bool
) -> _Soft:
    """Return the initial counts for the score of the soft constraints: for each constraint its
    topology domains, each with 0 matching pods, and its weight ln(number of domains + 2). `nodes`:
    the feasible nodes; only their domains count. For the hostname label each node is a domain, and
    pods are counted on the node later.
    `every_label`: a node that lacks the topology label of at least one constraint is ignored. If
    false, all nodes that lack a label form one domain for this label."""
    ignored = frozenset(n.name for n in nodes if every_label and not _has_all(n.node, constraints))
    scored = [n for n in nodes if n.name not in ignored]
    matching = [
        {}
        if c.key == HOSTNAME
        else dict.fromkeys((n.node.labels.get(c.key, "") for n in scored), 0)
        for c in constraints
    ]
    sizes = [
        len(scored) if c.key == HOSTNAME else len(m)
        for c, m in zip(constraints, matching, strict=True)
    ]
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
    """Return whether one of the new pod's hard constraints counts the pod that was added or
    removed. True where the new pod has no hard constraints: constraints of the profile may then
    count any pod."""
    other = new or old
    constraints = _hard(pod)
    if other is None or not constraints:
        return True
    traits, theirs = pod.requirements.traits, other.requirements.traits
    return traits.home == theirs.home and any(_selects(c, pod, other) for c in constraints)


def _counted_otherwise(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    """Return whether a hard constraint counts the changed pod only before or only after its label
    change. True also for a change of the new pod's own labels, and where the new pod has no hard
    constraints."""
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
    """Return whether the removed node was in a domain. If it was the last node of an empty domain,
    the minimum over the domains changes."""
    return old is None or _labelled(pod, old)


def _in_another_domain(pod: Pod, old: Node | None, new: Node | None) -> bool:
    """Return whether a node's label change moves the node into, out of or between domains. Always
    True for a pod with a node selector or node terms, because these decide which nodes count."""
    if old is None or new is None or pod.requirements.node_selector or pod.requirements.node_terms:
        return True
    before, after = _labelled(pod, old), _labelled(pod, new)
    if before and after:
        return any(old.labels[c.key] != new.labels[c.key] for c in _hard(pod))
    return before != after


def _taints_count(pod: Pod, old: Node | None, new: Node | None) -> bool:
    """Return whether a change of taints may help: a hard constraint honours them, or the pod has no
    hard constraints of its own."""
    constraints = _hard(pod)
    return not constraints or any(c.honours_taints for c in constraints)
