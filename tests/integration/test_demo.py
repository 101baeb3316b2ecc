"""The first command a person runs: it shows what it promises, fails in one line, and leaves nothing
behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.backends import in_a_loop
from tests.cli_plane import Cli, environment
from tests.counter import Counter as Counting
from tests.counter import Writer, withdrawn
from tests.patience import until

from wharfinger.answers.submit import submit
from wharfinger.domain.cluster import Cluster
from wharfinger.events.accepted import accepted
from wharfinger.events.clusters import ClusterObserved
from wharfinger.runtime.ledger import DecisionQuery, Ledger
from wharfinger.runtime.plane import read_plane
from wharfinger_cli.demo_waits import Patience, PlaneWaits, WaitProgress
from wharfinger_cli.facts import known_facts
from wharfinger_cli.failures import CommandError
from wharfinger_cli.heartbeats import BEAT_S, heartbeats

pytestmark = pytest.mark.integration


class Demo:
    """`wharfinger demo` in a process of its own; what it has printed so far is in `lines`."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [*Cli(directory).command()[:3], "demo", *arguments],
            env={**environment(), "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def reaches(self, words: str) -> None:
        until(lambda: words in self.said or self.process.poll() is not None)
        assert words in self.said, self.said

    def end(self) -> int:
        code = self.process.wait()
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))


@pytest.fixture
def here() -> Iterator[Path]:
    """A short path, as a socket's must be, in which the demonstration makes its directory."""
    with tempfile.TemporaryDirectory(prefix="wd-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@contextmanager
def running(demo: Demo) -> Iterator[Demo]:
    try:
        yield demo
    finally:
        if demo.process.poll() is None:
            demo.process.kill()
            demo.process.wait()


def processes_in(directory: Path) -> list[str]:
    """Those that name the directory in their arguments or were started for it."""
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            if process.pid != os.getpid() and (
                str(directory) in words or _data_dir_of(process).startswith(str(directory))
            ):
                found.append(f"{process.pid} {process.status()} {words}")
        except psutil.Error:
            continue
    return [one for one in found if psutil.STATUS_ZOMBIE not in one]


def _data_dir_of(process: psutil.Process) -> str:
    return process.environ().get("WHARFINGER_DATA_DIR", "")


def test_the_demonstration_shows_what_is_meant_and_leaves_nothing_behind(here: Path) -> None:
    with running(Demo(here)) as demo:
        assert demo.end() == 0, demo.said
    for words in (
        "308 bindings decided in",
        ": 308 scheduled",
        "falls silent",
        "FailoverSchedule",
        "the history is whole",
        "byte for byte the same",
        "within error",
    ):
        assert words in demo.said, demo.said
    assert "FleetHeld" not in demo.said
    moved = re.search(r"([1-9]\d*) bindings placed elsewhere too", demo.said)
    assert moved is not None, demo.said
    assert re.search(r"bindings failed over +" + moved[1], demo.said)
    assert re.search(
        r"nodes made, and taken away again +[1-9]\d*, [1-9]\d* \(0\.\d+ \$/h saved\)", demo.said
    )
    assert re.search(r"divergences +0", demo.said)
    assert demo.lines[-1] == "everything that was started is stopped"
    assert "<svg" in (here / "what-if.html").read_text()
    assert [path.name for path in here.iterdir()] == ["what-if.html"]
    assert processes_in(here) == []


MOMENTS = (
    "A plane",
    "ready in",
    "A fleet",
    "falls silent",
    "Nodes as they are needed",
    "Fewer nodes",
    "Is it true?",
    "What if?",
)
QUICK = ("A fleet", signal.SIGTERM)


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        pytest.param(moment, number, marks=() if (moment, number) == QUICK else (pytest.mark.long,))
        for moment in MOMENTS
        for number in (signal.SIGTERM, signal.SIGINT)
    ],
)
def test_a_demonstration_that_is_stopped_takes_everything_with_it(
    here: Path, moment: str, number: signal.Signals
) -> None:
    with running(Demo(here)) as demo:
        demo.reaches(moment)
        demo.process.send_signal(number)
        assert demo.end() == 128 + number
    assert "Traceback" not in demo.said
    assert list(here.iterdir()) == []
    assert processes_in(here) == []


@pytest.mark.long
@pytest.mark.parametrize("moment", ["A plane", "falls silent"])
def test_the_plane_of_a_demonstration_that_is_killed_ends(here: Path, moment: str) -> None:
    with running(Demo(here)) as demo:
        demo.reaches(moment)
        demo.process.kill()
    until(lambda: processes_in(here) == [])


def test_a_demonstration_that_fails_says_why_in_one_line_and_leaves_nothing_behind(
    here: Path,
) -> None:
    """Its database is taken away while it waits."""
    with running(Demo(here)) as demo:
        demo.reaches("A fleet")
        (data_dir,) = here.glob("wharfinger-demo-*")
        until(lambda: (data_dir / "plane.json").exists())
        (data_dir / "postgres" / "PG_VERSION").unlink()
        assert demo.end() == 2
    assert "Traceback" not in demo.said
    assert len([line for line in demo.lines if line.startswith("wharfinger: ")]) == 1, demo.said
    assert list(here.iterdir()) == []
    assert processes_in(here) == []


def test_the_demonstration_does_not_touch_a_directory_in_use(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    assert "expected an empty data directory" in Cli(tmp_path).run("demo", code=2)
    assert (tmp_path / "mine").read_text() == "precious"
    assert read_plane(tmp_path) is None


# Heartbeats and waiting


async def test_heartbeats_go_on_while_the_process_that_started_them_is_busy(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHARFINGER_DATABASE", database_url)

    def accepted_so_far() -> int:
        """Asked in another loop: the one of this test stands still meanwhile."""
        return in_a_loop(lambda: _intake(database_url))

    ledger = await Ledger.open(database_url, "test")
    try:
        async with heartbeats(tmp_path) as beats:
            await beats.keep(())
            clusters = [
                accepted(ClusterObserved(Cluster(name, lease_s=4))) for name in ("oslo", "bergen")
            ]
            await submit(ledger, clusters, await known_facts(ledger))
            await beats.keep({"oslo"})
            before = accepted_so_far()
            until(lambda: accepted_so_far() >= before + 3)
            assert beats.failure() == ""
            await beats.keep(())
            stopped_at = accepted_so_far()
            await asyncio.sleep(3 * BEAT_S)
            assert accepted_so_far() == stopped_at, "none is sent after the answer"
            subjects = [row.subject async for row in ledger.decisions(DecisionQuery("intake"))]
            assert Counter(subjects)["bergen"] == 1
            assert Counter(subjects)["oslo"] >= 4
    finally:
        await ledger.close()


async def _intake(url: str) -> int:
    ledger = await Ledger.open(url, "test")
    try:
        return sum(head.seq for head in await ledger.heads("intake"))
    finally:
        await ledger.close()


async def test_what_does_not_come_while_nothing_moves_fails_with_what_was_waited_for(
    database_url: str,
) -> None:
    ledger = await Ledger.open(database_url, "test")
    try:
        watch = PlaneWaits(ledger, patience=Patience(standstill_s=0.3))
        with pytest.raises(
            CommandError, match=r"waited for the tide: 3 of 8 ships are in; the plane has not moved"
        ):
            await watch.until("the tide", _never)
    finally:
        await ledger.close()


async def test_what_does_not_come_while_rounds_go_on_fails_after_so_many_rounds(
    database_url: str,
) -> None:
    ledger = await Ledger.open(database_url, "test")
    try:
        await ledger.ensure_streams(["fleet/0"])
        fleet = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"], Counting())
        rounds = 0

        async def never() -> WaitProgress:
            """The fleet stream goes on meanwhile."""
            nonlocal rounds
            rounds += 1
            await ledger.commit([fleet.step([withdrawn(rounds)])], fleet.events)
            return await _never()

        watch = PlaneWaits(ledger, patience=Patience(rounds=3, seconds=0.0, standstill_s=900.0))
        with pytest.raises(
            CommandError,
            match=r"waited for the tide: 3 of 8 ships are in; nothing has changed in 4 rounds",
        ):
            await watch.until("the tide", never)
        assert rounds == 5
    finally:
        await ledger.close()


async def test_progress_is_patience(database_url: str) -> None:
    """Far more rounds than without progress."""
    ledger = await Ledger.open(database_url, "test")
    try:
        await ledger.ensure_streams(["fleet/0"])
        fleet = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"], Counting())
        ships = 0

        async def one_more() -> WaitProgress:
            nonlocal ships
            ships += 1
            await ledger.commit(
                [fleet.step([withdrawn(3 * ships + i)]) for i in range(3)], fleet.events
            )
            return WaitProgress(ships == 8, f"{ships} of 8 ships are in")

        await PlaneWaits(
            ledger, patience=Patience(rounds=3, seconds=0.0, standstill_s=900.0)
        ).until("the tide", one_more)
    finally:
        await ledger.close()


async def test_a_wait_ends_when_what_makes_the_heartbeats_has_ended(database_url: str) -> None:
    ledger = await Ledger.open(database_url, "test")
    try:
        watch = PlaneWaits(ledger, failure=lambda: "heartbeats: ended with 2: no database")
        with pytest.raises(
            CommandError,
            match=r"waiting for the tide \(3 of 8 ships are in\): heartbeats: ended with 2",
        ):
            await watch.until("the tide", _never)
    finally:
        await ledger.close()


async def _never() -> WaitProgress:
    return WaitProgress(False, "3 of 8 ships are in")
