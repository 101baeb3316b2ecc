"""A real ledger taken along as a file, and decided again where there is no ledger."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.fleets import a_fleet, committed
from tests.scenarios.fleet_plane import DYNAMIC
from tests.told_plane import SECOND, START, ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.domain.selectors import LabelSelector, Requirement
from wharfinger.events.clusters import ClusterObserved
from wharfinger.history.checkpoint import new_key, read, signed
from wharfinger.history.export import export, replay_file
from wharfinger.history.export_file import FileError, opened
from wharfinger.history.points import HistoryPoint, PointError, point_of
from wharfinger.history.redaction import RedactionError
from wharfinger.history.retention import retire_before
from wharfinger.history.verification import take_checkpoint
from wharfinger.runtime.ledger import Ledger, LedgerError
from wharfinger_cli.__main__ import main

pytestmark = pytest.mark.integration

NUMBERS = (4, 5)
KEY = b"a key for tests"


@pytest_asyncio.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    """Two fleets with faults, each a shard with its clusters."""
    opened = await Ledger.open(database_url, "tests")
    for number in NUMBERS:
        await committed(opened, a_fleet(number))
    yield opened
    await opened.close()


async def counted(ledger: Ledger) -> int:
    return sum([head.seq for head in await ledger.heads()])


async def test_the_whole_ledger_is_replayed_from_a_file(ledger: Ledger, tmp_path: Path) -> None:
    done = await export(ledger, tmp_path / "all")
    replayed = replay_file(done.path)
    assert replayed.header == done.header
    assert replayed.result.divergences == ()
    assert replayed.result.decisions == await counted(ledger)
    assert replayed.result.streams == tuple(
        sorted(h.stream for h in await ledger.heads() if h.round)
    )
    ends = {head.stream: (head.round, head.hash) for head in await ledger.heads()}
    with opened(done.path) as file:
        for part in file.ranges():
            last = [recorded.round for recorded in part.rounds][-1]
            assert (last.number, last.hash) == ends[part.head.stream]


async def test_ranges_begin_where_they_are_asked_to(ledger: Ledger, tmp_path: Path) -> None:
    stream = f"fleet/{NUMBERS[0]}"
    some = await export(
        ledger,
        tmp_path / "some",
        stream=stream,
        begin=HistoryPoint("5", round=5),
        end=HistoryPoint("9", round=9),
    )
    (only,) = some.header.streams
    assert (only.stream, only.first, only.last) == (stream, 5, 9)
    assert replay_file(some.path).result.rounds == 5
    # A moment is a moment in every stream.
    at = (await ledger.head_at(stream, 9)).at
    later = await export(
        ledger, tmp_path / "later", begin=HistoryPoint("then", at=at), end=HistoryPoint("now")
    )
    assert all(r.first_at >= at for r in later.header.streams)
    (first,) = [r.first for r in later.header.streams if r.stream == stream]
    assert (await ledger.head_at(stream, first - 1)).at < at
    assert replay_file(later.path).result.divergences == ()
    same = await export(ledger, tmp_path / "same", begin=HistoryPoint("9", stream, 9))
    assert [r for r in same.header.streams if r.stream != stream] == [
        r for r in later.header.streams if r.stream != stream
    ]
    assert [r.first for r in same.header.streams if r.stream == stream] == [9]


async def test_a_redacted_ledger_has_other_streams_and_the_same_history(
    ledger: Ledger, tmp_path: Path
) -> None:
    plain = await export(ledger, tmp_path / "plain")
    hidden = await export(ledger, tmp_path / "hidden", key=KEY)
    assert hidden.replayed is not None
    replayed = replay_file(hidden.path).result
    assert replayed.divergences == ()
    assert (replayed.decisions, replayed.rounds) == (
        await counted(ledger),
        replay_file(plain.path).result.rounds,
    )
    assert not {r.stream for r in plain.header.streams if r.stream.startswith("cluster/")} & set(
        replayed.streams
    )
    again = await export(ledger, tmp_path / "again", key=KEY)
    assert again.path.read_bytes() == hidden.path.read_bytes()


async def test_what_is_not_there_is_said_and_nothing_is_written(
    ledger: Ledger, tmp_path: Path
) -> None:
    file = tmp_path / "none"
    stream = f"fleet/{NUMBERS[0]}"
    for wanted, begin, end, said in (
        ("fleet/99", None, None, "no stream is named fleet/99"),
        (stream, HistoryPoint("999", round=999), None, "there is no round 999"),
        (stream, None, HistoryPoint("999", round=999), "there is no round 999"),
        ("", HistoryPoint("999", round=999), None, "no round in this range"),
        ("", point_of("2099-01-01", 0), None, "no round in this range"),
    ):
        with pytest.raises(PointError, match=said):
            await export(ledger, file, stream=wanted, begin=begin, end=end)
    with pytest.raises(RedactionError, match="the key is empty"):
        await export(ledger, file, key=b"")
    assert names_in(tmp_path) == set()


async def test_a_history_that_was_changed_is_not_exported(ledger: Ledger, tmp_path: Path) -> None:
    stream = f"fleet/{NUMBERS[0]}"
    async with ledger.database.reading() as raw:
        await raw.execute(
            "update round set epoch = epoch + 1 where number = 3 "
            "and stream = (select id from stream where name = $1)",
            stream,
        )
    for key in (None, KEY):
        with pytest.raises(
            FileError, match=rf"{stream} round 3: its hash is not that of its content"
        ):
            await export(ledger, tmp_path / "none", stream=stream, key=key)
    assert names_in(tmp_path) == set()


async def test_rules_that_compute_on_labels_are_refused_by_name(
    database_url: str, tmp_path: Path
) -> None:
    plane = await ToldPlane.opened(database_url)
    newer = LabelSelector(match_expressions=(Requirement("generation", "Gt", ("3",)),))
    policy = a_policy("newer", Placement((ClusterAffinity(labels=newer),), replicas=DYNAMIC))
    await plane.tell(
        ClusterObserved(Cluster("oslo", {"generation": "4"})), policy, *nodes("oslo", "o1")
    )
    await plane.tell(a_binding("web", 2, policy))
    with pytest.raises(
        RedactionError,
        match=r"fleet/0 .*PropagationPolicy/shop/newer: label generation is compared as a number",
    ):
        await export(plane.ledger, tmp_path / "none", key=KEY)
    assert (
        replay_file((await export(plane.ledger, tmp_path / "plain")).path).result.divergences == ()
    )
    assert names_in(tmp_path) == {"plain"}
    await plane.ledger.close()


async def test_the_intake_can_be_taken_along_too(database_url: str, tmp_path: Path) -> None:
    plane = await ToldPlane.opened(database_url)
    await plane.tell(a_cluster("oslo"), *nodes("oslo", "o1"))
    done = await export(plane.ledger, tmp_path / "intake", stream="intake")
    assert [r.stream for r in done.header.streams] == ["intake"]
    assert done.header.plane
    with pytest.raises(RedactionError, match="intake decides nothing"):
        await export(plane.ledger, tmp_path / "hidden", stream="intake", key=KEY)
    # whole, and nothing in it to be decided again
    assert replay_file(done.path).result.streams == ()
    await plane.ledger.close()


async def test_what_is_left_after_a_retirement_is_taken_along_and_what_is_gone_is_said(
    database_url: str, tmp_path: Path
) -> None:
    plane = await ToldPlane.opened(database_url)
    policy = a_policy("by-room", Placement(replicas=DYNAMIC))
    await plane.tell(a_cluster("oslo"), policy, *nodes("oslo", "o1"))
    for turn in range(6):
        await plane.tell(a_binding("busy", 1 + turn % 3, policy), after_s=15 * 86_400)
    _, made = await take_checkpoint(plane.ledger, plane.time.at)
    assert made is not None
    body = signed(made, new_key())
    cut = START + 50 * 86_400 * SECOND
    assert (
        await retire_before(plane.ledger, cut, read("checkpoint", body), body, plane.time.at)
    ).done is not None
    done = await export(plane.ledger, tmp_path / "rest")
    assert min(r.first for r in done.header.streams) > 1
    assert replay_file(done.path).result.divergences == ()
    with pytest.raises(LedgerError, match="retired"):
        await export(
            plane.ledger, tmp_path / "none", stream="fleet/0", begin=HistoryPoint("1", round=1)
        )
    assert names_in(tmp_path) == {"rest"}
    await plane.ledger.close()


# --- as a user does it


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """`wharfinger ...`, in this process: exit code, standard output, standard error."""

    def run(*arguments: str, database: bool = True) -> tuple[int, str, str]:
        monkeypatch.setenv("WHARFINGER_DATABASE", database_url if database else "")
        monkeypatch.setattr(sys, "argv", ["wharfinger", *arguments])
        code = main()
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


async def test_the_commands(ledger: Ledger, command: Command, tmp_path: Path) -> None:
    async def wharfinger(*arguments: str, database: bool = True) -> str:
        code, out, err = await asyncio.to_thread(command, *arguments, database=database)
        assert code == 0, err
        return out

    key, plain, hidden = (str(tmp_path / name) for name in ("key", "plain.wlg", "hidden.wlg"))
    written(Path(key), KEY)
    said = await wharfinger("ledger", "export", plain)
    assert "plain.wlg" in said
    assert "cluster/004-" in said
    about: dict[str, Any] = json.loads(
        await wharfinger("ledger", "export", hidden, "--redact", key, "-o", "json")
    )
    assert about["redacted"] is True
    for file in (plain, hidden):
        replayed: dict[str, Any] = json.loads(
            await wharfinger("replay", file, "-o", "json", database=False)
        )
        assert (replayed["divergences"], replayed["decisions"]) == (0, await counted(ledger))
    assert "byte for byte the same" in await wharfinger("replay", hidden, database=False)


def written(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_mistakes_are_one_line_and_exit_2(command: Command, tmp_path: Path) -> None:
    written(tmp_path / "no-ledger", b"something else")
    written(tmp_path / "empty", b"")
    out = str(tmp_path / "out.wlg")
    for arguments in (
        ("replay", str(tmp_path / "nothing.wlg")),
        ("replay", str(tmp_path / "no-ledger")),
        ("ledger", "export", out, "--redact", str(tmp_path / "missing")),
        ("ledger", "export", out, "--redact", str(tmp_path / "empty")),
        ("ledger", "export", out),
        ("ledger", "export", out, "--stream", "nowhere"),
        ("ledger", "export", out, "--from", "yesterday"),
        ("ledger", "export", out, "--from", "9", "--to", "3"),
        ("ledger", "export", str(tmp_path / "no" / "such" / "directory")),
    ):
        code, said, complaint = command(*arguments)
        assert (code, said) == (2, ""), arguments
        assert complaint.startswith("wharfinger: ")
        assert len(complaint.splitlines()) == 1
    assert names_in(tmp_path) == {"no-ledger", "empty"}
