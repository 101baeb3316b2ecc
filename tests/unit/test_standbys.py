"""What `doctor` says of standbys: by which settings a failover loses what was committed."""

from __future__ import annotations

import pytest

from wharfinger.runtime.ledger.standbys import Replication, Standby


def attached(*states: str) -> tuple[Standby, ...]:
    return tuple(Standby(f"standby-{n}", "streaming", state, 0) for n, state in enumerate(states))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Replication("on", "", ()), ""),
        (Replication("off", "", ()), "synchronous_commit is off"),
        (Replication("on", "", attached("async")), "synchronous_standby_names is empty"),
        (Replication("local", "*", attached("sync")), "synchronous_commit is local"),
        (
            Replication("on", "standby-9", attached("async")),
            "no standby that is attached is synchronous",
        ),
        (
            Replication("on", "standby-9", attached("")),
            "no standby that is attached is synchronous",
        ),
        (Replication("remote_apply", "ANY 1 (*)", attached("quorum", "quorum")), ""),
        (Replication("on", "standby-0", attached("sync", "async")), ""),
    ],
)
def test_what_a_failover_can_lose(found: Replication, why: str) -> None:
    assert (found.loses == "") if not why else (why in found.loses)
    assert "\n" not in found.told
