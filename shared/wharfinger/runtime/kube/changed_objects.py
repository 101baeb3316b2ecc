"""Nodes and pods as their server has them: exactly the fields that are read before a change."""

from __future__ import annotations

import msgspec

from wharfinger.domain.actuation import CLOSED_BY
from wharfinger.manifests.model import micros
from wharfinger.stages.actuator.requests import POD_SCHEDULED, NodeNow, PodNow


class _ChangedMeta(msgspec.Struct, rename="camel"):
    resource_version: str
    name: str = ""
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str = ""
    annotations: dict[str, str] | None = None


class _CordonSpec(msgspec.Struct):
    unschedulable: bool = False


class NodeObject(msgspec.Struct):
    metadata: _ChangedMeta
    spec: _CordonSpec = msgspec.field(default_factory=_CordonSpec)

    @property
    def now(self) -> NodeNow:
        meta = self.metadata
        return NodeNow(
            meta.resource_version,
            micros(meta.creation_timestamp) if meta.creation_timestamp else 0,
            self.spec.unschedulable,
            (meta.annotations or {}).get(CLOSED_BY, ""),
        )


class _PodCondition(msgspec.Struct, rename="camel"):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _PodStatus(msgspec.Struct):
    conditions: list[_PodCondition] | None = None


class PodObject(msgspec.Struct):
    metadata: _ChangedMeta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def now(self) -> PodNow:
        meta, node = self.metadata, self.spec.node_name
        for said in self.status.conditions or ():
            if said.type == POD_SCHEDULED and said.status == "False":
                since = said.last_transition_time or ""
                return PodNow(
                    meta.resource_version, meta.uid, node, said.reason, said.message, since
                )
        return PodNow(meta.resource_version, meta.uid, node)
