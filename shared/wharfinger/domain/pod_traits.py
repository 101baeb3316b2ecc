"""What else of a pod decides on which node it goes, beyond its `Requirements`' amounts and node
claims.

Most pods have none of it but a namespace and labels, which others may select. Pods that only differ
there belong to one requirement class: how many of them fit does not depend on their names. See
`PodTraits.restrictive`.
"""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.domain.ids import (
    Address,
    LabelKey,
    LabelText,
    NamespaceName,
    NodeName,
    PolicyName,
    ResourceName,
    Token,
    Word,
)
from wharfinger.domain.selectors import LabelSelector, NodeTerm
from wharfinger.domain.value import Value

DEFAULT_NAMESPACE = "default"

HOSTNAME = "kubernetes.io/hostname"
"""The node label by which every node is a domain of its own."""


class HostPort(Value, frozen=True):
    """A port of the node that the pod takes. An empty `ip` is every address (0.0.0.0)."""

    port: int
    protocol: Word = "TCP"
    ip: Address = ""


def clash(wanted: Iterable[HostPort], taken: Iterable[HostPort]) -> bool:
    """Whether one of `wanted` and one of `taken` cannot both be had on one node."""
    return any(
        a.port == b.port and a.protocol == b.protocol and (not a.ip or not b.ip or a.ip == b.ip)
        for b in taken
        for a in wanted
    )


class WeightedNodeTerm(Value, frozen=True):
    """A node that `term` matches is preferred by `weight` (1..100)."""

    weight: int
    term: NodeTerm


class TopologySpread(Value, frozen=True):
    """One topologySpreadConstraint: between the domains of the node label `key` the number of pods
    that `selector` matches differs by at most `max_skew`.

    `hard`: DoNotSchedule, else ScheduleAnyway. `selector` None matches no pod. `match_label_keys`:
    the pod's own values of these labels are asked of the others, too. `honours_affinity`,
    `honours_taints`: nodes that the pod's node claims or taints keep it from do not count as
    domains."""

    key: LabelKey
    max_skew: int
    hard: bool = True
    selector: LabelSelector | None = None
    min_domains: int = 1
    honours_affinity: bool = True
    honours_taints: bool = False
    match_label_keys: tuple[LabelKey, ...] = ()


class PodTerm(Value, frozen=True):
    """One podAffinityTerm: pods that `selector` matches, in the domain of the node label `key`.

    The pods are those of `namespaces` and of the namespaces whose labels `namespace_selector`
    matches (an empty one: all of them); with neither those of the pod's own namespace. `selector`
    None matches no pod. `match_label_keys`, `mismatch_label_keys`: the pod's own values of these
    labels are asked of the others, or must not be theirs."""

    key: LabelKey
    selector: LabelSelector | None = None
    namespaces: tuple[NamespaceName, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[LabelKey, ...] = ()
    mismatch_label_keys: tuple[LabelKey, ...] = ()


class WeightedPodTerm(Value, frozen=True):
    """`weight` 1..100."""

    weight: int
    term: PodTerm


class VolumeUse(Value, frozen=True):
    """A volume of the pod that ties it to nodes: a `claim` (PersistentVolumeClaim of its namespace,
    by name), or a disk of the cloud (`disk`: kind and identity, as `gcePersistentDisk/data`), which
    one node at a time may hold unless all `read_only`."""

    claim: Token = ""
    disk: Token = ""
    read_only: bool = False


class PodTraits(Value, frozen=True):
    """`owner`: kind of the controller (`DaemonSet`, `ReplicaSet`, ...), empty without one.
    `images`: as the containers name them, init containers too, one entry a container. `scored`: cpu
    (milli) and memory (bytes) as the scoring of resources counts them, where that is not what is
    requested, with 100 milli-cpu and 200 MiB for what is not.

    `node_name`: only this node. `preferences`: preferred node affinity. `volumes`: those that bind
    to places. `resource_claims`: names of ResourceClaims in its namespace. `scheduler`: name of the
    profile; empty: the default one. `never_preempts`: preemptionPolicy Never. `gates`: names of
    scheduling gates; with any the pod waits. `group`, `min_count`: its PodGroup in its namespace,
    and how many pods of that must be placed together or not at all."""

    namespace: NamespaceName = ""
    labels: dict[LabelKey, LabelText] = {}
    owner: Word = ""
    images: tuple[Token, ...] = ()
    scored: dict[ResourceName, int] = {}
    node_name: NodeName = ""
    preferences: tuple[WeightedNodeTerm, ...] = ()
    ports: tuple[HostPort, ...] = ()
    spread: tuple[TopologySpread, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferred_affinity: tuple[WeightedPodTerm, ...] = ()
    preferred_anti_affinity: tuple[WeightedPodTerm, ...] = ()
    volumes: tuple[VolumeUse, ...] = ()
    resource_claims: tuple[Token, ...] = ()
    scheduler: PolicyName = ""
    never_preempts: bool = False
    gates: tuple[Token, ...] = ()
    group: PolicyName = ""
    min_count: int = 0

    @property
    def home(self) -> str:
        """The namespace it is in; where none is said, that is `default`."""
        return self.namespace or DEFAULT_NAMESPACE

    @property
    def restrictive(self) -> bool:
        """Whether anything here bounds where or how often such a pod fits: then it is a requirement
        class of its own."""
        return bool(
            self.node_name
            or self.ports
            or self.affinity
            or self.anti_affinity
            or self.volumes
            or self.resource_claims
            or self.gates
            or self.group
            or any(s.hard for s in self.spread)
        )


NO_TRAITS = PodTraits()
