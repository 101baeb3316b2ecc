"""The recorded explanation: a few lines that say why, at most 2 KiB, whatever the clusters are called.

It is hashed and published with its decision. What is left out (every candidate, every rule) is derived again when somebody
asks.
"""

from __future__ import annotations

import msgspec

from wharfinger.domain.value import canonical
from wharfinger.events.decisions import Explanation

SHOWN = 4
"""How many of the chosen, and how many of the runners-up, are named."""

LIMIT = 2048
"""Bytes of canonical JSON an explanation may take."""

PLENTY = 150
"""Characters of names and note that fit in any case, at six bytes each and with every number at its longest."""

NOTE_LENGTH = 200


def bounded(explanation: Explanation) -> Explanation:
    """The explanation, cut until it fits: runners-up first, then the division, then the last of the chosen."""
    chosen, others = explanation.chosen, explanation.runners_up
    length = 2 * sum([len(s.name) for s in chosen]) + sum([len(s.name) for s in others]) + len(explanation.note)
    if length <= PLENTY:
        return explanation
    if len(explanation.note) > NOTE_LENGTH:
        explanation = msgspec.structs.replace(explanation, note=explanation.note[: NOTE_LENGTH - 1] + "…")
    while len(canonical(explanation)) > LIMIT:
        if explanation.runners_up:
            explanation = msgspec.structs.replace(explanation, runners_up=explanation.runners_up[:-1])
        elif explanation.division:
            explanation = msgspec.structs.replace(explanation, division={})
        elif len(explanation.chosen) > 1:
            explanation = msgspec.structs.replace(explanation, chosen=explanation.chosen[:-1])
        else:
            explanation = msgspec.structs.replace(explanation, chosen=(), note="")
    return explanation
