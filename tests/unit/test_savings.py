"""The savings ledger adds up what decisions say: what was promised, what came of it, and what was
taken back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import UUID, uuid5

import pytest

from wharfinger.domain.instance_types import PRICE_UNIT
from wharfinger.domain.text import dollars
from wharfinger.domain.value import Value, canonical
from wharfinger.events.decisions import (
    DisruptionDecided,
    DisruptionEnded,
    NodeShare,
    PricedNode,
    ReplicasPlaced,
    ReplicasReleased,
)
from wharfinger.events.registry import type_of
from wharfinger.history.savings import Savings, added_up, by_method
from wharfinger.runtime.ledger import LedgerRow
from wharfinger_cli.savings import savings_page, savings_plain

HOUR = 3600 * 1_000_000
CENT = PRICE_UNIT // 100
OSLO = "cluster/oslo"


def rows(*steps: tuple[int, Value, UUID | None], stream: str = OSLO) -> list[LedgerRow]:
    """(when in hours, what was decided, because of what)"""
    return [
        LedgerRow(
            stream,
            seq,
            seq,
            hours * HOUR,
            id_of(seq, stream),
            type_of(data),
            "-",
            "-",
            cause,
            canonical(data),
        )
        for seq, (hours, data, cause) in enumerate(steps, start=1)
    ]


def id_of(seq: int, stream: str = OSLO) -> UUID:
    return uuid5(UUID(int=0), f"{stream} {seq}")


def read(found: Sequence[LedgerRow], until: int, only: str = "") -> Savings:
    async def each() -> AsyncIterator[LedgerRow]:
        for row in found:
            yield row

    return asyncio.run(added_up(each(), until * HOUR, only))


def decided(command: str, saving: int, *nodes: str) -> DisruptionDecided:
    priced = tuple([PricedNode(name, "general", "m5.large", price=10 * CENT) for name in nodes])
    return DisruptionDecided("oslo", command, "single-node", priced, 0, saving=saving)


def ended(
    command: str, outcome: str, realised: int = 0, moved: int = 0, *removed: str
) -> DisruptionEnded:
    done = outcome == "done"
    return DisruptionEnded(
        "oslo",
        command,
        "single-node",
        "done" if done else "rolled-back",
        removed or ("n1",),
        removed,
        10 * CENT,
        realised,
        moved,
        "" if done else "no node came",
    )


def left(ordinal: int, node: str, why: str = "Consolidated") -> ReplicasReleased:
    return ReplicasReleased("oslo", "shop/web", "a", (NodeShare(node, (ordinal,)),), reason=why)


def came(ordinal: int, node: str) -> ReplicasPlaced:
    return ReplicasPlaced("oslo", "shop/web", "a", (NodeShare(node, (ordinal,)),))


def test_what_was_promised_stands_beside_what_came_of_it() -> None:
    found = read(
        rows(
            (1, decided("one", 10 * CENT, "n1"), None),
            (1, left(0, "n1"), id_of(1)),
            (1, came(0, "n2"), id_of(1)),
            (2, ended("one", "done", 8 * CENT, 1, "n1"), id_of(1)),
        ),
        until=12,
    )
    (account,) = found.done
    assert (account.predicted, account.realised, account.gap, account.moved) == (
        10 * CENT,
        8 * CENT,
        2 * CENT,
        1,
    )
    assert found.saved == 80 * CENT, "ten hours at eight cents"
    assert found.moves_per_dollar == 12.5
    assert found.moves == {"Consolidated": 1}
    assert not found.reversals


def test_a_command_that_was_rolled_back_saves_nothing_and_keeps_its_reason() -> None:
    found = read(
        rows(
            (1, decided("one", 10 * CENT, "n1"), None), (2, ended("one", "rolled-back"), id_of(1))
        ),
        until=9,
    )
    assert [account.reason for account in found.rolled_back] == ["no node came"]
    assert (found.predicted, found.realised, found.saved, found.moves_per_dollar) == (0, 0, 0, None)


def test_a_command_that_goes_on_is_counted_nowhere_yet() -> None:
    found = read(rows((1, decided("one", 10 * CENT, "n1"), None)), until=9)
    assert [account.outcome for account in found.accounts] == [""]
    assert found.realised == 0


def test_a_replica_that_upkeep_brings_back_was_moved_in_vain() -> None:
    found = read(
        rows(
            (1, left(0, "n1"), None),
            (1, came(0, "n2"), None),
            (3, left(0, "n2", "RemoveDuplicates"), None),
            (3, came(0, "n1"), None),
        ),
        until=9,
    )
    (reversal,) = found.reversals
    assert (reversal.node, reversal.left, reversal.back) == ("n1", 1 * HOUR, 3 * HOUR)
    assert (reversal.left_by, reversal.back_by) == ("Consolidated", "RemoveDuplicates")


@pytest.mark.parametrize("why", ["ScaledDown", "NodeGone", "Preempted"])
def test_who_comes_back_for_another_reason_was_not_brought_back(why: str) -> None:
    found = read(
        rows(
            (1, left(0, "n1"), None),
            (1, came(0, "n2"), None),
            (2, left(0, "n2", why), None),
            (3, came(0, "n1"), None),
        ),
        until=9,
    )
    assert not found.reversals
    assert found.moves == {"Consolidated": 1}


def test_a_query_by_prefix_finds_other_clusters_and_they_do_not_count() -> None:
    other = rows((1, decided("one", 10 * CENT, "n1"), None), stream="cluster/oslo-2")
    assert not read(other, until=9, only=OSLO).accounts


def test_commands_of_equal_names_in_two_clusters_are_two() -> None:
    bergen = [
        DisruptionDecided(
            "bergen", "one", "emptiness", (PricedNode("n9", "general"),), 0, saving=CENT
        ),
        DisruptionEnded("bergen", "one", "emptiness", "done", ("n9",), ("n9",), CENT, CENT),
    ]
    both = [
        *rows((1, decided("one", 10 * CENT, "n1"), None)),
        *rows((1, bergen[0], None), (2, bergen[1], None), stream="cluster/bergen"),
    ]
    found = read(both, until=9)
    assert [a.outcome for a in found.accounts] == ["", "done"]
    assert list(by_method(found.accounts)) == ["single-node", "emptiness"]


def test_the_page_says_all_of_it_and_programs_get_the_same() -> None:
    found = read(
        rows(
            (1, decided("one", 10 * CENT, "n1"), None),
            (1, left(0, "n1"), id_of(1)),
            (1, came(0, "n2"), id_of(1)),
            (2, ended("one", "done", 8 * CENT, 1, "n1"), id_of(1)),
            (3, left(0, "n2"), None),
            (3, came(0, "n1"), None),
        ),
        until=12,
    )
    lines = [str(part) for part in savings_page(found)]
    assert lines[0].startswith("saves 0.08 $/h (0.1 $/h predicted), 0.80 $ so far  1 command done")
    assert (
        "  shop/web 0 left n1 by Consolidated and was back after 7,200 s by Consolidated" in lines
    )
    plain = savings_plain(found)
    assert plain["realised"] == 8 * CENT
    assert plain["moves_per_dollar"] == 12.5


def test_nothing_yet_is_said_in_a_sentence() -> None:
    assert [str(part) for part in savings_page(read([], until=1))] == [
        "no node was consolidated and no replica moved for upkeep yet"
    ]


@pytest.mark.parametrize(
    ("nanos", "said"),
    [(96_000_000, "0.096 $/h"), (0, "0 $/h"), (12_345_600, "0.0123456 $/h"), (-CENT, "-0.01 $/h")],
)
def test_prices_are_told_exactly(nanos: int, said: str) -> None:
    assert dollars(nanos) == said


def test_a_command_in_a_table_is_one_line() -> None:
    assert ended("one", "done", 8 * CENT, 1, "n1").sentence() == (
        "1 node removed, 1 replica moved; saves 0.08 $/h (0.1 $/h predicted)"
    )
    assert ended("one", "rolled-back").sentence() == "rolled back: no node came"
