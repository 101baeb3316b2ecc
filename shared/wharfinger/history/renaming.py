"""Renames by keyed hashes, which keep only those properties of the old names that decisions use.

A new name is the HMAC-SHA256 of the old one under the key. The same key gives the same new name in
every file, and without the key a guessed name cannot be checked. Besides equality, these properties
of a name are kept, because decisions use them:

* *order*: clusters, nodes, bindings, regions and pods are sorted by name, so their new names begin
  with their rank in the file. The rest of the name is the same in every file, the rank is not;
* *ties between nodes* break by hash(name) xor hash(class key). These hashes need no key, so a
  reader who has them could check guessed names. They are masked by the key, which changes no xor of
  two of them. Of each hash only the bits are kept that decide between two nodes of the file: about
  as many bits as the rank has. `ties` returns them;
* *ties between clusters* break by the parity of the workload's uid, and the new uid has the same
  parity;
* *length*: explanations have a limited number of bytes, so a name of more than 63 bytes gets a new
  name of the same length;
* *order of event ids* matters where two events release replicas of one binding from their nodes, so
  the new ids of node facts begin with their rank, too.

Two passes: `Collector` sees every value once and learns what there is; `Renamer` then answers.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import get_args
from uuid import UUID

from wharfinger.domain.binding import Component, part_of, set_key, whole_of
from wharfinger.domain.ids import Meaning
from wharfinger.domain.node_pool import DisruptionReason, PoolOperator
from wharfinger.domain.reasons import (
    NO_CAPACITY,
    Displacement,
    NodeReason,
    PlanRefusal,
    ProposalRefusal,
    ReplicaReason,
    Trigger,
)
from wharfinger.domain.taints import Effect
from wharfinger.domain.value import Value, canonical, stable_hash
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.assign import Refusal
from wharfinger.engine.fleet.placement_errors import SPREAD_FIELDS
from wharfinger.engine.nodes.columns import Ties
from wharfinger.events.cluster_state import Health, NodesObserved
from wharfinger.events.envelope import Event, uuid_of
from wharfinger.events.proposals import EvictionCause
from wharfinger.events.streams import CLUSTER, FLEET
from wharfinger.history.redaction import RedactionError, ValueWalk
from wharfinger.kernel.step import decision_id
from wharfinger.rules.clusters.filters import FILTERS

TOKEN_DIGITS = 16
"""Hexadecimal: two names out of a million get the same with a chance of one in forty million."""

LABEL_MAX = 63
"""The longest label of a domain name. Names up to this length, of any length, fit into
explanations."""

WELL_KNOWN = (
    "kubernetes.io",
    "k8s.io",
    "karpenter.sh",
    "karpenter.k8s.aws",
    "nvidia.com",
    "amd.com",
    "gpu.intel.com",
    "karmada.io",
    "open-cluster-management.io",
    "wharfinger.io",
)
"""Domains whose keys (of labels, taints, resources) and API groups are public words."""

DEFAULT_NAMESPACE = "default"
"""What a pod is in that says no namespace."""

FREE_KEYS = ("node-role.kubernetes.io", "node-restriction.kubernetes.io")
"""Prefixes of well-known domains under which everybody puts words of their own."""

ROLES = frozenset({"control-plane", "master", "worker"})

RESOURCES = frozenset({"cpu", "memory", "pods", "ephemeral-storage", "storage"})
API_GROUPS = frozenset({"apps", "batch", "autoscaling", "policy", "extensions"})
LABEL_VALUES = frozenset(
    {
        "true",
        "false",
        "linux",
        "windows",
        "amd64",
        "arm64",
        "ppc64le",
        "s390x",
        "riscv64",
        "spot",
        "on-demand",
        "reserved",
    }
)
MODELS = frozenset(
    {
        "T4",
        "P4",
        "P40",
        "P100",
        "V100",
        "V100M16",
        "V100M32",
        "A10",
        "A30",
        "A40",
        "A100",
        "L4",
        "L40",
        "L40S",
        "H100",
        "H200",
        "B200",
        "G2",
        "G3",
    }
)
"""Accelerators as their makers sell them, and the two classes of the public openb trace."""

WORDS = frozenset(
    {
        *(word for words in (NodeReason, Trigger, Refusal, Effect) for word in get_args(words)),
        *(NO_CAPACITY, *(rule.reason for rule in FILTERS)),
        *(
            word
            for words in (ReplicaReason, ProposalRefusal, PlanRefusal)
            for word in get_args(words)
        ),
        *(
            "In",
            "NotIn",
            "Exists",
            "DoesNotExist",
            "Equal",
            "Duplicated",
            "Divided",
            "Aggregated",
            "Weighted",
        ),
        *("webster", "in-order", "evict", "reserve"),
        *("NoSelect", "NoSelectIfNew", "PreferNoSelect"),
        *(*get_args(Displacement), "GangBroken", "RequirementsChanged", "ScaledDown"),
        *("class", "totals", "grades", "summary", "quota", "silent", "refused"),
        *("FailoverProposed", "EvictionProposed", "RescheduleProposed", "NodeRemovalProposed"),
        *(
            "PropagationPolicy",
            "ClusterPropagationPolicy",
            "Placement",
            "DynamicSchedulerPolicy",
            "NodePool",
        ),
        *("FederatedResourceQuota", "ClusterTaintPolicy"),
        *("spread", "pack", "cost", "moves"),
        *("failback", "rebalance", "QuotaExceeded"),
        *(
            "scheduled",
            "refused",
            "released",
            "silenced",
            "recovered",
            "held",
            "resumed",
            "placed",
            "removed",
        ),
        *("committed", "nominated"),
        *("TCP", "UDP", "SCTP"),
        *(
            "DaemonSet",
            "ReplicaSet",
            "StatefulSet",
            "ReplicationController",
            "Job",
            "Service",
            "Node",
        ),
        *(
            "Namespace",
            "PodDisruptionBudget",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "StorageClass",
        ),
        *(
            "CSINode",
            "CSIDriver",
            "CSIStorageCapacity",
            "DeviceClass",
            "ResourceSlice",
            "ResourceClaim",
        ),
        *("PriorityClass", "PodGroup", "Workload", "KubeSchedulerConfiguration"),
        *(
            word
            for words in (Health, EvictionCause, DisruptionReason, PoolOperator)
            for word in get_args(words)
        ),
        *("Directly", "Gracefully", "Never", "leaving"),
        *("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"),
        *("BestEffort", "Burstable", "Guaranteed", "Pending", "Running", "Succeeded", "Failed"),
        *("waiting", "running", "terminated", "True", "False", "Unknown"),
    }
)
"""The plane's own vocabulary. A text in a field of that vocabulary which is not in it came from
outside, and is hidden."""

_M = Meaning
_API_VERSION = re.compile(r"(?:(?P<group>[^/]+)/)?v[0-9]+(?:(?:alpha|beta)[0-9]+)?")

RANKED = (_M.CLUSTER, _M.NODE, _M.BINDING, _M.REGION, _M.POD_UID)

LETTERS: dict[Meaning, str] = {
    _M.CLUSTER: "c",
    _M.NODE: "n",
    _M.BINDING: "b",
    _M.REGION: "r",
    _M.POD_UID: "p",
    _M.UID: "u",
    _M.POD: "pod",
    _M.WORKLOAD: "w",
    _M.NAMESPACE: "s",
    _M.PROVIDER: "cloud",
    _M.ZONE: "z",
    _M.LABEL_KEY: "k",
    _M.LABEL_VALUE: "v",
    _M.RESOURCE: "x",
    _M.MODEL: "m",
    _M.METRIC: "metric",
    _M.API_VERSION: "api",
    _M.AFFINITY: "a",
    _M.POLICY: "policy",
    _M.ADDRESS: "addr",
    _M.TOKEN: "t",
    _M.CLASS_KEY: "class",
    _M.WORD: "word",
    _M.SPREAD_FIELD: "field",
    _M.REMARK: "remark",
    _M.EVENT_ID: "id",
    _M.FLEET_DECISION: "d",
}
"""What a new name begins with, so that a reader sees what it is a name of."""


class Collector:
    """Learns which ranked names, requirement classes and ids there are. Its answers are the
    questions: nothing is renamed."""

    def __init__(self) -> None:
        self.names: dict[Meaning, set[str]] = {meaning: set() for meaning in RANKED}
        self.classes: dict[str, Requirements] = {}
        self.sets: dict[str, tuple[Component, ...]] = {}
        self.node_events: set[UUID] = set()
        self.decisions: dict[UUID, tuple[str, int]] = {}
        self._kept: dict[str, Requirements] = {}

    def event(self, event: Event[Value]) -> None:
        if isinstance(event.data, NodesObserved):
            self.node_events.add(event.id)

    def text(self, meaning: Meaning, text: str) -> str:
        if meaning in self.names:
            self.names[meaning].add(text)
        elif meaning is _M.STREAM and text.startswith(CLUSTER):
            self.names[_M.CLUSTER].add(text.removeprefix(CLUSTER))
        elif meaning is _M.EVENT_ID and (id := uuid_of(text)) is not None:
            # of which sort it is does not matter: a rank too many does no harm
            self.node_events.add(id)
        return text

    def id(self, id: UUID) -> UUID:
        return id

    def decision(self, stream: str, seq: int, id: str) -> str:
        """Collects an id that is derived from a stream's name. Only ids of cluster streams contain
        a cluster's name, and only those sent to a fleet stream can be causes there."""
        uuid = uuid_of(id)
        if uuid is not None and stream.startswith(CLUSTER) and uuid == decision_id(stream, seq):
            self.decisions[uuid] = (stream, seq)
        return id

    def requirements(
        self, requirements: Requirements, renamed: Callable[[], Requirements]
    ) -> Requirements:
        key = requirements.pod_key
        if key not in self.classes:
            self.classes[key] = requirements
            renamed()
        return requirements

    def components(
        self, components: tuple[Component, ...], renamed: Callable[[], tuple[Component, ...]]
    ) -> tuple[Component, ...]:
        self.sets[set_key(components)] = components
        return renamed()

    def kind(self, api_version: str, kind: str) -> str:
        return kind


class Renamer:
    """Answers with new names, for all that `collector` has seen. `key`: what they are hashed
    under."""

    def __init__(self, key: bytes, collector: Collector) -> None:
        self._keyed = hmac.new(key, digestmod=hashlib.sha256)
        self._known: dict[tuple[Meaning, str], str] = {}
        self._pods: dict[str, Requirements] = {}
        self._classes: dict[str, Requirements] = {}
        self._sets: dict[str, str] = {}
        self._node_events = {id: rank for rank, id in enumerate(sorted(collector.node_events))}
        self._decisions = collector.decisions
        for meaning in RANKED:
            if meaning is not _M.BINDING:
                self._rank(meaning, collector.names[meaning])
        self._rank_bindings(collector.names[_M.BINDING])
        walk = ValueWalk(self)
        for _, requirements in sorted(collector.classes.items()):
            # keys of classes can be asked for before the class itself comes along
            walk.value(requirements)
        self._sets = {
            key: set_key(tuple([walk.value(c) for c in of]))
            for key, of in sorted(collector.sets.items())
        }

    @property
    def classes(self) -> Mapping[str, Requirements]:
        """Old class key -> the class under its new names."""
        return self._classes

    def mask(self) -> int:
        """What tie values are masked with."""
        return int.from_bytes(self._mac("tie mask", "")[:8], "big")

    def secret(self, what: str, data: bytes) -> bytes:
        """A keyed hash of `data`: without the key a guess cannot be checked."""
        return self._mac(what, data.hex())

    # --- the questions of a walk

    def text(self, meaning: Meaning, text: str) -> str:
        known = self._known.get((meaning, text))
        if known is None:
            known = self._known[(meaning, text)] = self._new(meaning, text)
        return known

    def id(self, id: UUID) -> UUID:
        decided = self._decisions.get(id)
        if decided is not None:
            stream, seq = decided
            return decision_id(self.text(_M.STREAM, stream), seq)
        return self._event_id(id)

    def decision(self, stream: str, seq: int, id: str) -> str:
        uuid = uuid_of(id)
        if stream.startswith(FLEET):
            return self.text(_M.FLEET_DECISION, id)
        if uuid is not None and uuid == decision_id(stream, seq):
            return str(decision_id(self.text(_M.STREAM, stream), seq))
        return self.text(_M.EVENT_ID, id)

    def requirements(
        self, requirements: Requirements, renamed: Callable[[], Requirements]
    ) -> Requirements:
        key = requirements.pod_key
        known = self._pods.get(key)
        if known is None:
            known = self._pods[key] = renamed()
            self._classes.setdefault(requirements.class_key, known)
        return known

    def components(
        self, components: tuple[Component, ...], renamed: Callable[[], tuple[Component, ...]]
    ) -> tuple[Component, ...]:
        return renamed()

    def kind(self, api_version: str, kind: str) -> str:
        return (
            kind
            if not api_version or _public_api(api_version)
            else self.token("kind", f"{api_version}/{kind}")
        )

    # --- the answers

    def _new(self, meaning: Meaning, text: str) -> str:
        match meaning:
            case _M.STREAM:
                return self._stream(text)
            case _M.UID:
                return _of_parity(self._plain(meaning, text), sum(text.encode()))
            case _M.LABEL_KEY:
                return text if _public_key(text) else self._plain(meaning, text)
            case _M.NAMESPACE:
                return text if text == DEFAULT_NAMESPACE else self._plain(meaning, text)
            case _M.LABEL_VALUE:
                return text if text in LABEL_VALUES else self._plain(meaning, text)
            case _M.TAINT_PAIR:
                return self._taint(text)
            case _M.TAINT_NAME:
                pair, colon, effect = text.rpartition(":")
                return self._taint(pair) + colon + self.text(_M.WORD, effect)
            case _M.RESOURCE:
                public = text in RESOURCES or text.startswith("hugepages-") or _public_key(text)
                return text if public else self._plain(meaning, text)
            case _M.MODEL:
                return text if text in MODELS else self._plain(meaning, text)
            case _M.API_VERSION:
                return text if _public_api(text) else self._plain(meaning, text)
            case _M.GVK:
                version, _, kind = text.rpartition("/")
                group = self.text(_M.API_VERSION, version) if version else ""
                return f"{group}/{self.kind(version, kind)}"
            case _M.POLICY_KEY:
                return self._policy(text)
            case _M.SPREAD_FIELD:
                return text if text in SPREAD_FIELDS else self._plain(meaning, text)
            case _M.WORD:
                return text if text in WORDS else self._plain(meaning, text)
            case _M.EVENT_ID:
                id = uuid_of(text)
                return self._plain(meaning, text) if id is None else str(self._event_id(id))
            case _M.FLEET_DECISION:
                return self._plain(meaning, text) if uuid_of(text) is None else text
            case _M.CLASS_KEY:
                return self._class_key(text)
            case _M.DROPPED:
                return ""
            case _M.QUANTITY:
                return text
            case _M.CLUSTER | _M.NODE | _M.BINDING | _M.REGION | _M.POD_UID:
                raise RedactionError(
                    f"{meaning.name.lower()} {text} was not there when names were collected"
                )
            case _:
                return self._plain(meaning, text)

    def token(self, family: str, text: str, digits: int = TOKEN_DIGITS) -> str:
        found = ""
        while len(found) < digits:
            found += self._mac(f"{family} {len(found)}" if found else family, text).hex()
        return found[:digits]

    def _plain(self, meaning: Meaning, text: str, rank: str = "") -> str:
        before = LETTERS[meaning] + rank + "-"
        length = _bytes_of(text)
        digits = length - len(before) if length > LABEL_MAX else TOKEN_DIGITS
        new = before + self.token(meaning.name, text, max(digits, TOKEN_DIGITS))
        # a metric's name has no dash, and is not followed with one
        return new.replace("-", "_") if meaning is _M.METRIC else new

    def _mac(self, family: str, text: str) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(family.encode() + b"\x00" + text.encode())
        return keyed.digest()

    def _rank(self, meaning: Meaning, names: Iterable[str]) -> None:
        for rank, name in _ranks(names):
            self._known[(meaning, name)] = self._plain(meaning, name, rank)

    def _rank_bindings(self, names: Iterable[str]) -> None:
        """Of `namespace/name` either part is renamed by itself, so that it can be seen who shares a
        namespace. A namespace's bindings stand together in order of the whole name, hence ranks of
        namespaces and ranks within them."""
        groups: dict[str, list[str]] = {}
        parts: dict[str, list[str]] = {}
        for name in names:
            whole = whole_of(name)
            if whole != name:
                parts.setdefault(whole, []).append(name)
        for name in {*(n for n in names if whole_of(n) == n), *parts}:
            namespace, slash, rest = name.partition("/")
            groups.setdefault(namespace + slash, []).append(rest)
        for rank, group in _ranks(groups):
            if not group.endswith("/"):
                self._known[(_M.BINDING, group)] = self._plain(_M.BINDING, group, rank)
                continue
            namespace = group[:-1]
            for within, rest in _ranks(groups[group]):
                new = f"b{rank}-{self.text(_M.NAMESPACE, namespace) if namespace else ''}/"
                whole = group + rest
                digits = max(_bytes_of(whole) - len(new) - len(within) - 1, TOKEN_DIGITS)
                digits = digits if _bytes_of(whole) > LABEL_MAX else TOKEN_DIGITS
                self._known[(_M.BINDING, whole)] = (
                    f"{new}{within}-{self.token('BINDING', rest, digits)}"
                )

        for whole, of_it in parts.items():
            # a component's name follows its binding's, in the order of components
            for within, name in _ranks(of_it):
                part = self._plain(_M.WORKLOAD, name.removeprefix(whole), within)
                self._known[(_M.BINDING, name)] = part_of(self._known[(_M.BINDING, whole)], part)

    def _stream(self, stream: str) -> str:
        if stream.startswith(CLUSTER):
            return CLUSTER + self.text(_M.CLUSTER, stream.removeprefix(CLUSTER))
        if stream.startswith(FLEET) and stream.removeprefix(FLEET).isdecimal():
            return stream
        return self.token("stream", stream)

    def _taint(self, pair: str) -> str:
        key, equals, value = pair.partition("=")
        new_key = self.text(_M.LABEL_KEY, key) if key else ""
        return new_key + equals + (self.text(_M.LABEL_VALUE, value) if value else "")

    def _policy(self, key: str) -> str:
        kind, _, rest = key.partition("/")
        namespace, _, name = rest.partition("/")
        return "/".join(
            self.text(meaning, text) if text else ""
            for meaning, text in ((_M.WORD, kind), (_M.NAMESPACE, namespace), (_M.POLICY, name))
        )

    def _class_key(self, key: str) -> str:
        """Of a class of requirements, or of pods that are interchangeable. One that nothing in the
        file asks for is only a number under a name."""
        known = self._classes.get(key)
        if known is not None:
            return known.class_key
        pod = self._pods.get(key)
        if pod is not None:
            return pod.pod_key
        return self._sets.get(key) or self._plain(_M.CLASS_KEY, key)

    def _event_id(self, id: UUID) -> UUID:
        number = int.from_bytes(self._mac("event", id.hex)[:16], "big")
        rank = self._node_events.get(id)
        if rank is not None:
            number = number & (1 << 96) - 1 | rank << 96
        # UUID version 8: the format is ours (RFC 9562).
        return UUID(int=number & ~(0xF << 76 | 0b11 << 62) | 8 << 76 | 0b10 << 62)


def ties(renamer: Renamer, nodes: Iterable[str]) -> Ties:
    """The tie values of these nodes, given by their old names, and of all classes."""
    hashes = {name: stable_hash(name) for name in nodes}
    kept = deciding_bits(sorted(set(hashes.values())))
    every = 0
    for bits in kept.values():
        every |= bits
    shift = (every & -every).bit_length() - 1 if every else 0
    mask = renamer.mask()
    named = {
        renamer.text(_M.NODE, name): ((hash_ ^ mask) & kept[hash_]) >> shift
        for name, hash_ in hashes.items()
    }
    seeds = {
        new.class_key: ((stable_hash(key) ^ mask) & every) >> shift
        for key, new in renamer.classes.items()
    }
    return Ties(dict(sorted(named.items())), dict(sorted(seeds.items())))


def deciding_bits(hashes: Sequence[int]) -> dict[int, int]:
    """Of each of the different, ascending 64-bit numbers, the bits in which it can differ first
    from another of them.

    The order of two numbers, both xored with a third, is decided by the first bit in which they
    differ. Above it they agree in the bits that are kept as well, so the numbers with all other
    bits cleared stand in the same order under every xor.
    """
    kept = dict.fromkeys(hashes, 0)
    groups = [(0, len(hashes), 63)]
    while groups:
        start, end, place = groups.pop()
        if end - start < 2 or place < 0:
            continue
        bit = 1 << place
        upper = (hashes[start] >> place | 1) << place
        middle = bisect_left(hashes, upper, start, end)
        if start < middle < end:
            for number in hashes[start:end]:
                kept[number] |= bit
        groups += [(start, middle, place - 1), (middle, end, place - 1)]
    return kept


def _ranks(names: Iterable[str]) -> list[tuple[str, str]]:
    """(rank, name), ranks all of one width so that they stand in order as texts."""
    ordered = sorted(names)
    width = len(str(max(len(ordered) - 1, 0)))
    return [(f"{rank:0{width}d}", name) for rank, name in enumerate(ordered)]


def _of_parity(name: str, parity: int) -> str:
    """The name, its last hexadecimal digit moved by one where the sum of its bytes has not this
    parity."""
    if (sum(name.encode()) - parity) % 2 == 0:
        return name
    return name[:-1] + f"{int(name[-1], 16) ^ 1:x}"


def _bytes_of(name: str) -> int:
    """As explanations count them: as JSON."""
    return len(canonical(name)) - 2


def _public_key(key: str) -> bool:
    prefix, slash, name = key.partition("/")
    if not slash or not _well_known(prefix):
        return False
    return name in ROLES if prefix in FREE_KEYS else True


def _public_api(version: str) -> bool:
    match = _API_VERSION.fullmatch(version)
    return match is not None and (
        match["group"] is None or match["group"] in API_GROUPS or _well_known(match["group"])
    )


def _well_known(domain: str) -> bool:
    return any(domain == known or domain.endswith("." + known) for known in WELL_KNOWN)
