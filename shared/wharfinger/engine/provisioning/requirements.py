"""Implements label requirements as sets of values, and their intersection. Pools, pods, instance
types and nodes are matched by it.

A `ValueSet` describes the allowed values of one label. These are the listed values, or all values
but the listed ones, optionally within integer bounds. It also says whether the label may be
missing. A `LabelSet` has one `ValueSet` for each constrained label. The labels of a new node are
the intersection of its pool's requirements and those of its pods, and shrink with each pod.
Example: In [a, b] and NotIn [b] give In [a].

The rules are Karpenter's, with one difference: whether a node may be *without* the label is
tracked. Karpenter does not distinguish three cases: a label that may be missing, "exists and is not
`a`", and a set without any remaining value. So it creates nodes that kube-scheduler then does not
use.
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
"""The key for the name of a node, which is not a label. Pods use it in `matchFields` and
`nodeName`."""

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
"""Labels that every new node will have, even if its pool does not state a value. The labels with
which a catalogue describes its instance types are added to these (`Types.known`)."""

_RENAMED: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE_LABEL,
    "failure-domain.beta.kubernetes.io/region": REGION_LABEL,
    "beta.kubernetes.io/arch": ARCH_LABEL,
    "beta.kubernetes.io/os": OS_LABEL,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE_LABEL,
}
"""Older names of labels -> their present names."""

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ValueSet:
    """The set of allowed values of one label.

    `complement`: all values but `values` are allowed; otherwise only `values`. `gte`, `lte`:
    inclusive integer bounds, None: no bound; only with `complement`. `optional`: the label may be
    missing. `min_values`: the instance types chosen for a node must have at least this many of the
    values.
    """

    complement: bool = True
    values: frozenset[str] = frozenset()
    gte: int | None = None
    lte: int | None = None
    optional: bool = False
    min_values: int = 0

    @classmethod
    def of(
        cls, operator: PoolOperator, values: Iterable[str] = (), min_values: int = 0
    ) -> ValueSet:
        """Converts one requirement on a label into the set of allowed values. Examples: In [a]
        allows only a; NotIn [a] allows all values but a; Gt 4 gives the integer bound `gte` 5.

        Only NotIn and DoesNotExist allow that the label is missing. Gt, Gte, Lt and Lte need
        exactly one integer in `values`; otherwise no value is allowed. `min_values`: the least
        number of different values that the instance types of a node must offer; it is stored in the
        set.
        """
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
        """Returns whether no value is allowed. The label may still be missing if it is
        `optional`."""
        return not self.complement and not self.values

    @property
    def impossible(self) -> bool:
        return self.empty and not self.optional

    @property
    def operator(self) -> PoolOperator:
        """Returns the operator with which the set is shown. Bounds are shown in addition to NotIn
        or Exists."""
        if self.complement:
            return "NotIn" if self.values else "Exists"
        return "In" if self.values else "DoesNotExist"

    @property
    def only(self) -> str | None:
        """Returns the allowed value if there is exactly one, else None."""
        return next(iter(self.values)) if not self.complement and len(self.values) == 1 else None

    def allows(self, value: str | None) -> bool:
        """Returns whether the label may have this value. `value` None: the node does not have the
        label."""
        if value is None:
            return self.optional
        return (value in self.values) != self.complement and _within(value, self.gte, self.lte)

    def intersect(self, other: ValueSet) -> ValueSet:
        """Returns the set of values that both sets allow. Examples: In [a, b] and NotIn [b] give In
        [a]. The bounds >= 5 and <= 4 give a set without any value.

        The result allows a missing label only if both sets allow it. `min_values` of the result is
        the higher one of the two.
        """
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
        """Returns whether some node satisfies both sets, such as a node without the label if both
        allow that."""
        if self.optional and other.optional:
            return True
        if not self.complement and not other.complement:
            return not self.values.isdisjoint(other.values)
        return not self.intersect(other).empty

    def text(self, key: str) -> str:
        """Returns the set as text for messages. `key`: the label. Examples: `zone In [a b]`, `cpu
        Exists >=5`, `zone NotIn [a b c d e and 2 others]`. At most 5 values are listed."""
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

    @property
    def settled(self) -> ValueSet:
        """The set with only its first value, if it lists values, the label may not be missing, and
        no more than one value must remain."""
        if self.complement or self.optional or not self.values or self.min_values > 1:
            return self
        return replace(self, values=frozenset((min(self.values),)))

    def requirements(self, key: str) -> tuple[PoolRequirement, ...]:
        """Converts the set into requirements on the label `key`, as a NodePool writes them. Most
        sets give one requirement. A set with excluded values and integer bounds gives several.
        Example: all values but 7, at least 5: `NotIn [7]` and `Gte 5`. The first requirement has
        the minValues of the set."""
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
    """The possible labels of a node: key -> ValueSet, in order of key. A key that is not in the set
    may have any value or be missing. Immutable and hashable."""

    __slots__ = ("_hash", "_sets")

    def __init__(self, sets: Iterable[tuple[str, ValueSet]] = ()) -> None:
        """Builds the set from (key, ValueSet) pairs. Several pairs with the same key are
        intersected."""
        together: dict[str, ValueSet] = {}
        for key, values in sets:
            known = together.get(key)
            together[key] = values if known is None else known.intersect(values)
        self._sets = dict(sorted(together.items()))
        self._hash: int | None = None

    @classmethod
    def of_pool(cls, requirements: Iterable[PoolRequirement]) -> LabelSet:
        return cls(
            (current_key(r.key), ValueSet.of(r.operator, r.values, r.min_values))
            for r in requirements
        )

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> LabelSet:
        return cls(
            (current_key(key), ValueSet(False, frozenset((value,))))
            for key, value in labels.items()
        )

    @classmethod
    def of_node(cls, node: Node) -> LabelSet:
        """Returns the labels of a node, and its name under `NODE_NAME`. A label with an older name
        is also added under its present name."""
        renamed = {current_key(key): value for key, value in node.labels.items()}
        return cls.of_labels({**renamed, **node.labels, NODE_NAME: node.name})

    @classmethod
    def of_pod(cls, requirements: Requirements, preferences: bool = True) -> LabelSet:
        """Returns the node labels that a pod requests, as one set of allowed values for each label.

        The set combines the node selector, the node name if the pod has one, and the first required
        node affinity term. With `preferences` it also contains the preferred node affinity term
        with the highest weight, as if that term was required; of equal weights the first. Other
        terms are not used here: `relaxation` drops the first term when the pod fits nowhere, and
        the next term is then the first.
        """
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
        """Returns the label requirements of a pod as alternatives, one for each required node
        affinity term. A node has to satisfy one of them. Preferences do not count."""
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
        """Returns the allowed values of a label. A label that is not constrained may have any value
        or be missing."""
        return self._sets.get(key, _UNSPOKEN)

    def items(self) -> Iterable[tuple[str, ValueSet]]:
        return self._sets.items()

    @property
    def min_values(self) -> dict[str, int]:
        """Returns the minValues by label, for each label that has them."""
        return {
            key: values.min_values for key, values in self._sets.items() if values.min_values > 0
        }

    @property
    def impossible(self) -> bool:
        """Returns whether no node can have these labels."""
        return any(values.impossible for values in self._sets.values())

    @property
    def text(self) -> str:
        return ", ".join(values.text(key) for key, values in self._sets.items())

    def intersect(self, other: LabelSet) -> LabelSet:
        """Returns the labels that satisfy both sets. The result may be impossible; `compatible`
        tests this before."""
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
        """Returns a copy with the minValues of `lowered` (label -> minValues) in place of its
        own."""
        return LabelSet(
            (key, replace(values, min_values=lowered[key]) if key in lowered else values)
            for key, values in self._sets.items()
        )

    def settled(self, known: frozenset[str]) -> LabelSet:
        """Returns a copy in which every label that nothing else gives its value has one. `known`:
        the labels that come with an instance type or an offering.

        Of several listed values the first in order is kept. [Karpenter takes any.] Example: a pool
        requires team In [b, a]; the new node is of team a.
        """
        return LabelSet(
            (key, values if key in known else values.settled) for key, values in self._sets.items()
        )

    def intersects(self, other: LabelSet) -> bool:
        """Returns whether a node can satisfy both sets. Only labels that both sets constrain are
        compared."""
        few, many = (self, other) if len(self) <= len(other) else (other, self)
        for key, values in few._sets.items():
            others = many._sets.get(key)
            if others is not None and not values.meets(others):
                return False
        return True

    def compatible(self, asked: LabelSet, known: frozenset[str] = frozenset()) -> bool:
        """Returns whether a node with the labels of this set can satisfy the requirements `asked`.

        For a label in both sets, the two sets must have a common value, or both must allow that the
        label is missing. Example: this set has zone In [a, b]; asked zone In [b] gives true, asked
        zone In [c] gives false. A label that only `asked` has is accepted in two cases. Either
        `asked` allows that the label is missing. Or the label is in `known` and `asked` allows at
        least one value. `known`: labels that the node will have with a value that is not known yet.
        """
        for key, values in asked._sets.items():
            mine = self._sets.get(key)
            if mine is None:
                if not values.optional and (key not in known or values.empty):
                    return False
            elif not mine.meets(values):
                return False
        return True

    def conflicts(self, asked: LabelSet, known: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Returns one clause for each label because of which a node with the labels of this set
        cannot satisfy the requirements `asked`. Returns an empty tuple if `compatible` is true.

        First come the labels that this set does not have, then the labels without a common value.
        Example: `key zone, zone In [c] not in zone In [a b]`. `known`: labels that the node will
        have with a value that is not known yet.
        """
        unknown, clashing = [], []
        for key, values in asked._sets.items():
            mine = self._sets.get(key)
            if mine is None:
                if not values.optional and (key not in known or values.empty):
                    unknown.append(
                        f'label "{key}" does not have known values{self._hint(key, known)}'
                    )
            elif not mine.meets(values):
                clashing.append(f"key {key}, {values.text(key)} not in {mine.text(key)}")
        return (*unknown, *clashing)

    def refusal(self, asked: LabelSet, known: frozenset[str] = frozenset()) -> str:
        """Returns the `conflicts` as one sentence; empty if there are none."""
        found = self.conflicts(asked, known)
        return "incompatible requirements, " + "; ".join(found) if found else ""

    def requirements(self) -> tuple[PoolRequirement, ...]:
        """Converts the set into the requirements of a pool or claim, in order of key. The host name
        and the node name are left out, because the provider names a new node."""
        return tuple(
            line
            for key, values in self._sets.items()
            if key not in (HOSTNAME_LABEL, NODE_NAME)
            for line in values.requirements(key)
        )

    def satisfied_by(self, labels: Mapping[str, str]) -> bool:
        """Returns whether a node with exactly these labels satisfies the set."""
        return all(values.allows(labels.get(key)) for key, values in self._sets.items())

    def _hint(self, key: str, known: frozenset[str]) -> str:
        """Suggests the label that was probably meant instead of `key`: the first one whose name is
        equal after the last slash. Empty if there is none."""
        last = key.rpartition("/")[2]
        for candidate in (*sorted(known), *self._sets):
            if candidate != key and candidate.rpartition("/")[2] == last:
                return f' (typo of "{candidate}"?)'
        return ""


NO_LABELS = LabelSet()

_UNSPOKEN = ValueSet(optional=True)


@lru_cache(maxsize=65536)
def _intersection(one: LabelSet, other: LabelSet) -> LabelSet:
    """Intersects two label sets. The results are cached, because a batch needs few different
    intersections and each of them often."""
    return LabelSet((*one.items(), *other.items()))


def of_requirement(requirement: Requirement) -> tuple[str, ValueSet]:
    """Converts one matchExpression into (label, allowed values)."""
    return current_key(requirement.key), ValueSet.of(requirement.operator, requirement.values)


def integer(text: str) -> int | None:
    """Parses the value of a label as an integer, with or without a sign. None: it is not an
    integer."""
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
    """Returns the present name of a label that may be given by an older name."""
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
    """Returns the required node affinity terms of a pod, in their order; None: it has none. Empty
    terms match no node and are left out. If all terms are empty, the result is one term that no
    node satisfies."""
    if not requirements.node_terms:
        return None
    said = tuple(_term(term) for term in requirements.node_terms if term.expressions or term.fields)
    return said or (_NO_NODE,)


def _term(term: NodeTerm) -> _Term:
    return tuple(of_requirement(r) for r in (*term.expressions, *term.fields))
