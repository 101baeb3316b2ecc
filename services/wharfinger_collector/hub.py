"""One joined hub: its identity, its reflectors, and the facts that are handed to the ledger.

    reflectors -> sinks -> ObservedHub -> intake

Fields that are not acted on, those of newer releases among them, are logged once for each kind, and
are part of a binding's facts. An object that cannot be read keeps its last facts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

import msgspec

from wharfinger.domain.text import one_line
from wharfinger.domain.time import Micros
from wharfinger.events.accepted import Fact
from wharfinger.events.hub_facts import HUB_SOURCE, HubObject, read_hub_object
from wharfinger.events.streams import BINDINGS, CLUSTERS, POLICIES
from wharfinger.manifests.kinds import Kind
from wharfinger.manifests.kubernetes.live import UnreadableError
from wharfinger.runtime.kube.api import KubeApi
from wharfinger.runtime.kube.identity import AGAIN_S_MAX, AWAY, Identity, ReplacedError
from wharfinger.runtime.kube.joined import JoinedCluster
from wharfinger.runtime.kube.reflector import Reflector
from wharfinger.runtime.kube.watched import HUB_WATCHED
from wharfinger.runtime.ledger import FactWriter, Ledger
from wharfinger.runtime.ledger.fact_events import event_of
from wharfinger.runtime.logs import get_logger
from wharfinger.stages.collector.hub import ObservedHub
from wharfinger_collector.sending import FactSender
from wharfinger_collector.sighting import object_meta
from wharfinger_collector.watched_kinds import LOOK_S, watched_kinds

log = get_logger(__name__)


class HubRead(msgspec.Struct, frozen=True):
    """One object as it was read. `key`: namespace and name. `found`: None: it cannot be read
    (`why`)."""

    key: str
    found: HubObject | None
    why: str = ""


class JoinedHub:
    """As `Member`, of a server that is no member of the fleet. `joined_names`: clusters that are
    joined themselves, whose facts their own collectors send."""

    def __init__(
        self,
        joined: JoinedCluster,
        ledger: Ledger,
        clock: Callable[[], Micros],
        writer: FactWriter,
        known: Iterable[Fact],
        joined_names: Collection[str],
    ) -> None:
        self.joined = joined
        self.facts = ObservedHub(known, joined_names)
        self._identity = Identity(joined.name, joined.uid, self._another)
        self._sender = FactSender(
            joined.name,
            self.facts,
            ledger,
            clock,
            writer,
            f"{HUB_SOURCE}/{joined.name}",
            lambda: self._identity.uid,
        )
        self._clock = clock
        self._sinks: dict[str, _HubSink] = {}
        self._looked = False

    @property
    def caught_up(self) -> bool:
        """As that of a member."""
        if not self._looked:
            return bool(self.why)
        return all(s.listed or s.why for s in self._sinks.values()) and not self.waiting

    @property
    def why(self) -> str:
        """Why the hub is not read; empty: it is."""
        return next((s.why for s in self._sinks.values() if s.why), self._identity.why)

    @property
    def waiting(self) -> int:
        """1 if facts are due."""
        return self._sender.waiting

    async def run(self) -> None:
        """Until cancelled. WriterReplacedError, in a group: as that of a member."""
        async with KubeApi(self.joined.access) as api:
            while True:
                await self._identity.found(api)
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._watch(api, group), name=f"{self.joined.name}-kinds")
                        group.create_task(self._sender.run(), name=f"{self.joined.name}-facts")
                except* ReplacedError:
                    self._sinks, self._looked = {}, False

    async def _another(self) -> None:
        """Nothing is said of it: a hub has no facts of its own, and the log has it."""

    async def _watch(self, api: KubeApi, group: asyncio.TaskGroup) -> None:
        """Reflectors of all kinds that the server has, also of those that it gets later."""
        while True:
            try:
                found = await watched_kinds(api, HUB_WATCHED)
            except AWAY as error:
                log.info("hub.kinds_unknown", hub=self.joined.name, why=one_line(error))
                await asyncio.sleep(AGAIN_S_MAX)
                continue
            for name in sorted(found.keys() - self._sinks.keys()):
                path, kind = found[name]
                self._sinks[name] = sink = _HubSink(name, self)
                reflector = Reflector(
                    api,
                    path,
                    partial(_read, kind),
                    sink,
                    check=partial(self._identity.checked, api),
                )
                group.create_task(reflector.run(), name=f"{self.joined.name}-watch")
            self._looked = True
            await asyncio.sleep(LOOK_S)

    def changed(self) -> None:
        self.facts.listed(self._sinks, self._clock())
        self._sender.wake()

    def now(self) -> Micros:
        return self._clock()


def _read(kind: Kind, raw: msgspec.Raw) -> HubRead:
    meta = object_meta(raw)
    key = f"{meta.namespace}/{meta.name}".removeprefix("/")
    try:
        return HubRead(key, read_hub_object(kind, msgspec.json.decode(raw)))
    except UnreadableError as error:
        return HubRead(key, None, str(error))


class _HubSink:
    """`why`: why the watch is broken; empty: it is not."""

    def __init__(self, kind: str, hub: JoinedHub) -> None:
        self._kind = kind
        self._hub = hub
        self._told: set[str] = set()
        self.why = ""
        self.listed = False

    def replace(self, objects: Sequence[HubRead], version: str) -> None:
        found = {one.key: one.found for one in objects if one.found is not None}
        unread = {one.key: one.why for one in objects if one.found is None}
        for one in objects:
            self._tell(one)
        self._hub.facts.list_objects(self._kind, found, unread, self._hub.now())
        self.listed = True
        self._changed()

    def upsert(self, object_: HubRead, version: str) -> None:
        self._tell(object_)
        if object_.found is None:
            self._hub.facts.see_unreadable(self._kind, object_.key, object_.why)
        else:
            self._hub.facts.see(self._kind, object_.key, object_.found, self._hub.now())
        self._changed()

    def remove(self, object_: HubRead, version: str) -> None:
        self._hub.facts.lose(self._kind, object_.key, self._hub.now())
        self._changed()

    def alive(self, version: str) -> None:
        self.why = ""

    def broken(self, why: str) -> None:
        self.why = why

    def _changed(self) -> None:
        self.why = ""
        self._hub.changed()

    def _tell(self, read: HubRead) -> None:
        """Once for each field of the kind, and for each object that cannot be read."""
        hub = self._hub.joined.name
        if read.found is None:
            log.warning("hub.unreadable", hub=hub, kind=self._kind, object=read.key, why=read.why)
        else:
            new = [field for field in read.found.unacted if field not in self._told]
            self._told.update(new)
            if new:
                log.info("hub.not_acted_on", hub=hub, kind=self._kind, fields=new)


async def known_hub_facts(
    ledger: Ledger, names: Iterable[str]
) -> tuple[dict[str, list[Fact]], int]:
    """The facts in the ledger that collectors sent of these hubs, and the greatest epoch among
    them."""
    sources = {f"{HUB_SOURCE}/{name}": name for name in names}
    found: dict[str, list[Fact]] = {name: [] for name in sources.values()}
    epoch = 0
    for topic in (CLUSTERS.name, POLICIES.name, BINDINGS.name):
        async for fact in ledger.facts(topic):
            event = event_of(fact)
            if (name := sources.get(event.source)) is not None:
                epoch = max(epoch, event.version[0])
                found[name].append(event.data)  # type: ignore[arg-type]
    return found, epoch
