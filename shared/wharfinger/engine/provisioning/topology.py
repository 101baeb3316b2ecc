"""Compiles constraints between pods (spread, affinity, anti-affinity, host ports) into groups with
counters, for provisioning.

A *group* is a selector and a topology key; equal ones of many pods are one group. A pod's *rows*
name the groups that restrict where it may go, its *bumps* the groups that count it once it is
placed. Preferred terms and soft spread are rows too, until the pod relaxes them.

The rules are kube-scheduler's, as far as sequential placement can know them. New nodes are seen as
in Karpenter: another one can always be added, so the emptiest host has no pods. Different from
Karpenter: a new node whose pods depend on a topology key is fixed to one domain from then on, and
the pods already on it are counted in that domain.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from wharfinger.domain.pod_traits import HostPort, PodTerm, PodTraits, TopologySpread, clash
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.pod_terms import (
    AffinityTerm,
    others_term,
    own_term,
    spread_selector,
)
from wharfinger.engine.nodes.tallies import selector_key, term_key
from wharfinger.engine.provisioning.kernels import BLOCK, JOIN, SPREAD
from wharfinger.engine.provisioning.requirements import HOSTNAME_LABEL, LabelSet

_ALL = LabelSelector()

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class NodeFilter:
    """The nodes that a topology spread takes into account; only these form domains, and only pods
    on them count. `alternatives`: a node must match one of these label sets (the pod's own node
    affinity); None: any node. `tolerations`: a node may only have taints that these tolerate; None:
    taints do not matter."""

    alternatives: tuple[LabelSet, ...] | None = None
    tolerations: tuple[Toleration, ...] | None = None


@dataclass(slots=True, eq=False)
class TopologyGroup:
    """The pods that a selector matches, counted per domain of a topology key.

    - `kind`: `SPREAD`, `JOIN` (affinity) or `BLOCK` (anti-affinity, host ports).
    - `number`: its index among the groups by host name, or among the other groups.
    - `counts`: returns whether a pod with these traits belongs to the group.
    - `filter`: the number of its node filter.
    - `words`: the constraint in words.
    """

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
        """Returns whether a pod whose domain is not known yet counts in each domain that it may
        get."""
        return self.kind == BLOCK


@dataclass(frozen=True, slots=True)
class TopologyRow:
    """One constraint between pods, as it restricts one pod. `group`: the pods that are counted.
    `itself`: the restricted pod belongs to the group. `skew`, `min_domains`: only for a spread.
    `of_others`: the constraint is the anti-affinity of other pods against this pod."""

    group: TopologyGroup
    itself: bool
    skew: int = 0
    min_domains: int = 1
    of_others: bool = False

    @property
    def words(self) -> str:
        """Returns the constraint in words. The maximum skew is added here, because pods with
        different skews share a group."""
        return (
            f"{self.group.words} (maxSkew {self.skew})" if self.group.spread else self.group.words
        )


@dataclass(slots=True)
class Index:
    """An index of groups by one label that their pods must have. So a pod does not have to be
    compared with all groups."""

    by_label: dict[tuple[str, str], list[TopologyGroup]] = field(default_factory=dict)
    others: list[TopologyGroup] = field(default_factory=list)

    def put(self, group: TopologyGroup) -> None:
        labels = group.selector.match_labels if group.selector is not None else {}
        if labels:
            self.by_label.setdefault(min(labels.items()), []).append(group)
        else:
            self.others.append(group)

    def counting(self, traits: PodTraits) -> Iterator[TopologyGroup]:
        for pair in traits.labels.items():
            yield from (g for g in self.by_label.get(pair, ()) if g.counts(traits))
        yield from (g for g in self.others if g.counts(traits))


class Topology:
    """All groups of one problem. First register every pod with `know`. Then `rows` and `minding`
    return the constraints on a pod, and `counting` returns the groups that count it."""

    def __init__(self, namespaces: Mapping[str, Labels]) -> None:
        self.namespaces = namespaces
        self.host: list[TopologyGroup] = []
        self.zone: list[TopologyGroup] = []
        self.keys: list[str] = []
        self.filters: list[NodeFilter] = [NodeFilter()]
        self._filters: dict[
            tuple[tuple[LabelSet, ...] | None, tuple[Toleration, ...] | None], int
        ] = {(None, None): 0}
        self._groups: dict[Hashable, TopologyGroup] = {}
        self._index = Index()
        self._carried: dict[Hashable, TopologyGroup] = {}
        self._ports: list[tuple[tuple[HostPort, ...], TopologyGroup]] = []
        self._minding = Index()

    # --- groups

    def know(self, traits: PodTraits) -> None:
        """Registers an existing or wanted pod. From then on, its required anti-affinity excludes
        the pods that it selects."""
        for said in traits.anti_affinity:
            term = others_term(said, traits)
            if term is not None and term_key(term) not in self._carried:
                self._carry(term)

    def _carry(self, term: AffinityTerm) -> None:
        """Registers one anti-affinity term as a topology group (a counter of pods per topology
        domain). The group counts the pods that have the term. In a domain where the group counts a
        pod, no pod that the term selects may be placed.

        Example: pod p has anti-affinity against pods with `app=db` per zone. The group counts p.
        While p is in zone a, no pod with `app=db` may go to zone a. The group is put in two
        indexes: one by the pods that it counts, and one (`_minding`) by the pods that the term
        selects.
        """
        key = term_key(term)

        def carries(traits: PodTraits) -> bool:
            own = (others_term(said, traits) for said in traits.anti_affinity)
            return any(t is not None and term_key(t) == key for t in own)

        def minded(traits: PodTraits) -> bool:
            return term.selects(traits, self.namespaces.get(traits.home, {}))

        words = f"anti-affinity of other pods over {term.key}"
        group = self._made(("carried", key), BLOCK, term.key, carries, None, words)
        self._carried[key] = group
        # The same group, indexed by the pods that its term selects, not by the pods that have it.
        self._minding.put(
            TopologyGroup(BLOCK, term.key, group.number, minded, 0, False, term.selector, words)
        )

    def _made(
        self,
        identity: Hashable,
        kind: int,
        key: str,
        counts: Callable[[PodTraits], bool],
        selector: LabelSelector | None,
        words: str,
        filtered: int = 0,
        spread: bool = False,
    ) -> TopologyGroup:
        known = self._groups.get(identity)
        if known is not None:
            return known
        of_host = key == HOSTNAME_LABEL
        if not of_host and key not in self.keys:
            self.keys.append(key)
        among = self.host if of_host else self.zone
        group = TopologyGroup(kind, key, len(among), counts, filtered, spread, selector, words)
        among.append(group)
        self._groups[identity] = group
        if not (isinstance(identity, tuple) and identity[0] in ("carried", "ports")):
            self._index.put(group)
        return group

    def _filter(self, constraint: TopologySpread, requirements: Requirements) -> int:
        alternatives = LabelSet.alternatives(requirements) if constraint.honours_affinity else None
        if alternatives is not None and any(not len(a) for a in alternatives):
            alternatives = None
        found = (
            alternatives,
            tuple(requirements.tolerations) if constraint.honours_taints else None,
        )
        number = self._filters.get(found)
        if number is None:
            number = self._filters[found] = len(self.filters)
            self.filters.append(NodeFilter(*found))
        return number

    # --- rows

    def rows(self, requirements: Requirements) -> tuple[TopologyRow, ...]:
        """Returns the pod's own constraints: spread, affinity, anti-affinity and host ports, in
        this order. The constraints that other pods put on it are returned by `minding`, once all
        pods are known."""
        traits = requirements.traits
        found = [
            *self._spreads(requirements),
            *self._joins(traits),
            *self._apart(traits),
            *self._own_ports(traits),
        ]
        return tuple(found)

    def minding(self, traits: PodTraits) -> tuple[TopologyRow, ...]:
        """Returns the constraints that the anti-affinity of other pods, existing or wanted, puts on
        a pod with these traits."""
        return tuple(
            TopologyRow(group, False, of_others=True) for group in self._minding.counting(traits)
        )

    def _spreads(self, requirements: Requirements) -> Iterator[TopologyRow]:
        """Yields one `TopologyRow` for each topology spread constraint of a pod: the topology group
        that counts the pods of the constraint, whether the pod itself is counted, maxSkew and
        minDomains. A topology group is a counter of pods per topology domain. Spread constraints of
        different pods share one group if they have equal topology key, namespace, selector and node
        filter (which nodes are counted)."""
        traits = requirements.traits
        home = traits.home
        for constraint in traits.spread:
            selector = spread_selector(constraint, traits.labels)
            if selector == _ALL:
                selector = None
            group = self._made(
                (
                    "spread",
                    constraint.key,
                    home,
                    selector_key(selector),
                    self._filter(constraint, requirements),
                ),
                SPREAD,
                constraint.key,
                _selected(selector, home),
                selector,
                f"spread over {constraint.key}",
                self._filter(constraint, requirements),
                True,
            )
            yield TopologyRow(
                group, group.counts(traits), constraint.max_skew, constraint.min_domains
            )

    def _joins(self, traits: PodTraits) -> Iterator[TopologyRow]:
        """Yields the constraints of pod affinity. A pod counts for the required terms only if it
        matches all of them; it must be in the domain of each term's topology key. Each preferred
        term is a constraint of its own."""
        if traits.affinity:
            yield from self._together(tuple(traits.affinity), traits)
        for weighted in traits.preferred_affinity:
            yield from self._together((weighted.term,), traits)

    def _together(self, said: tuple[PodTerm, ...], traits: PodTraits) -> Iterator[TopologyRow]:
        found = [own_term(term, traits, self.namespaces) for term in said]
        terms = tuple(term for term in found if term is not None)
        meets = len(terms) == len(found)

        def counts(other: PodTraits) -> bool:
            return meets and all(term.selects(other, {}) for term in terms)

        identity = tuple(term_key(term) for term in terms) if meets else None
        selector = terms[0].selector if meets else LabelSelector({"": ""})
        for key in dict.fromkeys(term.key for term in said):
            group = self._made(
                ("join", key, identity), JOIN, key, counts, selector, f"affinity to pods over {key}"
            )
            yield TopologyRow(group, group.counts(traits))

    def _apart(self, traits: PodTraits) -> Iterator[TopologyRow]:
        terms = (
            *traits.anti_affinity,
            *(weighted.term for weighted in traits.preferred_anti_affinity),
        )
        for said in terms:
            term = own_term(said, traits, self.namespaces)
            if term is None:
                continue
            group = self._made(
                ("apart", term_key(term)),
                BLOCK,
                term.key,
                _selected_by(term),
                term.selector,
                f"anti-affinity to pods over {term.key}",
            )
            yield TopologyRow(group, group.counts(traits))

    def _own_ports(self, traits: PodTraits) -> Iterator[TopologyRow]:
        if not traits.ports:
            return
        identity = ("ports", traits.ports)
        known = self._groups.get(identity)
        if known is None:
            ports = traits.ports
            known = self._made(
                identity,
                BLOCK,
                HOSTNAME_LABEL,
                lambda other: clash(ports, other.ports),
                None,
                "ports of the host that are taken",
            )
            self._ports.append((ports, known))
        yield TopologyRow(known, True)

    # --- bumps

    def counting(self, traits: PodTraits, terminating: bool = False) -> tuple[TopologyGroup, ...]:
        """Returns the topology groups that count a pod with these traits. A topology group is a
        counter of pods per topology domain, for a spread, an affinity, an anti-affinity or a host
        port.

        `traits`: labels, namespace, affinities, spreads and host ports of the pod. `terminating`:
        the pod is being deleted; groups of topology spreads do not count it then.
        """
        found = [
            group for group in self._index.counting(traits) if not (terminating and group.spread)
        ]
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


def _selected_by(term: AffinityTerm) -> Callable[[PodTraits], bool]:
    return lambda traits: term.selects(traits, {})


def in_words(rows: Iterable[TopologyRow]) -> str:
    """Describes the constraints in words, without duplicates. Topology keys are in the order in
    which the pod names them; keys that only other pods name come last, sorted. The result does not
    depend on the order in which the pods were registered."""
    rows = tuple(rows)
    own = list(dict.fromkeys(row.group.key for row in rows if not row.of_others))

    def place(row: TopologyRow) -> tuple[int, str]:
        key = row.group.key
        return (own.index(key), "") if key in own else (len(own), key)

    return ", ".join(dict.fromkeys(row.words for row in sorted(rows, key=place)))


def in_order(rows: Iterable[TopologyRow]) -> tuple[TopologyRow, ...]:
    """Sorts constraints so that those of one topology key are adjacent. Keys are in the order of
    their first constraint."""
    by_key: dict[str, list[TopologyRow]] = {}
    for row in rows:
        by_key.setdefault(row.group.key, []).append(row)
    return tuple(row for found in by_key.values() for row in found)
