"""Which pods another pod's selectors mean: the terms of affinity between pods, and the selectors of topology spread.

What a pod says is resolved once, against its own labels and namespace, so that matching is a question of two strings and a
selector. A namespace that nobody has told us of has no labels: a pod's own terms do not reach it by a namespace selector,
while the terms of others see it as one without labels. [kube-scheduler]
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
class Term:
    """A term as it is asked: pods that `selector` matches, in one of `namespaces` or one whose labels `namespace_selector`
    matches, in the domain of the node label `key`."""

    key: str
    selector: LabelSelector
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None = None

    def selects(self, traits: PodTraits, namespace_labels: Labels) -> bool:
        """`namespace_labels`: of the namespace that the pod of `traits` is in."""
        within = traits.home in self.namespaces or (
            self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)
        )
        return within and self.selector.matches(traits.labels)


def own_term(term: PodTerm, traits: PodTraits, namespaces: Mapping[str, Labels]) -> Term | None:
    """A term of the pod that is being placed; None: it means nobody. `namespaces`: those that are known, with their labels."""
    selector = term.namespace_selector
    if selector is None or selector == _ALL:
        return others_term(term, traits)
    reached = frozenset(name for name, labels in namespaces.items() if selector.matches(labels))
    return _term(term, traits, frozenset(term.namespaces) | reached, None)


def others_term(term: PodTerm, traits: PodTraits) -> Term | None:
    """A term of a pod (`traits`) that is there already; None: it means nobody."""
    selector = term.namespace_selector
    named = frozenset(term.namespaces)
    if not named and selector is None:
        named = frozenset((traits.home,))
    return _term(term, traits, named, selector)


def _term(term: PodTerm, traits: PodTraits, namespaces: frozenset[str], by_labels: LabelSelector | None) -> Term | None:
    if term.selector is None:
        return None
    labels = traits.labels
    same = (Requirement(key, "In", (labels[key],)) for key in term.match_label_keys if key in labels)
    other = (Requirement(key, "NotIn", (labels[key],)) for key in term.mismatch_label_keys if key in labels)
    return Term(term.key, _narrowed(term.selector, (*same, *other)), namespaces, by_labels)


def _narrowed(selector: LabelSelector, more: tuple[Requirement, ...]) -> LabelSelector:
    return LabelSelector(selector.match_labels, (*selector.match_expressions, *more)) if more else selector


def spread_selector(constraint: TopologySpread, labels: Labels) -> LabelSelector | None:
    """Which pods of its namespace a constraint counts, of a pod with these labels; None: nobody."""
    if constraint.selector is None:
        return None
    same = (Requirement(key, "In", (labels[key],)) for key in constraint.match_label_keys if key in labels)
    return _narrowed(constraint.selector, tuple(same))


def counts(selector: LabelSelector | None, namespace: str, pod: Pod) -> bool:
    """Whether the spread of pods of `namespace` counts this one: not, when it is about to end. A selector that selects by
    nothing counts nobody, though it matches everybody. [kube-scheduler]"""
    if selector is None or selector == _ALL or pod.terminating:
        return False
    traits = pod.requirements.traits
    return traits.home == namespace and selector.matches(traits.labels)


def application(pod: Pod, objects: ClusterObjects) -> LabelSelector | None:
    """Which pods are of the same application, as Services and the pod's controller tell; None: nobody tells.

    The labels by which all Services that select the pod select, and the selector of its controller. A pod says of its controller
    only the kind: what of that kind selects the pod is taken for it."""
    traits = pod.requirements.traits
    matching = [o for o in objects.selecting if o.namespace == traits.home and o.selector.matches(traits.labels)]
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
