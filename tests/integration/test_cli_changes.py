"""The commands that change something, against a real plane, as a user runs them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli_plane import FLEET, WEB, Cli, a_fleet
from tests.patience import until

from wharfinger.runtime.plane import read_plane
from wharfinger_client import Client, api

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    with a_fleet(tmp_path_factory.mktemp("cli") / "plane") as cli:
        yield cli


def test_a_binding_is_scaled_and_a_cluster_is_drained_and_comes_back(cli: Cli) -> None:
    item = next(i for i in cli.json("get", "b", "--state", "scheduled") if i["replicas"])
    name, replicas = item["name"], item["replicas"]
    for number, result in ((replicas + 1, "changed"), (replicas + 1, "unchanged")):
        assert cli.json("scale", name, str(number)) == {"subject": name, "result": result}
    assert cli.json("get", "b", name)[0]["replicas"] == replicas + 1
    cli.run("scale", "atlantis/web", "2", code=1)
    assert cli.json("scale", name, str(replicas))["result"] == "changed"
    assert cli.json("drain", "bergen")["result"] == "changed"
    assert [t["key"] for t in cli.json("get", "cl", "bergen")[0]["taints"]] == [
        "wharfinger.io/drain"
    ]
    assert cli.json("undrain", "bergen")["result"] == "changed"
    assert not cli.json("get", "cl", "bergen")[0].get("taints")
    cli.run("drain", "atlantis", code=1)
    assert cli.run("logs", "supervisor", "--lines", "3").count("\n") == 3
    assert '"services": [' in cli.run("logs"), "of the process that decides"
    cli.run("logs", "atlantis", code=1)
    cli.settle()


@pytest.fixture(scope="module")
def over_server(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    token = tmp_path_factory.mktemp("server") / "token"
    cli.run("token", "create", "waiting", "--role", "operator", "--out", str(token))
    plane = read_plane(cli.data_dir)
    assert plane is not None
    server = f"http://127.0.0.1:{plane.http_ports['api']}"
    return "--server", server, "--token-file", str(token)


@pytest.fixture(params=["database", "server"])
def way(request: pytest.FixtureRequest, over_server: tuple[str, ...]) -> tuple[str, ...]:
    return over_server if request.param == "server" else ()


def on_nodes(binding: dict[str, Any]) -> bool:
    return bool(binding["placed"] == sum(target["replicas"] for target in binding["targets"]))


def test_what_was_waited_for_is_there_when_the_command_ends(
    cli: Cli, way: tuple[str, ...], tmp_path: Path
) -> None:
    """No wait of the test's own in between: `get` sees at once what `--wait` promised."""
    name = f"waits-{len(way)}"
    binding = f"quay/{name}-deployment"
    text = WEB.replace("name: web, namespace", f"name: {name}, namespace")
    done = cli.json(*way, "apply", "-f", "-", "--wait", stdin=text.format(replicas=2))
    assert (done["accepted"], done["wait"]["until"], done["wait"]["reached"]) == (
        1,
        "decided",
        True,
    )
    (now,) = cli.json("get", "b", binding)
    assert (now["outcome"], sum(t["replicas"] for t in now["targets"])) == ("scheduled", 2)

    done = cli.json(*way, "scale", binding, "5", "--wait=placed", "--timeout", "10m")
    assert (done["wait"]["reached"], done["wait"]["bindings"]) == (True, 1)
    (now,) = cli.json("get", "b", binding)
    assert (now["replicas"], now["placed"]) == (5, 5)
    # what changes nothing waits for what was said before
    again = cli.json(*way, "scale", binding, "5", "--wait", "placed")
    assert (again["result"], again["wait"]["reached"]) == ("unchanged", True)

    done = cli.json(*way, "scale", binding, "3", "--wait=published")
    position = done["wait"]["position"]
    last = [d for d in cli.decisions("--stream", "fleet") if d["subject"] == binding][-1]
    assert sum(t["replicas"] for t in last["data"]["targets"]) == 3
    plane = read_plane(cli.data_dir)
    assert plane is not None
    token = tmp_path / "token"
    cli.run("token", "create", f"reads-{len(way)}", "--role", "viewer", "--out", str(token))
    address = f"http://127.0.0.1:{plane.http_ports['api']}"
    with Client(address, token.read_text().strip()) as client:
        batch = client(api.events(binding=[binding], after=str(position - 1)))
    assert batch.events[0].id == last["id"]

    target = now["targets"][0]["cluster"]
    done = cli.json(*way, "drain", target, "--wait=placed", code=None)
    refused = {one["binding"] for one in done["wait"]["refused"]}
    assert done["wait"]["reached"]
    for item in cli.json("get", "b"):
        assert item["name"] in refused or target not in {t["cluster"] for t in item["targets"]}
        assert item["name"] in refused or on_nodes(item) or item["outcome"] != "scheduled"
    assert cli.json(*way, "undrain", target, "--wait")["wait"]["reached"]
    assert cli.json(*way, "delete", "-f", "-", "--wait=placed", stdin=text.format(replicas=2))[
        "wait"
    ]["reached"]
    cli.settle()


def test_a_refusal_ends_the_wait_with_1_and_is_named(cli: Cli, way: tuple[str, ...]) -> None:
    text = WEB.replace("name: web, namespace", "name: huge, namespace").replace("10m", "900")
    applied = cli.run(
        *way, "apply", "-f", "-", "--wait=placed", stdin=text.format(replicas=1), code=1
    )
    assert "refused quay/huge-deployment: " in applied
    cli.run(*way, "delete", "-f", "-", "--wait", stdin=text.format(replicas=1))


def test_a_fleet_that_is_told_again_is_there(cli: Cli) -> None:
    done = cli.json(*FLEET, "--wait=placed", code=None)
    assert (done["accepted"], done["wait"]["reached"], done["wait"]["bindings"] >= 60) == (
        0,
        True,
        True,
    )


def test_a_change_taken_back_is_a_change(cli: Cli) -> None:
    def replicas() -> int:
        (binding,) = cli.json("get", "bindings", "quay/web-deployment")
        return int(binding["replicas"])

    for number, result in ((2, "created"), (3, "changed"), (2, "changed")):
        said = cli.json("apply", "-f", "-", stdin=WEB.format(replicas=number))
        assert (said["accepted"], said["unchanged"]) == (1, 0)
        assert [o["result"] for o in said["objects"]] == [result]
        assert replicas() == number
    assert cli.json("apply", "-f", "-", stdin=WEB.format(replicas=2))["accepted"] == 0
    assert cli.json("delete", "-f", "-", stdin=WEB.format(replicas=2))["accepted"] == 1
    cli.run("get", "bindings", "quay/web-deployment", code=1)
    assert cli.json("apply", "-f", "-", stdin=WEB.format(replicas=2))["accepted"] == 1
    assert replicas() == 2

    def decided_last() -> bool:
        rows = [
            d for d in cli.decisions("--stream", "fleet") if d["subject"] == "quay/web-deployment"
        ]
        return bool(rows) and sum(t["replicas"] for t in rows[-1]["data"].get("targets", ())) == 2

    until(decided_last)


def test_a_change_names_the_systems_user_the_reason_and_the_revision(cli: Cli) -> None:
    user = f"unix:{pwd.getpwuid(os.getuid()).pw_name}"
    other = WEB.replace("name: web", "name: asked-for")
    cli.run(
        "apply",
        "-f",
        "-",
        "--reason",
        "the fair",
        "--revision",
        "9f3c1d2",
        stdin=other.format(replicas=1),
    )
    name = "quay/asked-for-deployment"
    until(lambda: any(d["subject"] == name for d in cli.decisions("--stream", "fleet")))
    cause = cli.json("history", name)["decisions"][0]["because"]
    assert (cause["authtype"], cause["authid"]) == ("user", user)
    assert (cause["changereason"], cause["changerevision"]) == ("the fair", "9f3c1d2")
    assert f"by {user} (the fair, 9f3c1d2)" in cli.run("lineage", name)
    # before the command, where it serves every command; and the environment does not name the user
    cli.run("--reason", "it is over", "delete", "-f", "-", stdin=other.format(replicas=1))
    until(lambda: "it is over" in cli.run("history", name))


def test_a_reason_that_cannot_be_recorded_is_one_line_and_changes_nothing(cli: Cli) -> None:
    before = cli.json("status")["streams"]["intake"]
    for option in ("--reason", "--revision"):
        said = cli.run("apply", "-f", "-", option, "a\nb", stdin=WEB.format(replicas=9), code=2)
        assert said.startswith(f"wharfinger: {option}: expected one line of at most 500 characters")
        assert len(said.splitlines()) == 1
    assert cli.json("status")["streams"]["intake"] == before


def test_one_mistake_and_nothing_is_accepted(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(WEB.format(replicas=7))
    (tmp_path / "orphan.yaml").write_text(
        WEB.format(replicas=1)
        .replace("annotations: {wharfinger.io/placement: any}", "labels: {}")
        .replace("quay", "void")
    )
    before = cli.json("status")["streams"]["intake"]
    said = cli.run("apply", "--strict", "-f", str(tmp_path), code=2)
    assert said.startswith(f"wharfinger: {tmp_path}/orphan.yaml:")
    said = cli.run("plan", "--strict", "-f", str(tmp_path), code=2)
    assert said.startswith(f"wharfinger: {tmp_path}/orphan.yaml:")
    assert cli.json("status")["streams"]["intake"] == before


def test_what_no_policy_selects_is_skipped_and_named_once(cli: Cli, tmp_path: Path) -> None:
    widget = "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: NAME, namespace: quay}\n"
    anywhere = widget.replace("quay", "quay, annotations: {wharfinger.io/placement: any}")
    texts = [widget.replace("NAME", name) for name in ("a", "b")] + [anywhere.replace("NAME", "c")]
    (tmp_path / "widgets.yaml").write_text("---\n".join(texts))
    said = cli.json("apply", "-f", str(tmp_path))
    assert said["accepted"] == 1
    assert said["skipped"] == [
        {
            "api_version": "example.org/v1",
            "kind": "Widget",
            "count": 2,
            "why": "no policy selects them",
        }
    ]
    until(lambda: any(d["subject"] == "quay/c-widget" for d in cli.decisions("--stream", "fleet")))


def test_generated_events_can_be_applied_from_a_file(cli: Cli, tmp_path: Path) -> None:
    events = tmp_path / "fleet.jsonl"
    cli.run(*FLEET[:-1], "--out", str(events))
    said = cli.json("apply", "-f", str(events))
    assert (said["accepted"], said["unchanged"]) == (0, 73)


def test_a_trace_is_imported_at_the_rate_asked_for_and_only_once(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn-0,32000,262144,2,T4\n"
    )
    rows = "".join(f"p-{i},100,128,1,100,T4,{i}\n" for i in range(10))
    (tmp_path / "pods.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time\n" + rows
    )
    arguments = [
        "import",
        "openb",
        "--nodes",
        str(tmp_path / "nodes.csv"),
        "--pods",
        str(tmp_path / "pods.csv"),
        "--clusters",
        "1",
        "--rate",
        "20",
    ]
    said = cli.json(*arguments, "--wait")
    assert (said["bindings"], said["accepted"]) == (10, 12)
    assert said["seconds"] >= 9 / 20
    assert cli.json(*arguments)["accepted"] == 0
    names = {f"openb/p-{i}" for i in range(10)}
    assert names <= {d["subject"] for d in cli.decisions("--stream", "fleet")}
    cli.settle()


def test_the_history_is_whole_and_follows_from_what_was_known(cli: Cli) -> None:
    cli.settle()
    verified = cli.json("audit", "verify")
    assert verified["ok"] is True
    assert verified["first_bad"] is None
    streams = len(cli.json("status")["streams"])
    assert verified["streams"] == streams + bool(cli.json("audit", "access"))
    replayed = cli.json("replay")
    assert replayed["divergences"] == 0
    assert replayed["decisions"] == len(cli.decisions())
    shared = cli.json("replay", "--workers", "2")
    assert (shared["rounds"], shared["decisions"], shared["divergences"]) == (
        replayed["rounds"],
        replayed["decisions"],
        0,
    )
    some = cli.json("replay", "--stream", "fleet", "--from", "2", "--to", "3")
    assert (some["rounds"], some["streams"]) == (2, 1)
    assert "byte for byte the same" in cli.run("replay", "--stream", "cluster")
    cli.run("replay", "--stream", "nowhere", code=1)
    cli.run("replay", "--stream", "fleet/0", "--from", "9999999", code=1)
    cli.run("diff", "fleet/0:9999999", "now", code=1)
    cli.run("plan", "drain", "atlantis", code=1)
    cli.run("plan", "consolidate", "--cluster", "atlantis", code=1)
    cli.run("rollback", "atlantis/web", "--to", "now", code=1)
    cli.run("apply", "--plan", "ffffffff", code=1)
