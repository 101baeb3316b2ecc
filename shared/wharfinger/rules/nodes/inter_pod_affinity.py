"""InterPodAffinity: pods that must or should run with other pods, or apart from them, within the
domains of a node label. [kube-scheduler]

Required terms are a filter with three conditions. Affinity: the node's domains have pods that match
*all* of the pod's terms. Anti-affinity: the domains have no pod that matches *any* of its terms.
Symmetry: no pod in the domains has an anti-affinity term that matches the new pod. Exception: the
first pod of a group whose members require each other would wait for itself. So it may go anywhere
while no pod matches, if it matches its own terms. Preferred terms are a score: the terms of the
pod, and those of the existing pods, whose required affinity counts too.

Pods are counted for each pair of node label and value, so a pod that is added or removed changes a
few counters. In arrays these are tallies of the pods that a term selects, and of the pods that have
a term (`engine.nodes.tallies`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import HOSTNAME, PodTerm, PodTraits, WeightedPodTerm
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.value import canonical
from wharfinger.engine.framework.pod_terms import AffinityTerm, Labels, others_term, own_term
from wharfinger.engine.framework.protocols import SCORE_MAX, Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable, unschedulable
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import NodeTable
from wharfinger.engine.nodes.counting import Counting, Sums
from wharfinger.engine.nodes.forms import TopologyCounter
from wharfinger.engine.nodes.tallies import TopologyTally, selected_by_all, selector_key
from wharfinger.engine.nodes.verdicts import NodeVerdict

NOT_WITH = NodeVerdict("InterPodAffinity", "node(s) didn't match pod affinity rules")
AVOIDED = NodeVerdict("InterPodAffinity", "node(s) didn't match pod anti-affinity rules")
EXCLUDED = NodeVerdict(
    "InterPodAffinity", "node(s) didn't satisfy existing pods anti-affinity rules"
)

_SCORE = "InterPodAffinity.score"

Pair = tuple[str, str]
"""(node label, value): a topology domain."""


def spanned(raw: int, lowest: int, highest: int) -> int:
    """Normalise a raw score to 0..100 (min-max normalisation). `lowest`, `highest`: the lowest and
    highest raw score of the feasible nodes; the result is 0 where they are equal. Computed in
    doubles as in kube-scheduler, because rounding affects the integer. Example: 5 between 0 and 20
    becomes 25."""
    return (
        0
        if highest == lowest
        else int(float(SCORE_MAX) * (float(raw - lowest) / float(highest - lowest)))
    )


@dataclass(frozen=True, slots=True)
class Own:
    """Holds the resolved required terms of the pod that is being placed. None instead of a term:
    the term selects no pod."""

    affinity: tuple[AffinityTerm | None, ...]
    anti_affinity: tuple[AffinityTerm | None, ...]

    def all_match(self, other: PodTraits) -> bool:
        """Return whether the other pod matches all affinity terms. False where there are none. The
        pod's own terms have their namespaces resolved to names, so no namespace labels are passed.
        """
        return bool(self.affinity) and all(
            t is not None and t.selects(other, {}) for t in self.affinity
        )


@dataclass(slots=True)
class _Counts:
    """Holds the filter's counts by topology domain (node label, value). `wanted`: matches of the
    pod's affinity terms, only by pods that match all of them. `avoided`: matches of its
    anti-affinity terms. `minding`: anti-affinity terms of existing pods that match the new pod. A
    domain with count 0 is left out."""

    own: Own
    namespace_labels: Labels
    wanted: dict[Pair, int] = field(default_factory=dict)
    avoided: dict[Pair, int] = field(default_factory=dict)
    minding: dict[Pair, int] = field(default_factory=dict)

    def copy(self) -> _Counts:
        return _Counts(
            self.own,
            self.namespace_labels,
            dict(self.wanted),
            dict(self.avoided),
            dict(self.minding),
        )

    def count(self, pod: Pod, other: Pod, node: Node, sign: int) -> None:
        theirs = other.requirements.traits
        if self.own.all_match(theirs):
            for term in self.own.affinity:
                _add(self.wanted, term, node, sign)
        for term in self.own.anti_affinity:
            if term is not None and term.selects(theirs, {}):
                _add(self.avoided, term, node, sign)
        for term in _others(theirs.anti_affinity, theirs):
            if term.selects(pod.requirements.traits, self.namespace_labels):
                _add(self.minding, term, node, sign)


@dataclass(slots=True)
class _Scores:
    """Holds the sums of the weights of preferred terms: node label -> label value (topology domain)
    -> sum. A sum may be negative."""

    weights: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, key: str, node: Node, weight: int) -> None:
        if (value := node.labels.get(key)) is not None:
            domains = self.weights.setdefault(key, {})
            domains[value] = domains.get(value, 0) + weight


class InterPodAffinity:
    name = "InterPodAffinity"
    reason: NodeReason = "InterPodAffinity"
    verdicts = (NOT_WITH, AVOIDED, EXCLUDED)

    def __init__(self, arguments: Arguments) -> None:
        self._hard_weight = arguments.inter_pod.hard_weight
        self._own_preferences_only = arguments.inter_pod.ignores_preferences_of_others

    # The filter.

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        traits = pod.requirements.traits
        namespaces = cycle.snapshot.namespace_labels()
        own = Own(
            _own(traits.affinity, traits, namespaces),
            _own(traits.anti_affinity, traits, namespaces),
        )
        counts = _Counts(own, namespaces.get(traits.home, {}))
        says_something = bool(own.affinity or own.anti_affinity)
        for info in cycle.snapshot.nodes.values():
            for other in info.pods:
                if says_something or other.requirements.traits.anti_affinity:
                    counts.count(pod, other, info.node, 1)
        if not says_something and not counts.minding:
            return SKIP
        cycle.data[self.name] = counts
        return None

    def pod_added(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None:
        cycle.data[self.name].count(pod, other, node.node, 1)

    def pod_removed(self, cycle: Cycle, pod: Pod, other: Pod, node: NodeInfo) -> None:
        cycle.data[self.name].count(pod, other, node.node, -1)

    def filter(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> Status | None:
        counts: _Counts = cycle.data[self.name]
        labels = node.node.labels
        traits = pod.requirements.traits
        if not _stands_with(counts, traits, labels):
            return unresolvable(NOT_WITH.text)
        if any(
            (term.key, labels[term.key]) in counts.avoided
            for term in traits.anti_affinity
            if term.key in labels
        ):
            return unschedulable(AVOIDED.text)
        if counts.minding and any(pair in counts.minding for pair in labels.items()):
            return unschedulable(EXCLUDED.text)
        return None

    # The score.

    def pre_score(self, cycle: Cycle, pod: Pod, nodes: Sequence[NodeInfo]) -> Status | None:
        traits = pod.requirements.traits
        prefers = bool(traits.preferred_affinity or traits.preferred_anti_affinity)
        if self._own_preferences_only and not prefers:
            return SKIP
        namespaces = cycle.snapshot.namespace_labels()
        own = _weighted_own(traits.preferred_affinity, traits, namespaces, 1)
        own += _weighted_own(traits.preferred_anti_affinity, traits, namespaces, -1)
        scores = _Scores()
        for info in cycle.snapshot.nodes.values():
            if info.node.labels:
                for other in info.pods:
                    self._weigh(
                        scores, own, traits, namespaces.get(traits.home, {}), other, info.node
                    )
        if not scores.weights:
            return SKIP
        cycle.data[_SCORE] = scores
        return None

    def _weigh(
        self,
        scores: _Scores,
        own: Sequence[tuple[AffinityTerm, int]],
        traits: PodTraits,
        namespace_labels: Labels,
        other: Pod,
        node: Node,
    ) -> None:
        """Add to `scores` (topology domain -> sum of weights) what the affinity terms between the
        new pod and one existing pod contribute to the domains of `node`.
        Two sorts of terms count:
        - terms of the new pod that select the existing pod: the preferred terms;
        - terms of the existing pod that select the new pod: the preferred terms, and the required
          affinity terms with the profile's hard pod affinity weight.
        Terms of anti-affinity have negative weights.
        `own`: the new pod's preferred terms with their weights. `traits`: the new pod's namespace
        and labels, by which terms select it. `namespace_labels`: the labels of the new pod's
        namespace. `other`: the existing pod, which is on `node`."""
        theirs = other.requirements.traits
        for term, weight in own:
            if term.selects(theirs, {}):
                scores.add(term.key, node, weight)
        for term, weight in _weighted_others(theirs, self._hard_weight):
            if term.selects(traits, namespace_labels):
                scores.add(term.key, node, weight)

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        """Return the raw score: the sum of the weights of the node's topology domains. May be
        negative."""
        labels = node.node.labels
        weights = cycle.data[_SCORE].weights
        return sum(domains.get(labels[key], 0) for key, domains in weights.items() if key in labels)

    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        lowest, highest = min(scores.values()), max(scores.values())
        return {name: spanned(score, lowest, highest) for name, score in scores.items()}

    def hints(self) -> tuple[Hint, ...]:
        """Return the events after which the pod is tried again: a pod is added that its affinity
        requires; a pod is removed that anti-affinity keeps apart from it; labels of pods, nodes or
        namespaces change with the same effect."""
        return (
            Hint("pod/add", _wanted_came),
            Hint("pod/remove", _unwanted_went),
            Hint("pod/label", _relabelled),
            Hint("node/add", _node_came),
            Hint("node/label", _node_changed),
            Hint("namespace"),
        )

    # The array form.

    def form(self) -> TopologyCounter:
        return TopologyCounter(self.count, _has_terms, scores="attraction", apart=_own_apart)

    def count(self, counting: Counting) -> None:
        namespaces = {n.name: n.labels for n in counting.table.objects.namespaces}
        if counting.filters:
            _require(counting, namespaces)
        if counting.scores:
            self._prefer(counting, namespaces)

    def _prefer(self, counting: Counting, namespaces: Mapping[str, Labels]) -> None:
        traits = counting.cls.traits
        if self._own_preferences_only and not (
            traits.preferred_affinity or traits.preferred_anti_affinity
        ):
            return
        likes: dict[str, Sums] = {}
        own = _weighted_own(traits.preferred_affinity, traits, namespaces, 1)
        own += _weighted_own(traits.preferred_anti_affinity, traits, namespaces, -1)
        for term, weight in own:
            likes.setdefault(term.key, []).append((_selected(counting, (term,)), weight))
        labels = namespaces.get(traits.home, {})
        for carried, tally in counting.table.tallies.carried.values():
            weight = self._hard_weight if carried.kind == "requires" else carried.weight
            if carried.kind != "avoids" and weight and carried.term.selects(traits, labels):
                likes.setdefault(carried.term.key, []).append((tally, weight))
        counting.relations.likes = list(likes.items())


def _has_terms(traits: PodTraits) -> bool:
    return bool(
        traits.affinity
        or traits.anti_affinity
        or traits.preferred_affinity
        or traits.preferred_anti_affinity
    )


def _require(counting: Counting, namespaces: Mapping[str, Labels]) -> None:
    relations, traits = counting.relations, counting.cls.traits
    wanted = _own(traits.affinity, traits, namespaces)
    if wanted:
        terms = tuple(term for term in wanted if term is not None)
        tally = None
        if len(terms) == len(wanted):
            tally = _selected(counting, terms)
            relations.content_alone = bool(tally.meets(counting.cls))
        relations.joins += [
            (said.key, [] if tally is None else [(tally, 1)]) for said in traits.affinity
        ]
        relations.join_verdict = counting.encoded(NOT_WITH)
    avoided: dict[str, Sums] = {}
    for term in _own(traits.anti_affinity, traits, namespaces):
        if term is not None:
            avoided.setdefault(term.key, []).append((_selected(counting, (term,)), 1))
    relations.blocks += [(key, sums, counting.encoded(AVOIDED)) for key, sums in avoided.items()]
    excluding: dict[str, Sums] = {}
    labels = namespaces.get(traits.home, {})
    for carried, tally in counting.table.tallies.carried.values():
        if carried.kind == "avoids" and carried.term.selects(traits, labels):
            excluding.setdefault(carried.term.key, []).append((tally, 1))
    relations.blocks += [(key, sums, counting.encoded(EXCLUDED)) for key, sums in excluding.items()]


def _selected(counting: Counting, terms: tuple[AffinityTerm, ...]) -> TopologyTally:
    """Return the tally of the pods that all of the terms select."""
    return counting.tally(("all", tuple(map(_pods_of, terms))), selected_by_all(terms))


def _pods_of(term: AffinityTerm) -> Hashable:
    """Return a hashable key for the set of pods that a term selects. The topology key is not part
    of it, so that terms over different domains share a tally."""
    return (
        selector_key(term.selector),
        tuple(sorted(term.namespaces)),
        selector_key(term.namespace_selector),
    )


def _own_apart(cls: PodClass, table: NodeTable) -> list[TopologyTally]:
    """Return counts of pods per node (tallies) for those anti-affinity terms of the class that
    exclude its own pods: the term's topology key is the hostname, and the term selects pods of the
    class itself. A tally counts the pods that its term selects.
    With one of these terms, at most one pod of the class fits on a node. If there is none of these
    terms, the result is empty."""
    traits = cls.traits
    if not traits.anti_affinity:
        return []
    terms = [others_term(t, traits) for t in traits.anti_affinity if t.key == HOSTNAME]
    return [
        table.tally(("alike", canonical(term)), selected_by_all((term,)))
        for term in terms
        if term is not None and term.selects(traits, {})
    ]


def _stands_with(counts: _Counts, traits: PodTraits, labels: Labels) -> bool:
    """Return whether a node with these labels satisfies the pod's required affinity. True also for
    the first pod of a group: no pod in the cluster matches, but the pod matches its own terms."""
    if any(term.key not in labels for term in traits.affinity):
        return False
    if all((term.key, labels[term.key]) in counts.wanted for term in traits.affinity):
        return True
    return not counts.wanted and counts.own.all_match(traits)


def _add(counts: dict[Pair, int], term: AffinityTerm | None, node: Node, sign: int) -> None:
    if term is None or (value := node.labels.get(term.key)) is None:
        return
    pair = (term.key, value)
    count = counts.get(pair, 0) + sign
    if count:
        counts[pair] = count
    else:
        counts.pop(pair, None)


def _own(
    terms: Iterable[PodTerm], traits: PodTraits, namespaces: Mapping[str, Labels]
) -> tuple[AffinityTerm | None, ...]:
    return tuple(own_term(term, traits, namespaces) for term in terms)


def _others(terms: Iterable[PodTerm], traits: PodTraits) -> list[AffinityTerm]:
    return [term for said in terms if (term := others_term(said, traits)) is not None]


def _weighted_own(
    terms: Iterable[WeightedPodTerm], traits: PodTraits, namespaces: Mapping[str, Labels], sign: int
) -> list[tuple[AffinityTerm, int]]:
    resolved = ((own_term(said.term, traits, namespaces), sign * said.weight) for said in terms)
    return [(term, weight) for term, weight in resolved if term is not None]


def _weighted_others(traits: PodTraits, hard_weight: int) -> Iterable[tuple[AffinityTerm, int]]:
    """Yield (term, weight) for the terms of an existing pod that score new pods: preferred terms,
    with a negative weight for anti-affinity; and required affinity with the weight `hard_weight`,
    if that is above 0."""
    if hard_weight > 0:
        yield from ((term, hard_weight) for term in _others(traits.affinity, traits))
    for said, sign in ((traits.preferred_affinity, 1), (traits.preferred_anti_affinity, -1)):
        for weighted in said:
            if (term := others_term(weighted.term, traits)) is not None:
                yield term, sign * weighted.weight


# What may help a pod that was refused (old, new: what the event is about). Where a term goes by
# labels of namespaces, which are not at hand, it may mean anybody.


def _may_select(term: PodTerm, owner: PodTraits, other: PodTraits) -> bool:
    resolved = others_term(term, owner)
    if resolved is None:
        return False
    if resolved.namespace_selector is not None:
        return resolved.selector.matches(other.labels)
    return resolved.selects(other, {})


def _wants(pod: Pod, other: Pod) -> bool:
    """Return whether `other` matches all terms of the pod's required affinity. Namespace selectors
    are assumed to match."""
    mine, theirs = pod.requirements.traits, other.requirements.traits
    return bool(mine.affinity) and all(_may_select(term, mine, theirs) for term in mine.affinity)


def _apart(pod: Pod, other: Pod) -> bool:
    """Return whether a required anti-affinity term of one of the two pods selects the other one.
    Namespace selectors are assumed to match."""
    mine, theirs = pod.requirements.traits, other.requirements.traits
    return any(_may_select(term, mine, theirs) for term in mine.anti_affinity) or any(
        _may_select(term, theirs, mine) for term in theirs.anti_affinity
    )


def _wanted_came(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    return new is None or _wants(pod, new)


def _unwanted_went(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    """Return whether the removal of the pod `old` may help: anti-affinity kept the two pods apart,
    or the new pod's affinity matches `old`. In the second case no match may be left. A pod that
    matches its own terms may then be placed as the first of its group."""
    return old is None or _apart(pod, old) or _wants(pod, old)


def _relabelled(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    if old is None or new is None or new.uid == pod.uid:
        return True
    return _wants(pod, old) != _wants(pod, new) or (_apart(pod, old) and not _apart(pod, new))


def _keys(pod: Pod) -> set[str]:
    """Return the node labels that the pod's required affinity needs. A node without one of them is
    refused."""
    return {term.key for term in pod.requirements.traits.affinity}


def _node_came(pod: Pod, old: Node | None, new: Node | None) -> bool:
    return new is None or all(key in new.labels for key in _keys(pod))


def _node_changed(pod: Pod, old: Node | None, new: Node | None) -> bool:
    """Return whether the change of a node's labels may help: the node has all labels that the pod's
    affinity needs, and any label changed. Terms of other pods may use any label."""
    if old is None or new is None:
        return True
    return _node_came(pod, old, new) and old.labels != new.labels
