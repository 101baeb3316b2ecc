"""Which texts of the plane's values are names, and of what: the walk by which names are replaced.

Structural: what a text means is known from the type of the field it stands in (`domain.ids`), never
guessed from how it looks. A plain `str` is refused, so that a field added later cannot leak because
it was forgotten; a test holds every event and every section of a state to it. What each name
becomes is not decided here: `renaming` does that.

Some values compute on text instead of comparing it for equality: label selectors with Gt and Lt.
Names that were replaced cannot be computed on, so these are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Annotated, Literal, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from wharfinger.domain import (
    descheduling,
    device_claims,
    instance_types,
    rebalancing,
    scheduler,
    selection,
    storage,
)
from wharfinger.domain.binding import Binding, Component
from wharfinger.domain.cluster_objects import NodeClaimStatus
from wharfinger.domain.ids import Meaning
from wharfinger.domain.node_pool import NodeOverlay, PoolRequirement
from wharfinger.domain.placement import ClusterAffinity, ReplicaLimit
from wharfinger.domain.policy import Policy, Propagation, ResourceSelector
from wharfinger.domain.quota import Quota
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.engine.fleet.objective import PRICE_LABEL
from wharfinger.events.assignments import (
    Assigned,
    AssignmentsDecided,
    Claimed,
    ClaimEnded,
    Disrupted,
    Disrupting,
    NodeClosed,
    Placed,
    PodsPreempted,
    PodsRemoved,
    PreemptionOver,
    Recovered,
    Refused,
    Released,
    Silenced,
    UnplacedPods,
)
from wharfinger.events.capacity import QuotaRoom
from wharfinger.events.decisions import (
    KINDS,
    DecidedGroup,
    Explanation,
    NodesDecision,
    PlannedOutcome,
    ScheduleAnswer,
    ScoredCandidate,
    SelectionCondition,
    as_decision,
    effects,
)
from wharfinger.events.decisions.kind import names_replaceable
from wharfinger.events.decisions.renaming import ANSWERED_IN_WORDS, COMPARED_TEXTS, NAMES_OF_NODES
from wharfinger.events.extenders import ExtenderAnswered
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import (
    DeschedulingProposed,
    DisruptionProposed,
    NewNode,
    RescheduleProposed,
    Unseating,
)
from wharfinger.events.streams import FLEET
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.stages import pools
from wharfinger.stages.cluster import state as cluster_state
from wharfinger.stages.fleet.state import selections


class RedactionError(LedgerError):
    """These names cannot be replaced: one line that says which and why."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """A mapping: what its keys mean, and its values."""

    keys: Meaning | None
    values: Means = None


Means = Meaning | Pairs | None
"""None: no text in there but in structs, which speak for themselves."""

M = Meaning


def meaning_of(hint: object) -> Means:
    """What the text of a field means, as its type says: `dict[NodeName, LabelText]` -> Pairs(NODE,
    LABEL_VALUE)."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return next((one for one in inner[1:] if isinstance(one, Meaning)), None) or meaning_of(
            inner[0]
        )
    if kind is Literal:
        return M.WORD
    if kind is dict or kind is Mapping:
        keys, values = map(meaning_of, inner)
        assert not isinstance(keys, Pairs)
        return Pairs(keys, values) if keys or values else None
    return next((means for one in inner if (means := meaning_of(one))), None)


FIELD_OF_NAME = "metadata.name"
"""The only field a node term can ask for."""

CLUSTER_FIELDS = {"provider": M.PROVIDER, "region": M.REGION, "zone": M.ZONE}


class Names(Protocol):
    """What becomes of texts, ids and whole requirement classes."""

    def text(self, meaning: Meaning, text: str) -> str:
        """Never asked for the empty text, which stays what it is: nothing."""
        ...

    def id(self, id: UUID) -> UUID:
        """Of an event, or of a decision of any stream."""
        ...

    def decision(self, stream: str, seq: int, id: str) -> str:
        """The id of the decision `seq` of a stream, given under its old names."""
        ...

    def requirements(
        self, requirements: Requirements, renamed: Callable[[], Requirements]
    ) -> Requirements:
        """A requirement class: asked apart, because equal ones come again and again."""
        ...

    def components(
        self, components: tuple[Component, ...], renamed: Callable[[], tuple[Component, ...]]
    ) -> tuple[Component, ...]:
        """Of one workload: together they are a class, too."""
        ...

    def kind(self, api_version: str, kind: str) -> str: ...


T = TypeVar("T")


class ValueWalk:
    """Goes through values and hands every text in them, with its meaning, to `names`; gives back
    the same with what it got."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def value(self, value: T) -> T:
        """RedactionError: there is text in it whose meaning is unknown, or that is computed on."""
        return cast(T, self._walk(value, None, ""))

    def text(self, meaning: Meaning, text: str) -> str:
        return self._names.text(meaning, text) if text else text

    def _walk(self, value: object, means: Means, where: str) -> object:
        kind = type(value)
        if kind is int or kind is bool or value is None:
            return value
        if isinstance(value, str):
            if not isinstance(means, Meaning):
                raise RedactionError(
                    f"redaction does not know what {where} means, so it cannot hide it"
                )
            return self.text(means, value)
        if isinstance(value, tuple):
            return tuple([self._walk(item, means, where) for item in value])
        if isinstance(value, dict):
            return self._pairs(value, means, where)
        if isinstance(value, Requirements):
            return self._names.requirements(value, lambda: cast(Requirements, self._struct(value)))
        if isinstance(value, msgspec.Struct):
            special = _SPECIAL.get(type(value))
            return self._struct(value) if special is None else special(self, value)
        if isinstance(value, UUID):
            return self._names.id(value)
        raise RedactionError(f"redaction does not know what {where} holds")

    def _pairs(
        self, pairs: Mapping[object, object], means: Means, where: str
    ) -> dict[object, object]:
        keys, values = (means.keys, means.values) if isinstance(means, Pairs) else (None, None)
        return {
            self._walk(key, keys, where): self._walk(item, values, where)
            for key, item in pairs.items()
        }

    def _struct(self, value: msgspec.Struct, **known: object) -> msgspec.Struct:
        """Field by field. `known`: those that a special rule has seen to."""
        changed = [
            known[field]
            if field in known
            else self._walk(getattr(value, field), _means_in(value, means), where)
            for field, means, where in _fields(type(value))
        ]
        return type(value)(*changed)


def _means_in(value: msgspec.Struct, means: Means) -> Means:
    """What a text means in this value, where the type of its field leaves that to the value."""
    if means is not M.SUBJECT:
        return means
    return as_decision(cast(Value, value)).subject_meaning()


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Means, str], ...]:
    """Name, meaning and place of each field, in order."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        [
            (field, meaning_of(hints[field]), f"{kind.__name__}.{field}")
            for field in kind.__struct_fields__
        ]
    )


# --- what depends on more than the field


def _requirement(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, Requirement)
    _refuse_arithmetic(value, "label")
    return walk._struct(value)


def _refuse_arithmetic(requirement: Requirement, what: str) -> None:
    if requirement.operator in ("Gt", "Lt"):
        raise RedactionError(
            f"{what} {requirement.key} is compared as a number ({requirement.operator})"
        )


def _node_term(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, NodeTerm)
    return walk._struct(
        value, fields=tuple([_field(walk, r, {FIELD_OF_NAME: M.NODE}) for r in value.fields])
    )


def _affinity(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, ClusterAffinity)
    return walk._struct(
        value, fields=tuple([_field(walk, r, CLUSTER_FIELDS) for r in value.fields])
    )


def _field(walk: ValueWalk, requirement: Requirement, fields: Mapping[str, Meaning]) -> Requirement:
    """Renames a condition on a field. A condition on an unknown field matches nothing, so its key
    may get any new name."""
    _refuse_arithmetic(requirement, "field")
    meaning = fields.get(requirement.key)
    key = requirement.key if meaning else walk.text(M.LABEL_KEY, requirement.key)
    values = tuple([walk.text(meaning or M.LABEL_VALUE, value) for value in requirement.values])
    return Requirement(key, requirement.operator, values)


def _limit(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, ReplicaLimit)
    return walk._struct(
        value, cluster="*" if value.cluster == "*" else walk.text(M.CLUSTER, value.cluster)
    )


def _quota(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, Quota)
    return walk._struct(
        value,
        hard=_limits(walk, value.hard),
        used=_limits(walk, value.used),
        scope=_scope(walk, value.scope),
    )


def _quota_room(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, QuotaRoom)
    return walk._struct(value, scope=_scope(walk, value.scope))


def _limits(walk: ValueWalk, limits: Mapping[str, int]) -> dict[str, int]:
    """What a quota limits is a resource, or a resource's requests."""
    renamed: dict[str, int] = {}
    for limit, amount in limits.items():
        prefix = next((p for p in ("requests.", "limits.", "count/") if limit.startswith(p)), "")
        renamed[prefix + walk.text(M.RESOURCE, limit.removeprefix(prefix))] = amount
    return renamed


def _scope(walk: ValueWalk, scope: Iterable[Requirement]) -> tuple[Requirement, ...]:
    """Scopes have fixed names; what a scope asks for are priority classes."""
    return tuple(
        [
            Requirement(r.key, r.operator, tuple([walk.text(M.LABEL_VALUE, v) for v in r.values]))
            for r in scope
        ]
    )


def _scheduled_by(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    """Whose scheduler it is decides only whether it is ours."""
    assert isinstance(value, Binding | Propagation)
    ours = value.scheduler in ("", "default-scheduler")
    known: dict[str, object] = {
        "scheduler": value.scheduler if ours else walk.text(M.POLICY, value.scheduler)
    }
    if isinstance(value, Binding) and value.components:
        several = value.components
        known["components"] = walk._names.components(
            several, lambda: tuple([walk.value(c) for c in several])
        )
    return walk._struct(value, **known)


def _object(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    """A kind is only known together with the group it belongs to."""
    assert isinstance(value, ObjectRef | ResourceSelector)
    return walk._struct(
        value, kind=walk._names.kind(value.api_version, value.kind) if value.kind else ""
    )


def _explained(candidates: Meaning) -> Callable[[ValueWalk, msgspec.Struct], msgspec.Struct]:
    """A decision whose candidates are clusters, or nodes."""

    def rename(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
        # every struct this is called for has one
        explanation = getattr(value, "explanation")  # noqa: B009
        assert isinstance(explanation, Explanation)

        def scored(several: tuple[ScoredCandidate, ...]) -> tuple[msgspec.Struct, ...]:
            return tuple([walk._struct(s, name=walk.text(candidates, s.name)) for s in several])

        renamed = walk._struct(
            explanation,
            chosen=scored(explanation.chosen),
            runners_up=scored(explanation.runners_up),
            division={walk.text(candidates, name): n for name, n in explanation.division.items()},
            best={walk.text(candidates, name): n for name, n in explanation.best.items()},
        )
        return walk._struct(value, explanation=renamed)

    return rename


def _items(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    """The decision an item came from is one of the message's stream."""
    assert isinstance(value, AssignmentsDecided | OutcomesDecided)
    items = [
        walk._struct(item, decision=walk._names.decision(value.stream, item.seq, item.decision))
        for item in value.items
    ]
    return walk._struct(value, items=tuple(items))


def _reschedule(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, RescheduleProposed)
    if value.objective == "cost":
        raise RedactionError(
            f"{value.binding} is to be moved for its cost, and prices are values of the label "
            f"{PRICE_LABEL}"
        )
    return walk._struct(value)


def _plan(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    """What is expected of a fleet stream is about bindings and clusters, of a cluster stream about
    bindings and nodes."""
    assert isinstance(value, PlanRequested)
    places = M.CLUSTER if value.stream.startswith(FLEET) else M.NODE
    expected = [
        walk._struct(
            outcome,
            subject=walk.text(_SUBJECTS.get(outcome.outcome, M.BINDING), outcome.subject),
            places={walk.text(places, name): n for name, n in outcome.places.items()},
        )
        for outcome in value.expected
    ]
    return walk._struct(value, expected=tuple(expected))


_SUBJECTS = {
    "silenced": M.CLUSTER,
    "recovered": M.CLUSTER,
    "removed": M.NODE,
    "held": M.STREAM,
    "resumed": M.STREAM,
}
"""What a decision with this outcome is about, where that is no binding."""


def _policy(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, Policy)
    if value.selection or value.cluster_set or value.set_binding or value.scores:
        raise RedactionError(
            f"{value.key} chooses clusters by texts that are compared, which new names would change"
        )
    if value.catalogue or value.overlay or value.descheduling or value.rebalancing:
        raise RedactionError(
            f"{value.key} says by names of types, labels and zones what nodes are bought or emptied"
        )
    if value.scheduler:
        raise RedactionError(
            f"{value.key} says by names of plugins, resources and hosts how nodes are chosen"
        )
    return walk._struct(value)


def _answered(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    where = getattr(value, "stream", "") or getattr(value, "cluster", "") or "a cluster"
    raise RedactionError(f"{where} {ANSWERED_IN_WORDS}")


_EXTENDERS = (ExtenderAnswered, cluster_state.ExtenderQuestion, cluster_state.Extending)


_KEPT = tuple(
    cast(type[msgspec.Struct], kind)
    for kind in KINDS
    if kind.why_not_renamed is not names_replaceable
)
"""Decisions that a history with other names cannot have. Each says why."""


def _kept(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    raise RedactionError(as_decision(cast(Value, value)).why_not_renamed())


def _claimed(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    raise RedactionError(
        f"the {type(value).__name__} {getattr(value, 'name', '')} is found by texts that are "
        "compared, which new names would change"
    )


def _pool_requirement(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, PoolRequirement)
    if value.operator in ("Gt", "Lt", "Gte", "Lte"):
        raise RedactionError(f"label {value.key} is compared as a number ({value.operator})")
    return walk._struct(value)


def _bought(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    where = getattr(value, "cluster", "") or getattr(value, "name", "") or type(value).__name__
    raise RedactionError(f"{where}: {NAMES_OF_NODES}")


def _selected(walk: ValueWalk, value: msgspec.Struct) -> msgspec.Struct:
    assert isinstance(value, selections.SavedStanding)
    raise RedactionError(f"placement {value.placement} {COMPARED_TEXTS}")


_SPECIAL: dict[type[msgspec.Struct], Callable[[ValueWalk, msgspec.Struct], msgspec.Struct]] = {
    Requirement: _requirement,
    PoolRequirement: _pool_requirement,
    NodeTerm: _node_term,
    ClusterAffinity: _affinity,
    ReplicaLimit: _limit,
    Quota: _quota,
    QuotaRoom: _quota_room,
    Binding: _scheduled_by,
    Propagation: _scheduled_by,
    ObjectRef: _object,
    Policy: _policy,
    **dict.fromkeys(_EXTENDERS, _answered),
    **dict.fromkeys(_KEPT, _kept),
    selections.SavedStanding: _selected,
    ResourceSelector: _object,
    **dict.fromkeys(get_args(ScheduleAnswer), _explained(M.CLUSTER)),
    **dict.fromkeys(get_args(NodesDecision), _explained(M.NODE)),
    AssignmentsDecided: _items,
    OutcomesDecided: _items,
    RescheduleProposed: _reschedule,
    PlanRequested: _plan,
}

_CLAIMED: tuple[type[msgspec.Struct], ...] = (
    storage.ClaimReference,
    storage.PersistentVolume,
    storage.PersistentVolumeClaim,
    storage.StorageClass,
    storage.CSINode,
    storage.CSIDriver,
    storage.CSIStorageCapacity,
    device_claims.DeviceClass,
    device_claims.OfferedDevice,
    device_claims.ResourceSlice,
    device_claims.WantedDevices,
    device_claims.Alike,
    device_claims.HeldDevice,
    device_claims.ResourceClaim,
)
"""Volumes and claimed devices: expressions and topologies find them by their texts, so a history
that holds any is not redacted."""

_SPECIAL |= dict.fromkeys(_CLAIMED, _claimed)


def _all_of(*modules: ModuleType) -> tuple[type[msgspec.Struct], ...]:
    """The structs a module defines."""
    return tuple(
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type)
        and issubclass(found, msgspec.Struct)
        and found.__module__ == module.__name__
    )


_BOUGHT: tuple[type[msgspec.Struct], ...] = (
    *_all_of(instance_types, descheduling, rebalancing),
    effects.PricedNode,
    effects.ReplicaMove,
    effects.DisruptionCommand,
    NodeOverlay,
    NodeClaimStatus,
    DisruptionProposed,
    DeschedulingProposed,
    NewNode,
    Unseating,
    Claimed,
    ClaimEnded,
    Disrupting,
    Disrupted,
    pools.OpenClaim,
    pools.OpenCommand,
    pools.PoolOffer,
    cluster_state.Replacement,
    cluster_state.RunningCommand,
)
"""Of nodes that are bought and emptied: prices, types and zones are looked up by name, so a history
that holds any is not redacted."""

_SPECIAL |= dict.fromkeys(_BOUGHT, _bought)

_SCHEDULERS: tuple[type[msgspec.Struct], ...] = (
    scheduler.PluginUse,
    scheduler.WeightedResource,
    scheduler.FitArgs,
    scheduler.DynamicArgs,
    scheduler.DevicesArgs,
    scheduler.Arguments,
    scheduler.Profile,
    scheduler.ManagedResource,
    scheduler.Extender,
)
"""Of how nodes are chosen: a history in which that was configured is not redacted."""

_SELECTIONS: tuple[type[msgspec.Struct], ...] = (
    selection.Condition,
    selection.Selector,
    selection.Predicate,
    selection.ClusterToleration,
    selection.AddOnScore,
    selection.Priority,
    selection.DecisionGroup,
    selection.Selection,
    selection.ClusterSet,
    selection.SetBinding,
    selection.ScoreValue,
    selection.ClusterScores,
    DecidedGroup,
    SelectionCondition,
    selections.SavedStanding,
)
"""Of placements that choose clusters: a history that holds any is not redacted."""

_WHOLE: tuple[type[msgspec.Struct], ...] = (
    *_SELECTIONS,
    *_CLAIMED,
    *_SCHEDULERS,
    *_BOUGHT,
    *_EXTENDERS,
    *_KEPT,
)

SPECIAL_FIELDS = {
    *((kind, field) for kind in _WHOLE for field in kind.__struct_fields__),
    (ScoredCandidate, "name"),
    (PlannedOutcome, "subject"),
    (PlannedOutcome, "places"),
    (Explanation, "division"),
    (Explanation, "best"),
    (ClusterAffinity, "fields"),
    (ReplicaLimit, "cluster"),
    *(
        (quota, field)
        for quota, field in (
            (Quota, "hard"),
            (Quota, "used"),
            (Quota, "scope"),
            (QuotaRoom, "scope"),
        )
    ),
    (Binding, "scheduler"),
    (Propagation, "scheduler"),
    (NodeTerm, "fields"),
    *(
        (item, "decision")
        for item in (
            Assigned,
            Placed,
            Refused,
            Released,
            NodeClosed,
            Silenced,
            Recovered,
            PodsRemoved,
            UnplacedPods,
            PodsPreempted,
            PreemptionOver,
        )
    ),
}
"""Fields with text that only a special rule knows the meaning of."""


def subject_of(data: Value) -> Meaning:
    """What the subject of a decision with this data is."""
    return as_decision(data).subject_meaning()
