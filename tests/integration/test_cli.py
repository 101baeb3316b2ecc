"""The commands against a real plane, as a user runs them."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.cli_plane import FLEET, WEB, Cli, a_fleet, environment, living
from tests.patience import PATIENCE_S, until

from wharfinger.domain.binding import Binding
from wharfinger.domain.workload import ObjectRef
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.codec import encode, made
from wharfinger.events.dead_letters import MessageDeadLettered
from wharfinger.events.envelope import derived_id
from wharfinger.events.streams import BINDINGS, DEAD_LETTERS
from wharfinger.runtime.children import CONTROLLERS, layout_for, process_names, usable_cores
from wharfinger.runtime.dead_letters import HELD_BACK
from wharfinger.runtime.ledger import Ledger, Submission
from wharfinger.runtime.plane import read_plane
from wharfinger_client import Client, api

pytestmark = pytest.mark.integration

LINE_KEYS = {"id", "stream", "seq", "type", "subject", "time", "data"}

LOADED = """
import json, sys
from wharfinger_cli.__main__ import main
code = main()
sys.stderr.write("\\n" + json.dumps(sorted(sys.modules)))
sys.exit(code)
"""
UNREAD = {
    "sqlalchemy",
    "pydantic",
    "pydantic_settings",
    "numpy",
    "wharfinger.stages",
    "wharfinger.engine",
    "aiokafka",
    "faust",
}
"""What no command needs that only reads what the ledger has."""
READING = (
    "status",
    "decisions",
    "decisions -o json --limit 3",
    "get clusters",
    "get nodes",
    "get bindings -o yaml",
    "get policies",
    "history {binding}",
    "lineage {binding}",
    "dead-letters list",
    "savings",
)


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    with a_fleet(tmp_path_factory.mktemp("cli") / "plane") as cli:
        yield cli


def test_status_has_every_process_service_and_stream(cli: Cli) -> None:
    status = cli.json("status")
    assert status["ready"] is True
    running = process_names(layout_for("auto", usable_cores()))
    assert set(status["processes"]) == {"supervisor", "broker", "database", *running}
    assert all(psutil.pid_exists(process["pid"]) for process in status["processes"].values())
    expected = {
        "publisher",
        "estimator",
        "scheduler-fleet",
        "scheduler-cluster",
        "descheduler",
        "annotator",
        "actuator",
        "collector",
    }
    assert set(status["services"]) == {*expected, "api"}
    assert all(service["ready"] and service["lag"] == 0 for service in status["services"].values())
    pids = {name: status["processes"][name]["pid"] for name in running}
    deciding, other = pids.get("one", pids.get("scheduler")), pids.get("one", pids.get(CONTROLLERS))
    assert {name: service["pid"] for name, service in status["services"].items()} == {
        **dict.fromkeys(expected, other),
        "scheduler-fleet": deciding,
        "scheduler-cluster": deciding,
        "api": pids["api"],
    }
    assert {"intake", "fleet/0"} < set(status["streams"])
    assert all(
        set(head) >= {"round", "seq", "hash", "epoch"} for head in status["streams"].values()
    )
    assert set(status["requests"]) == {"waiting", "oldest_since"}
    assert status["requests"]["waiting"] is not None, "every process answers"
    shown = cli.run("status")
    assert "ready" in shown
    assert "not decided: " in shown


@pytest.mark.parametrize("command", READING)
def test_a_command_that_reads_loads_only_what_reads(cli: Cli, command: str) -> None:
    """And prints what it prints in this process, where the other tests run it."""
    arguments = command.format(
        binding=cli.decisions("--limit", "1", "--stream", "fleet")[0]["subject"]
    ).split()
    variables = {
        name: value for name, value in environment().items() if not name.startswith("WHARFINGER_")
    }
    run = subprocess.run(
        [sys.executable, "-c", LOADED, "--data-dir", str(cli.data_dir), *arguments],
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(run.stderr.splitlines()[-1]))
    assert "wharfinger.runtime.ledger.ledger" in loaded
    assert sorted(UNREAD & loaded) == []
    if arguments[0] != "status":  # which shows memory and ages
        assert run.stdout == cli.in_process(*arguments).stdout


def test_telling_the_same_again_has_no_effect(cli: Cli) -> None:
    before = cli.json("status")["streams"]
    again = cli.json(*FLEET)
    assert again["accepted"] == 0
    # bindings, clusters, a bucket of nodes each, policies
    assert again["unchanged"] == 60 + 4 + 4 + 5
    assert cli.json("status")["streams"] == before


def test_every_binding_has_a_decision_and_every_line_its_keys(cli: Cli) -> None:
    lines = cli.decisions()
    assert all(set(line) >= LINE_KEYS for line in lines)
    assert len({line["id"] for line in lines}) == len(lines)
    assert len({line["subject"] for line in lines if line["stream"] == "fleet/0"}) >= 60
    for stream in {line["stream"] for line in lines}:
        assert [line["seq"] for line in lines if line["stream"] == stream] == sorted(
            line["seq"] for line in lines if line["stream"] == stream
        )
    assert "intake" not in {line["stream"] for line in lines}


def test_decisions_can_be_narrowed(cli: Cli) -> None:
    lines = cli.decisions()
    assert {line["stream"] for line in cli.decisions("--stream", "fleet")} == {"fleet/0"}
    assert cli.decisions("--limit", "3") == lines[:3]
    assert cli.decisions("--since", "1d") == lines
    assert cli.decisions("--since", "2100-01-01") == []
    assert cli.run("decisions", "-o", "name").split() == [line["id"] for line in lines]
    assert len(cli.run("decisions").splitlines()) == len(lines) + 1
    assert {line["type"] for line in cli.decisions("--stream", "intake", "--limit", "2")} == {
        "io.wharfinger.message.accepted.v1"
    }


@pytest.mark.parametrize(
    ("what", "number", "first"),
    [
        ("clusters", 4, "bergen"),
        ("nodes", 40, ""),
        ("policies", 5, "ClusterPropagationPolicy//by-room"),
    ],
)
def test_get_shows_what_is_known_in_every_format(
    cli: Cli, what: str, number: int, first: str
) -> None:
    items = cli.json("get", what)
    names = cli.run("get", what, "-o", "name").split()
    assert len(items) == len(names) == number
    assert names[0].startswith(first)
    assert len(cli.run("get", what).splitlines()) == number + 1
    assert cli.run("get", what, "-o", "yaml").count("\n- ") == number - 1


def test_get_bindings_says_where_each_is(cli: Cli) -> None:
    items = cli.json("get", "bindings")
    assert len(items) >= 60
    placed = [
        item
        for item in items
        if item["outcome"] == "scheduled" and item["targets"] and item["replicas"]
    ]
    assert placed
    for item in placed:
        assert item["placed"] <= sum(target["replicas"] for target in item["targets"])
    one = placed[0]["name"]
    assert [item["name"] for item in cli.json("get", "bindings", one)] == [one]
    cli.run("get", "bindings", "nobody/nothing", code=1)
    cli.run("get", "clusters", "atlantis", code=1)


def test_explain_gives_the_recorded_explanation_and_what_followed(cli: Cli) -> None:
    placed = next(
        d for d in cli.decisions("--stream", "cluster") if d["type"].endswith("replicas.placed.v1")
    )
    account = cli.json("explain", placed["subject"], "--decision", placed["data"]["assignment"])
    assert account["decision"]["id"] == placed["data"]["assignment"]
    assert account["decision"]["data"]["explanation"]["candidates"] == 4
    assert placed["id"] in [row["id"] for row in account["nodes"]]
    history = [row["id"] for row in account["history"]]
    assert placed["id"] in history
    assert account["decision"]["id"] in history
    page = cli.run("explain", placed["subject"])
    assert placed["subject"] in page
    assert "4 clusters looked at" in page


def test_a_binding_may_be_named_as_its_workload_is(cli: Cli) -> None:
    full = cli.json("get", "bindings")[0]["name"]
    workload = full.rpartition("/")[2].removesuffix("-deployment")
    assert cli.json("explain", workload)["binding"] == full
    cli.run("explain", "no-such-workload", code=1)
    assert "--decision: expected the id" in cli.run("explain", full, "--decision", "seven", code=2)


# --- programs that listen


CONSUMERS = Path(__file__).parents[2] / "examples" / "consumer"


def stored(database: Path, what: str = "id from decided") -> list[Any]:
    if not database.exists():
        return []
    with sqlite3.connect(database) as own:
        try:
            return [row[0] for row in own.execute(f"select {what}")]
        except sqlite3.OperationalError:  # the program has not made its tables yet
            return []


@contextmanager
def listening(program: str, **options: object) -> Iterator[Callable[[], None]]:
    """Killed at the end of the block, wherever it is then. What is given asserts that it lives."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    process = subprocess.Popen(
        [sys.executable, str(CONSUMERS / program), *given],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )

    def lives_on() -> None:
        assert process.poll() is None, process.communicate()[1]

    try:
        yield lives_on
    finally:
        process.kill()
        process.communicate()


@pytest.mark.long
def test_the_consumers_of_the_examples_have_every_decision_once(cli: Cli, tmp_path: Path) -> None:
    """One is killed several times and goes on by another way each time; one reads Kafka alone."""
    cli.settle()
    token = tmp_path / "token"
    cli.run("token", "create", "consumer", "--role", "viewer", "--out", str(token))
    plane = read_plane(cli.data_dir)
    assert plane is not None
    ids = sorted(d["id"] for d in cli.decisions())
    kafka = {"via": "kafka", "bootstrap": plane.bootstrap}
    server = f"http://127.0.0.1:{plane.http_ports['api']}"
    http = {"server": server, "token_file": token}
    with Client(server, token.read_text().strip()) as client:
        head = client(api.events(after="latest", limit=1)).through
    own, alone = tmp_path / "own.db", tmp_path / "plain.db"

    def reached(lives_on: Callable[[], None], condition: Callable[[], bool]) -> None:
        def now() -> bool:
            lives_on()
            return condition()

        until(now, lambda: f"{len(stored(own))} and {len(stored(alone))} of {len(ids)}")

    with listening("plain_kafka.py", bootstrap=plane.bootstrap, database=alone) as plain:
        for way in ({"via": "sse", **http}, {"via": "pull", **http}, kafka):
            before = len(stored(own))
            with listening("with_client.py", database=own, lease_s=0.5, **way) as client_lives:
                more = min(len(ids), before + 1)
                reached(client_lives, lambda more=more: len(stored(own)) >= more)  # type: ignore[misc]
        with listening("with_client.py", database=own, lease_s=0.5, **kafka) as client_lives:
            reached(client_lives, lambda: len(stored(own)) >= len(ids))
        position = "position from wharfinger_cursor"
        with listening(
            "with_client.py", database=own, lease_s=0.5, via="sse", **http
        ) as client_lives:
            reached(client_lives, lambda: stored(own, position) >= [head])
        assert sorted(stored(own)) == ids
        reached(plain, lambda: len(stored(alone)) >= len(ids))
    assert sorted(stored(alone)) == ids
    with sqlite3.connect(own) as placed:
        rows = placed.execute("select binding, cluster, replicas from placed").fetchall()
    assert sorted(rows) == sorted(
        (item["name"], target["cluster"], target["replicas"])
        for item in cli.json("get", "bindings")
        for target in item["targets"]
    )


async def _dead_letter(url: str, payload: bytes, offset: int) -> str:
    data = MessageDeadLettered(
        "test", BINDINGS.name, 0, offset, "unreadable", base64.b64encode(payload).decode(), "k"
    )
    event = made(data, id=derived_id("test", offset), source="/test", subject=BINDINGS.name)
    ledger = await Ledger.open(url, "test")
    try:
        await ledger.accept([Submission(event, DEAD_LETTERS.name, "test", "test")])
    finally:
        await ledger.close()
    return str(event.id)


def test_a_dead_letter_is_listed_and_sent_again_once_it_can_be_read(cli: Cli) -> None:
    plane = read_plane(cli.data_dir)
    assert plane is not None
    binding = Binding("quay/late", "uid-late", ObjectRef("v1", "ConfigMap", "late", "quay"))
    good = encode(
        BindingRequested(binding),
        id=derived_id("late"),
        source="/test",
        subject="quay/late",
        key="quay/late",
    )
    garbage_id = asyncio.run(_dead_letter(plane.database_url, b"\x00 no event", 41))
    good_id = asyncio.run(_dead_letter(plane.database_url, good, 42))
    held_id = asyncio.run(_dead_letter(plane.database_url, good, HELD_BACK))
    listed = cli.json("dead-letters", "list")
    assert {letter["id"] for letter in listed} == {garbage_id, good_id, held_id}
    assert "wharfinger.bindings/0 at 41" in cli.run("dead-letters", "list")
    assert "wharfinger.bindings held back" in cli.run("dead-letters", "list")
    assert cli.json("dead-letters", "retry", good_id)["sent"] == 1
    tried = cli.json("dead-letters", "retry", code=1)
    why = {failure["id"]: failure["reason"] for failure in tried["failed"]}
    assert set(why) == {garbage_id, held_id}
    assert why[garbage_id].startswith("still unreadable: not a CloudEvent")
    assert why[held_id].endswith("send it again as an event with an id of its own")
    cli.run("dead-letters", "retry", "not-an-id", code=1)
    until(lambda: "quay/late" in {d["subject"] for d in cli.decisions("--stream", "fleet")})


def test_following_shows_decisions_as_they_come_and_ends_at_ctrl_c(cli: Cli) -> None:
    follower = cli.spawn(
        "decisions", "--follow", "--stream", "fleet", "--since", "2100-01-01", "-o", "json"
    )
    follower.terminate()
    follower.wait(timeout=PATIENCE_S)
    follower = cli.spawn("decisions", "--follow", "--stream", "fleet", "-o", "json")
    assert follower.stdout is not None
    json.loads(follower.stdout.readline())
    cli.run(
        "apply", "-f", "-", stdin=WEB.format(replicas=5).replace("name: web,", "name: followed,")
    )
    while json.loads(line := follower.stdout.readline())["subject"] != "quay/followed-deployment":
        assert line
    follower.send_signal(signal.SIGINT)
    assert follower.wait(timeout=PATIENCE_S) == 130
    assert follower.stderr is not None
    assert follower.stderr.read() == ""


def test_a_reader_that_has_heard_enough_is_no_mistake(cli: Cli) -> None:
    command = " ".join(cli.command("decisions", "-o", "json"))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -1"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert set(json.loads(done.stdout)) >= LINE_KEYS


def test_doctor_asks_the_plane_itself(cli: Cli) -> None:
    said = cli.json("doctor")
    checks = {check["check"]: check["ok"] for check in said["checks"]}
    assert said["ok"] is True
    running = process_names(layout_for("auto", usable_cores()))
    asked = {f"process {name}" for name in running}
    assert {"broker", "topics", "database", "schema", *asked} <= set(checks)
    assert checks.pop("checkpoints") is None, "a plane on loopback ships none by itself"
    assert set(checks.values()) == {True}


def test_a_second_up_is_refused_and_leaves_the_first_alone(cli: Cli) -> None:
    before = cli.json("status")["processes"]
    assert "another plane holds this directory" in cli.run("up", "--detach", code=2)
    after = cli.json("status")["processes"]
    assert {n: p["pid"] for n, p in after.items()} == {n: p["pid"] for n, p in before.items()}


@pytest.mark.parametrize("processes", ["one", "two", pytest.param("each", marks=pytest.mark.long)])
def test_up_in_the_foreground_ends_with_ctrl_c_and_takes_everything_with_it(
    tmp_path: Path, processes: str
) -> None:
    cli = Cli(tmp_path / "plane")
    up = cli.spawn("up", "--processes", processes)
    until(lambda: up.poll() is not None or read_plane(cli.data_dir) is not None)
    plane = read_plane(cli.data_dir)
    assert plane is not None, up.stderr and up.stderr.read()
    expected = {
        "one": {"one"},
        "two": {"controllers", "scheduler"},
        "each": {
            "actuator",
            "annotator",
            "collector",
            "estimator",
            "scheduler",
            "descheduler",
            "publisher",
        },
    }
    assert set(plane.http_ports) == {*expected[processes], "api"}
    up.send_signal(signal.SIGINT)
    assert up.wait(timeout=PATIENCE_S) == 0
    assert living(list(plane.pids.values())) == []
    assert read_plane(cli.data_dir) is None
