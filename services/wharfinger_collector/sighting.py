"""The reflectors' sinks: objects of an API server go into the state of their cluster.

An object that cannot be read is neither gone nor empty: what was known of it stays, and the cluster
says that its facts are not complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from wharfinger.domain.cluster_objects import ClusterObject
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.quota import Quota
from wharfinger.domain.time import Micros
from wharfinger.domain.value import json_decoder
from wharfinger.manifests.kinds import Kind
from wharfinger.manifests.kubernetes.live import LiveNode, LivePod, LiveReader, UnreadableError
from wharfinger.manifests.live_objects import read_object
from wharfinger.stages.collector import ObservedCluster

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finished:
    """A pod that uses nothing of its node any more. `pod`: None if its object cannot be read
    (`why`); then only what is known of it as a running pod is removed."""

    uid: str
    name: str
    pod: Pod | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """`key`: the name of a node, the uid of a pod, else namespace and name."""

    key: str
    name: str
    why: str
    namespace: str = ""


SeenPod = Pod | WaitingPod | Finished | Unreadable
Observed = ClusterObject | Quota


class ObjectMeta(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""


class _NamedObject(msgspec.Struct):
    metadata: ObjectMeta


class LiveDecoder:
    """Decodes what one API server sends."""

    def __init__(self) -> None:
        self._reader = LiveReader()
        self._pod = json_decoder(LivePod).decode
        self._node = json_decoder(LiveNode).decode

    def pod(self, raw: msgspec.Raw) -> SeenPod:
        try:
            live = self._pod(raw)
            if live.finished:
                return self._finished(live)
            return self._reader.pod(live) if live.spec.node_name else self._reader.waiting(live)
        except (msgspec.ValidationError, UnreadableError) as error:
            return _unreadable(raw, error)

    def _finished(self, live: LivePod) -> Finished:
        meta = live.metadata
        name = f"{meta.namespace}/{meta.name}"
        try:
            return Finished(meta.uid, name, self._reader.pod(live))
        except UnreadableError as error:
            return Finished(meta.uid, name, why=str(error))

    def object(self, kind: Kind) -> Callable[[msgspec.Raw], Observed | Unreadable]:
        """For other kinds: read by the models of manifests."""

        def read(raw: msgspec.Raw) -> Observed | Unreadable:
            try:
                return read_object(kind, msgspec.json.decode(raw))
            except UnreadableError as error:
                meta = object_meta(raw)
                key = f"{meta.namespace}/{meta.name}".removeprefix("/")
                return Unreadable(key, meta.name, str(error), meta.namespace)

        return read

    def node(self, raw: msgspec.Raw) -> Node | Unreadable:
        try:
            return self._reader.node(self._node(raw))
        except (msgspec.ValidationError, UnreadableError) as error:
            return _unreadable(raw, error)


def _unreadable(raw: msgspec.Raw, error: Exception) -> Unreadable:
    meta = object_meta(raw)
    name = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
    return Unreadable(meta.uid if meta.namespace else meta.name, name, str(error))


def object_meta(raw: msgspec.Raw) -> ObjectMeta:
    return json_decoder(_NamedObject).decode(raw).metadata


FORBIDDEN = 403
"""Answer of an API server to a request for which there is no right."""


class WatchSink:
    """What both sinks have in common: `broken_since`, None while the watch is unbroken, and that
    somebody is called after each change. `seen`: how often the server was heard."""

    def __init__(
        self, facts: ObservedCluster, clock: Callable[[], Micros], told: Callable[[], None]
    ):
        self._facts = facts
        self._clock = clock
        self._told = told
        self.broken_since: Micros | None = None
        self.why = ""
        self.listed = False

    @property
    def refused(self) -> bool:
        """Whether the server refuses to show these objects, for want of rights."""
        return self.broken_since is not None and self.why.startswith(f"{FORBIDDEN} ")

    def alive(self, version: str) -> None:
        self.broken_since = None

    def broken(self, why: str) -> None:
        self.why = why
        if self.broken_since is None:
            self.broken_since = self._clock()

    def _changed(self) -> None:
        self.broken_since = None
        self._told()


class NodeSink(WatchSink):
    def replace(self, objects: Sequence[Node | Unreadable], version: str) -> None:
        at = self._clock()
        nodes: list[Node] = []
        for found in objects:
            if isinstance(found, Unreadable):
                self._facts.unreadable("node", found.name, found.why, at)
                if (known := self._facts.node(found.key)) is not None:
                    nodes.append(known)
            else:
                self._facts.readable("node", found.name, at)
                nodes.append(found)
        self._facts.list_nodes(nodes, at)
        self.listed = True
        self._changed()

    def upsert(self, object_: Node | Unreadable, version: str) -> None:
        at = self._clock()
        if isinstance(object_, Unreadable):
            self._facts.unreadable("node", object_.name, object_.why, at)
        else:
            self._facts.readable("node", object_.name, at)
            self._facts.see_node(object_, at)
        self._changed()

    def remove(self, object_: Node | Unreadable, version: str) -> None:
        at = self._clock()
        self._facts.readable("node", object_.name, at)
        self._facts.lose_node(object_.name, at)
        self._changed()


class PodSink(WatchSink):
    def replace(self, objects: Sequence[SeenPod], version: str) -> None:
        at = self._clock()
        pods: list[Pod | WaitingPod] = []
        finished: list[Pod] = []
        for found in objects:
            match found:
                case Unreadable():
                    self._facts.unreadable("pod", found.key, found.why, at)
                    if (known := self._facts.pod(found.key)) is not None:
                        pods.append(known)
                    if (known := self._facts.finished(found.key)) is not None:
                        finished.append(known)
                case Finished(pod=None):
                    self._facts.unreadable("pod", found.uid, found.why, at)
                    if (known := self._facts.finished(found.uid)) is not None:
                        finished.append(known)
                case Finished(pod=Pod() as pod):
                    self._facts.readable("pod", found.uid, at)
                    finished.append(pod)
                case Pod() | WaitingPod():
                    self._facts.readable("pod", found.uid, at)
                    pods.append(found)
        self._facts.list_pods(pods, at, finished)
        self.listed = True
        self._changed()

    def upsert(self, object_: SeenPod, version: str) -> None:
        at = self._clock()
        match object_:
            case Unreadable():
                self._facts.unreadable("pod", object_.key, object_.why, at)
            case Finished(pod=None):
                self._facts.unreadable("pod", object_.uid, object_.why, at)
                if self._facts.finished(object_.uid) is None:
                    self._facts.lose_pod(object_.uid, at)
            case Finished(pod=Pod() as pod):
                self._facts.readable("pod", object_.uid, at)
                self._facts.see_finished(pod, at)
            case Pod() | WaitingPod():
                self._facts.readable("pod", object_.uid, at)
                self._facts.see_pod(object_, at)
        self._changed()

    def remove(self, object_: SeenPod, version: str) -> None:
        at = self._clock()
        uid = object_.key if isinstance(object_, Unreadable) else object_.uid
        self._facts.readable("pod", uid, at)
        self._facts.lose_pod(uid, at)
        self._changed()


class ObjectSink(WatchSink):
    """`kind`: as the cluster calls it."""

    def __init__(
        self,
        kind: str,
        facts: ObservedCluster,
        clock: Callable[[], Micros],
        told: Callable[[], None],
    ) -> None:
        super().__init__(facts, clock, told)
        self._kind = kind

    def replace(self, objects: Sequence[Observed | Unreadable], version: str) -> None:
        at = self._clock()
        found: list[Observed] = []
        for one in objects:
            if isinstance(one, Unreadable):
                self._facts.unreadable(self._kind, one.key, one.why, at)
                if (known := self._facts.object(self._kind, one.namespace, one.name)) is not None:
                    found.append(known)
            else:
                self._facts.readable(self._kind, _key(one), at)
                found.append(one)
        self._facts.list_objects(self._kind, found, at)
        self.listed = True
        self._changed()

    def upsert(self, object_: Observed | Unreadable, version: str) -> None:
        at = self._clock()
        if isinstance(object_, Unreadable):
            self._facts.unreadable(self._kind, object_.key, object_.why, at)
        else:
            self._facts.readable(self._kind, _key(object_), at)
            self._facts.see_object(self._kind, object_, at)
        self._changed()

    def remove(self, object_: Observed | Unreadable, version: str) -> None:
        at = self._clock()
        if isinstance(object_, Unreadable):
            key, namespace, name = object_.key, object_.namespace, object_.name
        else:
            key, namespace, name = _key(object_), _namespace(object_), object_.name
        self._facts.readable(self._kind, key, at)
        self._facts.lose_object(self._kind, namespace, name, at)
        self._changed()


def _key(found: Observed) -> str:
    return f"{_namespace(found)}/{found.name}".removeprefix("/")


def _namespace(found: Observed) -> str:
    return str(getattr(found, "namespace", ""))
