"""`diff`: what is different between two moments of the plane.

Two pictures are held against each other, name by name. Nothing is said of how the one became the
other: `history` and `lineage` have that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value
from wharfinger.history.plane_at import (
    BindingAt,
    ClusterAt,
    NodeAt,
    PlaneSnapshot,
    plane_at,
    policies_at,
)
from wharfinger.history.points import HistoryPoint
from wharfinger.runtime.ledger import Ledger

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FieldChange(Generic[T]):
    """One thing that is not as it was. `before` None: it was not there; `after` None: it is
    gone."""

    name: str
    before: T | None
    after: T | None

    @property
    def kind(self) -> str:
        return "added" if self.before is None else "removed" if self.after is None else "changed"


@dataclass(frozen=True, slots=True)
class FleetDifference:
    """From `a` to `b`, each kind in order of name; nodes are named `cluster/node`. Policies are
    looked at only where all streams are."""

    a: PlaneSnapshot
    b: PlaneSnapshot
    clusters: tuple[FieldChange[ClusterAt], ...]
    nodes: tuple[FieldChange[NodeAt], ...]
    bindings: tuple[FieldChange[BindingAt], ...]
    policies: tuple[FieldChange[Policy], ...] = ()

    @property
    def same(self) -> bool:
        return not (self.clusters or self.nodes or self.bindings or self.policies)


async def diff(
    ledger: Ledger, a: HistoryPoint, b: HistoryPoint, stream: str = ""
) -> FleetDifference:
    """What changed from `a` to `b` for the streams named (all: empty). PointError: one of them is
    no such place."""
    before, after = await plane_at(ledger, a, stream), await plane_at(ledger, b, stream)
    policies: tuple[FieldChange[Policy], ...] = ()
    if not stream:
        policies = tuple(changes(await policies_at(ledger, a), await policies_at(ledger, b)))
    return FleetDifference(
        before,
        after,
        tuple(changes(before.clusters, after.clusters)),
        tuple(changes(_nodes(before), _nodes(after))),
        tuple(changes(before.bindings, after.bindings)),
        policies,
    )


def changes(before: Mapping[str, T], after: Mapping[str, T]) -> Iterator[FieldChange[T]]:
    for name in sorted({*before, *after}):
        change = FieldChange(name, before.get(name), after.get(name))
        if change.before != change.after:
            yield change


def changed_fields(before: Value, after: Value) -> list[str]:
    """The fields in which two values of one type differ, as they are declared."""
    return [
        name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)
    ]


def _nodes(picture: PlaneSnapshot) -> dict[str, NodeAt]:
    return {f"{c.name}/{n.node.name}": n for c in picture.clusters.values() for n in c.nodes}
