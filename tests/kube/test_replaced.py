"""A server whose storage is another than before: empty, or set back. On a cluster of its own, since
the others' storage is not to be lost. And another server behind the address of the one that may be
written to."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from infra.kube import cluster
from tests.apps import running
from tests.kube.acting import WRITER, Audit, a_plane, decide, grant, join_for_writing
from tests.kube.answering import Answering
from tests.kube.collecting import Collecting, collecting, node, pod
from tests.kube.member import Json, Member, namespace
from tests.kube.test_collector import agrees
from tests.patience import eventually

from wharfinger.domain.actuation import Verb
from wharfinger.events.assignments import Placed
from wharfinger.events.node_share import NodeShare
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.kube.joined import read_joined, store_joined
from wharfinger.runtime.ledger import Ledger
from wharfinger_actuator.app import ActuatorService

PLACE = "here"
BINDS: tuple[Verb, ...] = ("bind",)


@pytest.fixture(scope="module")
def spare(members: list[Member], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    """`members`: these tests run where the others do."""
    directory = tmp_path_factory.mktemp("kube") / "spare"
    cluster.start(directory, [], with_parent=True)
    yield Member(directory)
    cluster.stop(directory)


def filled(member: Member, number: int = 12) -> None:
    member.empty()
    member.apply(namespace(PLACE), *(node(f"n{i}") for i in range(number)))
    member.apply(*(pod(PLACE, f"p{i}", f"n{i}") for i in range(number)))


def storage(member: Member) -> Path:
    return member.directory / "etcd"


def stored_again(member: Member, between: Callable[[], None]) -> None:
    """Both processes are killed, `between` changes the storage, both start again."""
    cluster.restart(member.directory, "etcd", "kube-apiserver", between=between)


async def conditions(collector: Collecting) -> dict[str, str]:
    found = await collector.clusters()
    return found[0].conditions if found else {}


async def test_a_cluster_that_was_built_again_is_refused_until_the_old_one_is_back(
    spare: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    """The same address, certificates and users; an empty storage, so another cluster."""
    filled(spare)
    kept = spare.directory / "kept"
    async with collecting(backend, ledger, topic_prefix, tmp_path, spare, lease_s=2) as collector:
        await eventually(lambda: agrees(collector, spare))
        nodes, pods = await collector.nodes(), await collector.pods()
        stored_again(spare, lambda: _away(storage(spare), kept))
        spare.apply(namespace(PLACE), node("another"))
        await eventually(lambda: _is(collector, {"Replaced": "True"}))
        (running,) = collector.service.members()
        assert "another cluster answers" in running.member.why
        spare.apply(node("one-more"))
        await asyncio.sleep(1.5)
        assert await collector.nodes() == nodes
        assert await collector.pods() == pods
        stored_again(spare, lambda: _back(storage(spare), kept))
        spare.apply(node("later"))
        await eventually(lambda: agrees(collector, spare))
        await eventually(lambda: _is(collector, {"Ready": "True"}))


async def test_a_storage_that_was_set_back_is_followed(
    spare: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    """Restored from a backup: the same cluster, with versions that go back."""
    filled(spare)
    kept = spare.directory / "backup"
    async with collecting(backend, ledger, topic_prefix, tmp_path, spare, lease_s=2) as collector:
        await eventually(lambda: agrees(collector, spare))
        stored_again(spare, lambda: _copied(storage(spare), kept))
        spare.kubectl("delete", "node", "n3")
        spare.apply(*(node(f"later-{i}") for i in range(20)), pod(PLACE, "later", "n1"))
        await eventually(lambda: agrees(collector, spare))
        stored_again(spare, lambda: _back(storage(spare), kept))
        assert "n3" in spare.kubectl("get", "nodes", "-o", "name")
        await eventually(lambda: agrees(collector, spare))
        spare.apply(node("after"))
        await eventually(lambda: agrees(collector, spare))


async def _is(collector: Collecting, wanted: dict[str, str]) -> bool:
    return await conditions(collector) == wanted


def _away(storage: Path, kept: Path) -> None:
    shutil.rmtree(kept, ignore_errors=True)
    storage.rename(kept)


def _copied(storage: Path, kept: Path) -> None:
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(storage, kept)


def _back(storage: Path, kept: Path) -> None:
    shutil.rmtree(storage, ignore_errors=True)
    kept.rename(storage)


# --- another server behind the address


HOME, ON = "one-address", "one-address-1"


@pytest.fixture
def two(members: Sequence[Member]) -> Iterator[tuple[Member, Member]]:
    """With the same objects, and the same rights."""
    both = members[0], members[1]
    for member in both:
        grant(member, BINDS)
        member.apply(namespace(HOME), node(ON), *(_waiting(f"web-{i}") for i in range(2)))
    yield both
    for member in both:
        member.kubectl("delete", "namespace", HOME, "--wait=false")
        member.kubectl("delete", "node", ON)


async def test_nothing_is_written_to_another_server_behind_the_address(
    two: tuple[Member, Member],
    backend: Backend,
    database_url: str,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    """Not even the Lease, which its own actuator needs; and all is done when the server is the one
    that was joined."""
    ours, other = two
    uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in _pods(ours)}

    def placed(number: int) -> Placed:
        share = NodeShare(ON, (number,), pods=(uids[f"web-{number}"],))
        return Placed(number + 1, f"decision-{number}", f"{HOME}/web-deployment", (share,))

    join_for_writing(tmp_path, ours, BINDS)
    joined = read_joined(tmp_path / f"{ours.name}.yaml")
    around = ("publisher", "collector")
    async with Answering(ours, WRITER) as writes:
        store_joined(tmp_path, replace(joined, write_access=writes.access))
        async with (
            a_plane(backend, database_url, topic_prefix, tmp_path, around) as context,
            running(ActuatorService(context)),
        ):
            await decide(context, ours, [placed(0)])
            await eventually(lambda: _bound(ours) == {"web-0"})
            audit = Audit(other)
            writes.lead_to(other, WRITER)
            # Nothing is open: the Lease alone is renewed.
            await eventually(lambda: len(audit.calls()) >= 2)
            await decide(context, ours, [placed(1)])
            await eventually(lambda: len(audit.calls()) >= 4)
            asked = {(c["verb"], c["objectRef"]["resource"]) for c in audit.calls()}
            assert asked == {("get", "namespaces")}, "it asks which server that is"
            assert not _bound(other)
            writes.lead_to(ours, WRITER)
            await eventually(lambda: _bound(ours) == {"web-0", "web-1"})
    assert {call["verb"] for call in audit.calls()} == {"get"}


def _waiting(name: str) -> Json:
    made = pod(HOME, name, app="web")
    made["spec"]["schedulerName"] = "wharfinger"
    return made


def _pods(member: Member) -> list[Json]:
    return member.items("pods", "-n", HOME)


def _bound(member: Member) -> set[str]:
    return {one["metadata"]["name"] for one in _pods(member) if one["spec"].get("nodeName")}
