"""Every version of a pod that the API server has stored, as etcd reports it.

A watch of the API server ends with it and cannot be resumed after it has started again: its cache
begins later. etcd runs on, so what it reports is complete however often the server is killed.
"""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

from infra.kube import cluster
from tests.kube.member import Json, Member

DECISION = "wharfinger.io/decision"
"""The annotation of a pod that names the decision it was bound by."""

CORES = "cores"
"""The label of a pod that requests another number of cores than one."""

_STORED = b"k8s\x00"
"""In front of an object that is stored in Kubernetes' own protobuf."""

ENDED = ("Failed", "Succeeded")


@dataclass(frozen=True, slots=True)
class StoredPod:
    """One version. `node`, `decision`: empty as long as it has none."""

    uid: str
    name: str
    node: str
    phase: str
    decision: str
    cores: int
    terminating: bool

    @property
    def runs(self) -> bool:
        """It takes up room on its node, and is to stay."""
        return bool(self.node) and self.phase not in ENDED and not self.terminating


@dataclass(slots=True)
class Seen:
    """All versions so far. `now`: name -> the pod that is stored. `bound`: uid -> (name, node, id
    of the decision). `most`: node -> the most cores that its pods requested at any moment.
    `revived`: pods that ended and did not stay so, which no kubelet does."""

    now: dict[str, StoredPod] = field(default_factory=dict)
    bound: dict[str, set[tuple[str, str, str]]] = field(default_factory=lambda: defaultdict(set))
    most: Counter[str] = field(default_factory=Counter)
    revived: list[StoredPod] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """uid -> name."""
    _on: Counter[str] = field(default_factory=Counter)

    def stored(self, pod: StoredPod) -> None:
        before = self.now.get(pod.name)
        self._leave(before)
        if before and before.uid == pod.uid and before.phase in ENDED and pod.phase not in ENDED:
            self.revived.append(pod)
        self.now[pod.name] = pod
        self.names[pod.uid] = pod.name
        if pod.node:
            self.bound[pod.uid].add((pod.name, pod.node, pod.decision))
            if pod.phase not in ENDED:
                self._on[pod.node] += pod.cores
                self.most[pod.node] = max(self.most[pod.node], self._on[pod.node])

    def deleted(self, name: str) -> None:
        self._leave(self.now.pop(name, None))

    def _leave(self, pod: StoredPod | None) -> None:
        if pod is not None and pod.node and pod.phase not in ENDED:
            self._on[pod.node] -= pod.cores


class StoredPods:
    """A context manager; it reads in a thread of its own, so it goes on while the loop of the test
    stands still. `seen`: read it from the test's thread as it is. `failure`: why it has ended
    before its time; it is an error of the test."""

    def __init__(self, member: Member, namespace: str) -> None:
        found = cluster.find(member.directory)
        assert found is not None, "its cluster runs"
        flag = next(f for f in found.commands["etcd"] if f.startswith("--listen-client-urls="))
        self._address = urlsplit(flag.partition("=")[2]).netloc
        self._prefix = f"/registry/pods/{namespace}/".encode()
        self._keys = {
            "key": _base64(self._prefix),
            "range_end": _base64(self._prefix[:-1] + bytes([self._prefix[-1] + 1])),
        }
        self.seen = Seen()
        self.failure = ""
        self._ending = False
        self._connection = http.client.HTTPConnection(self._address)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        """Beginning with what is there now."""
        there = self._range()
        for entry in there.get("kvs", ()):
            self.seen.stored(decoded(base64.b64decode(entry["value"])))
        following = int(there["header"]["revision"]) + 1
        body = {"create_request": {**self._keys, "start_revision": following}}
        self._connection.request("POST", "/v3/watch", json.dumps(body))
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending = True
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self._thread.join()

    def complete(self) -> bool:
        """Whether all that is stored has been read."""
        assert not self.failure, self.failure
        stored = [decoded(base64.b64decode(e["value"])) for e in self._range().get("kvs", ())]
        return {pod.name: pod for pod in stored} == self.seen.now

    def _range(self) -> Json:
        connection = http.client.HTTPConnection(self._address)
        try:
            connection.request("POST", "/v3/kv/range", json.dumps(self._keys))
            found: Json = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return found

    def _read(self) -> None:
        try:
            for line in self._answer:
                for event in json.loads(line)["result"].get("events", ()):
                    self._take(event)
            self.failure = "etcd has ended the watch"
        except Exception as error:
            self.failure = "" if self._ending else f"{type(error).__name__}: {error}"

    def _take(self, event: Json) -> None:
        if event.get("type") == "DELETE":
            key = base64.b64decode(event["kv"]["key"])
            self.seen.deleted(key[len(self._prefix) :].decode())
        else:
            self.seen.stored(decoded(base64.b64decode(event["kv"]["value"])))


def decoded(value: bytes) -> StoredPod:
    """By the field numbers of `k8s.io/api/core/v1/generated.proto`."""
    assert value.startswith(_STORED), value[:20]
    pod = _fields(_fields(value[len(_STORED) :])[2][0])
    meta, spec, status = (_fields(pod[number][0]) for number in (1, 2, 3))
    return StoredPod(
        uid=_text(meta, 5),
        name=_text(meta, 1),
        node=_text(spec, 10),
        phase=_text(status, 1),
        decision=_map(meta, 12).get(DECISION, ""),
        cores=int(_map(meta, 11).get(CORES, "1")),
        terminating=9 in meta,
    )


_Fields = dict[int, list[bytes]]


def _text(fields: _Fields, number: int) -> str:
    return fields.get(number, [b""])[0].decode()


def _map(fields: _Fields, number: int) -> dict[str, str]:
    entries = [_fields(entry) for entry in fields.get(number, ())]
    return {_text(entry, 1): _text(entry, 2) for entry in entries}


def _fields(message: bytes) -> _Fields:
    """Number of a field -> its values, of the fields that have a length."""
    found: _Fields = defaultdict(list)
    for number, value in _with_length(message):
        found[number].append(value)
    return found


def _with_length(message: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                _, at = _varint(message, at)
            case 1:
                at += 8
            case 2:
                size, at = _varint(message, at)
                yield tag >> 3, message[at : at + size]
                at += size
            case 5:
                at += 4
            case other:
                raise ValueError(f"wire type {other} is not used by Kubernetes")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
