"""`audit key`, `audit checkpoint`, `audit verify`: what a person sees, and how it ends when
something cannot be done."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.attacker import another_decision, cut_off, rewrite
from tests.backends import fresh_database, in_a_loop
from tests.counter import Writer, withdrawn

from wharfinger.events.streams import BINDINGS
from wharfinger.history.checkpoint_store import store_at
from wharfinger.runtime.ledger import Ledger, Submission
from wharfinger_cli.__main__ import main
from wharfinger_publisher.checkpoints import CheckpointLoop

pytestmark = pytest.mark.integration


class Cli:
    """The command line in this process, against one database."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        url: str,
        home: Path,
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.url = url
        self.home = home

    def __call__(self, *arguments: object, code: int = 0) -> str:
        """What it said on standard output, or its complaint where it ends with 2."""
        self._monkeypatch.setenv("WHARFINGER_DATABASE", self.url)
        self._monkeypatch.setenv("WHARFINGER_DATA_DIR", str(self.home / "plane"))
        self._monkeypatch.setattr(sys, "argv", ["wharfinger", *map(str, arguments)])
        ended = main()
        said = self._capsys.readouterr()
        assert ended == code, said
        if code != 2:
            return said.out
        assert said.out == ""
        lines = said.err.splitlines()
        assert len(lines) == 1, said.err
        return lines[0].removeprefix("wharfinger: ")

    def json(self, *arguments: object, code: int = 0) -> Any:
        return json.loads(self(*arguments, "-o", "json", code=code))


async def _fill(url: str, first: int) -> None:
    ledger = await Ledger.open(url, "tests")
    try:
        event = withdrawn(first)
        await ledger.accept([Submission(event, BINDINGS.name, event.subject, event.subject)])
        await ledger.ensure_streams(["fleet/0", "cluster/oslo"])
        for stream, head in (await ledger.raise_epoch(["fleet/0", "cluster/oslo"])).items():
            writer = Writer(head)
            rounds = [writer.step([withdrawn(first + n)]) for n in range(5)]
            await ledger.commit(rounds, writer.events)
            assert writer.head.stream == stream
    finally:
        await ledger.close()


@pytest.fixture
def other_plane(database_server: str, migrated_database: str) -> Iterator[str]:
    with fresh_database(database_server, template=migrated_database) as url:
        in_a_loop(lambda: _fill(url, 500))
        yield url


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    database_url: str,
    tmp_path: Path,
) -> Cli:
    in_a_loop(lambda: _fill(database_url, 0))
    return Cli(monkeypatch, capsys, database_url, tmp_path)


def attack(cli: Cli, *what: Any) -> None:
    async def work() -> None:
        ledger = await Ledger.open(cli.url, "tests")
        try:
            await what[0](ledger, *what[1:])
        finally:
            await ledger.close()

    in_a_loop(work)


def test_a_key_is_made_once_and_for_its_owner_alone(cli: Cli) -> None:
    key = cli.home / "key"
    said = cli("audit", "key", key)
    assert "SHA256:" in said
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE((cli.home / "key.pub").stat().st_mode) & 0o044 == 0o044
    before = key.read_bytes()
    assert cli("audit", "key", key, code=2) == f"{key}.pub: there is a key already"
    (cli.home / "key.pub").unlink()
    assert cli("audit", "key", key, code=2) == f"{key}: there is a key already"
    assert key.read_bytes() == before
    assert cli("audit", "key", cli.home / "no" / "key", code=2).endswith(
        "No such file or directory"
    )


@pytest.mark.long
def test_a_checkpoint_tells_what_the_database_itself_cannot(cli: Cli) -> None:
    key, public, early, late = (
        cli.home / name for name in ("key", "key.pub", "early.json", "late.json")
    )
    cli("audit", "key", key)
    assert "signed: " in cli("audit", "checkpoint", "--key", key, "--out", early)
    made = cli.json("audit", "checkpoint", "--key", key, "--out", late)
    assert made["streams"] == 3
    verified = cli.json(
        "audit", "verify", "--checkpoint", early, "--checkpoint", late, "--public-key", public
    )
    assert verified["ok"] is True
    assert [one["name"] for one in verified["checkpoints"]] == [str(early), str(late)]
    assert {one["key"] for one in verified["checkpoints"]} == {made["key"]}

    attack(cli, cut_off, "cluster/oslo", 3)
    assert cli.json("audit", "verify")["ok"] is True
    found = cli.json("audit", "verify", "--checkpoint", late, code=1)
    assert found["ok"] is False
    assert (found["first_bad"]["stream"], found["first_bad"]["round"]) == ("cluster/oslo", 5)
    page = cli("audit", "verify", "--checkpoint", late, code=1)
    assert page.startswith("the history was changed: ")
    assert "missing: the stream ends at round 3" in page


@pytest.mark.long
def test_what_a_plane_has_shipped_is_one_option(cli: Cli) -> None:
    key, public, out = (cli.home / name for name in ("key", "key.pub", "shipped"))
    cli("audit", "key", key)
    assert cli("audit", "verify", "--checkpoints", out, code=2) == (
        f"{out}: No such file or directory"
    )
    out.touch()
    assert cli("audit", "verify", "--checkpoints", out, code=2) == (
        f"{out}: no checkpoint was shipped here"
    )

    async def ship(ledger: Ledger) -> None:
        store = store_at(str(out), lambda: pytest.fail("asked for a topic only"))
        assert await CheckpointLoop(ledger, store, key, 60.0, lambda: 7_000_000).ship() == 1

    attack(cli, ship)
    options = ("--checkpoints", out, "--public-key", public)
    (shipped,) = cli.json("audit", "verify", *options)["shipped"]
    assert (shipped["where"], shipped["checkpoints"]) == (str(out), 1)
    assert "1 checkpoint in" in cli("audit", "verify", *options)
    attack(cli, cut_off, "cluster/oslo", 3)
    assert cli.json("audit", "verify")["ok"] is True
    found = cli.json("audit", "verify", *options, code=1)["first_bad"]
    assert (found["stream"], found["round"]) == ("cluster/oslo", 5)
    assert "missing" in found["found"]


def test_a_history_that_is_not_whole_is_not_signed(cli: Cli) -> None:
    key, out = cli.home / "key", cli.home / "checkpoint"
    cli("audit", "key", key)

    async def tamper(ledger: Ledger) -> None:
        async with ledger.database.reading() as raw:
            await raw.execute("update decision set outcome = 'kept' where seq = 2")

    attack(cli, tamper)
    assert "the history was changed" in cli(
        "audit", "checkpoint", "--key", key, "--out", out, code=1
    )
    assert not out.exists()


def test_a_checkpoint_of_another_plane_is_refused(cli: Cli, other_plane: str) -> None:
    key, out = cli.home / "key", cli.home / "checkpoint"
    cli("audit", "key", key)
    cli("audit", "checkpoint", "--key", key, "--out", out)
    cli.url = other_plane
    said = cli("audit", "verify", "--checkpoint", out, code=2)
    assert said.startswith(f"{out}: of plane ")
    assert "another plane" in said


def test_a_plane_without_a_history_has_nothing_to_sign(
    cli: Cli, database_server: str, migrated_database: str
) -> None:
    key, out = cli.home / "key", cli.home / "checkpoint"
    cli("audit", "key", key)
    with fresh_database(database_server, template=migrated_database) as cli.url:
        assert "nothing was accepted yet" in cli(
            "audit", "checkpoint", "--key", key, "--out", out, code=2
        )
    assert not out.exists()


def test_files_that_are_no_use_are_named_in_one_line(cli: Cli) -> None:
    key, public, out, other = (
        cli.home / name for name in ("key", "key.pub", "checkpoint", "other")
    )
    cli("audit", "key", key)
    cli("audit", "key", other)
    cli("audit", "checkpoint", "--key", key, "--out", out)
    body = out.read_bytes()
    broken = cli.home / "broken"
    broken.write_bytes(body.replace(b'"round":5', b'"round":6', 1))
    newer = cli.home / "newer"
    newer.write_bytes(body.replace(b'"version":1', b'"version":3'))
    missing = cli.home / "missing"
    for arguments, said in (
        (("verify", "--checkpoint", missing), f"{missing}: No such file or directory"),
        (("verify", "--checkpoint", cli.home), f"{cli.home}: Is a directory"),
        (("verify", "--checkpoint", key), f"{key}: expected a checkpoint: "),
        (("verify", "--checkpoint", broken), f"{broken}: the signature does not fit: "),
        (("verify", "--checkpoint", newer), f"{newer}: a checkpoint of version 3; "),
        (
            ("verify", "--checkpoint", out, "--public-key", key),
            f"{key}: expected an Ed25519 public key",
        ),
        (
            ("verify", "--checkpoint", out, "--public-key", f"{other}.pub"),
            f"{out}: signed by SHA256:",
        ),
        (
            ("checkpoint", "--key", public, "--out", out),
            f"{public}: expected an Ed25519 private key",
        ),
        (
            ("checkpoint", "--key", key, "--out", missing / "x"),
            f"{missing / 'x'}: No such file or directory",
        ),
    ):
        assert cli("audit", *arguments, code=2).startswith(said)
    assert out.read_bytes() == body


def test_a_topic_that_cannot_be_asked_is_named(cli: Cli) -> None:
    assert "kafka: not set" in cli("audit", "verify", "--topic", code=2)


@pytest.mark.long
def test_a_rewritten_stream_is_only_looked_for_where_it_was_asked_for(cli: Cli) -> None:
    key, out = cli.home / "key", cli.home / "checkpoint"
    cli("audit", "key", key)
    cli("audit", "checkpoint", "--key", key, "--out", out)
    attack(cli, rewrite, "fleet/0", 2, another_decision)
    assert cli.json("audit", "verify", "--stream", "cluster", "--checkpoint", out)["ok"] is True
    assert (
        cli.json("audit", "verify", "--stream", "fleet", "--checkpoint", out, code=1)["ok"] is False
    )
