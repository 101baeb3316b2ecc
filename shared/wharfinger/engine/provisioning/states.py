"""What a node can still be, numbered, and what becomes of it with each pod: the tables that the loops of Solve read.

A *state* is of a new node: its pool, its labels, the devices asked of it, and the instance types its pool's limits leave; or of
one that is there: its labels, taints, and what is left of its devices. States come into being when a loop asks for them, so
there are as many as the batch has different nodes. For each its instance types lie in order of price, without those that
another one beats in both price and size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wharfinger.domain.resources import Device
from wharfinger.domain.taints import Taint, first_untolerated
from wharfinger.engine.devices.fit import take
from wharfinger.engine.provisioning.catalogue import Ask, Column, Mask
from wharfinger.engine.provisioning.overlays import BOUGHT
from wharfinger.engine.provisioning.requirements import LabelSet, ValueSet
from wharfinger.engine.provisioning.shapes import Need
from wharfinger.engine.provisioning.shop import Shelf, Shop
from wharfinger.engine.provisioning.templates import Template, untolerated
from wharfinger.engine.provisioning.topology import Filter

NO, UNKNOWN = -1, -2


@dataclass(frozen=True, slots=True)
class New:
    """A node to be made. `among`: bool[types] as bytes, which of its pool's types it may be; `devices`: asked of it."""

    template: int
    labels: LabelSet
    among: bytes
    devices: Ask = ()


@dataclass(frozen=True, slots=True)
class There:
    """A node that is there. `devices`, `free`: of those it has, thousandths left; `only` tells nodes with devices apart."""

    labels: LabelSet
    taints: tuple[Taint, ...]
    devices: tuple[Device, ...] = ()
    free: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Coming:
    """A node on its way, which will be one of the types `among` of its template: what is asked of it must hold for all."""

    template: int
    labels: LabelSet
    among: bytes
    devices: Ask = ()


State = New | There | Coming

VALUES_MAX = 2**30
"""No label has more values; minValues that ask for more can never be met."""


class States:
    """Arrays are as `kernels.Tables` names them, with room for more rows than `len`."""

    def __init__(
        self, shop: Shop, templates: Sequence[Template], needs: Sequence[Need], filters: Sequence[Filter],
        domains: Sequence[tuple[str, str]], resources: Sequence[str], min_values: bool = True,
    ) -> None:  # fmt: skip
        """`domains`: (topology key, value), those of a key together. `resources`: names of the columns. `min_values`: whether
        they keep a pod off a claim; where they only should be, they are lowered when the claim is told."""
        self.min_values = min_values
        self.templates, self.needs, self.filters, self.domains = templates, needs, filters, domains
        self.resources = tuple(resources)
        self.shop = shop
        self.states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._signatures: dict[bytes, int] = {}
        self._rooms = [shop.room(t, self.resources) for t in templates]
        self._blocks: dict[Shelf, tuple[int, int]] = {}
        self.types_at: list[Column] = []
        """For each row of `row_alloc` its type's row in the catalogue, by state."""
        self._bits = [_ValueBits(t) for t in templates]
        words = max((bits.words for bits in self._bits), default=0)
        keys = max((len(bits.keys) for bits in self._bits), default=0)
        self._begin(max(words, 1), max(keys, 1))

    def __len__(self) -> int:
        return len(self.states)

    def _begin(self, words: int, keys: int) -> None:
        size, needs, domains, r = 64, max(len(self.needs), 1), max(len(self.domains), 1), len(self.resources)
        self.meet = np.full((size, needs), UNKNOWN, dtype=np.int64)
        self.narrow = np.full((size, domains), UNKNOWN, dtype=np.int64)
        self.allows = np.zeros((size, domains), dtype=np.int8)
        self.signature = np.zeros(size, dtype=np.int64)
        self.passes = np.zeros((len(self.filters), size), dtype=np.int8)
        self.row_at, self.row_end = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        self.full_at, self.full_end = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        self.roof = np.zeros((size, r), dtype=np.int64)
        self.least = np.zeros((size, keys, 3), dtype=np.int64)
        self.template_of = np.zeros(size, dtype=np.int64)
        self.row_alloc, self.row_price = np.zeros((0, r), dtype=np.int64), np.zeros(0, dtype=np.int64)
        self.full_alloc, self.full_bits = np.zeros((0, r), dtype=np.int64), np.zeros((0, words), dtype=np.uint64)
        self.row_type = np.zeros(0, dtype=np.int64)

    # --- what states there are

    def number(self, state: State) -> int:
        """Of this state, which there is from now on; `NO` for one that no node can be."""
        found = self._numbers.get(state)
        if found is None:
            found = self._add(state)
            self._numbers[state] = found
        return found

    def _add(self, state: State) -> int:
        rows = None
        if isinstance(state, New):
            rows = self.remaining(state)
            if not rows.any():
                return NO
        number = len(self.states)
        self.states.append(state)
        if number >= len(self.signature):
            self._grow()
        allowed = np.array(
            [self._allows(state, key, value, rows) for key, value in self.domains] or [False], dtype=np.int8
        )
        self.allows[number] = allowed
        self.signature[number] = self._signatures.setdefault(allowed.tobytes(), len(self._signatures))
        for f, chosen in enumerate(self.filters):
            self.passes[f, number] = self._passes(state, chosen)
        if isinstance(state, New):
            assert rows is not None
            self.template_of[number] = state.template
            self._lay_rows(number, state, rows)
        return number

    def _grow(self) -> None:
        for name in ("meet", "narrow"):
            setattr(self, name, _longer(getattr(self, name), UNKNOWN))
        for name in (
            "allows", "signature", "row_at", "row_end", "full_at", "full_end", "roof", "least", "template_of",
        ):  # fmt: skip
            setattr(self, name, _longer(getattr(self, name), 0))
        self.passes = np.ascontiguousarray(_longer(np.ascontiguousarray(self.passes.T), 0).T)

    def remaining(self, state: New | Coming) -> Mask:
        """bool[types] of the pool's catalogue: what the node may be, as far as labels, offers and devices go."""
        template = self.templates[state.template]
        among = np.frombuffer(state.among, dtype=np.bool_)
        if isinstance(state, Coming):
            return among
        types = template.types
        found = template.able & among & types.fitting(state.labels) & types.with_offering(state.labels)
        return found & template.holding(state.devices) if state.devices else found

    def room_of(self, template: int) -> Column:
        """int64[types, resources] in the columns here."""
        return self._rooms[template]

    # --- what becomes of them

    def met(self, number: int, need: int) -> int:
        """The state when a pod with this need comes."""
        state, asked = self.states[number], self.needs[need]
        match state:
            case New():
                found = self._new_met(state, asked)
            case There():
                found = self._there_met(number, state, asked)
            case Coming():
                found = self._coming_met(number, state, asked)
        self.meet[number, need] = found
        return found

    def _new_met(self, state: New, asked: Need) -> int:
        template = self.templates[state.template]
        if untolerated(template.taints, asked.tolerations) or not state.labels.compatible(
            asked.labels, template.types.known
        ):
            return NO
        among = state.among
        if asked.ports:
            among = (np.frombuffer(among, dtype=np.bool_) & template.free_of(asked.ports)).tobytes()
        devices = tuple(sorted((*state.devices, *asked.devices), key=_device_order)) if asked.devices else state.devices
        return self.number(New(state.template, state.labels.intersect(asked.labels), among, devices))

    def _there_met(self, number: int, state: There, asked: Need) -> int:
        if untolerated(state.taints, asked.tolerations) or not state.labels.compatible(asked.labels):
            return NO
        if not asked.devices:
            return number
        taken = take(state.devices, state.free, asked.devices)
        if taken is None:
            return NO
        free = list(state.free)
        for index, milli in taken:
            free[index] -= milli
        return self.number(There(state.labels, state.taints, state.devices, tuple(free)))

    def _coming_met(self, number: int, state: Coming, asked: Need) -> int:
        template = self.templates[state.template]
        among = np.frombuffer(state.among, dtype=np.bool_)
        if untolerated(template.taints, asked.tolerations) or (
            asked.ports and not template.free_of(asked.ports)[among].all()
        ):
            return NO
        for key, values in asked.labels.items():
            if not _surely(template, state, among, key, values):
                return NO
        if not asked.devices:
            return number
        devices = tuple(sorted((*state.devices, *asked.devices), key=_device_order))
        if not template.holding(devices)[among].all():
            return NO
        return self.number(Coming(state.template, state.labels, state.among, devices))

    def narrowed(self, number: int, domain: int) -> int:
        """The state when a domain is fixed."""
        state = self.states[number]
        key, value = self.domains[domain]
        if isinstance(state, New):
            one = ValueSet(False, frozenset((value,)))
            labels = state.labels.intersect(LabelSet(((key, one),)))
            found = self.number(New(state.template, labels, state.among, state.devices))
        else:
            of_key = [d for d, (k, _) in enumerate(self.domains) if k == key and self.allows[number, d]]
            found = number if of_key == [domain] else NO
        self.narrow[number, domain] = found
        return found

    # --- what they are

    def _allows(self, state: State, key: str, value: str, rows: Mask | None) -> bool:
        if isinstance(state, There):
            own = state.labels.get(key)
            return own is not None and own.allows(value)
        return value in self._values(state, key, rows) or self._unlisted(state, key, value)

    def _values(self, state: New | Coming, key: str, rows: Mask | None) -> frozenset[str]:
        template = self.templates[state.template]
        among = self.remaining(state) if rows is None else rows
        cached = (state, key)
        if self._last != cached:
            self._last = cached
            self._last_values = frozenset(values_of(template, state.labels, key, among))
        return self._last_values

    _last: Any = None
    _last_values: frozenset[str] = frozenset()

    def _unlisted(self, state: New | Coming, key: str, value: str) -> bool:
        """A label that no type speaks of, and of which the pool says that it exists."""
        template = self.templates[state.template]
        if _of_types(template, key):
            return False
        own = state.labels.get(key)
        return own is not None and own.complement and not own.optional and own.allows(value)

    def _passes(self, state: State, chosen: Filter) -> bool:
        if isinstance(state, There):
            taints, labels, known = state.taints, state.labels, frozenset[str]()
        else:
            template = self.templates[state.template]
            taints, labels, known = template.taints, state.labels, template.types.known
        if chosen.tolerations is not None and first_untolerated(
            taints, chosen.tolerations, ("NoSchedule", "NoExecute")
        ):
            return False
        return chosen.alternatives is None or any(labels.compatible(a, known) for a in chosen.alternatives)

    # --- instance types by price

    def _lay_rows(self, number: int, state: New, rows: Mask) -> None:
        template = self.templates[state.template]
        shelf = self.shop.shelf(template, self.resources, rows, state.labels)
        block = self._blocks.get(shelf)
        if block is None:
            first = len(self.row_price)
            self.row_alloc = np.concatenate((self.row_alloc, shelf.room))
            self.row_price = np.concatenate((self.row_price, shelf.prices))
            self.row_type = np.concatenate((self.row_type, shelf.rows))
            block = self._blocks[shelf] = (first, len(self.row_price))
        self.row_at[number], self.row_end[number] = block
        self.roof[number] = self.row_alloc[block[0] : block[1]].max(axis=0)
        bits = self._bits[state.template]
        if bits.keys:
            self._lay_values(number, state, rows, bits)

    def _lay_values(self, number: int, state: New, rows: Mask, bits: _ValueBits) -> None:
        which = np.flatnonzero(rows)
        self.full_at[number] = len(self.full_alloc)
        self.full_alloc = np.concatenate((self.full_alloc, self._rooms[state.template][which]))
        table = bits.table(state.labels, which, self.full_bits.shape[1])
        self.full_bits = np.concatenate((self.full_bits, table))
        self.full_end[number] = len(self.full_alloc)
        asked = state.labels.min_values
        for k, (name, first, last) in enumerate(bits.keys):
            least = min(asked.get(name, 0), VALUES_MAX) if self.min_values else 0
            self.least[number, k] = (least, first, last)


class _ValueBits:
    """Which type has which value of the labels that a pool has minValues for. `keys`: (label, first word, last word + 1)."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self.keys: list[tuple[str, int, int]] = []
        self._values: dict[str, tuple[str, ...]] = {}
        self.words = 0
        for key in sorted(template.labels.min_values):
            values = template.types.values(key, template.labels, template.able)
            self._values[key] = values
            last = self.words + max(1, (len(values) + 63) // 64)
            self.keys.append((key, self.words, last))
            self.words = last

    def table(self, labels: LabelSet, rows: Column, words: int) -> Any:
        found = np.zeros((len(rows), words), dtype=np.uint64)
        types = self.template.types
        for key, first, _ in self.keys:
            for i, row in enumerate(rows):
                alone = np.zeros(len(types), dtype=np.bool_)
                alone[row] = True
                for value in types.values(key, labels, alone):
                    if value in self._values[key]:
                        at = self._values[key].index(value)
                        found[i, first + at // 64] |= np.uint64(1) << np.uint64(at % 64)
        return found


def values_of(template: Template, labels: LabelSet, key: str, among: Mask) -> tuple[str, ...]:
    """The values of a label that a node of these types and labels can have, as far as they are listed."""
    if _of_types(template, key):
        return template.types.values(key, labels, among)
    own = labels.get(key)
    return tuple(sorted(own.values)) if own is not None and not own.complement else ()


def _of_types(template: Template, key: str) -> bool:
    return key in BOUGHT or key in template.types.described


def _surely(template: Template, state: Coming, among: Mask, key: str, asked: ValueSet) -> bool:
    """Whether the node will satisfy it, whatever it becomes."""
    values = values_of(template, state.labels, key, among)
    if not values:
        own = state.labels.get(key)
        return asked.optional if own is None else bool(own.optional and asked.optional)
    return all(asked.allows(value) for value in values)


def _device_order(request: Any) -> tuple[Any, ...]:
    return (request.milli < 1000, not request.models, request.kind, -request.count, -request.milli, request.models)


def _longer(rows: Any, filler: int) -> Any:
    return np.concatenate((rows, np.full_like(rows, filler)))


def domains_of(
    keys: Iterable[str], templates: Sequence[Template], labels: Iterable[Mapping[str, str]], more: Iterable[LabelSet]
) -> tuple[tuple[str, str], ...]:
    """All domains that nodes have or can have, by key in the given order, then by name. `labels`: of nodes; `more`: what
    pods ask for, where a pool leaves open what a label is."""
    found: dict[str, set[str]] = {key: set() for key in keys}
    for key, values in found.items():
        for template in templates:
            values.update(template.domains(key))
            own = template.labels.get(key)
            if own is not None and own.complement and not _of_types(template, key):
                for asked in more:
                    said = asked.get(key)
                    if said is not None and not said.complement:
                        values.update(v for v in said.values if own.allows(v))
    for each in labels:
        for key, values in found.items():
            if key in each:
                values.add(each[key])
    return tuple((key, value) for key in found for value in sorted(found[key]))
