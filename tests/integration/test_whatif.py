"""What-ifs by the command, on a plane that runs: nothing is written unless proposals are asked for,
and then each is made once."""

# mypy: allow-untyped-calls
# (the driver ships no types)

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.patience import PATIENCE_S
from tests.planes import assert_whole, ledger_decisions, settled

from wharfinger.events.origin import Origin
from wharfinger.events.streams import INTAKE, TOPICS
from wharfinger.history.changes import changes_of
from wharfinger.history.propose import SOURCE, propose
from wharfinger.history.whatif import what_if
from wharfinger.runtime.ledger import AcceptResult, Ledger, Submission

pytestmark = [pytest.mark.integration, pytest.mark.long]

EXAMPLES = Path(__file__).parents[2] / "examples" / "whatif"
PACK = str(EXAMPLES / "pack-everything.yaml")
PRICES = str(EXAMPLES / "prices.csv")
BUDGET = 4


@pytest.fixture(scope="module")
def plane() -> Iterator[PlaneUnderTest]:
    with a_plane() as plane:
        plane.up()
        plane.command(
            "generate",
            "fleet",
            "--clusters",
            "4",
            "--nodes",
            "40",
            "--bindings",
            "80",
            "--seed",
            "5",
            "--apply",
        )
        settled(plane, bindings=80)
        yield plane


def run(plane: PlaneUnderTest, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [
        sys.executable,
        "-m",
        "wharfinger_cli",
        "--data-dir",
        str(plane.data_dir),
        "replay",
        *arguments,
    ]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


def topic_ends(plane: PlaneUnderTest) -> dict[str, int]:
    """How many messages each topic has seen, over all partitions."""

    async def read() -> dict[str, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=plane.plane()["bootstrap"])
        await consumer.start()
        try:
            ends: dict[str, int] = {}
            for topic in TOPICS:
                partitions = consumer.partitions_for_topic(topic.name) or set()
                places = [TopicPartition(topic.name, p) for p in partitions]
                ends[topic.name] = (
                    sum((await consumer.end_offsets(places)).values()) if places else 0
                )
            return ends
        finally:
            await consumer.stop()

    return asyncio.run(read())


def heads_of(plane: PlaneUnderTest) -> dict[str, str]:
    """Stream -> the hash of its last round: the same while nothing is written."""
    return {name: head["hash"] for name, head in plane.json("status")["streams"].items()}


def test_a_comparison_is_a_table_json_and_a_page_and_writes_nothing(
    plane: PlaneUnderTest, tmp_path: Path
) -> None:
    streams, ends = heads_of(plane), topic_ends(plane)
    page = tmp_path / "page.html"
    done = run(
        plane,
        "--with",
        PACK,
        "--prices",
        PRICES,
        "--report",
        str(page),
        "--fail-if",
        "decisions>900%",
    )
    assert done.returncode == 0, done.stderr
    assert "of them placed otherwise by policy" in done.stdout
    assert "passed  decisions>900%" in done.stdout
    assert "cost of the nodes in use" in done.stdout
    assert "<svg" in page.read_text()

    answer = json.loads(run(plane, "--with", PACK, "-o", "json").stdout)
    assert answer["rebound"] > 0
    assert answer["figures"]["decisions"]["recorded"] == len(ledger_decisions(plane))
    policy = [d for d in answer["differences"] if d["first"] and d["first"]["step"] == "policy"]
    assert policy[0]["first"]["unchanged"]["step"] == "divided by room"
    assert policy[0]["first"]["changed"]["step"] == "divided packed"
    assert (heads_of(plane), topic_ends(plane)) == (streams, ends)


def test_the_same_question_has_the_same_answer(plane: PlaneUnderTest) -> None:
    one, two = (run(plane, "--with", PACK, "-o", "json").stdout for _ in range(2))
    assert one == two


def test_a_threshold_that_is_crossed_ends_with_1(plane: PlaneUnderTest) -> None:
    done = run(
        plane,
        "--with",
        "strategy=most-allocated",
        "--fail-if",
        "decisions>=0",
        "--fail-if",
        "moves>1000",
    )
    assert done.returncode == 1
    assert "FAILED  decisions>=0" in done.stdout
    assert "passed  moves>1000" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        (["--with", PRICES], "prices.csv", 2),
        (["--with", PACK, "--fail-if", "cost>1"], "give --prices", 2),
        (["--with", PACK, "--from", "fleet/0:99999"], "there is no round 99999", 1),
        (["--propose"], "expected --with too", 2),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    plane: PlaneUnderTest, arguments: Sequence[str], says: str, code: int
) -> None:
    done = run(plane, *arguments)
    assert done.returncode == code, done.stdout
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_proposals_killed_half_way_and_asked_for_again_are_made_once(plane: PlaneUnderTest) -> None:
    """Within the budget, answered by the scheduler, with the replay as the cause of what it
    committed."""
    asyncio.run(propose_and_die(plane.plane()["database_url"], after=2))
    wanted = [
        "--with",
        PACK,
        "--propose",
        "--only-better",
        "--objective",
        "pack",
        "--budget",
        str(BUDGET),
        "-o",
        "json",
    ]
    first = json.loads(run(plane, *wanted).stdout)["proposed"]
    assert (first["before"], len(first["answers"])) == (2, BUDGET)
    settled(plane)
    second = json.loads(run(plane, *wanted).stdout)["proposed"]
    assert (second["replay"], second["before"]) == (first["replay"], BUDGET)
    assert {a["proposal"] for a in second["answers"]} == {a["proposal"] for a in first["answers"]}
    assert len(proposals_in(plane)) == BUDGET

    outcomes = {a["outcome"] for a in second["answers"]}
    assert outcomes <= {"committed", "refused"}
    assert "committed" in outcomes
    decisions = {d["id"]: d for d in ledger_decisions(plane)}
    for answer in second["answers"]:
        decision = decisions[answer["decision"]]
        if answer["outcome"] == "committed":
            assert decision["cause"] == first["replay"]
            assert {t["cluster"]: t["replicas"] for t in decision["data"]["targets"]} == answer[
                "to"
            ]
        else:
            assert answer["reason"]
    caused = [d for d in decisions.values() if d["cause"] == first["replay"]]
    assert len(caused) == len(second["answers"])
    assert_whole(plane)


async def propose_and_die(database_url: str, after: int) -> None:
    """As the command does, killed when `after` of its proposals had been accepted."""
    ledger = await Ledger.open(database_url, "tests")
    whole = ledger.accept

    async def some(
        submissions: Sequence[Submission], origin: Origin | None = None, *_: object, **__: object
    ) -> AcceptResult:
        await whole(submissions[:after], origin)
        raise KeyboardInterrupt

    ledger.accept = some  # type: ignore[method-assign]
    try:
        result = await what_if(ledger, changes_of([PACK]))
        with pytest.raises(KeyboardInterrupt):
            await propose(ledger, result, "pack", only_better=True, budget=BUDGET)
    finally:
        await ledger.close()


def proposals_in(plane: PlaneUnderTest) -> list[Any]:
    async def read() -> list[Any]:
        ledger = await Ledger.open(plane.plane()["database_url"], "tests")
        try:
            rounds = [r async for r in ledger.recorded_rounds(INTAKE)]
        finally:
            await ledger.close()
        return [event for r in rounds for event in r.events if event.source == SOURCE]

    return asyncio.run(read())
