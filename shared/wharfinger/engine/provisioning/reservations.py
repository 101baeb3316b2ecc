"""Capacity that is paid for already: how many instances of each reservation are left.

What a node will be is open until it is launched, so it holds one of *every* reservation it could go to. Where that leaves
none for the next one, a strict batch lets pods wait rather than to buy beside it: what the first node does not take is free
again in the next batch. Who replaces nodes falls back to what can be bought.
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
    """What is left of each reservation, and who holds one of it. Changes in place; `copy` is cheap."""

    __slots__ = ("_held", "_left")

    def __init__(self, catalogues: Iterable[Types] = ()) -> None:
        """Where offerings of one reservation disagree on what is left, the least counts. A catalogue's number is as old as
        the catalogue: nodes on their way hold theirs on top (`promised`)."""
        self._left: dict[str, int] = {}
        self._held: dict[str, frozenset[str]] = {}
        for types in catalogues:
            for offering in types.offerings:
                if offering.reservation and offering.capacity_type == "reserved":
                    known = self._left.get(offering.reservation, offering.left)
                    self._left[offering.reservation] = min(known, offering.left)

    def promised(self, claim: str, labels: LabelSet) -> None:
        """A node on its way that was asked for with these labels: of the reservations it was bound to it holds as many as
        there are left."""
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
        """Those of which the claim holds one, or one is left."""
        held = self.held_by(claim)
        return frozenset(r for r in reservations if r in held or self._left.get(r, 0) > 0)

    def hold(self, claim: str, reservations: Iterable[str]) -> None:
        """From now on the claim holds one of exactly these. What it holds no longer is free again."""
        wanted, held = frozenset(reservations), self.held_by(claim)
        assert wanted <= self.could_hold(claim, wanted), "a reservation is promised that nothing is left of"
        for reservation in held - wanted:
            self._left[reservation] += 1
        for reservation in wanted - held:
            self._left[reservation] -= 1
        if wanted:
            self._held[claim] = wanted
        else:
            self._held.pop(claim, None)


def fitting(types: Types, among: Mask, labels: LabelSet) -> frozenset[str]:
    """The reservations that a node could go to: available, of a type in `among` (bool[types]), and as `labels` admit."""
    if not types.reservations:
        return frozenset()
    usable = types.offered(labels) & (types.mode == RESERVED) & (types.reservation >= 0) & among[types.of_type]
    return frozenset(types.reservations[code] for code in np.unique(types.reservation[usable]))


def to_hold(
    book: Reservations, claim: str, types: Types, among: Mask, labels: LabelSet, strict: bool
) -> tuple[frozenset[str], str]:
    """What the claim would hold, were it so, and why it must not be so: empty when it may. Nothing is changed."""
    possible = fitting(types, among, labels)
    holds = book.could_hold(claim, possible)
    if not strict or holds:
        return holds, ""
    if possible:
        return holds, f"reserved capacity would fit ({', '.join(sorted(possible))}) and all of it is promised"
    if book.held_by(claim):
        return holds, "no reserved capacity would be left that the node could go to"
    return holds, ""


def launched(labels: LabelSet, holds: frozenset[str]) -> LabelSet:
    """The labels a claim is launched with that holds these reservations: it goes to one of them."""
    if not holds:
        return labels
    reserved = (
        (CAPACITY_TYPE_LABEL, ValueSet(False, frozenset(("reserved",)))),
        (RESERVATION_LABEL, ValueSet(False, holds)),
    )
    return labels.intersect(LabelSet(reserved))


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A node that shall be made: what it may be, before reservations are given out. `claim`: any name of its own."""

    claim: str
    types: Types
    among: Mask
    labels: LabelSet


@dataclass(frozen=True, slots=True)
class Settled:
    """`labels`: with what a draft is launched, bound to reserved capacity or kept off it. `holds`: one of each of these.
    `refusal`: why it must wait, empty when it may be launched."""

    labels: LabelSet
    holds: frozenset[str] = frozenset()
    refusal: str = ""


def settled(book: Reservations, drafts: Iterable[Draft], strict: bool) -> tuple[Settled, ...]:
    """What each draft gets, first come, first served. A draft that gets nothing where it could have waits when `strict`,
    and is bought beside the reservations when not: then what it costs is not what reserved capacity costs. Where nothing
    but reserved capacity is allowed it waits in any case."""
    return tuple(_settled(book, draft, strict) for draft in drafts)


def _settled(book: Reservations, draft: Draft, strict: bool) -> Settled:
    holds, refusal = to_hold(book, draft.claim, draft.types, draft.among, draft.labels, strict)
    if refusal:
        return Settled(draft.labels, holds, refusal)
    if holds:
        book.hold(draft.claim, holds)
        return Settled(launched(draft.labels, holds), holds)
    beside = draft.labels.narrowed(CAPACITY_TYPE_LABEL, _BESIDE) if draft.types.reservations else draft.labels
    if not (draft.among & draft.types.with_offering(beside)).any():
        return Settled(draft.labels, holds, "nothing but reserved capacity would fit, and all of it is promised")
    return Settled(beside)


_BESIDE = ValueSet.of("NotIn", ("reserved",))
