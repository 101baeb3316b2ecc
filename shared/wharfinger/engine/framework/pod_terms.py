"""Matches pods by the selectors of another pod: affinity terms between pods, and the selectors of
topology spread.

A pod's terms are resolved once against its own labels and namespace, so that a match compares two
strings and a selector. A namespace that was never reported has no labels: a pod's own terms do not
match it by namespace selector, while terms of other pods see it with an empty label set.
[kube-scheduler]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import PodTerm, PodTraits, TopologySpread
from wharfinger.domain.selectors import LabelSelector, Requirement

Labels = Mapping[str, str]

_ALL = LabelSelector()


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """An affinity term between pods, with its namespaces and label keys resolved. It selects a pod
    whose labels `selector` matches, if the pod is in one of `namespaces` or in a namespace whose
    labels `namespace_selector` matches. `key`: the node label of the topology domain."""

    key: str
    selector: LabelSelector
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None = None

    def selects(self, traits: PodTraits, namespace_labels: Labels) -> bool:
        """Return whether the term selects the pod with these `traits`. `namespace_labels`: the
        labels of the pod's namespace."""
        within = traits.home in self.namespaces or (
            self.namespace_selector is not None
            and self.namespace_selector.matches(namespace_labels)
        )
        return within and self.selector.matches(traits.labels)


def own_term(
    term: PodTerm, traits: PodTraits, namespaces: Mapping[str, Labels]
) -> AffinityTerm | None:
    """Resolve an affinity term of the pod that is being placed. `traits`: the traits of that pod.
    `namespaces`: name -> labels of the known namespaces. A namespace selector is replaced by the
    names of the namespaces that it matches. None: the term has no label selector, so it selects no
    pod."""
    selector = term.namespace_selector
    if selector is None or selector == _ALL:
        return others_term(term, traits)
    reached = frozenset(name for name, labels in namespaces.items() if selector.matches(labels))
    return _term(term, traits, frozenset(term.namespaces) | reached, None)


def others_term(term: PodTerm, traits: PodTraits) -> AffinityTerm | None:
    """Resolve an affinity term of an existing pod. `traits`: the traits of that pod. A namespace
    selector is kept, because it must be matched against the namespace of the new pod. None: the
    term has no label selector, so it selects no pod."""
    selector = term.namespace_selector
    named = frozenset(term.namespaces)
    if not named and selector is None:
        named = frozenset((traits.home,))
    return _term(term, traits, named, selector)


def _term(
    term: PodTerm, traits: PodTraits, namespaces: frozenset[str], by_labels: LabelSelector | None
) -> AffinityTerm | None:
    if term.selector is None:
        return None
    labels = traits.labels
    same = (
        Requirement(key, "In", (labels[key],)) for key in term.match_label_keys if key in labels
    )
    other = (
        Requirement(key, "NotIn", (labels[key],))
        for key in term.mismatch_label_keys
        if key in labels
    )
    return AffinityTerm(term.key, _narrowed(term.selector, (*same, *other)), namespaces, by_labels)


def _narrowed(selector: LabelSelector, more: tuple[Requirement, ...]) -> LabelSelector:
    return (
        LabelSelector(selector.match_labels, (*selector.match_expressions, *more))
        if more
        else selector
    )


def spread_selector(constraint: TopologySpread, labels: Labels) -> LabelSelector | None:
    """Return the selector of the pods that a topology spread constraint counts: the constraint's
    label selector, restricted for each key of `matchLabelKeys` to the new pod's own value.
    `labels`: the labels of the new pod. None: the constraint counts no pod."""
    if constraint.selector is None:
        return None
    same = (
        Requirement(key, "In", (labels[key],))
        for key in constraint.match_label_keys
        if key in labels
    )
    return _narrowed(constraint.selector, tuple(same))


def counts(selector: LabelSelector | None, namespace: str, pod: Pod) -> bool:
    """Return whether a topology spread constraint counts `pod`: it is in `namespace` (the namespace
    of the pod that is being placed), matches the selector and is not terminating. An empty selector
    counts no pod, although it matches all. [kube-scheduler]"""
    if selector is None or selector == _ALL or pod.terminating:
        return False
    traits = pod.requirements.traits
    return traits.home == namespace and selector.matches(traits.labels)


def application(pod: Pod, objects: ClusterObjects) -> LabelSelector | None:
    """Return a selector for the pods of the same application as `pod`. None: no Service and no
    controller selects the pod.

    The result requires all of these selectors: that of each Service that selects `pod` (Services
    without a selector are left out), and that of the controller of `pod`. A pod records only the
    kind of its controller (such as ReplicaSet), not the name. So all objects of this kind in the
    namespace of `pod` that select `pod` count as its controller.

    `objects`: the Services and controllers of the cluster. Example: a Service selects app=a, and
    the ReplicaSet selects app=a and tier=b. The result selects the pods with app=a and tier=b.
    """
    traits = pod.requirements.traits
    matching = [
        o
        for o in objects.selecting
        if o.namespace == traits.home and o.selector.matches(traits.labels)
    ]
    services = [o.selector for o in matching if o.kind == "Service" and o.selector != _ALL]
    controllers = [o.selector for o in matching if o.kind == traits.owner and o.kind != "Service"]
    selectors = services + controllers
    return _all_of(selectors) if selectors else None


def _all_of(selectors: Iterable[LabelSelector]) -> LabelSelector | None:
    labels: dict[str, str] = {}
    expressions: list[Requirement] = []
    for selector in selectors:
        labels.update(selector.match_labels)
        expressions += [e for e in selector.match_expressions if e not in expressions]
    joined = LabelSelector(dict(sorted(labels.items())), tuple(expressions))
    return None if joined == _ALL else joined
