"""The bindings of a snapshot of a fleet stream: in buckets by hash of their name, so that a reader
of one binding reads one bucket.

Most bindings of a stream have one of few placements and requirements, and a bucket says these in
full for each. A loader decodes each of them once, and shares it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Binding
from wharfinger.domain.ids import (
    AffinityName,
    ClassKey,
    ClusterName,
    ResourceName,
    Token,
    Word,
    WorkloadName,
)
from wharfinger.domain.placement import Placement
from wharfinger.domain.value import Value, canonical, json_decoder, stable_hash
from wharfinger.domain.workload import Requirements
from wharfinger.events.decisions import Leaving
from wharfinger.events.envelope import NO_VERSION, FactVersion
from wharfinger.events.versions import FactKey
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet.state import BindingState, FleetState
from wharfinger.stages.fleet.state import quotas as quota
from wharfinger.stages.fleet.state.bindings import NOTHING
from wharfinger.stages.interned import InternedJson, with_shared_words


class SavedBinding(Value, frozen=True):
    """A binding's record in a snapshot; fields as in `BindingState`. `before` None: equal to
    `targets`. `applied_requests` None: those of the spec. `version`: of the binding's latest fact.
    `told` is `BindingState.announced_components`, `barred` is `BindingState.excluded_until`."""

    spec: Binding
    arrival: int
    cause: UUID | None
    asked: bool
    withdrawn: bool
    targets: Mapping[ClusterName, int]
    before: Mapping[ClusterName, int] | None
    assigned_by: Mapping[ClusterName, int]
    applied: Placement | None
    applied_replicas: int
    applied_class: ClassKey
    applied_token: Token
    affinity: AffinityName
    suspect: tuple[ClusterName, ...]
    extra: Mapping[ClusterName, int]
    evicted: tuple[ClusterName, ...]
    refused: Word
    applied_requests: Mapping[ResourceName, int] | None = None
    attempts: int = 0
    pause_until: Micros = 0
    deferred: bool = False
    failback_since: Micros = 0
    rebalance_since: Micros = 0
    moved_at: Micros = 0
    told: tuple[WorkloadName, ...] = ()
    leaving: tuple[Leaving, ...] = ()
    barred: Mapping[ClusterName, Micros] = {}
    version: FactVersion = NO_VERSION
    asked_at: Micros = 0


class _WrittenSpec(Binding, frozen=True):
    requirements: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]
    placement: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]


class _WrittenBinding(SavedBinding, frozen=True):
    """A record as it is written, with the parts not decoded that records have in common."""

    spec: _WrittenSpec
    applied: msgspec.Raw  # type: ignore[assignment]


_BINDINGS = "bindings/"

BUCKETS = tuple([f"{_BINDINGS}{number:02d}" for number in range(64)])
"""The names of the sections with bindings."""

_bindings = json_decoder(tuple[SavedBinding, ...])
_written = json_decoder(tuple[_WrittenBinding, ...])
_placement = json_decoder(Placement)
_requirements = json_decoder(Requirements)

_NULL = b"null"


def name_hash(binding: str) -> int:
    """Return the hash of a binding's name as a signed 64-bit integer, like PostgreSQL's bigint."""
    return stable_hash(binding) - 2**63


def bucket_of(binding: str) -> str:
    """Return the name of the section that contains the binding."""
    return BUCKETS[stable_hash(binding) % len(BUCKETS)]


# --- saving


def bucket(state: FleetState, names: Iterable[str]) -> bytes:
    """Return the section with these bindings; a name without a binding is left out. Encoded one by
    one: encoding all of a large bucket at once would hold the interpreter, and with it decisions,
    for tens of milliseconds."""
    found = [
        canonical(_save_binding(state, state.bindings[name]))
        for name in names
        if name in state.bindings
    ]
    return b"[" + b",".join(found) + b"]"


def _save_binding(state: FleetState, b: BindingState) -> SavedBinding:
    key = _key_of(b.spec.name)
    version = (
        NO_VERSION if key in state.versions.ended else state.versions.newest.get(key, NO_VERSION)
    )
    return SavedBinding(
        b.spec,
        b.arrival,
        b.cause,
        b.asked,
        b.withdrawn,
        b.targets,
        b.before if b.shrunk else None,
        b.assigned_by,
        b.applied,
        b.applied_replicas,
        b.applied_class,
        b.applied_token,
        b.affinity,
        b.suspect,
        b.extra,
        tuple(sorted(b.evicted)),
        b.refused,
        None if b.applied_requests == quota.per_unit(b.spec) else b.applied_requests,
        b.attempts,
        b.pause_until,
        b.deferred,
        b.failback_since,
        b.rebalance_since,
        b.moved_at,
        b.announced_components,
        tuple([b.leaving[name] for name in sorted(b.leaving)]),
        dict(sorted(b.excluded_until.items())),
        version,
        b.asked_at,
    )


def _key_of(binding: str) -> FactKey:
    return FactKey("binding", binding=binding)


# --- reading


def binding_in(section: bytes, name: str) -> bytes | None:
    """Return the bucket reduced to the one binding. None: the bucket does not have it."""
    found = [binding for binding in _bindings.decode(section) if binding.spec.name == name]
    return canonical(found) if found else None


def is_asked(section: bytes, name: str) -> bool:
    """Return whether the binding `name` has an open request, by its bucket."""
    return any(saved.asked for saved in _bindings.decode(section) if saved.spec.name == name)


def classed_in(state: FleetState, body: bytes) -> tuple[Requirements, ClassKey]:
    """Return the requirements and their class, as all that are equal share them. `body`: empty for
    those of a binding that asks for nothing."""
    return state.classed.of(_requirements.decode(body) if body else Requirements())


def load_bindings(state: FleetState, sections: Mapping[str, bytes]) -> list[BindingState]:
    """Return the records of all buckets in order of name, and note the versions of their facts. One
    bucket after the other, so that what is decoded of a bucket is never there of all."""
    placements = InternedJson(
        lambda body: state.parsed.of(_placement.decode(body) if body else Placement()).placement
    )
    requirements = InternedJson(partial(classed_in, state))
    records: list[BindingState] = []
    for section, body in sections.items():
        if section.startswith(_BINDINGS):
            for saved in _written.decode(body):
                records.append(_load(saved, placements, requirements))
                if saved.version != NO_VERSION:
                    state.versions.newest[_key_of(saved.spec.name)] = saved.version
    records.sort(key=lambda record: record.spec.name)
    return records


def _load(
    b: _WrittenBinding,
    placements: InternedJson[Placement],
    requirements: InternedJson[tuple[Requirements, str]],
) -> BindingState:
    """Equal parts of records are shared, as in a state that has folded them (`bindings`)."""
    name, uid, resource, replicas, asks, placement, *others = msgspec.structs.astuple(b.spec)
    asks, class_key = requirements.of(asks)
    spec = Binding(
        name, uid, with_shared_words(resource), replicas, asks, placements.of(placement), *others
    )
    return BindingState(
        spec,
        b.arrival,
        b.cause,
        b.asked,
        b.withdrawn,
        b.targets or NOTHING,
        (b.targets if b.before is None else b.before) or NOTHING,
        b.assigned_by or NOTHING,
        None if bytes(b.applied) == _NULL else placements.of(b.applied),
        b.applied_replicas,
        class_key if b.applied_class == class_key else b.applied_class,
        b.applied_token,
        b.affinity,
        b.suspect,
        b.extra or NOTHING,
        dict.fromkeys(b.evicted) if b.evicted else NOTHING,
        b.refused,
        quota.per_unit(spec) if b.applied_requests is None else b.applied_requests,
        b.attempts,
        b.pause_until,
        b.deferred,
        b.failback_since,
        b.rebalance_since,
        b.moved_at,
        b.told,
        {one.cluster: one for one in b.leaving} if b.leaving else NOTHING,
        b.barred or NOTHING,
        b.asked_at,
    )
