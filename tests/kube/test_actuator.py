"""What was decided is done in a real cluster. The referee is the server's audit log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs
from tests.kube.acting import (
    Audit,
    a_plane,
    asked_for,
    decided,
    grant,
    join_for_writing,
    propose,
    run_command,
)
from tests.kube.collecting import node, pod
from tests.kube.member import Json, Member, config_map, namespace
from tests.kube.replaying import replayed
from tests.patience import eventually

from wharfinger.domain.actuation import CLOSED_BY, Verb
from wharfinger.events.proposals import (
    DeschedulingProposed,
    FinishedPod,
    NodeRemovalProposed,
    Unseating,
)
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.joined import read_joined
from wharfinger.runtime.kube.rights import NAMESPACE, PAUSE, actuator_rules, own_rules
from wharfinger.runtime.ledger import Ledger
from wharfinger_cli.doctor_writes import write_states

HOME = "acting"
NODES = ("acting-1", "acting-2", "acting-3")


def the_node(member: Member, name: str) -> Json:
    found: Json = json.loads(member.kubectl("get", "node", name, "-o", "json"))
    return found


def cordoned(member: Member, name: str) -> bool:
    return bool(the_node(member, name)["spec"].get("unschedulable"))


def closed_by(member: Member, name: str) -> str:
    return str(the_node(member, name)["metadata"].get("annotations", {}).get(CLOSED_BY, ""))


def finished(member: Member, name: str, on: str, home: str = HOME) -> FinishedPod:
    member.apply(pod(home, name, on))
    status = json.dumps({"status": {"phase": "Failed", "reason": "Evicted"}})
    member.kubectl(
        "patch", "pod", name, "-n", home, "--subresource=status", "--type=merge", "-p", status
    )
    found = json.loads(member.kubectl("get", "pod", name, "-n", home, "-o", "json"))
    return FinishedPod(found["metadata"]["uid"], home, name, "Failed")


async def close_node(ledger: Ledger, member: Member, name: str) -> None:
    stream = f"cluster/{member.name}"
    before = len(await decided(ledger, stream, "removed"))

    async def removed() -> bool:
        # While a fact is under way the stage may refuse: it does not know the node yet.
        await propose(
            ledger, NodeRemovalProposed(stream, member.name, name, f"test {tries}"), stream
        )
        await asyncio.sleep(0.5)
        return len(await decided(ledger, stream, "removed")) > before

    tries = 0
    while not await removed():
        tries += 1
        assert tries < 120, "the removal of the node is never decided"


async def test_decisions_about_nodes_and_pods_are_carried_out_once(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    """The plane is stopped in between and started from nothing: what was done is not done again,
    and what was not is."""
    grant(member, ("evict", "nodes"))
    member.apply(namespace(HOME), *(node(name) for name in NODES))
    keeps = finished(member, "keeps", NODES[2])
    goes = finished(member, "goes", NODES[2])
    join_for_writing(tmp_path, member, ("evict", "nodes"))
    audit, stream = Audit(member), f"cluster/{member.name}"
    async with a_plane(backend, database_url, topic_prefix, tmp_path):
        await close_node(ledger, member, NODES[0])
        await eventually(lambda: cordoned(member, NODES[0]))
    assert closed_by(member, NODES[0]).startswith(f"{stream}:")
    member.apply(config_map(NAMESPACE, PAUSE))
    async with a_plane(backend, database_url, topic_prefix, tmp_path):
        await close_node(ledger, member, NODES[1])
        unseating = Unseating(NODES[2], finished=goes)
        removal = DeschedulingProposed(
            stream, member.name, "RemoveFailedPods", "tests", (unseating,)
        )
        await propose(ledger, removal, stream)
        await eventually(lambda: decided(ledger, stream, "pods-removed"))
        asked = len(audit.calls())
        await eventually(lambda: _paused(audit, asked))
        shown = asked_for("effects", database_url, tmp_path, member.name)
    assert audit.writes() == [("patch", NODES[0], 200)]
    assert [(one["action"], one["name"]) for one in shown] == [
        ("close-node", NODES[1]),
        ("remove-pod", "goes"),
    ]
    member.kubectl("delete", "configmap", PAUSE, "-n", NAMESPACE)
    async with a_plane(backend, database_url, topic_prefix, tmp_path):
        await eventually(lambda: cordoned(member, NODES[1]))
        await eventually(lambda: "goes" not in _pods(member))
        # Somebody uncordons a node: it is told, and left.
        assert asked_for("drift", database_url, tmp_path, member.name) == []
        member.kubectl("uncordon", NODES[0])
        await eventually(lambda: asked_for("drift", database_url, tmp_path, member.name, 1))
        (one,) = asked_for("drift", database_url, tmp_path, member.name, 1)
        assert (one["object"], one["observed"]) == (f"Node {NODES[0]}", "schedulable")
    assert audit.writes("nodes") == [("patch", name, 200) for name in NODES[:2]]
    # Finished pods are facts every 30 s at most: until then it may be asked once more.
    evictions = audit.writes("pods/eviction")
    assert [one for one in evictions if one[2] != 404] == [("create", "goes", 201)]
    assert {name for _, name, _ in evictions} == {"goes"}
    assert len(audit.writes()) == 2 + len(evictions)
    assert not cordoned(member, NODES[0])
    assert not cordoned(member, NODES[2])
    assert keeps.name in _pods(member)
    assert audit.unused([*actuator_rules(("evict", "nodes")), *own_rules()]) == []
    assert [call for call in audit.calls() if call["responseStatus"]["code"] == 403] == []
    assert replayed(database_url, tmp_path) > 1


async def test_a_dry_run_says_what_it_would_send_and_calls_no_server(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    member.apply(node("dry-1"))
    join_for_writing(tmp_path, member, ("nodes",))
    audit = Audit(member)
    with capture_logs() as logs:
        async with a_plane(backend, database_url, topic_prefix, tmp_path, actuator_dry_run=True):
            await close_node(ledger, member, "dry-1")
            await eventually(lambda: _not_sent(logs, "/api/v1/nodes/dry-1"))
    (said,) = _not_sent(logs, "/api/v1/nodes/dry-1")
    assert said["method"] == "PATCH"
    assert said["body"]["spec"] == {"unschedulable": True}
    assert audit.calls() == []
    assert not cordoned(member, "dry-1")


def _not_sent(logs: Sequence[Mapping[str, Any]], path: str) -> list[Mapping[str, Any]]:
    return [one for one in logs if one["event"] == "effect.not_sent" and one["path"] == path]


def _pods(member: Member) -> list[str]:
    return [found["metadata"]["name"] for found in member.items("pods", "-n", HOME)]


def _paused(audit: Audit, since: int) -> bool:
    """The actuator had something to do, looked, and was stopped."""
    looked = [call.get("objectRef", {}).get("name") for call in audit.calls()[since:]]
    return looked.count(PAUSE) >= 2


async def test_a_cluster_is_given_back_but_for_what_another_ledger_has_closed(
    member: Member,
    backend: Backend,
    database_url: str,
    ledger: Ledger,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    """A plane with another ledger was here before, under the same name: its node stays cordoned
    while we write, and when the cluster is given back."""
    verbs: tuple[Verb, ...] = ("nodes",)
    grant(member, verbs)
    ours, theirs = "release-ours", "release-theirs"
    member.apply(node(ours), node(theirs))
    said = f"cluster/{member.name}:1"
    member.kubectl("annotate", "node", theirs, f"{CLOSED_BY}={said}")
    member.kubectl("cordon", theirs)
    join_for_writing(tmp_path, member, verbs)
    audit = Audit(member)
    async with a_plane(backend, database_url, topic_prefix, tmp_path) as context:
        await close_node(ledger, member, ours)
        await eventually(lambda: cordoned(member, ours))
        asks = context.settings.model_copy(update={"database": database_url})
        (written,) = await write_states(asks)
        assert written.ok, written.said
        assert written.holder
        drift = asked_for("drift", database_url, tmp_path, member.name, 1)
        (one,) = [one for one in drift if one["object"] == f"Node {theirs}"]
        assert (one["decision"], one["observed"]) == (said, "cordoned")
        assert one["decided"] == "nothing by this ledger"
        shown = _released(database_url, tmp_path, member.name, "--dry-run")
        assert _said(shown) == {f"Node {ours}": True, f"Node {theirs}": False}
        assert cordoned(member, ours)
        # The actuator is at work, holds the Lease, and stops by itself.
        assert _said(_released(database_url, tmp_path, member.name)) == _said(shown)
        assert not cordoned(member, ours)
        assert closed_by(member, ours) == ""
        await asyncio.sleep(3.0)
    assert audit.writes("nodes") == [("patch", ours, 200)] * 2, "closed once, and opened once"
    assert {name for _, name, _ in audit.writes()} == {ours, ""}, "doctor asks what it may do"
    assert cordoned(member, theirs)
    assert closed_by(member, theirs) == said
    joined = read_joined(tmp_path / f"{member.name}.yaml")
    assert (joined.mode, joined.verbs_in_force) == ("observe", ())
    assert await write_states(asks) == [], "it is not written to any more"
    member.kubectl("delete", "node", theirs, ours, *NODES, "--ignore-not-found")
    assert _released(database_url, tmp_path, member.name, code=0) == []


def _released(
    database_url: str, directory: Path, cluster: str, *flags: str, code: int = 1
) -> list[Json]:
    run = run_command(database_url, directory, "release", cluster, *flags, "-o", "json")
    assert run.returncode == code, run.stderr
    found: list[Json] = json.loads(run.stdout)
    return found


def _said(found: list[Json]) -> dict[str, bool]:
    return {one["object"]: one["ok"] for one in found if "release-" in one["object"]}
