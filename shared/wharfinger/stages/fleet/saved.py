"""The fleet stage's state as bytes and back: named sections of canonical JSON, equal states to equal bytes.

Only what cannot be derived is saved; indexes and caches are made anew. Lists are ordered by name, except what has an order
of its own (proposals as they came, deductions by seq).

Bindings are most of a state, so they lie in buckets by hash of their name: whoever asks about one binding reads one bucket,
and `delta` saves of each bucket only what was touched. A name that a delta counts and does not hold is of a binding that is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.domain.value import Value, canonical, stable_hash
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.estimate import demand_of
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet.clusters import ClusterState, Pending
from wharfinger.stages.fleet.state import BindingState, FleetState


class SavedPending(Value, frozen=True):
    seq: int
    class_key: str
    replicas: int
    requirements: Requirements


class SavedCluster(Value, frozen=True):
    name: str
    facts: Cluster | None
    heard_at: Micros
    heard_by: UUID | None
    silent_since: Micros | None
    tainted_at: dict[str, Micros]


class SavedCapacity(Value, frozen=True):
    cluster: str
    capacity: CapacityEstimated | None
    pending: tuple[SavedPending, ...]
    closed: dict[str, int]
    doubt: dict[str, int]
    counted_at: Micros = 0


class SavedBinding(Value, frozen=True):
    """As `BindingState`; `before` None where it equals `targets`."""

    spec: Binding
    arrival: int
    cause: UUID | None
    asked: bool
    withdrawn: bool
    targets: dict[str, int]
    before: dict[str, int] | None
    assigned_by: dict[str, int]
    applied: Placement | None
    applied_replicas: int
    applied_class: str
    applied_token: str
    affinity: str
    suspect: tuple[str, ...]
    extra: dict[str, int]
    evicted: tuple[str, ...]
    refused: str


class SavedProposal(Value, frozen=True):
    """Exactly one of the four is set."""

    id: UUID
    failover: FailoverProposed | None = None
    eviction: EvictionProposed | None = None
    reschedule: RescheduleProposed | None = None
    plan: PlanRequested | None = None


class SavedFleet(Value, frozen=True):
    arrivals: int
    held: bool
    stirrer: UUID | None
    outcomes: dict[str, int]
    unfinished: bool = False


BUCKETS = 64

_BINDINGS = "bindings"


def name_hash(binding: str) -> int:
    """As PostgreSQL's bigint: signed."""
    return stable_hash(binding) - 2**63


def bucket_of(binding: str) -> str:
    """The section that a binding lies in."""
    return _section(stable_hash(binding) % BUCKETS)


def _section(bucket: int) -> str:
    return f"{_BINDINGS}/{bucket:02d}"


SECTIONS: dict[str, object] = {
    "fleet": SavedFleet,
    "clusters": tuple[SavedCluster, ...],
    "capacity": tuple[SavedCapacity, ...],
    "proposals": tuple[SavedProposal, ...],
    **{_section(bucket): tuple[SavedBinding, ...] for bucket in range(BUCKETS)},
}
"""What each section holds."""

SHARED = ("fleet", "clusters", "capacity", "proposals")
"""The sections that are not about bindings: small, and in every delta whole."""


class Delta(msgspec.Struct, frozen=True):
    """What changed. `names`: of each bucket among the sections, the hashes of the bindings that were touched."""

    sections: dict[str, bytes]
    names: dict[str, list[int]]


_clusters = msgspec.json.Decoder(tuple[SavedCluster, ...])
_capacity = msgspec.json.Decoder(tuple[SavedCapacity, ...])
_bindings = msgspec.json.Decoder(tuple[SavedBinding, ...])
_proposals = msgspec.json.Decoder(tuple[SavedProposal, ...])
_fleet = msgspec.json.Decoder(SavedFleet)


def dump(state: FleetState) -> dict[str, bytes]:
    buckets: dict[str, list[str]] = {_section(bucket): [] for bucket in range(BUCKETS)}
    for name in sorted(state.bindings):
        buckets[bucket_of(name)].append(name)
    return _shared(state) | {section: _bucket(state, names) for section, names in buckets.items()}


def delta(state: FleetState, touched: Collection[str]) -> Delta:
    buckets: dict[str, list[str]] = {}
    for name in sorted(touched):
        buckets.setdefault(bucket_of(name), []).append(name)
    sections = {section: _bucket(state, names) for section, names in buckets.items()}
    hashes = {section: [name_hash(name) for name in names] for section, names in buckets.items()}
    return Delta(_shared(state) | sections, hashes)


def _bucket(state: FleetState, names: Iterable[str]) -> bytes:
    return canonical([_save_binding(state.bindings[name]) for name in names if name in state.bindings])


def _shared(state: FleetState) -> dict[str, bytes]:
    clusters = [state.clusters[name] for name in sorted(state.clusters)]
    return {
        "fleet": canonical(SavedFleet(state.arrivals, state.held, state.stirrer, state.outcomes, state.unfinished)),
        "clusters": canonical(
            [SavedCluster(c.name, c.facts, c.heard_at, c.heard_by, c.silent_since, c.tainted_at) for c in clusters]
        ),
        "capacity": canonical([_save_capacity(c) for c in clusters]),
        "proposals": canonical(
            [
                *(_save_proposal(key, p) for key, p in state.proposals.items()),
                *(SavedProposal(key, plan=request) for key, request in state.requested.items()),
            ]
        ),
    }


def binding_in(section: bytes, name: str) -> bytes | None:
    """The bucket with nothing but the one binding in it; None: it is not there."""
    found = [binding for binding in _bindings.decode(section) if binding.spec.name == name]
    return canonical(found) if found else None


def load(stream: str, sections: Mapping[str, bytes]) -> FleetState:
    """Of the buckets of bindings those that are there: a state with some bindings only knows everything about clusters."""
    fleet = _fleet.decode(sections["fleet"])
    state = FleetState(
        stream,
        arrivals=fleet.arrivals,
        held=fleet.held,
        stirrer=fleet.stirrer,
        outcomes=dict(fleet.outcomes),
        unfinished=fleet.unfinished,
    )
    for cluster in _clusters.decode(sections["clusters"]):
        state.clusters[cluster.name] = ClusterState(
            cluster.name, cluster.facts, cluster.heard_at, cluster.heard_by, cluster.silent_since,
            dict(cluster.tainted_at),
        )  # fmt: skip
    for saved in _capacity.decode(sections["capacity"]):
        held = state.clusters[saved.cluster]
        held.capacity, held.counted_at = saved.capacity, saved.counted_at
        held.pending = deque(
            [Pending(p.seq, p.class_key, p.replicas, p.requirements, demand_of(p.requirements)) for p in saved.pending]
        )
        held.closed, held.doubt = dict(saved.closed), dict(saved.doubt)
    buckets = [_bindings.decode(body) for name, body in sections.items() if name.startswith(_BINDINGS)]
    for binding in sorted((b for bucket in buckets for b in bucket), key=lambda b: b.spec.name):
        state.bindings[binding.spec.name] = _load_binding(binding)
    for proposal in _proposals.decode(sections["proposals"]):
        if proposal.plan is not None:
            state.requested[proposal.id] = proposal.plan
            continue
        what = proposal.failover or proposal.eviction or proposal.reschedule
        assert what is not None
        state.proposals[proposal.id] = what
    state.derive()
    return state


def _save_capacity(cluster: ClusterState) -> SavedCapacity:
    pending = tuple([SavedPending(p.seq, p.class_key, p.replicas, p.requirements) for p in cluster.pending])
    return SavedCapacity(cluster.name, cluster.capacity, pending, cluster.closed, cluster.doubt, cluster.counted_at)


def _save_binding(b: BindingState) -> SavedBinding:
    return SavedBinding(
        b.spec, b.arrival, b.cause, b.asked, b.withdrawn, b.targets, b.before if b.shrunk else None, b.assigned_by,
        b.applied, b.applied_replicas, b.applied_class, b.applied_token, b.affinity, b.suspect, b.extra,
        tuple(sorted(b.evicted)), b.refused,
    )  # fmt: skip


def _load_binding(b: SavedBinding) -> BindingState:
    return BindingState(
        b.spec, b.arrival, b.cause, b.asked, b.withdrawn, dict(b.targets),
        dict(b.targets if b.before is None else b.before), dict(b.assigned_by), b.applied, b.applied_replicas,
        b.applied_class, b.applied_token, b.affinity, b.suspect, dict(b.extra), dict.fromkeys(b.evicted), b.refused,
    )  # fmt: skip


def _save_proposal(key: UUID, proposal: FailoverProposed | EvictionProposed | RescheduleProposed) -> SavedProposal:
    match proposal:
        case FailoverProposed():
            return SavedProposal(key, failover=proposal)
        case EvictionProposed():
            return SavedProposal(key, eviction=proposal)
        case RescheduleProposed():
            return SavedProposal(key, reschedule=proposal)
