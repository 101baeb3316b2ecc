"""A reflector against a real server: equal to what kubectl lists, whatever breaks in between, and
never emptier than the truth."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import msgspec
import pytest
from tests.kube.altering import Altering
from tests.kube.breaking import Breaking
from tests.kube.member import Member, config_map, namespace
from tests.patience import eventually

from wharfinger.runtime.kube import reflector as reflector_module
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.kubeconfig import read_kubeconfig
from wharfinger.runtime.kube.reflector import Break, Reflector


class Meta(msgspec.Struct):
    name: str
    namespace: str
    uid: str


class ConfigMap(msgspec.Struct):
    metadata: Meta
    data: dict[str, str] = {}


class Known:
    """A sink that keeps what it is told, and how few objects it ever knew since the first list."""

    def __init__(self) -> None:
        self.objects: dict[str, ConfigMap] = {}
        self.lists = self.breaks = self.bookmarks = 0
        self.fewest = 1 << 30

    def replace(self, objects: Sequence[ConfigMap], version: str) -> None:
        self.lists += 1
        self.objects = {o.metadata.name: o for o in objects}
        self._counted()

    def upsert(self, object_: ConfigMap, version: str) -> None:
        self.objects[object_.metadata.name] = object_
        self._counted()

    def remove(self, object_: ConfigMap, version: str) -> None:
        del self.objects[object_.metadata.name]
        self._counted()

    def alive(self, version: str) -> None:
        self.bookmarks += 1

    def broken(self, why: str) -> None:
        self.breaks += 1

    def _counted(self) -> None:
        self.fewest = min(self.fewest, len(self.objects))

    def data(self) -> dict[str, dict[str, str]]:
        return {name: o.data for name, o in self.objects.items()}


@asynccontextmanager
async def reflected(
    api: KubeApi, place: str, pages: bool = False
) -> AsyncIterator[tuple[Reflector[ConfigMap], Known]]:
    known = Known()
    reflector = Reflector(
        api,
        f"/api/v1/namespaces/{place}/configmaps",
        msgspec.json.Decoder(ConfigMap).decode,
        known,
        selector=NOT_OURS,
    )
    reflector._streaming = not pages
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector, known
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


NOT_OURS = {"fieldSelector": "metadata.name!=kube-root-ca.crt"}
"""The controller manager puts one into each namespace."""


def listed(member: Member, place: str) -> dict[str, dict[str, str]]:
    found = member.items(
        "configmaps", "-n", place, "--field-selector=metadata.name!=kube-root-ca.crt"
    )
    return {o["metadata"]["name"]: o.get("data", {}) for o in found}


def changed(member: Member, place: str, chance: Random, times: int, keep: int = 0) -> None:
    """Some are written, some are deleted; those of `keep` never."""
    for _ in range(times):
        names = [f"c{chance.randrange(keep, keep + 40)}" for _ in range(8)]
        if chance.random() < 0.6:
            member.apply(
                *(config_map(place, name, value=str(chance.random())) for name in set(names))
            )
        else:
            member.kubectl("delete", "configmap", "-n", place, "--ignore-not-found", *set(names))


@pytest.mark.parametrize("pages", [False, True])
async def test_what_is_there_and_what_changes_is_known(
    member: Member, api: KubeApi, pages: bool
) -> None:
    place = f"plain-{pages}".lower()
    member.apply(namespace(place), *(config_map(place, f"c{i}", value="first") for i in range(30)))
    async with reflected(api, place, pages) as (reflector, known):
        await eventually(lambda: known.data() == listed(member, place))
        await asyncio.to_thread(changed, member, place, Random(1), 20)
        await eventually(lambda: known.data() == listed(member, place))
        assert (known.lists, known.breaks) == (1, 0)
        assert reflector.counts.lists == 1


async def test_broken_connections_lose_nothing_and_list_nothing_again(member: Member) -> None:
    """The objects that stay are known at every moment: a connection that breaks takes nothing
    away."""
    place, stays = "broken", 20
    member.apply(
        namespace(place), *(config_map(place, f"c{i}", value="stays") for i in range(stays))
    )
    async with (
        Breaking(member) as door,
        KubeApi(door.access) as api,
        reflected(api, place) as (_, known),
    ):
        await eventually(lambda: known.lists)
        for seed in range(12):
            await asyncio.to_thread(changed, member, place, Random(seed), 2, stays)
            door.cut()
            await asyncio.to_thread(changed, member, place, Random(seed + 100), 1, stays)
        await eventually(lambda: known.data() == listed(member, place))
        assert known.breaks > 0
        assert known.lists == 1, "a version that the server still has is gone on from"
        assert known.fewest >= stays


async def test_a_server_that_is_away_takes_nothing_away(member: Member) -> None:
    place = "away"
    member.apply(namespace(place), *(config_map(place, f"c{i}", value="stays") for i in range(10)))
    async with (
        Breaking(member) as door,
        KubeApi(door.access) as api,
        reflected(api, place) as (_, known),
    ):
        await eventually(lambda: known.lists)
        door.close()
        await eventually(lambda: known.breaks >= 3)
        assert len(known.objects) == 10
        member.apply(config_map(place, "while-away", value="new"))
        door.open()
        await eventually(lambda: known.data() == listed(member, place))
        assert known.fewest == 10


async def test_a_version_that_is_gone_is_answered_by_one_more_list(member: Member) -> None:
    """A server that was started again knows no change before its start: the reflector's version is
    older than that."""
    place = "expired"
    member.apply(namespace(place), *(config_map(place, f"c{i}", value="first") for i in range(10)))
    async with (
        Breaking(member) as door,
        KubeApi(door.access) as api,
        reflected(api, place) as (reflector, known),
    ):
        await eventually(lambda: known.lists)
        door.close()
        member.kubectl("delete", "configmap", "-n", place, "c0", "c1")
        member.restart("kube-apiserver")
        door.open()
        await eventually(lambda: known.data() == listed(member, place))
        assert known.lists == 2
        assert reflector.counts.breaks[Break.EXPIRED] == 1
        assert known.fewest == 8


async def test_a_list_whose_next_page_is_gone_is_begun_again(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version of a list in pages may be compacted before its last page was read. Half a list
    replaces nothing."""
    place = "pages"
    monkeypatch.setattr(reflector_module, "PAGE", 4)
    member.apply(namespace(place), *(config_map(place, f"c{i}", value="first") for i in range(10)))
    async with Altering(member) as proxy, KubeApi(proxy.access) as api:
        proxy.gone_on_the_next_page()
        async with reflected(api, place, pages=True) as (reflector, known):
            await eventually(lambda: known.data() == listed(member, place))
            await eventually(lambda: proxy.watched)
            assert (known.lists, known.fewest) == (1, 10)
            assert reflector.counts.lists == 2
            assert reflector.counts.breaks[Break.EXPIRED] == 1


@pytest.mark.parametrize("within", [False, True])
async def test_both_forms_of_a_version_that_is_gone_are_answered_by_one_list(
    member: Member, within: bool
) -> None:
    """410 as the status of the answer to a watch, and as an event of a watch that is open."""
    place = f"gone-{within}".lower()
    member.apply(namespace(place), *(config_map(place, f"c{i}", value="first") for i in range(10)))
    async with (
        Altering(member) as proxy,
        Breaking(member, access=proxy.access) as door,
        KubeApi(door.access) as api,
        reflected(api, place) as (reflector, known),
    ):
        await eventually(lambda: known.lists)
        if within:
            proxy.gone_within()
        else:
            proxy.gone_at_start()
            door.cut()
        await eventually(lambda: known.lists == 2)
        member.apply(config_map(place, "later", value="new"))
        await eventually(lambda: known.data() == listed(member, place))
        assert proxy.lists.total() == reflector.counts.lists == 2
        assert reflector.counts.breaks[Break.EXPIRED] == 1
        assert known.fewest == 10


async def test_a_right_that_is_taken_and_given_back(member: Member) -> None:
    """Without it nothing is known to be gone; with it the watch goes on."""
    place = "rights"
    rights = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reads", "namespace": place},
        "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
        ],
    }
    bound = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "reads", "namespace": place},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads"},
        "subjects": [
            {"kind": "User", "name": "collector", "apiGroup": "rbac.authorization.k8s.io"}
        ],
    }
    member.apply(
        namespace(place),
        rights,
        bound,
        *(config_map(place, f"c{i}", value="stays") for i in range(5)),
    )
    async with (
        Breaking(member, "collector") as door,
        KubeApi(door.access) as api,
        reflected(api, place) as (reflector, known),
    ):
        await eventually(lambda: known.lists)
        member.kubectl("delete", "rolebinding", "-n", place, "reads")
        await eventually(lambda: _refused(door, reflector))
        assert len(known.objects) == 5
        member.apply(bound, config_map(place, "meanwhile", value="new"))
        await eventually(lambda: known.data() == listed(member, place))
        assert known.fewest == 5


def _refused(door: Breaking, reflector: Reflector[ConfigMap]) -> bool:
    """Rights are asked when a watch begins."""
    if reflector.counts.breaks.get(Break.FORBIDDEN):
        return True
    door.cut()
    return False


async def test_what_is_read_survives_restarts_of_the_reflector(member: Member) -> None:
    place = "restarts"
    member.apply(namespace(place), *(config_map(place, f"c{i}", value="first") for i in range(5)))
    for _ in range(3):
        async with (
            KubeApi(read_kubeconfig(member.kubeconfig())) as api,
            reflected(api, place) as (_, known),
        ):
            await eventually(lambda known=known: known.data() == listed(member, place))
        member.kubectl("delete", "configmap", "-n", place, sorted(known.objects)[0])
