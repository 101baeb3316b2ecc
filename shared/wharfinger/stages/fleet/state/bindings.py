"""The record of one binding: its request, its last decision, and open work.

All fields above `derived` are recorded: `saved.py` dumps them.

A stream may have a million of them, so equal parts are shared. Placements and requirements are the
same objects in all bindings where they are equal (`stages.interned`). The mappings of a record are
never changed, only replaced: so a record shares them between its fields and with copies of itself,
and all empty ones are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Binding
from wharfinger.domain.placement import Placement
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.placement_errors import problem_of
from wharfinger.engine.fleet.trigger import ours, placement_changed
from wharfinger.events.decisions import Leaving
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet.quota_capacity import Claim
from wharfinger.stages.interned import Interned


@dataclass(slots=True)
class ParsedPlacement:
    """A placement with its canonical bytes (`key`) and the result of its validation. `problem`: why
    it is invalid; empty: it is valid."""

    key: bytes
    placement: Placement
    problem: str

    @property
    def duplicated(self) -> bool:
        return self.placement.replicas.type == "Duplicated"

    @property
    def by_region(self) -> bool:
        return any(c.field == "region" for c in self.placement.spread)

    @property
    def static(self) -> bool:
        scheduling = self.placement.replicas
        return (
            scheduling.type == "Divided"
            and scheduling.preference == "Weighted"
            and not scheduling.dynamic
        )


# An encoder leaves a default out only where a field has this very object. So this is what all
# requests get whose field equals the default, however they say it: otherwise the bytes of a
# snapshot would depend on which of them came first.
_DEFAULTS = {one.name: one.default for one in msgspec.structs.fields(Binding)}


def interned_placements() -> Interned[Placement, ParsedPlacement]:
    """Return what is made of placements, for the bindings of one state."""

    def parsed(placement: Placement, key: bytes) -> ParsedPlacement:
        return ParsedPlacement(key, placement, problem_of(placement))

    return Interned(parsed, [_DEFAULTS["placement"]])


def interned_requirements() -> Interned[Requirements, tuple[Requirements, str]]:
    """Return what is made of requirements, for the bindings of one state: the requirements with the
    key of their class."""
    return Interned(lambda value, _: (value, value.class_key), [_DEFAULTS["requirements"]])


NOTHING: Mapping[str, Any] = {}
"""The one empty mapping of all records."""


def _nothing() -> Mapping[str, Any]:
    return NOTHING


class BindingState(msgspec.Struct):
    """Holds a binding's request, the last decision about it, and what was observed since."""

    spec: Binding
    """The request."""
    arrival: int
    """Number of the request: the order among requests of one priority."""
    cause: UUID | None
    """Id of the event that made the next decision necessary."""
    asked: bool = True
    """The request has not been answered."""
    withdrawn: bool = False
    targets: Mapping[str, int] = msgspec.field(default_factory=_nothing)
    """Cluster -> replicas that the binding holds there."""
    before: Mapping[str, int] = msgspec.field(default_factory=_nothing)
    """`targets` as last decided. They differ while a refusal by a cluster or the loss of a cluster
    is not answered."""
    assigned_by: Mapping[str, int] = msgspec.field(default_factory=_nothing)
    """Cluster -> seq of the decision that last announced the number of replicas to it."""
    applied: Placement | None = None
    """The placement of the last decision; None: there was no decision."""
    applied_replicas: int = 0
    applied_class: str = ""
    applied_token: str = ""
    """Reschedule token of the last decision."""
    affinity: str = ""
    """Name of the active affinity term."""
    suspect: tuple[str, ...] = ()
    """Targets whose replicas are also counted elsewhere, because the cluster is silent or the
    binding is leaving it."""
    extra: Mapping[str, int] = msgspec.field(default_factory=_nothing)
    """Cluster -> replicas placed there in addition because of a suspect cluster."""
    evicted: Mapping[str, None] = msgspec.field(default_factory=_nothing)
    """Clusters whose NoExecute taint the binding did not tolerate."""
    refused: str = ""
    """Reason of the last refusal, while the binding waits."""
    applied_requests: Mapping[str, int] = msgspec.field(default_factory=_nothing)
    """Resource -> amount that each replica requests by the last decision, see `quotas.per_unit`."""
    attempts: int = 0
    """Number of refusals that count for the back-off, see `backoff`."""
    pause_until: Micros = 0
    """The binding is not decided again before this time, see `backoff`."""
    deferred: bool = False
    """Something changed for the binding during its pause, so it is evaluated when the
    pause ends."""
    failback_since: Micros = 0
    """Since when an earlier affinity term could take the binding; 0: none could."""
    rebalance_since: Micros = 0
    """Since when another division would be better; 0: none would."""
    moved_at: Micros = 0
    """When the binding was last moved by failback or rebalance."""
    announced_components: tuple[str, ...] = ()
    """Names of the components in the last decision."""
    leaving: Mapping[str, Leaving] = msgspec.field(default_factory=_nothing)
    """Suspect cluster that the binding is leaving -> how it leaves."""
    excluded_until: Mapping[str, Micros] = msgspec.field(default_factory=_nothing)
    """Cluster where the binding was unhealthy -> the time until which it does not return."""
    asked_at: Micros = 0
    """When it was requested, while the request has not been answered."""
    # derived
    class_key: str = ""
    claim: Claim | None = None
    parsed: ParsedPlacement = None  # type: ignore[assignment]  # set as soon as the spec is

    @property
    def counted(self) -> bool:
        """Return whether the binding has replicas that count. False for an object without replicas:
        it goes to its clusters unchanged."""
        return self.spec.replicas > 0 or not self.spec.requirements.empty

    @property
    def sets(self) -> bool:
        """Return whether whole sets of several components are placed instead of replicas. A target
        then has one set, and its number of replicas is 0."""
        return bool(self.spec.components)

    @property
    def divisible(self) -> bool:
        """Return whether the binding has replicas or component sets, and so uses capacity."""
        return self.counted or self.sets

    @property
    def tracks_all_feasible(self) -> bool:
        """Return whether the binding goes to every feasible cluster: a Duplicated binding, an
        object without replicas, and component sets under strict Karmada behaviour."""
        plan = self.parsed
        return plan.duplicated or not self.divisible or (self.sets and plan.placement.strict)

    @property
    def group(self) -> tuple[bytes, str, str]:
        """Return the key of the binding's waiting group. Bindings with equal keys have the same
        feasible clusters and the same estimates."""
        return (self.parsed.key, self.spec.resource.gvk, self.column_key)

    @property
    def column_key(self) -> str:
        """Return the key of the binding's estimates in the cache: the class of its replicas and,
        where some cluster has quotas for its namespace, the namespace and the priority class."""
        claim = self.claim
        return (
            self.class_key
            if claim is None
            else f"{self.class_key} {claim.namespace} {claim.priority_class}"
        )

    @property
    def only_pod_metadata_changed(self) -> bool:
        """Return whether an open request changes only pod metadata, priority or preferred nodes, so
        that the replicas stay where they are. The clusters still receive the new metadata."""
        has_pod = self.spec.requirements.pod is not None
        return (
            has_pod
            and bool(self.targets)
            and not (self.refused or self.shrunk or asks_otherwise(self))
        )

    @property
    def left_alone(self) -> bool:
        """Return whether the binding must not be decided: it is suspended, or it belongs to another
        scheduler."""
        spec = self.spec
        return spec.suspended or (spec.scheduler != "" and not ours(spec.scheduler))

    @property
    def shrunk(self) -> bool:
        return self.targets is not self.before and self.targets != self.before

    @property
    def fully_assigned(self) -> bool:
        """Return whether the targets without the suspects (clusters that are silent or being left)
        hold all wanted replicas, and no request, refusal or loss is open."""
        if self.asked or self.refused or self.shrunk:
            return False
        counted = [n for c, n in self.targets.items() if c not in self.suspect]
        if self.parsed.duplicated or not self.counted or self.sets:
            return bool(counted)
        return sum(counted) == self.spec.replicas


def differs(record: BindingState) -> bool:
    """Return whether the binding must be decided: its request is not answered yet, or differs from
    the last decision. A new policy name or another priority does not change the placement."""
    return record.asked or asks_otherwise(record)


def asks_otherwise(record: BindingState) -> bool:
    """Return whether the binding's request differs from its last decision in at least one of these:
    number of replicas, class, names of the components, placement, or reschedule token (a string of
    the request; a new value asks for a new decision). True also where there was no decision yet."""
    spec = record.spec
    if record.applied is None:
        return True
    return (
        record.applied_replicas != spec.replicas
        or record.applied_class != record.class_key
        or record.applied_token != spec.reschedule
        or record.announced_components != tuple([c.name for c in spec.components])
        or placement_changed(record.applied, spec.placement, record.affinity)
    )


def metadata_changed(before: Binding, now: Binding) -> bool:
    """Return whether the target clusters need the new request although no replica moves: its
    requirements differ or, where the binding describes its pod, its priority for preemption."""
    ranked = now.requirements.pod is not None and before.priority != now.priority
    return ranked or before.requirements != now.requirements
