"""Tracks capacity reservations: how many instances of each are left, and which claims hold them.

The type of a new node is not known before launch, so it holds one instance of *every* reservation
it could use. If none is left for the next node, a strict batch lets its pods wait instead of buying
other capacity: what the first node does not use is free again in the next batch. Replacements of
disrupted nodes are not strict: they buy other capacity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from wharfinger.domain.node_pool import CAPACITY_TYPE_LABEL
from wharfinger.engine.provisioning.catalogue import PREFERENCE, Mask, Types
from wharfinger.engine.provisioning.overlays import RESERVATION_LABEL
from wharfinger.engine.provisioning.requirements import LabelSet, ValueSet

RESERVED = PREFERENCE.index("reserved")


class Reservations:
    """Counts what is left of each capacity reservation, and records which claim holds which.
    Mutable; `copy` is cheap."""

    __slots__ = ("_held", "_left")

    def __init__(self, catalogues: Iterable[Types] = ()) -> None:
        """Reads from the catalogues how many instances are left of each reservation. If offerings
        of one reservation disagree, the smallest number counts. The numbers are as old as the
        catalogue, so what pending nodes hold is subtracted in addition (`promised`)."""
        self._left: dict[str, int] = {}
        self._held: dict[str, frozenset[str]] = {}
        for types in catalogues:
            for offering in types.offerings:
                if offering.reservation and offering.capacity_type == "reserved":
                    known = self._left.get(offering.reservation, offering.left)
                    self._left[offering.reservation] = min(known, offering.left)

    def promised(self, claim: str, labels: LabelSet) -> None:
        """Records a pending node that was requested with these labels. It holds one instance of
        each reservation in its labels of which one is left."""
        bound = labels.get(RESERVATION_LABEL)
        if bound is not None and not bound.complement:
            self.hold(claim, self.could_hold(claim, bound.values))

    def copy(self) -> Reservations:
        made = Reservations()
        made._left, made._held = dict(self._left), dict(self._held)
        return made

    def left(self, reservation: str) -> int:
        return self._left.get(reservation, 0)

    def held_by(self, claim: str) -> frozenset[str]:
        return self._held.get(claim, frozenset())

    def could_hold(self, claim: str, reservations: Iterable[str]) -> frozenset[str]:
        """Returns those of the reservations that the claim holds already or of which an instance is
        left."""
        held = self.held_by(claim)
        return frozenset(r for r in reservations if r in held or self._left.get(r, 0) > 0)

    def hold(self, claim: str, reservations: Iterable[str]) -> None:
        """Records that a requested node (`claim`: its name) holds one instance of each capacity
        reservation in `reservations`, and no other. Example: a claim holds r1 and r2; after
        `hold(claim, [r2, r3])` it holds r2 and r3, one more instance of r1 is left, and one less of
        r3."""
        wanted, held = frozenset(reservations), self.held_by(claim)
        assert wanted <= self.could_hold(claim, wanted), (
            "a reservation is promised that nothing is left of"
        )
        for reservation in held - wanted:
            self._left[reservation] += 1
        for reservation in wanted - held:
            self._left[reservation] -= 1
        if wanted:
            self._held[claim] = wanted
        else:
            self._held.pop(claim, None)


def fitting(types: Types, among: Mask, labels: LabelSet) -> frozenset[str]:
    """Returns the reservations that a node could use: those of available reserved offerings that
    `labels` allows, of a type in `among` (bool[types])."""
    if not types.reservations:
        return frozenset()
    usable = (
        types.offered(labels)
        & (types.mode == RESERVED)
        & (types.reservation >= 0)
        & among[types.of_type]
    )
    return frozenset(types.reservations[code] for code in np.unique(types.reservation[usable]))


def to_hold(
    book: Reservations, claim: str, types: Types, among: Mask, labels: LabelSet, strict: bool
) -> tuple[frozenset[str], str]:
    """Determines which capacity reservations a requested node can hold, and whether it must wait
    for reserved capacity. Returns (reservations, refusal). The refusal is empty if the node need
    not wait. `book` (what is left of each reservation) is not changed.

    A reservation can be held if the node may use it, and if an instance is left or `claim` holds
    one already. Without `strict` the node never waits. With `strict` it waits in two cases. Either
    the node may use some reservations, but it can hold none of them. Or `claim` holds reservations
    now, and the node may use none any more.

    `claim`: the name of the requested node. `among` bool[types]: the instance types that the node
    may become. `labels`: the labels of the node.
    """
    possible = fitting(types, among, labels)
    holds = book.could_hold(claim, possible)
    if not strict or holds:
        return holds, ""
    if possible:
        return (
            holds,
            (
                f"reserved capacity would fit ({', '.join(sorted(possible))}) and all of it is "
                "promised"
            ),
        )
    if book.held_by(claim):
        return holds, "no reserved capacity would be left that the node could go to"
    return holds, ""


def launched(labels: LabelSet, holds: frozenset[str]) -> LabelSet:
    """Returns the labels with which a claim is launched that holds these reservations: restricted
    to reserved capacity and to these reservations. Unchanged if it holds none."""
    if not holds:
        return labels
    reserved = (
        (CAPACITY_TYPE_LABEL, ValueSet(False, frozenset(("reserved",)))),
        (RESERVATION_LABEL, ValueSet(False, holds)),
    )
    return labels.intersect(LabelSet(reserved))


@dataclass(frozen=True, slots=True, eq=False)
class NodeDraft:
    """A new node before reservations are assigned. `claim`: a unique name. `among` bool[types]: the
    instance types that it may become. `labels`: its possible labels."""

    claim: str
    types: Types
    among: Mask
    labels: LabelSet


@dataclass(frozen=True, slots=True)
class Settled:
    """The reservations of one draft. `labels`: those with which it is launched, restricted to
    reserved capacity or excluding it. `holds`: the reservations of each of which it holds one
    instance. `refusal`: why the draft must wait; empty if it may be launched."""

    labels: LabelSet
    holds: frozenset[str] = frozenset()
    refusal: str = ""


def settled(book: Reservations, drafts: Iterable[NodeDraft], strict: bool) -> tuple[Settled, ...]:
    """Assigns reservations to drafts, first come, first served. `book` is changed.

    A draft that could use reserved capacity but gets none waits if `strict`. If not `strict`, it is
    launched without reserved capacity, at another price. A draft that allows nothing but reserved
    capacity waits in any case.
    """
    return tuple(_settled(book, draft, strict) for draft in drafts)


def _settled(book: Reservations, draft: NodeDraft, strict: bool) -> Settled:
    holds, refusal = to_hold(book, draft.claim, draft.types, draft.among, draft.labels, strict)
    if refusal:
        return Settled(draft.labels, holds, refusal)
    if holds:
        book.hold(draft.claim, holds)
        return Settled(launched(draft.labels, holds), holds)
    beside = (
        draft.labels.narrowed(CAPACITY_TYPE_LABEL, _BESIDE)
        if draft.types.reservations
        else draft.labels
    )
    if not (draft.among & draft.types.with_offering(beside)).any():
        return Settled(
            draft.labels,
            holds,
            "nothing but reserved capacity would fit, and all of it is promised",
        )
    return Settled(beside)


_BESIDE = ValueSet.of("NotIn", ("reserved",))
