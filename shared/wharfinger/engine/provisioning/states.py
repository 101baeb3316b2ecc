"""Builds a state machine of what a node can become with each pod, lazily, as tables for the packing
kernels.

A *state* of a new node is its pool, its labels, its requested devices, and the instance types left
by its pool's limits. A state of an existing node is its labels, taints and remaining devices; of a
pending node, its labels, possible types and requested devices. States are created when a kernel
needs them. Each state of a new node has its instance types in order of price, without types that
another one dominates in both price and size (Pareto front).
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
from wharfinger.engine.provisioning.templates import Template, untolerated
from wharfinger.engine.provisioning.topology import NodeFilter
from wharfinger.engine.provisioning.type_index import InstanceTypeIndex, ParetoFront

NO, UNKNOWN = -1, -2


@dataclass(frozen=True, slots=True)
class New:
    """The state of a new node. `template`: the index of its pool's template. `among`: the types of
    its pool that it may become, bool[types] as bytes. `devices`: the devices that its pods request.
    """

    template: int
    labels: LabelSet
    among: bytes
    devices: Ask = ()


@dataclass(frozen=True, slots=True)
class There:
    """The state of an existing node. `devices`: its devices. `free`: free thousandths of each. Both
    are empty if only labels and taints matter."""

    labels: LabelSet
    taints: tuple[Taint, ...]
    devices: tuple[Device, ...] = ()
    free: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Coming:
    """The state of a pending node. `template`: the index of its pool's template. `among`: the types
    that it may become, bool[types] as bytes. It is not known which of them it will be, so a pod
    must fit all. `devices`: the devices that its pods request."""

    template: int
    labels: LabelSet
    among: bytes
    devices: Ask = ()


State = New | There | Coming

VALUES_MAX = 2**30
"""The maximum for minValues; higher ones are lowered to it. No label has so many values, so such
minValues can never be met."""


class States:
    """A state machine of what a node can become with each pod. Its states are numbered, and the
    number of a state is its row in the tables of the kernels.

    `number` adds a state. `met` computes the transition when a pod is added and stores it in
    `meet`. `narrowed` computes the transition when a topology domain is fixed and stores it in
    `narrow`. In both tables, `NO` (-1) means not possible and `UNKNOWN` (-2) not computed yet. The
    arrays have the names of `kernels.KernelTables` and may be longer than `len(self)`.
    """

    def __init__(
        self,
        type_index: InstanceTypeIndex,
        templates: Sequence[Template],
        needs: Sequence[Need],
        filters: Sequence[NodeFilter],
        domains: Sequence[tuple[str, str]],
        resources: Sequence[str],
        min_values: bool = True,
    ) -> None:
        """Creates an empty set of node states; `number` adds states.

        - `type_index`: a cache of the templates of the pools and of what is computed from them.
          `templates`: what the new nodes of each pool look like.
        - `needs`: what pods require of a node (labels, tolerations, devices, host ports).
          `filters`: which nodes a topology spread counts. Both are referred to by index.
        - `domains`: (topology key, value), grouped by key. `resources`: the names of the resource
          columns.
        - `min_values`: whether a pod is kept off a new node if the node's instance types would
          offer fewer values of a label than minValues requires. False: the pod is accepted, and
          minValues is lowered in the request of the node.
        """
        self.min_values = min_values
        self.templates, self.needs, self.filters, self.domains = templates, needs, filters, domains
        self.resources = tuple(resources)
        self.type_index = type_index
        self.states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._signatures: dict[bytes, int] = {}
        self._rooms = [type_index.room(t, self.resources) for t in templates]
        self._blocks: dict[ParetoFront, tuple[int, int]] = {}
        self._bits = [_ValueBits(t) for t in templates]
        words = max((bits.words for bits in self._bits), default=0)
        keys = max((len(bits.keys) for bits in self._bits), default=0)
        self._begin(max(words, 1), max(keys, 1))

    def __len__(self) -> int:
        return len(self.states)

    def _begin(self, words: int, keys: int) -> None:
        size, needs, domains, r = (
            64,
            max(len(self.needs), 1),
            max(len(self.domains), 1),
            len(self.resources),
        )
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
        self.row_alloc, self.row_price = (
            np.zeros((0, r), dtype=np.int64),
            np.zeros(0, dtype=np.int64),
        )
        self.full_alloc, self.full_bits = (
            np.zeros((0, r), dtype=np.int64),
            np.zeros((0, words), dtype=np.uint64),
        )
        self.row_type = np.zeros(0, dtype=np.int64)

    # --- what states there are

    def number(self, state: State) -> int:
        """Returns the number of a state, which is what a node can still become. A new state is
        added first. `NO`: no instance type is left for it, so it is not added."""
        found = self._numbers.get(state)
        if found is None:
            found = self._add(state)
            self._numbers[state] = found
        return found

    def _add(self, state: State) -> int:
        """Adds a node state (labels, possible instance types or taints, devices) and fills its row
        in all tables. Returns the number of the state; numbers begin at 0. Returns `NO` and adds
        nothing if the state is of a new node and no instance type is left for that node."""
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
            [self._allows(state, key, value, rows) for key, value in self.domains] or [False],
            dtype=np.int8,
        )
        self.allows[number] = allowed
        self.signature[number] = self._signatures.setdefault(
            allowed.tobytes(), len(self._signatures)
        )
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
            "allows",
            "signature",
            "row_at",
            "row_end",
            "full_at",
            "full_end",
            "roof",
            "least",
            "template_of",
        ):
            setattr(self, name, _longer(getattr(self, name), 0))
        self.passes = np.ascontiguousarray(_longer(np.ascontiguousarray(self.passes.T), 0).T)

    def remaining(self, state: New | Coming) -> Mask:
        """Returns the instance types that a new or pending node may become, as bool[types] over the
        types of its pool.

        For a new node, a type remains if it matches the node's labels, has an available offering
        with these labels, and has the devices that the node's pods request. For a pending node
        (requested, not created yet), the types are those of its request. Amounts of cpu, memory and
        other resources are not checked here.
        """
        template = self.templates[state.template]
        among = np.frombuffer(state.among, dtype=np.bool_)
        if isinstance(state, Coming):
            return among
        types = template.types
        found = (
            template.able & among & types.fitting(state.labels) & types.with_offering(state.labels)
        )
        return found & template.holding(state.devices) if state.devices else found

    def room_of(self, template: int) -> Column:
        """Returns the capacity of the types of a template for pods, int64[types, resources], in the
        columns `resources`. `template`: its index."""
        return self._rooms[template]

    # --- what becomes of them

    def met(self, number: int, need: int) -> int:
        """Computes the state of a node after it takes a pod, and stores the number of that state in
        `meet`. A state holds the labels of a node, its possible instance types or taints, and its
        devices. Returns the number, or `NO` if the node cannot take the pod. Example: a new node
        that may be in zone a or b takes a pod that requires zone b; the new state has zone b only.

        `number`: the state of the node before. `need`: what the pod requires of a node (labels,
        tolerations, devices, host ports), as an index in `needs`.
        """
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
        devices = (
            tuple(sorted((*state.devices, *asked.devices), key=_device_order))
            if asked.devices
            else state.devices
        )
        return self.number(
            New(state.template, state.labels.intersect(asked.labels), among, devices)
        )

    def _there_met(self, number: int, state: There, asked: Need) -> int:
        if untolerated(state.taints, asked.tolerations) or not state.labels.compatible(
            asked.labels
        ):
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
        """Computes the state of a node after its topology domain is fixed, and stores the number of
        that state in `narrow`. Returns the number, or `NO` if the node cannot be in the domain.

        Example: a new node that may be in zone a or b is fixed to zone b; the new state has zone b
        only. An existing or pending node keeps its state. For that node the result is `NO` unless
        the domain is the only one in which the node can be. `number`: the state of the node before.
        `domain`: index in `domains`, which are (topology key, value) pairs.
        """
        state = self.states[number]
        key, value = self.domains[domain]
        if isinstance(state, New):
            one = ValueSet(False, frozenset((value,)))
            labels = state.labels.intersect(LabelSet(((key, one),)))
            found = self.number(New(state.template, labels, state.among, state.devices))
        else:
            of_key = [
                d for d, (k, _) in enumerate(self.domains) if k == key and self.allows[number, d]
            ]
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
        """Returns whether a node can have this value of a label for which no values are listed.
        That is a label that no instance type describes, and that the pool only requires to exist.
        """
        template = self.templates[state.template]
        if _of_types(template, key):
            return False
        own = state.labels.get(key)
        return own is not None and own.complement and not own.optional and own.allows(value)

    def _passes(self, state: State, chosen: NodeFilter) -> bool:
        if isinstance(state, There):
            taints, labels, known = state.taints, state.labels, frozenset[str]()
        else:
            template = self.templates[state.template]
            taints, labels, known = template.taints, state.labels, template.types.known
        if chosen.tolerations is not None and first_untolerated(
            taints, chosen.tolerations, ("NoSchedule", "NoExecute")
        ):
            return False
        return chosen.alternatives is None or any(
            labels.compatible(a, known) for a in chosen.alternatives
        )

    # --- instance types by price

    def _lay_rows(self, number: int, state: New, rows: Mask) -> None:
        template = self.templates[state.template]
        pareto_front = self.type_index.pareto_front(template, self.resources, rows, state.labels)
        block = self._blocks.get(pareto_front)
        if block is None:
            first = len(self.row_price)
            self.row_alloc = np.concatenate((self.row_alloc, pareto_front.room))
            self.row_price = np.concatenate((self.row_price, pareto_front.prices))
            self.row_type = np.concatenate((self.row_type, pareto_front.rows))
            block = self._blocks[pareto_front] = (first, len(self.row_price))
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
    """Bit sets of the label values that each instance type can have, for the labels with minValues.
    `keys`: (label, first 64-bit word, last word + 1)."""

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
    """Returns the listed values of the label `key` that a node with these labels and of these types
    can have. `among` bool[types]: the types of the template that it may become."""
    if _of_types(template, key):
        return template.types.values(key, labels, among)
    own = labels.get(key)
    return tuple(sorted(own.values)) if own is not None and not own.complement else ()


def _of_types(template: Template, key: str) -> bool:
    return key in BOUGHT or key in template.types.described


def _surely(template: Template, state: Coming, among: Mask, key: str, asked: ValueSet) -> bool:
    """Returns whether a pending node will satisfy the requirement `asked` on the label `key` with
    every type that it may become. `among` bool[types]: these types."""
    values = values_of(template, state.labels, key, among)
    if not values:
        own = state.labels.get(key)
        return asked.optional if own is None else bool(own.optional and asked.optional)
    return all(asked.allows(value) for value in values)


def _device_order(request: Any) -> tuple[Any, ...]:
    return (
        request.milli < 1000,
        not request.models,
        request.kind,
        -request.count,
        -request.milli,
        request.models,
    )


def _longer(rows: Any, filler: int) -> Any:
    return np.concatenate((rows, np.full_like(rows, filler)))


def domains_of(
    keys: Iterable[str],
    templates: Sequence[Template],
    labels: Iterable[Mapping[str, str]],
    more: Iterable[LabelSet],
) -> tuple[tuple[str, str], ...]:
    """Returns all topology domains in which nodes exist or can be created, as (topology key,
    value). The domains have the order of `keys`; those of one key are sorted by value.

    `keys`: the topology keys. `templates`: what the new nodes of each pool look like. `labels`: the
    labels of each existing node. `more`: label requirements of pods and of pending nodes. The
    requirements matter only where a pool allows many values of a label and lists none. Then the
    values that the requirements list are domains. Example: a pool requires that the label `rack`
    exists, and a pod requires `rack In [r1, r2]`: (rack, r1) and (rack, r2).
    """
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
