"""`diff`: what is different between two moments of the plane.

Two pictures are held against each other, name by name. Nothing is said of how the one became the other: `history` and
`lineage` have that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value
from wharfinger.history.picture import BindingAt, ClusterAt, NodeAt, Picture, picture_at, policies_at
from wharfinger.history.points import Point
from wharfinger.runtime.ledger import Ledger

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One thing that is not as it was. `before` None: it was not there; `after` None: it is gone."""

    name: str
    before: T | None
    after: T | None

    @property
    def kind(self) -> str:
        return "added" if self.before is None else "removed" if self.after is None else "changed"


@dataclass(frozen=True, slots=True)
class Difference:
    """From `a` to `b`, each kind in order of name; nodes are named `cluster/node`. Policies are looked at only where all
    streams are."""

    a: Picture
    b: Picture
    clusters: tuple[Change[ClusterAt], ...]
    nodes: tuple[Change[NodeAt], ...]
    bindings: tuple[Change[BindingAt], ...]
    policies: tuple[Change[Policy], ...] = ()

    @property
    def same(self) -> bool:
        return not (self.clusters or self.nodes or self.bindings or self.policies)


async def diff(ledger: Ledger, a: Point, b: Point, stream: str = "") -> Difference:
    """What changed from `a` to `b` for the streams named (all: empty). PointError: one of them is no such place."""
    before, after = await picture_at(ledger, a, stream), await picture_at(ledger, b, stream)
    policies: tuple[Change[Policy], ...] = ()
    if not stream:
        policies = tuple(changes(await policies_at(ledger, a), await policies_at(ledger, b)))
    return Difference(
        before, after, tuple(changes(before.clusters, after.clusters)), tuple(changes(_nodes(before), _nodes(after))),
        tuple(changes(before.bindings, after.bindings)), policies,
    )  # fmt: skip


def changes(before: Mapping[str, T], after: Mapping[str, T]) -> Iterator[Change[T]]:
    for name in sorted({*before, *after}):
        change = Change(name, before.get(name), after.get(name))
        if change.before != change.after:
            yield change


def changed_fields(before: Value, after: Value) -> list[str]:
    """The fields in which two values of one type differ, as they are declared."""
    return [name for name in before.__struct_fields__ if getattr(before, name) != getattr(after, name)]


def _nodes(picture: Picture) -> dict[str, NodeAt]:
    return {f"{c.name}/{n.node.name}": n for c in picture.clusters.values() for n in c.nodes}
