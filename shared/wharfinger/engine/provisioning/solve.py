"""Puts pods on nodes that are there, on their way, or to be made, as cheaply as it can.

A pod goes to a node that is there before one on its way, and to that before a new one; what it prefers is kept as far as
there is a place with it. `first-fit` packs as Karpenter does. `priced` packs several ways and keeps the cheapest: what keeps
other pods off its node first, each pod where it makes the new nodes dearer by the least; then pods are moved until nodes
shrink or go. First-fit is one of its ways, so it is never dearer.

`packing` lays the arrays and runs the loops of `kernels`; `states` says what a node can still be; `topology`, `shapes` what
pods mean to each other and what they may give up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from wharfinger.engine.devices.fit import asked
from wharfinger.engine.provisioning.catalogue import Ask, Column
from wharfinger.engine.provisioning.filtering import filtered
from wharfinger.engine.provisioning.kernels import FIRST_FIT, PRICED
from wharfinger.engine.provisioning.packing import Packed, Yard
from wharfinger.engine.provisioning.problem import NewClaim, Problem, Solution, Unplaced
from wharfinger.engine.provisioning.reservations import fitting
from wharfinger.engine.provisioning.shapes import Shape
from wharfinger.engine.provisioning.shop import ATTACHED, Shop
from wharfinger.engine.provisioning.states import New
from wharfinger.engine.provisioning.templates import Template


def solve(problem: Problem, shop: Shop | None = None, enough: int = 0) -> Solution:
    """Where the wanted pods go. The same problem gives the same solution, everywhere, with a `shop` laid out for many such
    problems as without. `enough`: when first-fit already places all for so little, nothing cheaper is looked for. Raises
    OverlayError."""
    yard = Yard(problem, shop)
    return _Telling(yard, _packed(yard, enough)).solution()


def _packed(yard: Yard, enough: int) -> Packed:
    best = yard.pack(yard.queue(), FIRST_FIT)
    if yard.problem.options.packing == "first-fit":
        return best.packed()
    without, price, _ = best.rank
    if without or price > enough:
        ways = (yard.pack(yard.by_worth(dominant), PRICED) for dominant in (False, True))
        best = min((best, *ways), key=lambda way: way.rank)
        best.improve()
    return best.packed()


class _Telling:
    """Makes values of arrays."""

    def __init__(self, yard: Yard, packed: Packed) -> None:
        self.yard, self.packed = yard, packed
        self.wanted = yard.problem.wanted
        self._on: list[dict[str, int]] = [{} for _ in range(len(packed.pods))]
        for owner, bin in zip(packed.owner.tolist(), packed.bin_of.tolist(), strict=True):
            if bin >= 0:
                names, name = self._on[bin], self.wanted[owner].name
                names[name] = names.get(name, 0) + 1

    def solution(self) -> Solution:
        placed: dict[str, Mapping[str, int]] = {}
        joined: dict[str, Mapping[str, int]] = {}
        for i, there in enumerate(self.yard.fixed):
            if self._on[i]:
                into, name = (placed, there.node) if there.node else (joined, there.claim)
                into[name] = dict(sorted(self._on[i].items()))
        first = len(self.yard.fixed)
        claims = tuple(self._claim(n) for n in range(first, len(self._on)) if self._on[n])
        return Solution(placed, joined, claims, tuple(self._unplaced()), self._relaxed())

    # --- new nodes

    def _claim(self, bin: int) -> NewClaim:
        states = self.yard.states
        state = states.states[int(self.packed.state[bin])]
        assert isinstance(state, New)
        template, used = self.yard.templates[state.template], self.packed.used[bin]
        rows = states.remaining(state) & (states.room_of(state.template) >= used).all(axis=1)
        launched = self.yard.shop.launched(template, state.labels, rows, self.yard.problem.options.min_values)
        return NewClaim(
            template.name,
            state.labels.with_min_values(dict(launched.lowered)).requirements(),
            launched.instance_types,
            launched.price,
            launched.worst_price,
            self._requests(template, used, launched.instance_types[0]),
            dict(sorted(self._on[bin].items())),
            tuple(sorted(fitting(template.types, rows, state.labels))),
        )

    def _requests(self, template: Template, used: Column, cheapest: str) -> dict[str, int]:
        """With what the daemons of the cheapest type take."""
        row = template.types.row[cheapest]
        found = {}
        for name, amount in zip(self.yard.resources, used.tolist(), strict=True):
            if name.startswith(ATTACHED):
                continue
            column = template.types.resource.get(name)
            daemons = 0 if column is None else int(template.types.allocatable[row, column] - template.room[row, column])
            if amount + daemons:
                found[name] = amount + daemons
        return found

    # --- what was not placed, and what was given up

    def _relaxed(self) -> dict[str, tuple[str, ...]]:
        """Of equal pods the one that gave up the most."""
        found: dict[str, tuple[str, ...]] = {}
        shapes = self.yard.shapes.shapes
        for owner, shape in zip(self.packed.owner.tolist(), self.packed.shape_at.tolist(), strict=True):
            if shape >= 0 and shapes[shape].gave_up:
                name = self.wanted[owner].name
                if len(shapes[shape].gave_up) > len(found.get(name, ())):
                    found[name] = shapes[shape].gave_up
        return dict(sorted(found.items()))

    def _unplaced(self) -> Iterator[Unplaced]:
        missing: dict[int, int] = {}
        for owner, bin in zip(self.packed.owner.tolist(), self.packed.bin_of.tolist(), strict=True):
            if bin < 0:
                missing[owner] = missing.get(owner, 0) + 1
        reasons: dict[int, str] = {}
        for at, wanted in enumerate(self.wanted):
            if at in self.yard.impossible and wanted.count > 0:
                yield Unplaced(wanted.name, wanted.count, self.yard.impossible[at])
            elif at in missing:
                cls = self.yard.class_of[at]
                if cls not in reasons:
                    reasons[cls] = self._reason(cls)
                yield Unplaced(wanted.name, missing[at], reasons[cls])

    def _reason(self, cls: int) -> str:
        """A clause a pool, of the pod with all given up that it may."""
        yard = self.yard
        if not yard.templates:
            return "no pool makes nodes for it"
        number = int(yard.shape_of[cls])
        while yard.shapes.shapes[number].next >= 0:
            number = yard.shapes.shapes[number].next
        shape = yard.shapes.shapes[number]
        clauses = (
            f"pool {template.name}: {self._refusal(at, template, shape, yard.ask[cls])}"
            for at, template in enumerate(yard.templates)
        )
        return "; ".join(clauses)

    def _refusal(self, at: int, template: Template, shape: Shape, ask: Column) -> str:
        yard, need = self.yard, self.yard.shapes.needs[shape.need]
        refusal = template.refusal(need.tolerations, need.labels)
        if refusal:
            return refusal
        labels = template.labels.intersect(need.labels)
        amounts = _in_columns(template, yard.resources, ask)
        if amounts is None:
            missing = [
                n for n, a in zip(yard.resources, ask.tolist(), strict=True) if a and n not in template.types.resource
            ]
            return f"no instance type has {', '.join(missing)}"
        min_values = yard.problem.options.min_values
        found = filtered(
            template, labels, amounts, devices=_devices(shape), ports=need.ports, min_values=min_values
        )  # fmt: skip
        if found.refusal:
            return found.refusal
        left = self.packed.left[at]
        refusal = left.refusal(template.types, found.remaining)
        if refusal:
            return refusal
        reserved = yard.refusals.get((at, shape.need), "")
        return reserved or self._kept_off(shape)

    def _kept_off(self, shape: Shape) -> str:
        """What other pods have against it: nothing about the pool itself does."""
        said = dict.fromkeys(row.group.words for row in shape.rows)
        return f"no domain satisfies {', '.join(said)}" if said else "no node can be made that holds it and its daemons"


def _in_columns(template: Template, resources: tuple[str, ...], ask: Column) -> Column | None:
    """The same amounts in the columns of a template's catalogue; None: something is asked for that no type has."""
    types = template.types
    found = np.zeros(len(types.resources), dtype=np.int64)
    for name, amount in zip(resources, ask.tolist(), strict=True):
        if not amount or name.startswith(ATTACHED):
            continue
        if name not in types.resource:
            return None
        found[types.resource[name]] = amount
    return found


def _devices(shape: Shape) -> Ask:
    return asked(shape.requirements.devices)
