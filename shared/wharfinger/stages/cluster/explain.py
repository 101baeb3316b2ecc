"""The recorded explanation of a node decision, within its 2 KiB.

Names come from outside and may be of any length; counts and reasons are ours and short. So names share a budget, and a
node that does not fit into it is left out, the best first to stay; the text for people gets what is left. The derived
explanation has all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from wharfinger.domain.value import canonical
from wharfinger.engine.nodes.place import Choice, Diagnosis
from wharfinger.events.decisions import Explanation, Scored

NAMED = 3
"""How many chosen nodes and how many runners-up are named."""

_NAMES_BYTES = 1100

_TEXT_BYTES = 1400
"""Names and note together; counts and reasons take the rest."""


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
    used = _NAMES_BYTES - left
    return Explanation(
        candidates=diagnosis.candidates,
        feasible=diagnosis.feasible,
        refused=dict(diagnosis.refused.items()),
        chosen=tuple(best.values()),
        runners_up=tuple(next_best),
        note=cut(note, _TEXT_BYTES - used),
    )


def cut(note: str, limit: int = _TEXT_BYTES) -> str:
    """The note, or as much of it as fits into `limit` bytes of JSON, and three dots."""
    if len(note) * 6 <= limit or len(canonical(note)) - 2 <= limit:
        return note
    kept = note[:limit]
    while len(canonical(kept)) + 1 > limit:
        kept = kept[: len(kept) * 7 // 8]
    return kept.rstrip() + "..."


@lru_cache(maxsize=8192)
def _size(name: str) -> int:
    """Bytes of a name as JSON. Letters, digits, dots and dashes stand for themselves; anything else may be escaped. Kept,
    because the same nodes are named all the time."""
    plain = name.isascii() and name.replace("-", "").replace(".", "").isalnum()
    return len(name) if plain else len(canonical(name))
