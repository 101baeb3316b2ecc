"""Keys that get nothing more of a stream because the broker refused a record of theirs: `status`
and `doctor` say it alike."""

from __future__ import annotations

from collections.abc import Mapping

from wharfinger.runtime.ledger import Ledger, Withheld
from wharfinger.runtime.ledger.freshness import PUBLISHER
from wharfinger_cli.output import Plain, count

SHOWN_MAX = 3


async def withheld_now(ledger: Ledger) -> dict[Withheld, int]:
    """What is held back -> since which seq of its stream."""
    return await ledger.withheld(PUBLISHER, max((await ledger.lives()).values(), default=0))


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


def withheld_plain(withheld: Mapping[Withheld, int]) -> list[Plain]:
    return [
        {"topic": w.topic, "key": w.key, "stream": w.stream, "since_seq": seq}
        for w, seq in withheld.items()
    ]
