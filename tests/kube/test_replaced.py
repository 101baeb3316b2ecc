"""A server whose storage is another than before: empty, or set back. On a cluster of its own, since
the others' storage is not to be lost."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from infra.kube import cluster
from tests.kube.collecting import Collecting, collecting, node, pod
from tests.kube.member import Member, namespace
from tests.kube.test_collector import agrees
from tests.patience import eventually

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger

PLACE = "here"


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
