"""What `status` says of keys that are held back because the broker refused a record of theirs, and
of requests that wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.text import Text

from wharfinger.answers import typed
from wharfinger.answers.plane_status import (
    PlaneStatus,
    open_requests_of,
    status_plain,
    without_password,
)
from wharfinger.domain.open_requests import NONE_OPEN, OpenRequests
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import Freshness, Withheld
from wharfinger.runtime.ledger.freshness import SnapshotAge, Unrelayed
from wharfinger.runtime.plane import Plane
from wharfinger.runtime.process_status import Readiness, ServiceReport
from wharfinger_cli import status

PLANE = Plane(
    "127.0.0.1:9092", "postgresql+asyncpg://postgres@/wharfinger?host=/run/pg", "memory", "b-1", 42
)
HELD = {
    Withheld("wharfinger.assignments", f"cluster-{n}", f"cluster/cluster-{n}"): n
    for n in range(1, 6)
}


def seen(withheld: dict[Withheld, int]) -> PlaneStatus:
    return PlaneStatus(
        "/plane", PLANE, {}, {}, [], Freshness(0, 0, Unrelayed(0, None), ()), withheld
    )


def lines(found: PlaneStatus) -> list[str]:
    return [part.plain if isinstance(part, Text) else str(part) for part in status._page(found)]


def test_keys_that_are_held_back_are_named_and_the_way_on() -> None:
    said = next(line for line in lines(seen(HELD)) if "held back" in line)
    assert said.startswith(
        "5 keys held back: cluster-1 on wharfinger.assignments gets nothing of cluster/cluster-1 "
        "since seq 1; "
    )
    assert "cluster-3" in said
    assert "cluster-4" not in said
    assert said.endswith(": refused by the broker, see `wharfinger dead-letters list`")


def test_programs_get_all_of_them() -> None:
    relay = status_plain(seen(HELD))["relay"]
    assert isinstance(relay, dict)
    assert relay["held_back"] == [
        {
            "topic": "wharfinger.assignments",
            "key": f"cluster-{n}",
            "stream": f"cluster/cluster-{n}",
            "since_seq": n,
        }
        for n in range(1, 6)
    ]


def test_where_nothing_is_held_back_nothing_is_said_of_it() -> None:
    assert [line for line in lines(seen({})) if "held back" in line] == []
    assert status_plain(seen({}))["relay"] == {
        "rows_waiting": 0,
        "oldest_waiting_s": 0.0,
        "held_back": [],
    }


ASKED_AT = 1_750_000_000_000_000  # 2025-06-15T15:06:40Z


def of_requests(requests: OpenRequests | None) -> tuple[str, object]:
    """The line, and what programs get."""
    found = replace(seen({}), requests=requests)
    (line,) = [line for line in lines(found) if line.startswith("not decided: ")]
    return line, status_plain(found)["requests"]


def test_requests_that_wait_are_counted_and_the_oldest_is_dated() -> None:
    line, plain = of_requests(OpenRequests(1200, ASKED_AT))
    assert line == "not decided: 1,200 requests, the oldest since 2025-06-15 15:06:40"
    assert plain == {"waiting": 1200, "oldest_since": "2025-06-15T15:06:40.000000Z"}


def test_where_no_request_waits_it_says_so() -> None:
    assert of_requests(NONE_OPEN) == (
        "not decided: 0 requests",
        {"waiting": 0, "oldest_since": None},
    )


def test_without_an_answer_it_is_not_known_how_many_wait() -> None:
    silent = open_requests_of([Readiness(), None])
    line, plain = of_requests(silent)
    assert line == "not decided: unknown, because a process gives no answer"
    assert plain == {"waiting": None, "oldest_since": None}


def test_the_requests_of_all_processes_are_counted_together() -> None:
    answers = [
        Readiness(True, {"scheduler-fleet": ServiceReport(requests=3, requests_since_us=20)}),
        Readiness(True, {"publisher": ServiceReport()}),
        Readiness(True, {"scheduler-fleet": ServiceReport(requests=2, requests_since_us=10)}),
    ]
    assert open_requests_of(answers) == OpenRequests(5, 10)


def test_what_is_sent_is_what_was_seen() -> None:
    found = replace(
        seen(HELD),
        processes={"api": (7, 4096)},
        services={"api": ("api", ServiceReport(True, 3)), "publisher": ("main", None)},
        heads=(Head("fleet/0", 3, 7, b"\x01", 2, 5, b""),),
        freshness=Freshness(9, 1, Unrelayed(2, 4), (SnapshotAge("fleet/0", 2, None),)),
    )
    got = typed.decoded(typed.encoded(found))
    assert status_plain(got) == status_plain(found)
    assert lines(got)[0] == lines(found)[0]
    assert got.withheld == found.withheld


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        (PLANE.database_url, PLANE.database_url),
        ("postgresql://ada:se@c:ret@db:5432/w", "postgresql://ada@db:5432/w"),
        ("postgresql://db/w?user=ada&password=secret", "postgresql://db/w?user=ada"),
    ],
)
def test_a_password_is_not_sent(url: str, sent: str) -> None:
    found = without_password(replace(seen({}), plane=replace(PLANE, database_url=url)))
    assert found.plane.database_url == sent
