"""What labels a node may have: the algebra by which pools, pods, instance types and nodes are brought together.

A `ValueSet` is what one label may be: these values, or any but these, between bounds where they are compared as integers,
and whether a node may do without the label. A `LabelSet` is one such set for each label that anybody cares about. What a
new node will be is the intersection of what its pool allows and what its pods ask for, and shrinks with each pod.

Rules are Karpenter's, with one difference: whether a node may do *without* a label is kept as such. There a label that must
exist and must not be `a`, and one for which no value is left over, are taken for one that may be missing, and nodes are
made that kube-scheduler then does not use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    POOL_LABEL,
    ZONE_LABEL,
    PoolOperator,
    PoolRequirement,
)
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.workload import Requirements

HOSTNAME_LABEL = "kubernetes.io/hostname"
REGION_LABEL = "topology.kubernetes.io/region"
ARCH_LABEL = "kubernetes.io/arch"
OS_LABEL = "kubernetes.io/os"
NODE_NAME = "metadata.name"
"""Not a label: under this name a node's own name is asked for (`matchFields`, `nodeName`)."""

WELL_KNOWN: Final = frozenset(
    {
        POOL_LABEL,
        CAPACITY_TYPE_LABEL,
        INSTANCE_TYPE_LABEL,
        ZONE_LABEL,
        REGION_LABEL,
        ARCH_LABEL,
        OS_LABEL,
        "node.kubernetes.io/windows-build",
    }
)
"""Labels that every new node will have, though its pool may not say which value. Those by which a catalogue describes its
instance types belong to them, too (`Types.known`)."""

_RENAMED: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE_LABEL,
    "failure-domain.beta.kubernetes.io/region": REGION_LABEL,
    "beta.kubernetes.io/arch": ARCH_LABEL,
    "beta.kubernetes.io/os": OS_LABEL,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE_LABEL,
}
"""Labels that are known under an older name, too."""

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ValueSet:
    """What one label may be. `complement`: anything but `values`, else one of `values`. `gte`, `lte`: only integers
    between them, inclusively; None is no bound, and a set of values that are listed has none. `optional`: a node
    without the label is as well. `min_values`: at least so many of the values must remain possible."""

    complement: bool = True
    values: frozenset[str] = frozenset()
    gte: int | None = None
    lte: int | None = None
    optional: bool = False
    min_values: int = 0

    @classmethod
    def of(cls, operator: PoolOperator, values: Iterable[str] = (), min_values: int = 0) -> ValueSet:
        """A bound that is not one integer admits nothing, as everywhere (`domain.selectors`)."""
        listed = tuple(values)
        match operator:
            case "In":
                return cls(False, frozenset(listed), min_values=min_values)
            case "NotIn":
                return cls(True, frozenset(listed), optional=True, min_values=min_values)
            case "Exists":
                return cls(min_values=min_values)
            case "DoesNotExist":
                return cls(False, optional=True, min_values=min_values)
        bound = integer(listed[0]) if len(listed) == 1 else None
        if bound is None:
            return cls(False, min_values=min_values)
        match operator:
            case "Gt":
                return cls(gte=bound + 1, min_values=min_values)
            case "Gte":
                return cls(gte=bound, min_values=min_values)
            case "Lt":
                return cls(lte=bound - 1, min_values=min_values)
            case "Lte":
                return cls(lte=bound, min_values=min_values)

    @property
    def empty(self) -> bool:
        """No value is possible; the label may still be missing, when it is `optional`."""
        return not self.complement and not self.values

    @property
    def impossible(self) -> bool:
        return self.empty and not self.optional

    @property
    def operator(self) -> PoolOperator:
        """As which it is shown: with bounds it is NotIn or Exists besides."""
        if self.complement:
            return "NotIn" if self.values else "Exists"
        return "In" if self.values else "DoesNotExist"

    @property
    def only(self) -> str | None:
        """Its value, when there is just one."""
        return next(iter(self.values)) if not self.complement and len(self.values) == 1 else None

    def allows(self, value: str | None) -> bool:
        """None: a node without the label."""
        if value is None:
            return self.optional
        return (value in self.values) != self.complement and _within(value, self.gte, self.lte)

    def intersect(self, other: ValueSet) -> ValueSet:
        """What both allow."""
        if self is other:
            return self
        optional = self.optional and other.optional
        min_values = max(self.min_values, other.min_values)
        gte, lte = _tighter(max, self.gte, other.gte), _tighter(min, self.lte, other.lte)
        if gte is not None and lte is not None and gte > lte:
            return ValueSet(False, optional=optional, min_values=min_values)
        complement = self.complement and other.complement
        if complement:
            values = self.values | other.values
        elif self.complement:
            values = other.values - self.values
        elif other.complement:
            values = self.values - other.values
        else:
            values = self.values & other.values
        if gte is not None or lte is not None:
            values = frozenset(v for v in values if _within(v, gte, lte))
        if not complement:
            gte = lte = None
        return ValueSet(complement, values, gte, lte, optional, min_values)

    def meets(self, other: ValueSet) -> bool:
        """Whether some node satisfies both, be it one without the label."""
        if self.optional and other.optional:
            return True
        if not self.complement and not other.complement:
            return not self.values.isdisjoint(other.values)
        return not self.intersect(other).empty

    def text(self, key: str) -> str:
        """As its users know it: `zone In [a b]`, `cpu Exists >=5`."""
        operator = self.operator
        shown = f"{key} {operator}"
        if operator in ("In", "NotIn"):
            listed = sorted(self.values)
            more = [f"and {len(listed) - _SHOWN} others"] if len(listed) > _SHOWN else []
            shown += f" [{' '.join(listed[:_SHOWN] + more)}]"
        if self.gte is not None:
            shown += f" >={self.gte}"
        if self.lte is not None:
            shown += f" <={self.lte}"
        return shown

    def requirements(self, key: str) -> tuple[PoolRequirement, ...]:
        """The same, as a pool would write it. What a pool says in several lines, is several here."""
        listed = tuple(sorted(self.values))
        if not self.complement:
            if self.impossible:
                return (PoolRequirement(key, "In", (), self.min_values),)
            return (PoolRequirement(key, self.operator, listed, self.min_values),)
        found = [PoolRequirement(key, "NotIn", listed)] if listed or self.optional else []
        if self.gte is not None:
            found.append(PoolRequirement(key, "Gte", (str(self.gte),)))
        if self.lte is not None:
            found.append(PoolRequirement(key, "Lte", (str(self.lte),)))
        if not self.optional and self.gte is None and self.lte is None:
            found.append(PoolRequirement(key, "Exists"))
        first, *rest = found
        return (PoolRequirement(key, first.operator, first.values, self.min_values), *rest)


ANYTHING = ValueSet()
"""A label that must exist."""


class LabelSet:
    """Labels of a node that is to be, or may be: key -> what it may be, in order of key. A label that is not there is
    not spoken of. Immutable; equal ones have equal hashes."""

    __slots__ = ("_hash", "_sets")

    def __init__(self, sets: Iterable[tuple[str, ValueSet]] = ()) -> None:
        """Of several sets for one key: their intersection."""
        together: dict[str, ValueSet] = {}
        for key, values in sets:
            known = together.get(key)
            together[key] = values if known is None else known.intersect(values)
        self._sets = dict(sorted(together.items()))
        self._hash: int | None = None

    @classmethod
    def of_pool(cls, requirements: Iterable[PoolRequirement]) -> LabelSet:
        return cls((current_key(r.key), ValueSet.of(r.operator, r.values, r.min_values)) for r in requirements)

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> LabelSet:
        return cls((current_key(key), ValueSet(False, frozenset((value,)))) for key, value in labels.items())

    @classmethod
    def of_node(cls, node: Node) -> LabelSet:
        """Labels that a node has under an older name only are found under the newer one as well."""
        renamed = {current_key(key): value for key, value in node.labels.items()}
        return cls.of_labels({**renamed, **node.labels, NODE_NAME: node.name})

    @classmethod
    def of_pod(cls, requirements: Requirements, preferences: bool = True) -> LabelSet:
        """What a pod asks for as it stands: its selector, the first of its required terms, and, with `preferences`, the
        heaviest of the preferred ones as if it was required (the first of equally heavy ones). Which of them are given up,
        and in which order, is `relaxation`'s business."""
        asked = list(_selected(requirements))
        terms = _terms(requirements)
        if terms is not None:
            asked += terms[0]
        preferred = requirements.traits.preferences
        if preferences and preferred:
            heaviest = max(preferred, key=lambda p: p.weight)
            asked += _term(heaviest.term)
        return cls(asked)

    @classmethod
    def alternatives(cls, requirements: Requirements) -> tuple[LabelSet, ...]:
        """Each way in which a node can satisfy what a pod requires: one for each of its terms. Preferences do not count."""
        base = tuple(_selected(requirements))
        terms = _terms(requirements)
        if terms is None:
            return (cls(base),)
        return tuple(cls((*base, *term)) for term in terms)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def __contains__(self, key: object) -> bool:
        return key in self._sets

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSet) and self._sets == other._sets

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._sets.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"LabelSet({self.text})"

    def get(self, key: str) -> ValueSet | None:
        return self._sets.get(key)

    def of(self, key: str) -> ValueSet:
        """What is not spoken of may be anything."""
        return self._sets.get(key, _UNSPOKEN)

    def items(self) -> Iterable[tuple[str, ValueSet]]:
        return self._sets.items()

    @property
    def min_values(self) -> dict[str, int]:
        """Key -> how many of its values must remain, where any number must."""
        return {key: values.min_values for key, values in self._sets.items() if values.min_values > 0}

    @property
    def impossible(self) -> bool:
        """No node can be so."""
        return any(values.impossible for values in self._sets.values())

    @property
    def text(self) -> str:
        return ", ".join(values.text(key) for key, values in self._sets.items())

    def intersect(self, other: LabelSet) -> LabelSet:
        """What satisfies both. Whether anything does is asked before (`compatible`)."""
        if not other._sets or self is other:
            return self
        if not self._sets:
            return other
        return _intersection(self, other)

    def narrowed(self, key: str, values: ValueSet) -> LabelSet:
        return self.intersect(LabelSet(((key, values),)))

    def without(self, *keys: str) -> LabelSet:
        return LabelSet((key, values) for key, values in self._sets.items() if key not in keys)

    def with_min_values(self, lowered: Mapping[str, int]) -> LabelSet:
        """The same with other minValues where `lowered` names them."""
        return LabelSet(
            (key, replace(values, min_values=lowered[key]) if key in lowered else values)
            for key, values in self._sets.items()
        )

    def intersects(self, other: LabelSet) -> bool:
        """Whether every label that both speak of can be as both want; a label that only one speaks of is allowed."""
        few, many = (self, other) if len(self) <= len(other) else (other, self)
        for key, values in few._sets.items():
            others = many._sets.get(key)
            if others is not None and not values.meets(others):
                return False
        return True

    def compatible(self, asked: LabelSet, known: frozenset[str] = frozenset()) -> bool:
        """Whether a node that this describes can be one that `asked` asks for. A label that this does not speak of is
        granted when it is one of `known`, or when `asked` is as well without it."""
        for key, values in asked._sets.items():
            mine = self._sets.get(key)
            if mine is None:
                if not values.optional and (key not in known or values.empty):
                    return False
            elif not mine.meets(values):
                return False
        return True

    def conflicts(self, asked: LabelSet, known: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Why it is not `compatible`, a clause a label: first those without known values."""
        unknown, clashing = [], []
        for key, values in asked._sets.items():
            mine = self._sets.get(key)
            if mine is None:
                if not values.optional and (key not in known or values.empty):
                    unknown.append(f'label "{key}" does not have known values{self._hint(key, known)}')
            elif not mine.meets(values):
                clashing.append(f"key {key}, {values.text(key)} not in {mine.text(key)}")
        return (*unknown, *clashing)

    def refusal(self, asked: LabelSet, known: frozenset[str] = frozenset()) -> str:
        """`conflicts` as one sentence, empty when there are none."""
        found = self.conflicts(asked, known)
        return "incompatible requirements, " + "; ".join(found) if found else ""

    def requirements(self) -> tuple[PoolRequirement, ...]:
        """As a pool or claim would write it, in order of key. Names of nodes are not among it: who makes a node names it."""
        return tuple(
            line
            for key, values in self._sets.items()
            if key not in (HOSTNAME_LABEL, NODE_NAME)
            for line in values.requirements(key)
        )

    def satisfied_by(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with just these labels is one."""
        return all(values.allows(labels.get(key)) for key, values in self._sets.items())

    def _hint(self, key: str, known: frozenset[str]) -> str:
        """A label that ends alike is likely to be meant."""
        last = key.rpartition("/")[2]
        for candidate in (*sorted(known), *self._sets):
            if candidate != key and candidate.rpartition("/")[2] == last:
                return f' (typo of "{candidate}"?)'
        return ""


NO_LABELS = LabelSet()

_UNSPOKEN = ValueSet(optional=True)


@lru_cache(maxsize=65536)
def _intersection(one: LabelSet, other: LabelSet) -> LabelSet:
    """A batch asks for few different intersections, and for each of them often."""
    return LabelSet((*one.items(), *other.items()))


def of_requirement(requirement: Requirement) -> tuple[str, ValueSet]:
    """One matchExpression: the label and what it may be."""
    return current_key(requirement.key), ValueSet.of(requirement.operator, requirement.values)


def integer(text: str) -> int | None:
    """A label's value as an integer, with or without sign; None: it is none."""
    body = text[1:] if text[:1] in ("+", "-") else text
    return int(text) if body.isascii() and body.isdigit() else None


def _within(value: str, gte: int | None, lte: int | None) -> bool:
    if gte is None and lte is None:
        return True
    number = integer(value)
    return number is not None and (gte is None or number >= gte) and (lte is None or number <= lte)


def _tighter(which: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return which(one, other)


def current_key(key: str) -> str:
    """The name of a label today, where it has an older one."""
    return _RENAMED.get(key, key)


def _selected(requirements: Requirements) -> Iterator[tuple[str, ValueSet]]:
    for key, value in requirements.node_selector.items():
        yield current_key(key), ValueSet(False, frozenset((value,)))
    name = requirements.traits.node_name
    if name:
        yield NODE_NAME, ValueSet(False, frozenset((name,)))


_Term = tuple[tuple[str, ValueSet], ...]
_NO_NODE: _Term = ((NODE_NAME, ValueSet(False)),)


def _terms(requirements: Requirements) -> tuple[_Term, ...] | None:
    """The required terms that some node can satisfy, in their order; None: nothing is required. A term that says nothing
    matches no node; where all are so, there is one that no node satisfies."""
    if not requirements.node_terms:
        return None
    said = tuple(_term(term) for term in requirements.node_terms if term.expressions or term.fields)
    return said or (_NO_NODE,)


def _term(term: NodeTerm) -> _Term:
    return tuple(of_requirement(r) for r in (*term.expressions, *term.fields))
