"""InterPodAffinity: pods that want to stand with others, or apart from them, in the domains of a node label.

Required terms are a filter, three ways: the pod's affinity (in the node's domains there are pods that match *all* its terms),
its anti-affinity (there are none that match *one*), and the anti-affinity of the pods that are there (none of them minds it).
The first pod of a group that wants to stand together would wait for itself: it may go anywhere while nobody matches, if it
matches its own terms. Preferred terms are a score, the pod's own and those of the pods that are there, whose required affinity
counts for it as well. What is counted is pods per pair of node label and value, so that pods that come and go change a few
counts and nothing is counted anew. [kube-scheduler]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import PodTerm, PodTraits, WeightedPodTerm
from wharfinger.domain.scheduler import Arguments
from wharfinger.engine.framework.pod_terms import Labels, Term, others_term, own_term
from wharfinger.engine.framework.protocols import SCORE_MAX, Cycle, Hint
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import SKIP, Status, unresolvable, unschedulable

REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_OTHERS = "node(s) didn't satisfy existing pods anti-affinity rules"

_SCORE = "InterPodAffinity.score"

Pair = tuple[str, str]
"""A node label and its value: a domain."""


def spanned(raw: int, lowest: int, highest: int) -> int:
    """0..100 of a raw score between the feasible nodes' lowest and highest; in doubles, whose last bit shows in the integer."""
    return 0 if highest == lowest else int(float(SCORE_MAX) * (float(raw - lowest) / float(highest - lowest)))


@dataclass(frozen=True, slots=True)
class Own:
    """The terms of the pod that is placed; None among them: a term that means nobody."""

    affinity: tuple[Term | None, ...]
    anti_affinity: tuple[Term | None, ...]

    def all_match(self, other: PodTraits) -> bool:
        """Whether a pod is one that the affinity wants: it matches all its terms. Its terms have their namespaces resolved, so
        that no labels of any are needed."""
        return bool(self.affinity) and all(t is not None and t.selects(other, {}) for t in self.affinity)


@dataclass(slots=True)
class _Counts:
    """Domain -> how many pods there: `wanted`: match all of the pod's affinity; `avoided`: how often one of its anti-affinity terms
    is matched; `minding`: how often a pod's anti-affinity term matches the pod that is placed. Domains without any are not
    there."""

    own: Own
    namespace_labels: Labels
    wanted: dict[Pair, int] = field(default_factory=dict)
    avoided: dict[Pair, int] = field(default_factory=dict)
    minding: dict[Pair, int] = field(default_factory=dict)

    def copy(self) -> _Counts:
        return _Counts(self.own, self.namespace_labels, dict(self.wanted), dict(self.avoided), dict(self.minding))

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
    """Node label -> value -> weight of the domain."""

    weights: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, key: str, node: Node, weight: int) -> None:
        if (value := node.labels.get(key)) is not None:
            domains = self.weights.setdefault(key, {})
            domains[value] = domains.get(value, 0) + weight


class InterPodAffinity:
    name = "InterPodAffinity"

    def __init__(self, arguments: Arguments) -> None:
        self._hard_weight = arguments.inter_pod.hard_weight
        self._own_preferences_only = arguments.inter_pod.ignores_preferences_of_others

    # The filter.

    def pre_filter(self, cycle: Cycle, pod: Pod) -> Status | None:
        traits = pod.requirements.traits
        namespaces = cycle.snapshot.namespace_labels()
        own = Own(_own(traits.affinity, traits, namespaces), _own(traits.anti_affinity, traits, namespaces))
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
            return unresolvable(REASON_AFFINITY)
        if any((term.key, labels[term.key]) in counts.avoided for term in traits.anti_affinity if term.key in labels):
            return unschedulable(REASON_ANTI_AFFINITY)
        if counts.minding and any(pair in counts.minding for pair in labels.items()):
            return unschedulable(REASON_OTHERS)
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
                    self._weigh(scores, own, traits, namespaces.get(traits.home, {}), other, info.node)
        if not scores.weights:
            return SKIP
        cycle.data[_SCORE] = scores
        return None

    def _weigh(
        self,
        scores: _Scores,
        own: Sequence[tuple[Term, int]],
        traits: PodTraits,
        namespace_labels: Labels,
        other: Pod,
        node: Node,
    ) -> None:
        """What `other` on `node` means to the pod of `traits`, and the pod to it."""
        theirs = other.requirements.traits
        for term, weight in own:
            if term.selects(theirs, {}):
                scores.add(term.key, node, weight)
        for term, weight in _weighted_others(theirs, self._hard_weight):
            if term.selects(traits, namespace_labels):
                scores.add(term.key, node, weight)

    def score(self, cycle: Cycle, pod: Pod, node: NodeInfo) -> int:
        """May be negative, until it is normalised."""
        labels = node.node.labels
        weights = cycle.data[_SCORE].weights
        return sum(domains.get(labels[key], 0) for key, domains in weights.items() if key in labels)

    def normalise(self, cycle: Cycle, pod: Pod, scores: Mapping[str, int]) -> dict[str, int]:
        lowest, highest = min(scores.values()), max(scores.values())
        return {name: spanned(score, lowest, highest) for name, score in scores.items()}

    def hints(self) -> tuple[Hint, ...]:
        """Somebody it wants came, somebody it avoids or who minds it went; or a node took on a label it needs."""
        return (
            Hint("pod/add", _wanted_came),
            Hint("pod/remove", _unwanted_went),
            Hint("pod/label", _relabelled),
            Hint("node/add", _node_came),
            Hint("node/label", _node_changed),
            Hint("namespace"),
        )


def _stands_with(counts: _Counts, traits: PodTraits, labels: Labels) -> bool:
    """Whether the pod's affinity is content with a node of these labels."""
    if any(term.key not in labels for term in traits.affinity):
        return False
    if all((term.key, labels[term.key]) in counts.wanted for term in traits.affinity):
        return True
    return not counts.wanted and counts.own.all_match(traits)


def _add(counts: dict[Pair, int], term: Term | None, node: Node, sign: int) -> None:
    if term is None or (value := node.labels.get(term.key)) is None:
        return
    pair = (term.key, value)
    count = counts.get(pair, 0) + sign
    if count:
        counts[pair] = count
    else:
        counts.pop(pair, None)


def _own(terms: Iterable[PodTerm], traits: PodTraits, namespaces: Mapping[str, Labels]) -> tuple[Term | None, ...]:
    return tuple(own_term(term, traits, namespaces) for term in terms)


def _others(terms: Iterable[PodTerm], traits: PodTraits) -> list[Term]:
    return [term for said in terms if (term := others_term(said, traits)) is not None]


def _weighted_own(
    terms: Iterable[WeightedPodTerm], traits: PodTraits, namespaces: Mapping[str, Labels], sign: int
) -> list[tuple[Term, int]]:
    resolved = ((own_term(said.term, traits, namespaces), sign * said.weight) for said in terms)
    return [(term, weight) for term, weight in resolved if term is not None]


def _weighted_others(traits: PodTraits, hard_weight: int) -> Iterable[tuple[Term, int]]:
    """What a pod that is there says of those that come: what it requires counts `hard_weight`."""
    if hard_weight > 0:
        yield from ((term, hard_weight) for term in _others(traits.affinity, traits))
    for said, sign in ((traits.preferred_affinity, 1), (traits.preferred_anti_affinity, -1)):
        for weighted in said:
            if (term := others_term(weighted.term, traits)) is not None:
                yield term, sign * weighted.weight


# What may help a pod that was refused (old, new: what the event is about). Where a term goes by labels of namespaces, which are not
# at hand, it may mean anybody.


def _may_select(term: PodTerm, owner: PodTraits, other: PodTraits) -> bool:
    resolved = others_term(term, owner)
    if resolved is None:
        return False
    if resolved.namespace_selector is not None:
        return resolved.selector.matches(other.labels)
    return resolved.selects(other, {})


def _wants(pod: Pod, other: Pod) -> bool:
    """`other` matches all terms of the pod's affinity, so that it counts."""
    mine, theirs = pod.requirements.traits, other.requirements.traits
    return bool(mine.affinity) and all(_may_select(term, mine, theirs) for term in mine.affinity)


def _apart(pod: Pod, other: Pod) -> bool:
    """One of the two does not want to stand with the other."""
    mine, theirs = pod.requirements.traits, other.requirements.traits
    return any(_may_select(term, mine, theirs) for term in mine.anti_affinity) or any(
        _may_select(term, theirs, mine) for term in theirs.anti_affinity
    )


def _wanted_came(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    return new is None or _wants(pod, new)


def _unwanted_went(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    """Also the last one that its affinity wants: a pod that is content with itself is the first of its group then."""
    return old is None or _apart(pod, old) or _wants(pod, old)


def _relabelled(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    if old is None or new is None or new.uid == pod.uid:
        return True
    return _wants(pod, old) != _wants(pod, new) or (_apart(pod, old) and not _apart(pod, new))


def _keys(pod: Pod) -> set[str]:
    """Of its affinity: a node without them is out."""
    return {term.key for term in pod.requirements.traits.affinity}


def _node_came(pod: Pod, old: Node | None, new: Node | None) -> bool:
    return new is None or all(key in new.labels for key in _keys(pod))


def _node_changed(pod: Pod, old: Node | None, new: Node | None) -> bool:
    """Any of its domains is another one. Others' terms may go by any label."""
    if old is None or new is None:
        return True
    return _node_came(pod, old, new) and old.labels != new.labels
