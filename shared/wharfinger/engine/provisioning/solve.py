"""Packs pods onto existing, pending and new nodes at the lowest price found.

Existing nodes are tried before pending ones, these before new ones; preferences are kept as long as
a place with them exists. `first-fit` packs as Karpenter does (first-fit decreasing). `priced` packs
in several ways and keeps the cheapest: pods that exclude others go first, each pod goes where it
raises the price of new nodes least, then local search moves pods so that nodes become smaller or
are removed. First-fit is one of these ways, so `priced` is never more expensive.

`packing` builds the arrays and runs `kernels`; `states` tracks what a node can still become;
`topology` and `shapes` compile the constraints between pods and their relaxations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from wharfinger.engine.devices.fit import asked
from wharfinger.engine.provisioning.catalogue import Ask, Column
from wharfinger.engine.provisioning.filtering import filtered
from wharfinger.engine.provisioning.kernels import FIRST_FIT, PRICED
from wharfinger.engine.provisioning.packing import Packed, PackingProblem
from wharfinger.engine.provisioning.problem import NewClaim, Problem, Solution, Unplaced
from wharfinger.engine.provisioning.reservations import fitting
from wharfinger.engine.provisioning.shapes import Shape
from wharfinger.engine.provisioning.states import New
from wharfinger.engine.provisioning.templates import Template
from wharfinger.engine.provisioning.topology import in_words
from wharfinger.engine.provisioning.type_index import ATTACHED, InstanceTypeIndex


def solve(
    problem: Problem, type_index: InstanceTypeIndex | None = None, enough: int = 0
) -> Solution:
    """Finds places for the wanted pods on existing, pending and new nodes (bin packing).
    Deterministic: the same problem gives the same solution on every machine, with or without a
    prepared `type_index`.

    `enough`: if first-fit places all pods at this price or less, no cheaper packing is searched;
    billionths of a dollar an hour. Raises OverlayError.
    """
    packing = PackingProblem(problem, type_index)
    return _Telling(packing, _packed(packing, enough)).solution()


def _packed(packing: PackingProblem, enough: int) -> Packed:
    """Packs the pods and returns the best packing found.

    With the option `first-fit`, pods are packed in Karpenter's order (first-fit decreasing), and
    that packing is returned. With `priced`, the first-fit packing is returned if it places all pods
    at a price of at most `enough` (billionths of a dollar an hour). Otherwise it is compared with
    two packings that put each pod where it raises the price least; these two differ in the order of
    pods. The best of the three has the fewest pods without a place, then the lowest price, then the
    fewest new nodes. It is improved by local search before it is returned.
    """
    best = packing.pack(packing.queue(), FIRST_FIT)
    if packing.problem.options.packing == "first-fit":
        return best.packed()
    without, price, _ = best.rank
    if without or price > enough:
        ways = (packing.pack(packing.by_worth(dominant), PRICED) for dominant in (False, True))
        best = min((best, *ways), key=lambda way: way.rank)
        best.improve()
    return best.packed()


class _Telling:
    """Converts the arrays of a packing into a `Solution`, with the reasons for pods without a
    place."""

    def __init__(self, packing: PackingProblem, packed: Packed) -> None:
        self.packing, self.packed = packing, packed
        self.wanted = packing.problem.wanted
        self._on: list[dict[str, int]] = [{} for _ in range(len(packed.pods))]
        for owner, bin in zip(packed.owner.tolist(), packed.bin_of.tolist(), strict=True):
            if bin >= 0:
                names, name = self._on[bin], self.wanted[owner].name
                names[name] = names.get(name, 0) + 1

    def solution(self) -> Solution:
        placed: dict[str, Mapping[str, int]] = {}
        joined: dict[str, Mapping[str, int]] = {}
        for i, there in enumerate(self.packing.fixed):
            if self._on[i]:
                into, name = (placed, there.node) if there.node else (joined, there.claim)
                into[name] = dict(sorted(self._on[i].items()))
        first = len(self.packing.fixed)
        claims = tuple(self._claim(n) for n in range(first, len(self._on)) if self._on[n])
        return Solution(placed, joined, claims, tuple(self._unplaced()), self._relaxed())

    # --- new nodes

    def _claim(self, bin: int) -> NewClaim:
        states = self.packing.states
        state = states.states[int(self.packed.state[bin])]
        assert isinstance(state, New)
        template, used = self.packing.templates[state.template], self.packed.used[bin]
        rows = states.remaining(state) & (states.room_of(state.template) >= used).all(axis=1)
        launched = self.packing.type_index.launched(
            template, state.labels, rows, self.packing.problem.options.min_values
        )
        labels = state.labels.with_min_values(dict(launched.lowered))
        return NewClaim(
            template.name,
            labels.settled(template.types.known).requirements(),
            launched.instance_types,
            launched.price,
            launched.worst_price,
            self._requests(template, used, launched.instance_types[0]),
            dict(sorted(self._on[bin].items())),
            tuple(sorted(fitting(template.types, rows, state.labels))),
        )

    def _requests(self, template: Template, used: Column, cheapest: str) -> dict[str, int]:
        """Returns the amounts that a new node must have, resource -> amount: the requests of its
        pods plus the requests of the daemons that run on its cheapest instance type. Example: pods
        with 3,000 and daemons with 200 thousandths of a CPU: `cpu` 3,200.

        `used` int64[resources]: the summed requests of the node's pods. `cheapest`: the name of the
        cheapest type. Attached volumes are left out.
        """
        row = template.types.row[cheapest]
        found = {}
        for name, amount in zip(self.packing.resources, used.tolist(), strict=True):
            if name.startswith(ATTACHED):
                continue
            column = template.types.resource.get(name)
            daemons = (
                0
                if column is None
                else int(template.types.allocatable[row, column] - template.room[row, column])
            )
            if amount + daemons:
                found[name] = amount + daemons
        return found

    # --- what was not placed, and what was given up

    def _relaxed(self) -> dict[str, tuple[str, ...]]:
        """Returns name of the wanted pods -> the preferences that were dropped so that the pods
        found a place, in the order in which they were dropped. Several wanted pods can have the
        same name, but may have dropped different numbers of preferences. Then the longest list is
        returned. Pods that kept all preferences are left out."""
        found: dict[str, tuple[str, ...]] = {}
        shapes = self.packing.shapes.shapes
        for owner, shape in zip(
            self.packed.owner.tolist(), self.packed.shape_at.tolist(), strict=True
        ):
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
            if at in self.packing.impossible and wanted.count > 0:
                yield Unplaced(wanted.name, wanted.count, self.packing.impossible[at])
            elif at in missing:
                cls = self.packing.class_of[at]
                if cls not in reasons:
                    reasons[cls] = self._reason(cls)
                yield Unplaced(wanted.name, missing[at], reasons[cls])

    def _reason(self, cls: int) -> str:
        """Explains why a pod of the class `cls` has no place, with one clause for each pool.
        Example: `pool a: <reason>; pool b: <reason>`. The clauses are about the pod's hard
        requirements only, because a pod without a place has dropped all its preferences."""
        packing = self.packing
        if not packing.templates:
            return "no pool makes nodes for it"
        number = int(packing.shape_of[cls])
        while packing.shapes.shapes[number].next >= 0:
            number = packing.shapes.shapes[number].next
        shape = packing.shapes.shapes[number]
        clauses = (
            f"pool {template.name}: {self._refusal(at, template, shape, packing.ask[cls])}"
            for at, template in enumerate(packing.templates)
        )
        return "; ".join(clauses)

    def _refusal(self, at: int, template: Template, shape: Shape, ask: Column) -> str:
        packing, need = self.packing, self.packing.shapes.needs[shape.need]
        refusal = template.refusal(need.tolerations, need.labels)
        if refusal:
            return refusal
        labels = template.labels.intersect(need.labels)
        amounts = _in_columns(template, packing.resources, ask)
        if amounts is None:
            missing = [
                n
                for n, a in zip(packing.resources, ask.tolist(), strict=True)
                if a and n not in template.types.resource
            ]
            return f"no instance type has {', '.join(missing)}"
        min_values = packing.problem.options.min_values
        found = filtered(
            template,
            labels,
            amounts,
            devices=_devices(shape),
            ports=need.ports,
            min_values=min_values,
        )
        if found.refusal:
            return found.refusal
        left = self.packed.left[at]
        refusal = left.refusal(template.types, found.remaining)
        if refusal:
            return refusal
        reserved = packing.refusals.get((at, shape.need), "")
        return reserved or self._kept_off(shape)

    def _kept_off(self, shape: Shape) -> str:
        """Explains that other pods exclude the pod from every domain. Used when nothing in the pool
        itself excludes it."""
        said = in_words(shape.rows)
        return (
            f"no domain satisfies {said}"
            if said
            else "no node can be made that holds it and its daemons"
        )


def _in_columns(template: Template, resources: tuple[str, ...], ask: Column) -> Column | None:
    """Converts the requests of a pod to the resource columns of a pool's instance types. Returns
    int64[resources of the types], or None if a requested resource is one that no instance type has.

    `ask`: requested amounts, in the order of `resources`. Volumes are left out, because new nodes
    have no known limit of volumes. Example: `resources` (cpu, memory, pods), `ask` [1000, 0, 1],
    columns of the types (pods, cpu): returns [1, 1000].
    """
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
