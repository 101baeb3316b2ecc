"""Names on the broker: planes that share one do not meet, and a broker that forgot is read by
groups that know nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from wharfinger.runtime.backends import DURABLE, Backend
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.service import ServiceContext
from wharfinger.runtime.settings import Settings

CONTEXT = ServiceContext(
    Settings(),
    Backend("h:1", "postgresql+asyncpg:///d", DURABLE),
    cast(Ledger, None),
    {"a": 1, "b": 1},
    {"a": 1, "b": 4},
)


def test_a_group_is_another_after_the_broker_lost_everything() -> None:
    reborn = replace(CONTEXT, incarnations={"a": 1, "b": 2})
    assert CONTEXT.group("scheduler") != CONTEXT.group("estimator")
    assert CONTEXT.group("scheduler") == replace(CONTEXT, incarnations={"b": 1, "a": 1}).group(
        "scheduler"
    )
    assert reborn.group("scheduler") != CONTEXT.group("scheduler")


def test_planes_on_one_broker_have_topics_and_groups_of_their_own() -> None:
    other = replace(CONTEXT, prefix="north.")
    assert other.group("scheduler") != CONTEXT.group("scheduler")
    assert other.wire("wharfinger.bindings") == "north.wharfinger.bindings"
    assert other.unwire(other.wire("wharfinger.bindings")) == "wharfinger.bindings"
