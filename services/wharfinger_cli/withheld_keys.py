"""Keys that get nothing more of a stream because the broker refused a record of theirs: `status`
and `doctor` say it alike."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.answers.plane_status import withheld_now as withheld_now
from wharfinger.answers.plane_status import withheld_plain as withheld_plain
from wharfinger.runtime.ledger import Withheld
from wharfinger_cli.output import count

SHOWN_MAX = 3


def withheld_line(withheld: Mapping[Withheld, int]) -> str:
    """`1 key held back: lab/web on wharfinger.decisions gets nothing of fleet/0 since seq 12: ...`;
    "" where nothing is."""
    if not withheld:
        return ""
    kept = [
        f"{w.key} on {w.topic} gets nothing of {w.stream} since seq {seq}"
        for w, seq in withheld.items()
    ]
    shown = "; ".join(kept[:SHOWN_MAX])
    return (
        f"{count(len(kept), 'key')} held back: {shown}: refused by the broker, "
        "see `wharfinger dead-letters list`"
    )
