"""The measured load of the nodes, in the columns that placers read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from wharfinger.domain.scheduler import DynamicArgs
from wharfinger.engine.load.columns import LoadColumns, LoadTable
from wharfinger.engine.load.node_loads import LoadBook
from wharfinger.engine.nodes.columns import NodeTable
from wharfinger.events.decisions import NodeShare
from wharfinger.kernel.decider import Micros


@dataclass(slots=True)
class Loads:
    """Caches the load columns. The placements counted in `book` are not a cache; they are derived
    from the time of each replica's placement."""

    book: LoadBook
    _table: LoadTable = field(init=False)
    _moves: int = 0
    _made: tuple[object, LoadColumns] | None = None
    _names: tuple[int, list[str]] = field(default_factory=lambda: (-1, []))

    def __post_init__(self) -> None:
        self._table = LoadTable(self.book)

    def columns(self, nodes: NodeTable, now: Micros, args: DynamicArgs) -> LoadColumns:
        """Returns the load columns of the nodes for these arguments; the same object as in the last
        call if nothing has changed."""
        if self._names[0] != nodes.names:
            self._names = (nodes.names, ["" if row is None else row.name for row in nodes.by_slot])
        key = (nodes.names, self.book.version, self._moves, now, args)
        if self._made is None or self._made[0] != key:
            self._made = (key, self._table.columns(self._names[1], nodes.names, now, args))
        return self._made[1]

    def came(self, binding: str, shares: Iterable[NodeShare], at: Micros) -> None:
        if self.book.policy.hot:
            self._moves += 1
            for share in shares:
                for ordinal in share.ordinals:
                    self.book.placed(share.node, (binding, ordinal), at)

    def left(self, binding: str, shares: Iterable[NodeShare]) -> None:
        if self.book.records:
            self._moves += 1
            for share in shares:
                for ordinal in share.ordinals:
                    self.book.released(share.node, (binding, ordinal))
