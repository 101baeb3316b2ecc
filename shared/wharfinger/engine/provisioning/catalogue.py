"""Holds the instance types of a catalogue as columns: capacity, offerings and prices.

A row is an instance type, in order of name. An offering is a type in a zone with a capacity type,
in order of type, price, zone. Which types or offerings a set of labels allows is answered as a
boolean mask. Masks are cached by the set's content, because a batch uses the same few sets again
and again. A catalogue is immutable: for other sold-out offerings a new one is derived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from wharfinger.domain.instance_types import CapacityType, InstanceType, Offering
from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    ZONE_LABEL,
    NodeOverlay,
)
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
"""The number of pod slots of a type that does not state `pods`."""

NO_PRICE: Final = 2**62
"""The price of a type that has no matching offering."""

PREFERENCE: Final[tuple[CapacityType, ...]] = ("reserved", "spot", "on-demand")
"""The order in which capacity types are launched."""

Ask = tuple[DeviceRequest, ...]

SoldOut = frozenset[tuple[str, str, str]]
"""Offerings that are not available, as (instance type, zone, capacity type)."""


class Types:
    """The instance types of one catalogue as columns, with the overlays of one pool and without
    sold-out offerings. Create it with `of`.

    - `names`: the names of the types, in the order of the rows. `resources`: the names of the
      columns.
    - `capacity`, `allocatable`: int64[types, resources] in the units of `domain.resources`. Huge
      pages are deducted from the allocatable memory.
    - `devices`: the devices of each type.
    - `described`: the labels that some type has. `known`: these, and the labels that every new node
      has.
    - `offerings`: all offerings, type by type. The following columns are over the offerings.
    - `of_type`, `price`, `mode`, `reservation`: int64[offerings]. Row of the type; billionths of a
      dollar an hour; index of the capacity type in `PREFERENCE`; code of the reservation, -1: none.
    - `available`: bool[offerings].
    """

    def __init__(self, types: Iterable[InstanceType], overlays: Iterable[NodeOverlay] = ()) -> None:
        """Builds a catalogue of instance types: arrays of their capacity, offerings and prices,
        with overlays applied. A NodeOverlay changes prices or capacities of the types that it
        selects. If several types have the same name, the last is used. Raises OverlayError for
        overlays that cannot be applied.

        `types`: the instance types. `overlays`: the NodeOverlays of one node pool.
        """
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
        cls,
        types: Sequence[InstanceType],
        overlays: Iterable[NodeOverlay] = (),
        sold_out: SoldOut = frozenset(),
    ) -> Types:
        """Returns a catalogue of instance types: arrays of their capacity, offerings and prices.
        Overlays are applied, and offerings that are sold out are marked as not available. Raises
        OverlayError for overlays that cannot be applied.

        - `types`: the instance types.
        - `overlays`: NodeOverlays, which change prices or capacities of the types that they select.
        - `sold_out`: offerings that are not available, as (instance type, zone, capacity type).

        If `types` is a tuple, the last few results are cached by the identity of the tuple, because
        every batch uses the same catalogue.
        """
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
        """Returns a copy of the catalogue in which some offerings are not available. `sold_out`:
        these offerings, as (instance type, zone, capacity type). Entries that the catalogue does
        not have are ignored. If `sold_out` is empty, the catalogue itself is returned. Arrays and
        caches that do not depend on availability are shared with the original."""
        if not sold_out:
            return self
        made = copy(self)
        made._forget_offers()
        made.available = self.available.copy()
        for name, zone, capacity_type in sold_out:
            row = self.row.get(name)
            if row is not None:
                for i in range(int(self._first[row]), int(self._first[row + 1])):
                    if (self.offerings[i].zone, self.offerings[i].capacity_type) == (
                        zone,
                        capacity_type,
                    ):
                        made.available[i] = False
        return made

    def __len__(self) -> int:
        return len(self.names)

    # --- made once

    def _amounts(self) -> None:
        named = {r for t in self.types for r in t.capacity}
        self.resources: tuple[str, ...] = (
            "cpu",
            "memory",
            "pods",
            *sorted(named - {"cpu", "memory", "pods"}),
        )
        self.resource: dict[str, int] = {name: i for i, name in enumerate(self.resources)}
        capacity = self._table([t.capacity for t in self.types])
        allocatable = np.maximum(capacity - self._table([t.overhead for t in self.types]), 0)
        for name, column in self.resource.items():
            if name.startswith("hugepages-"):
                # they are made of memory, and what is one is not the other
                allocatable[:, MEMORY] = np.maximum(allocatable[:, MEMORY] - capacity[:, column], 0)
        unlimited = ["pods" not in t.capacity for t in self.types]
        for amounts in (capacity, allocatable):
            amounts[unlimited, PODS] = UNLIMITED
        self.capacity: Column = np.minimum(capacity, AMOUNT_MAX)
        self.allocatable: Column = np.minimum(allocatable, AMOUNT_MAX)

    def _table(self, amounts: Sequence[Mapping[str, int]]) -> Column:
        rows = [
            [min(max(0, each.get(name, 0)), AMOUNT_MAX) for name in self.resources]
            for each in amounts
        ]
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(self.resources))

    def _offered(self) -> None:
        in_order = [sorted(t.offerings, key=_offering_order) for t in self.types]
        self.offerings: tuple[Offering, ...] = tuple(o for each in in_order for o in each)
        counts = [len(each) for each in in_order]
        self._first: Column = np.cumsum([0, *counts], dtype=np.int64)
        self.of_type: Column = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        self.price: Column = _of_offerings(
            min(max(o.price, 0), NO_PRICE - 1) for o in self.offerings
        )
        self.mode: Column = _of_offerings(PREFERENCE.index(o.capacity_type) for o in self.offerings)
        self.available: Mask = np.array([_is_available(o) for o in self.offerings], dtype=np.bool_)
        self.reservations: tuple[str, ...] = tuple(
            sorted({o.reservation for o in self.offerings if o.reservation})
        )
        code = {name: i for i, name in enumerate(self.reservations)}
        self.reservation: Column = _of_offerings(
            code.get(o.reservation, -1) for o in self.offerings
        )
        self._bought: dict[str, tuple[str | None, ...]] = {
            ZONE_LABEL: tuple(o.zone for o in self.offerings),
            CAPACITY_TYPE_LABEL: tuple(o.capacity_type for o in self.offerings),
            RESERVATION_LABEL: tuple(o.reservation or None for o in self.offerings),
        }

    def _own(self, key: str) -> tuple[ValueSet, ...] | None:
        """Returns the possible values of a label on each type, in the order of the rows; None: no
        type describes this label."""
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
        written = sorted(
            {name for t in self.types for name in t.labels if current_key(name) == key}
        )
        return _sets(
            next((t.labels[name] for name in written if name in t.labels), None) for t in self.types
        )

    # --- what labels admit

    def fitting(self, labels: LabelSet) -> Mask:
        """Returns the types whose nodes can have these labels, as bool[types]. A label that no type
        describes excludes no type. A type counts as lacking a label if it does not describe it but
        other types do. Do not write to the result."""
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
        """Returns which offerings can be launched for a node with these labels, as bool[offerings].
        An offering is an instance type in a zone with a capacity type. It must be available, and
        `labels` must allow its zone, capacity type and reservation. Whether `labels` also match the
        instance type is not checked. The result is cached: do not write to it."""
        key = self._as_bought(labels)
        found = self._offering_masks.get(key)
        if found is None:
            found = self.available.copy()
            for name, values in zip(BOUGHT, key, strict=True):
                if values is not None:
                    found &= np.array(
                        [values.allows(v) for v in self._bought[name]], dtype=np.bool_
                    )
            _keep(self._offering_masks, key, found)
        return found

    def with_offering(self, labels: LabelSet) -> Mask:
        """Returns the types that have at least one offering that is available and allowed by these
        labels, as bool[types]."""
        return self.cheapest(labels) < NO_PRICE

    def zones(self, labels: LabelSet, among: Mask | None = None) -> tuple[str, ...]:
        """Returns the zones in which nodes with these labels can be bought, in order of name.
        `among` bool[types]: consider these types only."""
        return self.values(ZONE_LABEL, labels, among)

    def values(self, key: str, labels: LabelSet, among: Mask | None = None) -> tuple[str, ...]:
        """Returns the values of the label `key` that new nodes can have, sorted: those that
        `labels` allows and that some type has which matches `labels` and can be bought. `among`
        bool[types]: consider these types only."""
        rows = self.fitting(labels) & self.with_offering(labels)
        if among is not None:
            rows = rows & among
        return tuple(value for value, held in self._held(key, labels, rows) if held)

    def count_values(self, key: str, labels: LabelSet, rows: Mask) -> int:
        """Returns how many different values of the label `key` new nodes can have, if they are of
        the types at `rows` (bool[types]) and match `labels`."""
        return sum(held for _, held in self._held(key, labels, rows))

    def values_of(self, row: int, key: str, labels: LabelSet) -> frozenset[str]:
        """Returns the values of the label `key` that new nodes of the type at `row` can have, if
        they match `labels`."""
        if key in self._bought:
            usable = np.flatnonzero(self.offered(labels) & (self.of_type == row))
            return frozenset(v for v in (self._bought[key][i] for i in usable) if v is not None)
        own, wanted = self._own(key), labels.of(key)
        return (
            frozenset()
            if own is None
            else frozenset(v for v in own[row].values if wanted.allows(v))
        )

    def _held(self, key: str, labels: LabelSet, rows: Mask) -> Iterable[tuple[str, bool]]:
        wanted = labels.of(key)
        if key in self._bought:
            usable = (
                self.offered(labels) & rows[self.of_type] if len(self.of_type) else self.available
            )
            held = {self._bought[key][i] for i in np.flatnonzero(usable)}
            return [(value, True) for value in sorted(v for v in held if v is not None)]
        names, has = self._value_table(key)
        return [(v, bool(has[rows, i].any())) for i, v in enumerate(names) if wanted.allows(v)]

    def _value_table(self, key: str) -> tuple[tuple[str, ...], Mask]:
        """Returns all values of a label, sorted, and which type can have which, as bool[types,
        values]."""
        found = self._values.get(key)
        if found is None:
            sets = [each.values for each in self._own(key) or ()]
            names = tuple(sorted(frozenset().union(*sets)))
            has = np.array([[name in values for name in names] for values in sets], dtype=np.bool_)
            found = self._values[key] = (names, has.reshape(len(sets), len(names)))
        return found

    # --- what they hold

    def amounts(self, requests: Mapping[str, int]) -> Column | None:
        """Converts requests into int64[resources], in the order of the catalogue's resource
        columns. None: a requested resource is one that no instance type has.

        Amounts of 0 or less are ignored, and so are resources that nodes do not have
        (`domain.resources.is_of_nodes`). The space of the pod itself (1 of `pods`) is not added
        here; the caller adds it. Example: requests of 500 milli-CPU give 500 in column 0 and 0
        elsewhere.
        """
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
        """Returns the types with at least these allocatable amounts, as bool[types]. `amounts`
        int64[resources]."""
        return np.asarray((self.allocatable >= amounts).all(axis=1), dtype=np.bool_)

    def holding(self, asked: Ask) -> Mask:
        """Returns which instance types have enough devices for all device requests in `asked`
        together, as bool[types], if no device is in use. Devices are allocated on trial by the same
        greedy algorithm that places pods. So a type with True can really serve the requests. The
        result is cached: do not write to it."""
        found = self._holding.get(asked)
        if found is None:
            if not asked:
                found = np.ones(len(self), dtype=np.bool_)
            else:
                by_shape = {
                    shape: could_ever(shape, asked) for shape in dict.fromkeys(self.devices)
                }
                found = np.array([by_shape[shape] for shape in self.devices], dtype=np.bool_)
            _keep(self._holding, asked, found)
        return found

    def capacity_of(self, name: str) -> Column:
        """Returns the capacity of each type of a resource, or its number of devices of a kind, as
        int64[types]. The limits of a pool are compared with it. `name`: a resource or a kind of
        device."""
        column = self.resource.get(name)
        if column is not None and (column != PODS or any("pods" in t.capacity for t in self.types)):
            return self.capacity[:, column]
        return np.array(
            [sum(d.kind == name for d in devices) for devices in self.devices], dtype=np.int64
        )

    # --- what they cost

    def cheapest(self, labels: LabelSet) -> Column:
        """Returns the lowest price of each type, int64[types] in billionths of a dollar an hour.
        Only offerings count that are available and allowed by these labels; `NO_PRICE`: there is
        none. Do not write to the result."""
        key = self._as_bought(labels)
        found = self._cheapest.get(key)
        if found is None:
            found = np.full(len(self), NO_PRICE, dtype=np.int64)
            offered = self.offered(labels)
            np.minimum.at(found, self.of_type[offered], self.price[offered])
            _keep(self._cheapest, key, found)
        return found

    def worst(self, labels: LabelSet) -> Column:
        """Returns the highest price that a launch of each instance type may cost, as int64[types]
        in billionths of a dollar an hour; `NO_PRICE`: the type cannot be launched with these
        labels.

        An offering is an instance type in a zone with a capacity type. Only available offerings
        that `labels` allow are considered. Of these, only the offerings of one capacity type are
        considered: for each instance type the first of reserved, spot, on-demand (`PREFERENCE`)
        that it has among them. Example: spot costs 30 or 40 by zone, on-demand 100. The result is
        40. The result is cached: do not write to it.
        """
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
        """Returns the price of a node of the instance type `name` in this zone and capacity type,
        in billionths of a dollar an hour. Offerings that are sold out are included. If several
        offerings match, the lowest price is returned. None: there is no such offering."""
        row = self.row.get(name)
        if row is None:
            return None
        prices = [
            o.price
            for o in self.types[row].offerings
            if o.zone == zone and o.capacity_type == capacity_type
        ]
        return min(prices, default=None)

    def _as_bought(self, labels: LabelSet) -> tuple[ValueSet | None, ...]:
        return tuple(labels.get(name) for name in BOUGHT)


_RECENT_MAX = 8
_recent: list[tuple[Sequence[InstanceType], tuple[NodeOverlay, ...], SoldOut, Types]] = []
"""The catalogues used last, the most recent first. This cache changes no result, only the time it
takes."""

_KEPT_MAX = 4096

K = TypeVar("K")
V = TypeVar("V")


def _keep(known: dict[K, V], key: K, value: V) -> None:
    """Stores a value in a cache, which is emptied before if it has `_KEPT_MAX` entries. Catalogues
    live long, and the variety of keys has no bound."""
    if len(known) >= _KEPT_MAX:
        known.clear()
    known[key] = value


def _sets(values: Iterable[Sequence[str] | None]) -> tuple[ValueSet, ...]:
    """Converts the listed values of a label, for each type, into sets of allowed values. None: the
    type does not have the label."""
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
    return (
        offering.price,
        offering.zone,
        PREFERENCE.index(offering.capacity_type),
        offering.reservation,
    )


def _is_available(offering: Offering) -> bool:
    return offering.available and (offering.capacity_type != "reserved" or offering.left > 0)


def mask_of(types: Types, names: Sequence[str]) -> Mask:
    """Returns the types with these names, as bool[types]. Names that the catalogue does not have
    are ignored."""
    found = np.zeros(len(types), dtype=np.bool_)
    rows = [types.row[name] for name in names if name in types.row]
    found[rows] = True
    return found
