"""Instance types as columns: what each holds, where it is offered and for how much.

A row is an instance type, in order of name; an offering is a type in a zone, bought in one way, in order of type, price,
zone. What a set of labels admits is a mask over either, kept by content: a batch asks for the same few sets over and over.
Nothing here changes once it is made; what is sold out is left out when it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from wharfinger.domain.instance_types import CapacityType, InstanceType, Offering
from wharfinger.domain.node_pool import CAPACITY_TYPE_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL, NodeOverlay
from wharfinger.domain.resources import Device, DeviceRequest, is_of_nodes
from wharfinger.engine.devices.fit import could_ever
from wharfinger.engine.provisioning import overlays as laid
from wharfinger.engine.provisioning.overlays import BOUGHT, RESERVATION_LABEL, described_by
from wharfinger.engine.provisioning.requirements import WELL_KNOWN, LabelSet, ValueSet, current_key

Column = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

CPU, MEMORY, PODS = 0, 1, 2
"""The columns of every catalogue, in this order; other resources follow by name."""

AMOUNT_MAX = 2**53
"""Amounts are clamped to it when they enter, as those of nodes are (`engine.nodes.columns`)."""

UNLIMITED = 2**53
"""What a type that names no `pods` has of them."""

NO_PRICE: Final = 2**62
"""Where nothing is offered."""

PREFERENCE: Final[tuple[CapacityType, ...]] = ("reserved", "spot", "on-demand")
"""In which order capacity types are launched."""

Ask = tuple[DeviceRequest, ...]

SoldOut = frozenset[tuple[str, str, str]]
"""(instance type, zone, capacity type)."""


class Types:
    """The instance types of one catalogue, as one pool sees them. `of` makes them.

    `names`; `resources`: names of the columns; `capacity`, `allocatable`: int64[types, resources] in the units of
    `domain.resources`, huge pages taken off the allocatable memory; `devices`: of each type; `described`: labels by
    which some type is described; `known`: those, and labels that every new node has.

    Offerings are columns over `offerings`: `of_type`, `price` (billionths of a dollar an hour), `mode` (place in
    `PREFERENCE`), `reservation` (code, -1: none) int64[offerings], `available` bool[offerings]."""

    def __init__(self, types: Iterable[InstanceType], overlays: Iterable[NodeOverlay] = ()) -> None:
        """Of types of one name the last counts. Raises OverlayError."""
        in_order = laid.ordered(overlays)
        by_name = {t.name: t for t in types}
        self.types = tuple(laid.overlaid(by_name[name], in_order).type for name in sorted(by_name))
        self.names = tuple(t.name for t in self.types)
        self.row: dict[str, int] = {name: i for i, name in enumerate(self.names)}
        self.devices: tuple[tuple[Device, ...], ...] = tuple(t.devices for t in self.types)
        self.described: frozenset[str] = described_by(self.types)
        self.known: frozenset[str] = WELL_KNOWN | self.described | {RESERVATION_LABEL}
        self._amounts()
        self._offered()
        self._columns: dict[str, tuple[ValueSet, ...] | None] = {}
        self._masks: dict[tuple[str, ValueSet], Mask] = {}
        self._fitting: dict[tuple[tuple[str, ValueSet], ...], Mask] = {}
        self._holding: dict[Ask, Mask] = {}
        self._values: dict[str, tuple[tuple[str, ...], Mask]] = {}
        self._forget_offers()

    def _forget_offers(self) -> None:
        self._offering_masks: dict[tuple[ValueSet | None, ...], Mask] = {}
        self._cheapest: dict[tuple[ValueSet | None, ...], Column] = {}
        self._worst: dict[tuple[ValueSet | None, ...], Column] = {}

    @classmethod
    def of(
        cls, types: Sequence[InstanceType], overlays: Iterable[NodeOverlay] = (), sold_out: SoldOut = frozenset()
    ) -> Types:
        """The same columns again for the very same tuple of types: a catalogue is asked for with every batch."""
        laid_on = tuple(overlays)
        if not isinstance(types, tuple):
            return cls(types, laid_on).but_for(sold_out)
        for i, (seen, *rest, made) in enumerate(_recent):
            if seen is types and rest == [laid_on, sold_out]:
                _recent.insert(0, _recent.pop(i))
                return made
        made = cls.of(types, laid_on).but_for(sold_out) if sold_out else cls(types, laid_on)
        _recent.insert(0, (types, laid_on, sold_out, made))
        del _recent[_RECENT_MAX:]
        return made

    def but_for(self, sold_out: SoldOut) -> Types:
        """The same types where these offerings are not to be had. What does not depend on that is shared."""
        if not sold_out:
            return self
        made = copy(self)
        made._forget_offers()
        made.available = self.available.copy()
        for name, zone, capacity_type in sold_out:
            row = self.row.get(name)
            if row is not None:
                for i in range(int(self._first[row]), int(self._first[row + 1])):
                    if (self.offerings[i].zone, self.offerings[i].capacity_type) == (zone, capacity_type):
                        made.available[i] = False
        return made

    def __len__(self) -> int:
        return len(self.names)

    # --- made once

    def _amounts(self) -> None:
        named = {r for t in self.types for r in t.capacity}
        self.resources: tuple[str, ...] = ("cpu", "memory", "pods", *sorted(named - {"cpu", "memory", "pods"}))
        self.resource: dict[str, int] = {name: i for i, name in enumerate(self.resources)}
        capacity = self._table([t.capacity for t in self.types])
        allocatable = np.maximum(capacity - self._table([t.overhead for t in self.types]), 0)
        for name, column in self.resource.items():
            if name.startswith("hugepages-"):  # they are made of memory, and what is one is not the other
                allocatable[:, MEMORY] = np.maximum(allocatable[:, MEMORY] - capacity[:, column], 0)
        unlimited = ["pods" not in t.capacity for t in self.types]
        for amounts in (capacity, allocatable):
            amounts[unlimited, PODS] = UNLIMITED
        self.capacity: Column = np.minimum(capacity, AMOUNT_MAX)
        self.allocatable: Column = np.minimum(allocatable, AMOUNT_MAX)

    def _table(self, amounts: Sequence[Mapping[str, int]]) -> Column:
        rows = [[min(max(0, each.get(name, 0)), AMOUNT_MAX) for name in self.resources] for each in amounts]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(self.resources))

    def _offered(self) -> None:
        in_order = [sorted(t.offerings, key=_offering_order) for t in self.types]
        self.offerings: tuple[Offering, ...] = tuple(o for each in in_order for o in each)
        counts = [len(each) for each in in_order]
        self._first: Column = np.cumsum([0, *counts], dtype=np.int64)
        self.of_type: Column = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        self.price: Column = _of_offerings(min(max(o.price, 0), NO_PRICE - 1) for o in self.offerings)
        self.mode: Column = _of_offerings(PREFERENCE.index(o.capacity_type) for o in self.offerings)
        self.available: Mask = np.array([_is_available(o) for o in self.offerings], dtype=np.bool_)
        self.reservations: tuple[str, ...] = tuple(sorted({o.reservation for o in self.offerings if o.reservation}))
        code = {name: i for i, name in enumerate(self.reservations)}
        self.reservation: Column = _of_offerings(code.get(o.reservation, -1) for o in self.offerings)
        self._bought: dict[str, tuple[str | None, ...]] = {
            ZONE_LABEL: tuple(o.zone for o in self.offerings),
            CAPACITY_TYPE_LABEL: tuple(o.capacity_type for o in self.offerings),
            RESERVATION_LABEL: tuple(o.reservation or None for o in self.offerings),
        }

    def _own(self, key: str) -> tuple[ValueSet, ...] | None:
        """What a label is on each type; None: types say nothing of it."""
        if key not in self._columns:
            self._columns[key] = self._column(key)
        return self._columns[key]

    def _column(self, key: str) -> tuple[ValueSet, ...] | None:
        if key == ZONE_LABEL:
            return _sets(tuple(o.zone for o in t.offerings) for t in self.types)
        if key == CAPACITY_TYPE_LABEL:
            return _sets(tuple(o.capacity_type for o in t.offerings) for t in self.types)
        if key == INSTANCE_TYPE_LABEL:
            return _sets((name,) for name in self.names)
        if key not in self.described:
            return None
        written = sorted({name for t in self.types for name in t.labels if current_key(name) == key})
        return _sets(next((t.labels[name] for name in written if name in t.labels), None) for t in self.types)

    # --- what labels admit

    def fitting(self, labels: LabelSet) -> Mask:
        """bool[types]: whose labels can be so. A label by which no type is described admits all of them; one by which only
        others are described is missing. Do not write to what comes back."""
        asked = tuple((key, values) for key, values in labels.items() if self._own(key) is not None)
        found = self._fitting.get(asked)
        if found is None:
            found = np.ones(len(self), dtype=np.bool_)
            for key, values in asked:
                found &= self._mask(key, values)
            _keep(self._fitting, asked, found)
        return found

    def _mask(self, key: str, values: ValueSet) -> Mask:
        found = self._masks.get((key, values))
        if found is None:
            own = self._own(key)
            assert own is not None, "a label that types say nothing of"
            met = {each: each.meets(values) for each in dict.fromkeys(own)}
            found = np.array([met[each] for each in own], dtype=np.bool_)
            _keep(self._masks, (key, values), found)
        return found

    def offered(self, labels: LabelSet) -> Mask:
        """bool[offerings]: available, in a zone and bought in a way that can be so. Whether their types can, is not
        asked. Do not write to what comes back."""
        key = self._as_bought(labels)
        found = self._offering_masks.get(key)
        if found is None:
            found = self.available.copy()
            for name, values in zip(BOUGHT, key, strict=True):
                if values is not None:
                    found &= np.array([values.allows(v) for v in self._bought[name]], dtype=np.bool_)
            _keep(self._offering_masks, key, found)
        return found

    def with_offering(self, labels: LabelSet) -> Mask:
        """bool[types]: that have an offering as `offered` has it."""
        return self.cheapest(labels) < NO_PRICE

    def zones(self, labels: LabelSet, among: Mask | None = None) -> tuple[str, ...]:
        """In which zones nodes can come, in order of name."""
        return self.values(ZONE_LABEL, labels, among)

    def values(self, key: str, labels: LabelSet, among: Mask | None = None) -> tuple[str, ...]:
        """The values of a label that nodes can have, in order: those that `labels` admits of the types that fit and can be
        bought so (`among`: of these types only)."""
        rows = self.fitting(labels) & self.with_offering(labels)
        if among is not None:
            rows = rows & among
        return tuple(value for value, held in self._held(key, labels, rows) if held)

    def count_values(self, key: str, labels: LabelSet, rows: Mask) -> int:
        """How many different values of a label the types at `rows` could still have."""
        return sum(held for _, held in self._held(key, labels, rows))

    def values_of(self, row: int, key: str, labels: LabelSet) -> frozenset[str]:
        """The values of a label that nodes of the type at `row` could still have."""
        if key in self._bought:
            usable = np.flatnonzero(self.offered(labels) & (self.of_type == row))
            return frozenset(v for v in (self._bought[key][i] for i in usable) if v is not None)
        own, wanted = self._own(key), labels.of(key)
        return frozenset() if own is None else frozenset(v for v in own[row].values if wanted.allows(v))

    def _held(self, key: str, labels: LabelSet, rows: Mask) -> Iterable[tuple[str, bool]]:
        wanted = labels.of(key)
        if key in self._bought:
            usable = self.offered(labels) & rows[self.of_type] if len(self.of_type) else self.available
            held = {self._bought[key][i] for i in np.flatnonzero(usable)}
            return [(value, True) for value in sorted(v for v in held if v is not None)]
        names, has = self._value_table(key)
        return [(v, bool(has[rows, i].any())) for i, v in enumerate(names) if wanted.allows(v)]

    def _value_table(self, key: str) -> tuple[tuple[str, ...], Mask]:
        """The values of a label in order, and which type can have which: bool[types, values]."""
        found = self._values.get(key)
        if found is None:
            sets = [each.values for each in self._own(key) or ()]
            names = tuple(sorted(frozenset().union(*sets)))
            has = np.array([[name in values for name in names] for values in sets], dtype=np.bool_)
            found = self._values[key] = (names, has.reshape(len(sets), len(names)))
        return found

    # --- what they hold

    def amounts(self, requests: Mapping[str, int]) -> Column | None:
        """int64[resources] of a pod or several. None: something is asked for that no type has. What nodes do not have
        (`domain.resources.is_of_nodes`) is not looked at. Slots are not counted: `pods` is for the caller to add."""
        found = np.zeros(len(self.resources), dtype=np.int64)
        for name, amount in requests.items():
            if amount <= 0 or not is_of_nodes(name):
                continue
            column = self.resource.get(name)
            if column is None:
                return None
            found[column] = min(amount, AMOUNT_MAX)
        return found

    def roomy(self, amounts: Column) -> Mask:
        """bool[types]: with so much allocatable."""
        return np.asarray((self.allocatable >= amounts).all(axis=1), dtype=np.bool_)

    def holding(self, asked: Ask) -> Mask:
        """bool[types]: whose devices, all free, suffice for these requests together. Greedy as devices are given out, so
        what is admitted can be had. Do not write to what comes back."""
        found = self._holding.get(asked)
        if found is None:
            if not asked:
                found = np.ones(len(self), dtype=np.bool_)
            else:
                by_shape = {shape: could_ever(shape, asked) for shape in dict.fromkeys(self.devices)}
                found = np.array([by_shape[shape] for shape in self.devices], dtype=np.bool_)
            _keep(self._holding, asked, found)
        return found

    def capacity_of(self, name: str) -> Column:
        """int64[types] of a resource or kind of device: what a limit is held against."""
        column = self.resource.get(name)
        if column is not None and (column != PODS or any("pods" in t.capacity for t in self.types)):
            return self.capacity[:, column]
        return np.array([sum(d.kind == name for d in devices) for devices in self.devices], dtype=np.int64)

    # --- what they cost

    def cheapest(self, labels: LabelSet) -> Column:
        """int64[types]: the least price of an offering that can be so, `NO_PRICE` without one. Do not write to it."""
        key = self._as_bought(labels)
        found = self._cheapest.get(key)
        if found is None:
            found = np.full(len(self), NO_PRICE, dtype=np.int64)
            offered = self.offered(labels)
            np.minimum.at(found, self.of_type[offered], self.price[offered])
            _keep(self._cheapest, key, found)
        return found

    def worst(self, labels: LabelSet) -> Column:
        """int64[types]: the greatest price of an offering that can be so, among those of the capacity type that would be
        launched first (`PREFERENCE`), `NO_PRICE` without one. Do not write to it."""
        key = self._as_bought(labels)
        found = self._worst.get(key)
        if found is None:
            found = np.full(len(self), -1, dtype=np.int64)
            offered = self.offered(labels)
            first = np.full(len(self), len(PREFERENCE), dtype=np.int64)
            np.minimum.at(first, self.of_type[offered], self.mode[offered])
            launched = offered & (self.mode == first[self.of_type])
            np.maximum.at(found, self.of_type[launched], self.price[launched])
            found[found < 0] = NO_PRICE
            _keep(self._worst, key, found)
        return found

    def price_of(self, name: str, zone: str, capacity_type: str) -> int | None:
        """What a node of this type costs there, whether or not it can be had now; the cheapest where there are several.
        None: not known."""
        row = self.row.get(name)
        if row is None:
            return None
        prices = [
            o.price for o in self.types[row].offerings if o.zone == zone and o.capacity_type == capacity_type
        ]  # fmt: skip
        return min(prices, default=None)

    def _as_bought(self, labels: LabelSet) -> tuple[ValueSet | None, ...]:
        return tuple(labels.get(name) for name in BOUGHT)


_RECENT_MAX = 8
_recent: list[tuple[Sequence[InstanceType], tuple[NodeOverlay, ...], SoldOut, Types]] = []
"""Columns made lately, the last used first. What is in it changes no answer, only how fast it comes."""

_KEPT_MAX = 4096

K = TypeVar("K")
V = TypeVar("V")


def _keep(known: dict[K, V], key: K, value: V) -> None:
    """Catalogues live long, and who asks may ask for ever something else."""
    if len(known) >= _KEPT_MAX:
        known.clear()
    known[key] = value


def _sets(values: Iterable[Sequence[str] | None]) -> tuple[ValueSet, ...]:
    """Each as a set of values; None: there is no such label."""
    made: dict[Sequence[str] | None, ValueSet] = {None: ValueSet.of("DoesNotExist")}
    found = []
    for each in values:
        if each not in made:
            made[each] = ValueSet(False, frozenset(each or ()))
        found.append(made[each])
    return tuple(found)


def _of_offerings(numbers: Iterable[int]) -> Column:
    return np.array(list(numbers), dtype=np.int64)


def _offering_order(offering: Offering) -> tuple[int, str, int, str]:
    return offering.price, offering.zone, PREFERENCE.index(offering.capacity_type), offering.reservation


def _is_available(offering: Offering) -> bool:
    return offering.available and (offering.capacity_type != "reserved" or offering.left > 0)


def mask_of(types: Types, names: Sequence[str]) -> Mask:
    """bool[types] of the types of these names; others than the catalogue's are left out."""
    found = np.zeros(len(types), dtype=np.bool_)
    rows = [types.row[name] for name in names if name in types.row]
    found[rows] = True
    return found
