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

from wharfinger.domain.binding import Binding, Component
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import Placement
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value, canonical, stable_hash
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.estimate import demand_of, demand_of_set
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.decisions import Leaving
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.kernel.decider import Micros
from wharfinger.stages.fleet import quota, selections
from wharfinger.stages.fleet.clusters import ClusterState, Pending
from wharfinger.stages.fleet.moves import Moves
from wharfinger.stages.fleet.quota_room import Claim
from wharfinger.stages.fleet.state import BindingState, FleetState


class SavedPending(Value, frozen=True):
    seq: int
    class_key: str
    replicas: int
    requirements: Requirements
    namespace: str = ""
    priority_class: str = ""
    components: tuple[Component, ...] = ()


class SavedCluster(Value, frozen=True):
    """`facts`: as the cluster told them. `standing`: keys of the policies whose taints it has besides."""

    name: str
    facts: Cluster | None
    heard_at: Micros
    heard_by: UUID | None
    silent_since: Micros | None
    tainted_at: dict[str, Micros]
    standing: tuple[str, ...] = ()


class SavedCapacity(Value, frozen=True):
    cluster: str
    capacity: CapacityEstimated | None
    pending: tuple[SavedPending, ...]
    closed: dict[str, int]
    doubt: dict[str, int]
    counted_at: Micros = 0


class SavedBinding(Value, frozen=True):
    """As `BindingState`; `before` None where it equals `targets`, `applied_requests` None where they are those of the spec."""

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
    applied_requests: dict[str, int] | None = None
    attempts: int = 0
    pause_until: Micros = 0
    deferred: bool = False
    failback_since: Micros = 0
    rebalance_since: Micros = 0
    moved_at: Micros = 0
    told: tuple[str, ...] = ()
    leaving: tuple[Leaving, ...] = ()
    barred: dict[str, Micros] = {}


class SavedProposal(Value, frozen=True):
    """Exactly one of the four is set."""

    id: UUID
    failover: FailoverProposed | None = None
    eviction: EvictionProposed | None = None
    reschedule: RescheduleProposed | None = None
    plan: PlanRequested | None = None


class SavedMoves(Value, frozen=True):
    looked_at: Micros = 0
    after: str = ""
    stale: bool = False
    minute: Micros = 0
    made: int = 0
    departed: dict[str, tuple[tuple[Micros, int], ...]] = {}


class SavedFleet(Value, frozen=True):
    """`policies`: those with quotas or taints, or by which is rebalanced, without the user's own object."""

    arrivals: int
    held: bool
    stirrer: UUID | None
    outcomes: dict[str, int]
    unfinished: bool = False
    policies: tuple[Policy, ...] = ()
    moves: SavedMoves | None = None


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
    "selections": selections.SavedSelections,
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
_placements = msgspec.json.Decoder(selections.SavedSelections)


def dump(state: FleetState) -> dict[str, bytes]:
    buckets: dict[str, list[str]] = {_section(bucket): [] for bucket in range(BUCKETS)}
    for name in sorted(state.bindings):
        buckets[bucket_of(name)].append(name)
    return _shared(state) | _selections(state) | {section: _bucket(state, names) for section, names in buckets.items()}


def _selections(state: FleetState) -> dict[str, bytes]:
    """Not in a delta: whoever asks about one binding need not know them."""
    found = None if state.selections is None else selections.saved(state.selections)
    return {} if found is None else {"selections": canonical(found)}


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
        "fleet": canonical(
            SavedFleet(
                state.arrivals,
                state.held,
                state.stirrer,
                state.outcomes,
                state.unfinished,
                _policies(state),
                _moves(state),
            )
        ),
        "clusters": canonical(
            [
                SavedCluster(
                    c.name,
                    state.tainting.told.get(c.name),
                    c.heard_at,
                    c.heard_by,
                    c.silent_since,
                    c.tainted_at,
                    state.tainting.standing.get(c.name, ()),
                )
                for c in clusters
            ]
        ),
        "capacity": canonical([_save_capacity(c) for c in clusters]),
        "proposals": canonical(
            [
                *(_save_proposal(key, p) for key, p in state.proposals.items()),
                *(SavedProposal(key, plan=request) for key, request in state.requested.items()),
            ]
        ),
    }


def _policies(state: FleetState) -> tuple[Policy, ...]:
    kept: dict[str, Policy] = {}
    for key, policy in state.quotas.policies.items():
        kept[key] = Policy(policy.kind, policy.name, policy.namespace, quota=policy.quota)
    for key, rule in state.tainting.rules.items():
        kind, namespace, name = key.split("/", 2)
        own = kept.get(key, Policy(kind, name, namespace))
        kept[key] = msgspec.structs.replace(own, taints=rule)
    for key, rebalancing in state.rebalancing.items():
        kind, namespace, name = key.split("/", 2)
        kept[key] = msgspec.structs.replace(kept.get(key, Policy(kind, name, namespace)), rebalancing=rebalancing)
    return tuple([kept[key] for key in sorted(kept)])


def _moves(state: FleetState) -> SavedMoves | None:
    moves = state.moves
    departed = {name: tuple(left) for name, left in sorted(moves.departed.items())}
    saved = SavedMoves(moves.looked_at, moves.after, moves.stale, moves.minute, moves.made, departed)
    return saved if saved != SavedMoves() else None


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
    for policy in fleet.policies:
        state.quotas.set(policy.key, policy, {})
        state.tainting.set(policy.key, policy.taints)
        if policy.rebalancing is not None:
            state.rebalancing[policy.key] = policy.rebalancing
    moves = fleet.moves or SavedMoves()
    departed = {name: list(left) for name, left in moves.departed.items()}
    state.moves = Moves(moves.looked_at, moves.after, False, moves.minute, moves.made, departed)
    for cluster in _clusters.decode(sections["clusters"]):
        if cluster.facts is not None:
            state.tainting.told[cluster.name] = cluster.facts
        if cluster.standing:
            state.tainting.standing[cluster.name] = cluster.standing
        state.clusters[cluster.name] = ClusterState(
            cluster.name, cluster.facts, cluster.heard_at, cluster.heard_by, cluster.silent_since,
            dict(cluster.tainted_at),
        )  # fmt: skip
    for saved in _capacity.decode(sections["capacity"]):
        held = state.clusters[saved.cluster]
        held.capacity, held.counted_at = saved.capacity, saved.counted_at
        held.pending = deque(
            [
                Pending(
                    p.seq,
                    p.class_key,
                    p.replicas,
                    p.requirements,
                    demand_of_set(p.components) if p.components else demand_of(p.requirements),
                    Claim(p.namespace, p.priority_class),
                    p.components,
                )
                for p in saved.pending
            ]
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
    if "selections" in sections:
        state.selections = selections.loaded(_placements.decode(sections["selections"]))
    state.derive()
    state.moves.stale = moves.stale  # making the indexes is nothing new
    return state


def _save_capacity(cluster: ClusterState) -> SavedCapacity:
    pending = tuple(
        [
            SavedPending(
                p.seq, p.class_key, p.replicas, p.requirements, p.claim.namespace, p.claim.priority_class, p.components
            )
            for p in cluster.pending
        ]
    )
    return SavedCapacity(cluster.name, cluster.capacity, pending, cluster.closed, cluster.doubt, cluster.counted_at)


def _save_binding(b: BindingState) -> SavedBinding:
    return SavedBinding(
        b.spec, b.arrival, b.cause, b.asked, b.withdrawn, b.targets, b.before if b.shrunk else None, b.assigned_by,
        b.applied, b.applied_replicas, b.applied_class, b.applied_token, b.affinity, b.suspect, b.extra,
        tuple(sorted(b.evicted)), b.refused,
        None if b.applied_requests == quota.per_unit(b.spec) else dict(b.applied_requests), b.attempts, b.pause_until,
        b.deferred, b.failback_since, b.rebalance_since, b.moved_at, b.told,
        tuple([b.leaving[name] for name in sorted(b.leaving)]), dict(sorted(b.barred.items())),
    )  # fmt: skip


def _load_binding(b: SavedBinding) -> BindingState:
    return BindingState(
        b.spec, b.arrival, b.cause, b.asked, b.withdrawn, dict(b.targets),
        dict(b.targets if b.before is None else b.before), dict(b.assigned_by), b.applied, b.applied_replicas,
        b.applied_class, b.applied_token, b.affinity, b.suspect, dict(b.extra), dict.fromkeys(b.evicted), b.refused,
        quota.per_unit(b.spec) if b.applied_requests is None else dict(b.applied_requests), b.attempts, b.pause_until,
        b.deferred, b.failback_since, b.rebalance_since, b.moved_at, b.told,
        {one.cluster: one for one in b.leaving}, dict(b.barred),
    )  # fmt: skip


def _save_proposal(key: UUID, proposal: FailoverProposed | EvictionProposed | RescheduleProposed) -> SavedProposal:
    match proposal:
        case FailoverProposed():
            return SavedProposal(key, failover=proposal)
        case EvictionProposed():
            return SavedProposal(key, eviction=proposal)
        case RescheduleProposed():
            return SavedProposal(key, reschedule=proposal)
