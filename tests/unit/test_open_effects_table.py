"""What `effects --open` shows of copies: since when they are open."""

from __future__ import annotations

from wharfinger.stages.actuator.copies import CopyWrite
from wharfinger.stages.actuator.effects import Effect, EffectObject
from wharfinger.stages.actuator.requests import ApiRequest
from wharfinger_cli.effects import OpenEffect, OpenWork, open_table
from wharfinger_cli.open_copies import OpenCopy

SECOND = 1_000_000


def a_copy(name: str, since_s: int = 0) -> OpenCopy:
    object = EffectObject("Deployment", "shop", name)
    write = CopyWrite(object, "create", "", ApiRequest("POST", "/", {}))
    return OpenCopy("oslo", str(object), write, "blocked: 404", since_s * SECOND)


def cells(found: OpenWork, column: str) -> list[str]:
    (one,) = [one for one in open_table(found).columns if str(one.header) == column]
    return [str(cell) for cell in one.cells]


def test_each_copy_shows_since_when_it_is_open() -> None:
    node = Effect("oslo", "close-node", EffectObject("Node", "", "one"))
    secret = OpenCopy("oslo", "Secret shop/token", why="is named", needed="needs")
    copies = [a_copy("web", 400), a_copy("api", 990), a_copy("log"), secret]
    found = OpenWork(1000 * SECOND, [OpenEffect(node, 700 * SECOND)], copies, [])
    assert cells(found, "open for") == ["5 min", "10 min", "10 s", "", ""]
    assert cells(found, "effect") == ["close-node", *["create-copy"] * 3, "needs"]
    assert cells(found, "object")[-1] == "Secret shop/token"


def test_the_clock_of_the_ledger_may_be_ahead() -> None:
    found = OpenWork(1000 * SECOND, [], [a_copy("web", 1003)], [])
    assert cells(found, "open for") == ["0.0 s"]


def test_the_oldest_copy_comes_first_and_those_without_a_time_last() -> None:
    copies = [a_copy("log"), a_copy("api", 990), a_copy("web", 400)]
    ordered = sorted(copies, key=lambda copy: copy.age_order)
    assert [copy.object.rpartition("/")[2] for copy in ordered] == ["web", "api", "log"]
