"""The recorded explanation of a node decision, within its 2 KiB.

Names come from outside and may be of any length; counts and reasons are ours and short. So names share a budget, and a
node that does not fit into it is left out, the best first to stay: the derived explanation has them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from wharfinger.domain.value import canonical
from wharfinger.engine.nodes.place import Choice, Diagnosis
from wharfinger.events.decisions import Explanation, Scored

NAMED = 3
"""How many chosen nodes and how many runners-up are named."""

_NAMES_BYTES = 1400


def explained(
    diagnosis: Diagnosis, chosen: Iterable[Choice] = (), runners_up: Sequence[Choice] = (), note: str = ""
) -> Explanation:
    best: dict[str, Scored] = {}
    left = _NAMES_BYTES
    for choice in chosen:
        name = choice.row.name
        if name not in best and (size := _size(name)) <= left:
            left -= size
            best[name] = Scored(name, choice.score)
            if len(best) == NAMED:
                break
    next_best: list[Scored] = []
    for choice in runners_up[:NAMED]:
        name = choice.row.name
        if name not in best and (size := _size(name)) <= left:
            left -= size
            next_best.append(Scored(name, choice.score))
    return Explanation(
        candidates=diagnosis.candidates,
        feasible=diagnosis.feasible,
        refused=dict(diagnosis.refused.items()),
        chosen=tuple(best.values()),
        runners_up=tuple(next_best),
        note=note,
    )


@lru_cache(maxsize=8192)
def _size(name: str) -> int:
    """Bytes of a name as JSON. Letters, digits, dots and dashes stand for themselves; anything else may be escaped. Kept,
    because the same nodes are named all the time."""
    plain = name.isascii() and name.replace("-", "").replace(".", "").isalnum()
    return len(name) if plain else len(canonical(name))
