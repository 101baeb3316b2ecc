"""The recorded explanation of a node decision, within 2 KiB.

Names come from outside and have any length; counts and reasons are ours and short. So the names
share a budget: nodes that do not fit are left out, worst first, and the message gets what is left.
`trace` has everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from wharfinger.domain.value import canonical
from wharfinger.engine.nodes.place import Diagnosis, NodeChoice
from wharfinger.events.decisions import Explanation

RANKED = 4
"""How many of the best nodes are looked through for one that was not chosen."""

_NAMES_BYTES = 1100

_TEXT_BYTES = 1400
"""Maximum size of names and note together; counts and reasons take the rest."""


def explained(
    diagnosis: Diagnosis,
    chosen: Sequence[NodeChoice] = (),
    ranked: Sequence[NodeChoice] = (),
    note: str = "",
) -> Explanation:
    """Builds the explanation of a placement, or of its refusal. `chosen`: where the replicas go,
    the best first. `ranked`: the best nodes, of which the first is named that was not
    chosen."""
    best: dict[str, int] = {}
    left = _NAMES_BYTES
    taken = {choice.row.name for choice in chosen}
    other = next((choice for choice in ranked if choice.row.name not in taken), None)
    for choice in (*chosen[:1], *(() if other is None else (other,))):
        name = choice.row.name
        if (size := _size(name)) <= left:
            left -= size
            best[name] = choice.score
    used = _NAMES_BYTES - left
    return Explanation(
        candidates=diagnosis.candidates,
        feasible=diagnosis.feasible,
        refused=dict(diagnosis.refused.items()),
        note=cut(note, _TEXT_BYTES - used),
        best=best,
    )


def cut(note: str, limit: int = _TEXT_BYTES) -> str:
    """Returns the note, cut to `limit` bytes of JSON with three dots at the end if it is longer."""
    if len(note) * 6 <= limit or len(canonical(note)) - 2 <= limit:
        return note
    kept = note[:limit]
    while len(canonical(kept)) + 1 > limit:
        kept = kept[: len(kept) * 7 // 8]
    return kept.rstrip() + "..."


@lru_cache(maxsize=8192)
def _size(name: str) -> int:
    """Returns the number of bytes that the name takes as JSON. A name of ASCII letters, digits,
    dots and hyphens needs no escapes. Cached, because the same nodes are named in most
    explanations."""
    plain = name.isascii() and name.replace("-", "").replace(".", "").isalnum()
    return len(name) if plain else len(canonical(name))
