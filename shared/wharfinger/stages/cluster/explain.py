"""The recorded explanation of a node decision, within its 2 KiB.

Names come from outside and may be of any length; counts and reasons are ours and short. So names share a budget, and a
node that does not fit into it is left out, the best first to stay: the derived explanation has them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wharfinger.domain.value import canonical
from wharfinger.engine.nodes.place import Choice, Diagnosis
from wharfinger.events.decisions import Explanation, Scored

NAMED = 3
"""How many chosen nodes and how many runners-up are named."""

_NAMES_BYTES = 1400


def explained(
    diagnosis: Diagnosis, chosen: Iterable[Choice] = (), runners_up: Sequence[Choice] = (), note: str = ""
) -> Explanation:
    first: dict[str, Scored] = {}
    for choice in chosen:
        if choice.row.name not in first:
            first[choice.row.name] = Scored(choice.row.name, choice.score)
            if len(first) == NAMED:
                break
    rest = [Scored(c.row.name, c.score) for c in runners_up if c.row.name not in first]
    budget = _Budget(_NAMES_BYTES)
    return Explanation(
        candidates=diagnosis.candidates,
        feasible=diagnosis.feasible,
        refused={str(reason): count for reason, count in diagnosis.refused.items()},
        chosen=tuple(budget.within(first.values())),
        runners_up=tuple(budget.within(rest[:NAMED])),
        note=note,
    )


class _Budget:
    def __init__(self, left: int) -> None:
        self.left = left

    def within(self, scored: Iterable[Scored]) -> Iterator[Scored]:
        for one in scored:
            size = len(one.name) if one.name.isascii() and one.name.isprintable() else len(canonical(one.name))
            if size <= self.left:
                self.left -= size
                yield one
