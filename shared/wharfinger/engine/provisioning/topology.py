"""What pods mean to each other: spread, affinity, anti-affinity and ports of the host, as groups that are counted.

A *group* is a question about pods ("which of namespace `web` have app=shop?") and a topology key; equal questions of many
pods are one group. A pod's *rows* say which groups decide where it may go, its *bumps* which groups count it once it is
there. Preferred terms and soft spread are rows like the others for as long as the pod has not given them up.

Rules are those of kube-scheduler as far as pods that are placed one after another can know them, with Karpenter's view of
new nodes: of host names there is always one more, so the emptiest has no pods. Other than there, a new node whose pods go by
a topology key has one domain of it from then on, and pods that were on it before are counted from then on as well.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.pod_traits import HostPort, PodTerm, PodTraits, TopologySpread
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.plugins.node_ports import clash
from wharfinger.engine.framework.pod_terms import Term, others_term, own_term, spread_selector
from wharfinger.engine.nodes.tallies import selector_key, term_key
from wharfinger.engine.provisioning.kernels import BLOCK, JOIN, SPREAD
from wharfinger.engine.provisioning.requirements import HOSTNAME_LABEL, LabelSet

_ALL = LabelSelector()

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """Nodes whose pods a spread counts, and whose domains are domains to it: where the pod's own node claims let it go
    (`alternatives`, None: everywhere), and whose taints it bears (`tolerations`, None: not asked)."""

    alternatives: tuple[LabelSet, ...] | None = None
    tolerations: tuple[Toleration, ...] | None = None


@dataclass(slots=True, eq=False)
class Group:
    """`number`: among those of the host (`key` is the host name's) or of domains. `counts`: whether a pod with these
    traits is one of it. `everywhere`: a pod that may come to several domains counts in each."""

    kind: int
    key: str
    number: int
    counts: Callable[[PodTraits], bool]
    filter: int
    spread: bool
    selector: LabelSelector | None
    words: str

    @property
    def of_host(self) -> bool:
        return self.key == HOSTNAME_LABEL

    @property
    def everywhere(self) -> bool:
        return self.kind == BLOCK


@dataclass(frozen=True, slots=True)
class Row:
    """How a group bounds a pod: with a spread `skew` and `min_domains` count. `itself`: the pod is one of the group."""

    group: Group
    itself: bool
    skew: int = 0
    min_domains: int = 1


@dataclass(slots=True)
class Index:
    """Groups by a label that their pods must have, so that a pod need not be held against all of them."""

    by_label: dict[tuple[str, str], list[Group]] = field(default_factory=dict)
    others: list[Group] = field(default_factory=list)

    def put(self, group: Group) -> None:
        labels = group.selector.match_labels if group.selector is not None else {}
        if labels:
            self.by_label.setdefault(min(labels.items()), []).append(group)
        else:
            self.others.append(group)

    def counting(self, traits: PodTraits) -> Iterator[Group]:
        for pair in traits.labels.items():
            yield from (g for g in self.by_label.get(pair, ()) if g.counts(traits))
        yield from (g for g in self.others if g.counts(traits))


class Topology:
    """All groups of one problem. First every pod is made known (`know`), then rows and bumps can be asked for."""

    def __init__(self, namespaces: Mapping[str, Labels]) -> None:
        self.namespaces = namespaces
        self.host: list[Group] = []
        self.zone: list[Group] = []
        self.keys: list[str] = []
        self.filters: list[Filter] = [Filter()]
        self._filters: dict[tuple[tuple[LabelSet, ...] | None, tuple[Toleration, ...] | None], int] = {(None, None): 0}
        self._groups: dict[Hashable, Group] = {}
        self._index = Index()
        self._carried: dict[Hashable, Group] = {}
        self._ports: list[tuple[tuple[HostPort, ...], Group]] = []
        self._minding = Index()

    # --- groups

    def know(self, traits: PodTraits) -> None:
        """A pod that is there, or will be: what it cannot bear is from now on asked of those that come."""
        for said in traits.anti_affinity:
            term = others_term(said, traits)
            if term is not None and term_key(term) not in self._carried:
                self._carry(term)

    def _carry(self, term: Term) -> None:
        key = term_key(term)

        def carries(traits: PodTraits) -> bool:
            own = (others_term(said, traits) for said in traits.anti_affinity)
            return any(t is not None and term_key(t) == key for t in own)

        def minded(traits: PodTraits) -> bool:
            return term.selects(traits, self.namespaces.get(traits.home, {}))

        words = f"anti-affinity of other pods over {term.key}"
        group = self._made(("carried", key), BLOCK, term.key, carries, None, words)
        self._carried[key] = group
        # A twin that is found by whom it minds, not by who carries it.
        self._minding.put(Group(BLOCK, term.key, group.number, minded, 0, False, term.selector, words))

    def _made(
        self, identity: Hashable, kind: int, key: str, counts: Callable[[PodTraits], bool], selector: LabelSelector | None,
        words: str, filtered: int = 0, spread: bool = False,
    ) -> Group:  # fmt: skip
        known = self._groups.get(identity)
        if known is not None:
            return known
        of_host = key == HOSTNAME_LABEL
        if not of_host and key not in self.keys:
            self.keys.append(key)
        among = self.host if of_host else self.zone
        group = Group(kind, key, len(among), counts, filtered, spread, selector, words)
        among.append(group)
        self._groups[identity] = group
        if not (isinstance(identity, tuple) and identity[0] in ("carried", "ports")):
            self._index.put(group)
        return group

    def _filter(self, constraint: TopologySpread, requirements: Requirements) -> int:
        alternatives = LabelSet.alternatives(requirements) if constraint.honours_affinity else None
        if alternatives is not None and any(not len(a) for a in alternatives):
            alternatives = None
        found = (alternatives, tuple(requirements.tolerations) if constraint.honours_taints else None)
        number = self._filters.get(found)
        if number is None:
            number = self._filters[found] = len(self.filters)
            self.filters.append(Filter(*found))
        return number

    # --- rows

    def rows(self, requirements: Requirements) -> tuple[Row, ...]:
        """What bounds a pod of these requirements, those of a key together, in the order in which the pod names its keys.
        Those that mind it come in with `minding`, when all pods are known."""
        traits = requirements.traits
        found = [
            *self._spreads(requirements),
            *self._joins(traits),
            *self._apart(traits),
            *self._own_ports(traits),
        ]
        return tuple(found)

    def minding(self, traits: PodTraits) -> tuple[Row, ...]:
        """What pods that are there, or come, have against this one."""
        return tuple(Row(group, False) for group in self._minding.counting(traits))

    def _spreads(self, requirements: Requirements) -> Iterator[Row]:
        traits = requirements.traits
        home = traits.home
        for constraint in traits.spread:
            selector = spread_selector(constraint, traits.labels)
            if selector == _ALL:
                selector = None
            group = self._made(
                ("spread", constraint.key, home, selector_key(selector), self._filter(constraint, requirements)),
                SPREAD, constraint.key, _selected(selector, home), selector,
                f"spread over {constraint.key} (maxSkew {constraint.max_skew})",
                self._filter(constraint, requirements), True,
            )  # fmt: skip
            yield Row(group, group.counts(traits), constraint.max_skew, constraint.min_domains)

    def _joins(self, traits: PodTraits) -> Iterator[Row]:
        """Required terms are met by pods that meet all of them, in the domain of each."""
        if traits.affinity:
            yield from self._together(tuple(traits.affinity), traits)
        for weighted in traits.preferred_affinity:
            yield from self._together((weighted.term,), traits)

    def _together(self, said: tuple[PodTerm, ...], traits: PodTraits) -> Iterator[Row]:
        found = [own_term(term, traits, self.namespaces) for term in said]
        terms = tuple(term for term in found if term is not None)
        meets = len(terms) == len(found)

        def counts(other: PodTraits) -> bool:
            return meets and all(term.selects(other, {}) for term in terms)

        identity = tuple(term_key(term) for term in terms) if meets else None
        selector = terms[0].selector if meets else LabelSelector({"": ""})
        for key in dict.fromkeys(term.key for term in said):
            group = self._made(("join", key, identity), JOIN, key, counts, selector, f"affinity to pods over {key}")
            yield Row(group, group.counts(traits))

    def _apart(self, traits: PodTraits) -> Iterator[Row]:
        terms = (*traits.anti_affinity, *(weighted.term for weighted in traits.preferred_anti_affinity))
        for said in terms:
            term = own_term(said, traits, self.namespaces)
            if term is None:
                continue
            group = self._made(
                ("apart", term_key(term)), BLOCK, term.key, _selected_by(term), term.selector,
                f"anti-affinity to pods over {term.key}",
            )  # fmt: skip
            yield Row(group, group.counts(traits))

    def _own_ports(self, traits: PodTraits) -> Iterator[Row]:
        if not traits.ports:
            return
        identity = ("ports", traits.ports)
        known = self._groups.get(identity)
        if known is None:
            ports = traits.ports
            known = self._made(
                identity, BLOCK, HOSTNAME_LABEL, lambda other: clash(ports, other.ports), None,
                "ports of the host that are taken",
            )  # fmt: skip
            self._ports.append((ports, known))
        yield Row(known, True)

    # --- bumps

    def counting(self, traits: PodTraits, terminating: bool = False) -> tuple[Group, ...]:
        """The groups that count a pod. One that is about to end is none to spread."""
        found = [group for group in self._index.counting(traits) if not (terminating and group.spread)]
        for said in traits.anti_affinity:
            term = others_term(said, traits)
            if term is not None:
                found.append(self._carried[term_key(term)])
        if traits.ports:
            found += [group for ports, group in self._ports if clash(ports, traits.ports)]
        return tuple(dict.fromkeys(found))


def _selected(selector: LabelSelector | None, home: str) -> Callable[[PodTraits], bool]:
    def counts(traits: PodTraits) -> bool:
        return selector is not None and traits.home == home and selector.matches(traits.labels)

    return counts


def _selected_by(term: Term) -> Callable[[PodTraits], bool]:
    return lambda traits: term.selects(traits, {})


def in_order(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Those of one key together, keys in the order in which they come."""
    by_key: dict[str, list[Row]] = {}
    for row in rows:
        by_key.setdefault(row.group.key, []).append(row)
    return tuple(row for found in by_key.values() for row in found)
