"""The command line without a plane: help is quick, mistakes are one line and exit code 2, formats
say the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import in_process
from tests.patience import PATIENCE_S

from wharfinger import __version__
from wharfinger.runtime.settings import ENV_PREFIX
from wharfinger_cli.decisions import since_micros
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import Format, as_time, count, new_table, show_list

# What a person who asks for help should not wait for.
HEAVY = {
    "aiokafka",
    "alembic",
    "asyncpg",
    "faust",
    "numpy",
    "psutil",
    "pydantic",
    "ruamel",
    "sqlalchemy",
    "structlog",
}

COMMANDS = (
    "up",
    "down",
    "status",
    "doctor",
    "migrate",
    "apply",
    "delete",
    "get",
    "decisions",
    "explain",
    "audit",
    "replay",
    "dead-letters",
    "import",
    "generate",
    "schema",
    "demo",
)


def environment(**extra: str) -> dict[str, str]:
    """Ours without a plane's address, and with where our packages are."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    return {**plain, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "100", **extra}


def wharfinger(*arguments: str, stdin: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
    return in_process(list(arguments), environment(**extra), stdin)


def started(*arguments: str, stdin: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "wharfinger_cli", *arguments],
        env=environment(**extra),
        capture_output=True,
        text=True,
        input=stdin,
        timeout=PATIENCE_S,
        check=False,
    )


def complaint(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """The one line it said; asserts that it was one line, on standard error, and no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0].removeprefix("wharfinger: ")


def test_help_lists_every_command() -> None:
    said = started("--help").stdout
    assert [name for name in COMMANDS if f" {name} " not in said] == []


def test_the_version_is_said() -> None:
    assert started("--version").stdout == f"wharfinger {__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nsys.argv = ['wharfinger', '--help']\n"
        "from wharfinger_cli.__main__ import main\nmain()\n"
        "print('LOADED', *sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.rpartition("LOADED ")[2].split())
    assert "typer" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        (["status"], {}, "no plane is up in "),
        (["get", "clusters"], {}, "no plane is up in "),
        (["decisions", "--follow"], {}, "no plane is up in "),
        (
            ["status"],
            {"WHARFINGER_DATABASE": "mysql://x"},
            "WHARFINGER_DATABASE: expected postgresql://",
        ),
        (
            ["audit", "verify"],
            {"WHARFINGER_DATABASE": "postgresql://127.0.0.1:1/x"},
            "127.0.0.1:1/x: database: ",
        ),
        (
            ["migrate"],
            {
                "WHARFINGER_DATABASE": "postgresql://127.0.0.1:1/x",
                "WHARFINGER_KAFKA": "127.0.0.1:1",
            },
            "",
        ),
        (["migrate"], {}, "kafka: not set"),
        (["up"], {"WHARFINGER_KAFKA": "nowhere"}, "WHARFINGER_KAFKA: expected host:port"),
        (
            ["up"],
            {"WHARFINGER_PROCESSES": "three"},
            "WHARFINGER_PROCESSES: expected 'auto', 'one', 'two' or 'each'",
        ),
        (["get", "clustr"], {}, "get: expected one of clusters, nodes, bindings, policies"),
        (["get", "cl", "-n", "shop"], {}, "--namespace: not an option of clusters"),
        (["get", "np", "--state", "ready"], {}, "--state: not an option of nodepools"),
        (["generate", "fleet"], {}, "generate fleet: expected one of --out FILE and --apply"),
        (["decisions", "--since", "noon"], {}, "--since: expected a time such as"),
        (
            ["plan", "consolidate", "--over", "soon"],
            {},
            "--over: expected a span such as 90s, 10m, 12h or 7d, got 'soon'",
        ),
        (["plan", "consolidate", "--over", "-1d"], {}, "--over: expected a span such as 90s"),
        (
            ["plan", "consolidate", "--over", "999999999d"],
            {},
            "--over: expected a span from 0s to 366d, got '999999999d'",
        ),
        (
            ["plan", "consolidate", "--over", "1d", "--provides-after", "0s"],
            {},
            "--provides-after: expected a span from 1s to 1d, got '0s'",
        ),
        (
            ["plan", "consolidate", "--from", "1h"],
            {},
            "--from and --provides-after: expected --over with them",
        ),
        (
            ["plan", "consolidate", "--over", "1d", "--from", "noon"],
            {},
            "expected a round such as fleet/0:12, a time such as",
        ),
        (
            ["replay", "--from", "3", "--to", "2"],
            {},
            "replay: expected --from to be at most --to, got 3 and 2",
        ),
        (["replay", "--from", "noon"], {}, "expected a round such as fleet/0:12, a time such as"),
        (["replay", "--from", "0"], {}, "replay: rounds are numbered from 1, got 0"),
        (["schema", "export", "/proc/nowhere"], {}, "/proc/nowhere: "),
    ],
)
def test_what_can_be_expected_to_go_wrong_is_one_line_and_two(
    tmp_path: Path, arguments: list[str], variables: dict[str, str], said: str
) -> None:
    variables = {"WHARFINGER_DATA_DIR": str(tmp_path / "plane"), **variables}
    done = wharfinger(*arguments, **variables)
    if arguments == ["migrate"] and "WHARFINGER_KAFKA" not in variables:
        assert done.returncode == 2  # broker and database are both missing, and each is a line
        assert done.stderr.startswith(f"wharfinger: {said}")
        return
    assert said in complaint(done)


@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_process_says_and_ends_as_its_command_does(tmp_path: Path, code: int) -> None:
    """The other tests here run commands in this process."""
    stdin = "apiVersion: v9\nkind: Unheard\nmetadata: {name: x}\n" if code == 2 else ""
    arguments, variables = {
        0: (["down"], {}),
        1: (["doctor", "-o", "json"], {"WHARFINGER_KAFKKA": "x"}),
        2: (["apply", "-f", "-"], {}),
    }[code]
    variables = {"WHARFINGER_DATA_DIR": str(tmp_path / "plane"), **variables}
    process = started(*arguments, stdin=stdin, **variables)
    here = wharfinger(*arguments, stdin=stdin, **variables)
    assert process.returncode == here.returncode == code
    assert process.stderr == here.stderr
    assert (process.stdout == "") == (here.stdout == "")


def test_a_secret_in_an_address_is_never_said() -> None:
    done = started("status", WHARFINGER_DATABASE="postgresql://me:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in done.stdout + done.stderr
    assert done.returncode == 2


def test_every_mistake_of_a_manifest_is_a_line_with_file_line_and_field(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replica: 3\n"
        "  template: 7\n"
    )
    done = wharfinger("apply", "-f", str(bad))
    assert done.returncode == 2
    assert done.stdout == ""
    lines = [line.removeprefix("wharfinger: ") for line in done.stderr.splitlines()]
    assert len(lines) >= 2
    assert all(line.startswith(f"{bad}:") for line in lines)
    assert any(line.startswith(f"{bad}:6: spec.replica: ") for line in lines)


def test_a_kind_nobody_knows_is_named() -> None:
    said = complaint(
        wharfinger("apply", "-f", "-", stdin="apiVersion: v9\nkind: Unheard\nmetadata: {name: x}\n")
    )
    assert said.startswith("standard input:2: kind: ")
    assert "'Unheard'" in said


def test_nothing_to_apply_is_said() -> None:
    assert "expected at least one manifest" in complaint(
        wharfinger("apply", "-f", "-", stdin="# nothing\n")
    )


def test_an_event_that_people_may_not_send_is_refused(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"id":"x"}\n')
    assert complaint(wharfinger("apply", "-f", str(events))).startswith(f"{events}:1: ")


def test_an_unknown_command_is_two() -> None:
    assert wharfinger("plonk").returncode == 2


def test_generated_events_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    arguments = [
        "generate",
        "fleet",
        "--clusters",
        "2",
        "--nodes",
        "5",
        "--bindings",
        "7",
        "--seed",
        "3",
        "--out",
    ]
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    assert started(*arguments, str(first), PYTHONHASHSEED="1").returncode == 0
    assert started(*arguments, str(second), PYTHONHASHSEED="2").returncode == 0
    assert first.read_bytes() == second.read_bytes()
    assert all(json.loads(line)["specversion"] == "1.0" for line in first.read_text().splitlines())


def test_down_without_a_plane_is_no_mistake(tmp_path: Path) -> None:
    done = wharfinger("down", "--data-dir", str(tmp_path / "none"))
    assert done.returncode == 0
    assert "no plane is up" in done.stderr


def test_options_may_stand_before_or_behind_the_command(tmp_path: Path) -> None:
    before = complaint(wharfinger("--data-dir", str(tmp_path / "a"), "status"))
    behind = complaint(
        wharfinger("--data-dir", "/elsewhere", "status", "--data-dir", str(tmp_path / "a"))
    )
    assert before == behind
    assert str(tmp_path / "a") in before


def test_doctor_finds_what_is_wrong_and_ends_with_one(tmp_path: Path) -> None:
    done = wharfinger(
        "doctor", "-o", "json", WHARFINGER_DATA_DIR=str(tmp_path), WHARFINGER_KAFKKA="x"
    )
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["ok"] is False
    wrong = [check for check in said["checks"] if check["ok"] is False]
    assert [check["check"] for check in wrong] == ["environment"]
    assert "WHARFINGER_KAFKKA" in wrong[0]["detail"]


def test_doctor_is_content_with_a_machine_that_has_everything(tmp_path: Path) -> None:
    done = wharfinger("doctor", WHARFINGER_DATA_DIR=str(tmp_path))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("format_", list(Format))
def test_a_pipe_gets_no_colour_and_every_format_has_every_name(
    format_: Format, capsys: pytest.CaptureFixture[str]
) -> None:
    def table() -> object:
        out = new_table("cluster")
        for name in ("oslo", "bergen"):
            out.add_row(f"[red]{name}[/red]")
        return out

    show_list(format_, [{"name": "oslo"}, {"name": "bergen"}], ["oslo", "bergen"], table, "none")  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "oslo" in said
    assert "bergen" in said


def test_since_takes_a_time_or_an_age() -> None:
    now = 1_700_000_000_000_000
    assert since_micros("90s", now) == now - 90_000_000
    assert since_micros("2h", now) == now - 7_200_000_000
    assert since_micros("2023-11-14T22:13:20Z", 0) == now
    assert since_micros("2023-11-14T22:13:20", 0) == now
    with pytest.raises(CommandError):
        since_micros("5 minutes", now)


def test_times_keep_their_microseconds() -> None:
    assert as_time(1_700_000_000_000_001) == "2023-11-14T22:13:20.000001Z"


def test_counts_are_said_as_people_say_them() -> None:
    assert count(1, "round") == "1 round"
    assert count(8152, "round") == "8,152 rounds"
    assert count(2, "process", "processes") == "2 processes"
