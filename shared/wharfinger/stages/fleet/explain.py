"""The recorded explanation: a few lines that say why, at most 2 KiB, whatever the clusters are called.

It is hashed and published with its decision. What is left out (every candidate, every rule) is derived again when somebody
asks.
"""

from __future__ import annotations

import msgspec

from wharfinger.domain.value import canonical
from wharfinger.events.decisions import Explanation, FailoverSets

SHOWN = 4
"""How many of the chosen, and how many of the runners-up, are named."""

LIMIT = 2048
"""Bytes of canonical JSON an explanation may take."""

PLENTY = 150
"""Characters of names and note that fit in any case, at six bytes each and with every number at its longest."""

NOTE_LENGTH = 200

WHY_LENGTH = 120


def bounded(explanation: Explanation) -> Explanation:
    """The explanation, cut until it fits: runners-up first, then the division, then the last of the chosen, then the names of a
    failover's sets (how many there are stays)."""
    chosen, others = explanation.chosen, explanation.runners_up
    length = 2 * sum([len(s.name) for s in chosen]) + sum([len(s.name) for s in others])
    if length + len(explanation.note) + len(explanation.why) <= PLENTY and explanation.failover is None:
        return explanation
    if len(explanation.note) > NOTE_LENGTH:
        explanation = msgspec.structs.replace(explanation, note=_cut(explanation.note, NOTE_LENGTH))
    if len(explanation.why) > WHY_LENGTH:
        explanation = msgspec.structs.replace(explanation, why=_cut(explanation.why, WHY_LENGTH))
    while len(canonical(explanation)) > LIMIT:
        if explanation.runners_up:
            explanation = msgspec.structs.replace(explanation, runners_up=explanation.runners_up[:-1])
        elif explanation.division:
            explanation = msgspec.structs.replace(explanation, division={})
        elif len(explanation.chosen) > 1:
            explanation = msgspec.structs.replace(explanation, chosen=explanation.chosen[:-1])
        elif explanation.failover is not None and explanation.failover.failed:
            sets = FailoverSets(counts=explanation.failover.counts)
            explanation = msgspec.structs.replace(explanation, failover=sets)
        else:
            explanation = msgspec.structs.replace(explanation, chosen=(), note="")
    return explanation


def _cut(text: str, length: int) -> str:
    return text[: length - 1] + "…"
