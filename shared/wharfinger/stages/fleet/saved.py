"""The snapshot format of the fleet stage: named sections of canonical JSON; equal states give equal
bytes.

Only what cannot be derived is saved; indexes and caches are rebuilt. Lists are sorted by name,
except those with an order of their own (proposals by arrival, deductions by seq).

Bindings are most of a state, so they are in buckets by hash of their name: a reader of one binding
reads one bucket, and `delta` saves only the changed bindings of each bucket. A name that a delta
lists without a value was deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Binding, Component
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.ids import (
    AffinityName,
    BindingName,
    ClassKey,
    ClusterName,
    EventId,
    LabelText,
    NamespaceName,
    PolicyKey,
    ResourceName,
    StreamName,
    TaintPair,
    Token,
    Word,
    WorkloadName,
)
from wharfinger.domain.placement import Placement
from wharfinger.domain.policy import Policy
from wharfinger.domain.reasons import PlanOutcome
from wharfinger.domain.value import Value, canonical, stable_hash
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.estimate import Demand, demand_of, demand_of_set
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.codec import decode
from wharfinger.events.decisions import Leaving
from wharfinger.events.envelope import NO_VERSION, FactVersion
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.events.versions import FactKey, SavedVersion, Versions
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.incarnations import Incarnations
from wharfinger.stages.fleet.moves import RebalanceState
from wharfinger.stages.fleet.quota_capacity import Claim
from wharfinger.stages.fleet.state import BindingState, FleetState, selections
from wharfinger.stages.fleet.state import quotas as quota
from wharfinger.stages.fleet.state.bindings import NOTHING
from wharfinger.stages.fleet.state.clusters import ClusterState, Pending
from wharfinger.stages.fleet.state.joint_plans import JointPlans, ShardAnswers
from wharfinger.stages.interned import Interned, sharing


class SavedPending(Value, frozen=True):
    seq: int
    class_key: ClassKey
    replicas: int
    requirements: Requirements
    namespace: NamespaceName = ""
    priority_class: LabelText = ""
    components: tuple[Component, ...] = ()


class SavedCluster(Value, frozen=True):
    """A cluster's record in a snapshot. `facts`: as the cluster reported them. `standing`: keys of
    the policies whose taints the cluster has in addition."""

    name: ClusterName
    facts: Cluster | None
    heard_at: Micros
    heard_by: UUID | None
    silent_since: Micros | None
    tainted_at: dict[TaintPair, Micros]
    standing: tuple[PolicyKey, ...] = ()


class SavedCapacity(Value, frozen=True):
    cluster: ClusterName
    capacity: CapacityEstimated | None
    pending: tuple[SavedPending, ...]
    closed: dict[ClassKey, int]
    doubt: dict[ClassKey, int]
    counted_at: Micros = 0
    promised: dict[StreamName, tuple[SavedPending, ...]] = {}


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


class SavedProposal(Value, frozen=True):
    """An open proposal or plan. Exactly one of the four fields besides `id` is set."""

    id: UUID
    failover: FailoverProposed | None = None
    eviction: EvictionProposed | None = None
    reschedule: RescheduleProposed | None = None
    plan: PlanRequested | None = None


class SavedMoves(Value, frozen=True):
    looked_at: Micros = 0
    after: BindingName = ""
    stale: bool = False
    minute: Micros = 0
    made: int = 0
    departed: dict[ClusterName, tuple[tuple[Micros, int], ...]] = {}


class SavedJointPlans(Value, frozen=True):
    """Plans of several shards, as in `JointPlans`. `held`: the events as they came."""

    promised: UUID | None = None
    promised_at: Micros = 0
    held: tuple[msgspec.Raw, ...] = ()
    heard: dict[EventId, ShardAnswers] = {}
    settled: dict[EventId, PlanOutcome] = {}


class SavedFleet(Value, frozen=True):
    """The parts of a fleet state that are about no single cluster or binding. `policies`: the
    policies with quotas, taints or rebalancing, without the user's own object."""

    arrivals: int
    held: bool
    stirrer: UUID | None
    outcomes: dict[StreamName, int]
    unfinished: bool = False
    policies: tuple[Policy, ...] = ()
    moves: SavedMoves | None = None
    incarnations: Incarnations = ()
    joint: SavedJointPlans | None = None


BUCKETS = 64

_BINDINGS = "bindings"


def name_hash(binding: str) -> int:
    """Return the hash of a binding's name as a signed 64-bit integer, like PostgreSQL's bigint."""
    return stable_hash(binding) - 2**63


def bucket_of(binding: str) -> str:
    """Return the name of the section that contains the binding."""
    return _section(stable_hash(binding) % BUCKETS)


def _section(bucket: int) -> str:
    return f"{_BINDINGS}/{bucket:02d}"


SECTIONS: dict[str, object] = {
    "fleet": SavedFleet,
    "clusters": tuple[SavedCluster, ...],
    "capacity": tuple[SavedCapacity, ...],
    "proposals": tuple[SavedProposal, ...],
    "selections": selections.SavedSelections,
    "versions": tuple[SavedVersion, ...],
    **{_section(bucket): tuple[SavedBinding, ...] for bucket in range(BUCKETS)},
}
"""Section name -> type of its data."""

SHARED = ("fleet", "clusters", "capacity", "proposals", "versions")
"""The sections that are not about bindings. They are small, and a delta contains them completely.
`versions` exists only where some fact has a version."""


class Delta(msgspec.Struct, frozen=True):
    """The changes since the last snapshot. `sections`: section name -> bytes. `names`: name of a
    bucket -> hashes of the names of the changed bindings in it."""

    sections: dict[str, bytes]
    names: dict[str, list[int]]


_clusters = msgspec.json.Decoder(tuple[SavedCluster, ...])
_capacity = msgspec.json.Decoder(tuple[SavedCapacity, ...])
_bindings = msgspec.json.Decoder(tuple[SavedBinding, ...])
_proposals = msgspec.json.Decoder(tuple[SavedProposal, ...])
_fleet = msgspec.json.Decoder(SavedFleet)
_saved_versions = msgspec.json.Decoder(tuple[SavedVersion, ...])
_placements = msgspec.json.Decoder(selections.SavedSelections)


def dump(state: FleetState) -> dict[str, bytes]:
    buckets: dict[str, list[str]] = {_section(bucket): [] for bucket in range(BUCKETS)}
    for name in sorted(state.bindings):
        buckets[bucket_of(name)].append(name)
    return (
        _shared(state)
        | _selections(state)
        | {section: _bucket(state, names) for section, names in buckets.items()}
    )


def _selections(state: FleetState) -> dict[str, bytes]:
    """Return the section of selections; empty where there is none. A delta does not have it,
    because a reader of one binding does not need it."""
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
    """Encoded one by one: encoding all of a large bucket at once would hold the interpreter, and
    with it decisions, for tens of milliseconds."""
    found = [
        canonical(_save_binding(state, state.bindings[name]))
        for name in names
        if name in state.bindings
    ]
    return b"[" + b",".join(found) + b"]"


def _versions(state: FleetState) -> dict[str, bytes]:
    """Return the section of fact versions that are not saved with a binding: those of facts that
    ended, and of bindings that do not exist. The other versions are saved with their bindings, so
    that a delta has the changed ones."""
    held = tuple(
        [v for v in state.versions.saved() if v.ended_at or v.key.binding not in state.bindings]
    )
    return {"versions": canonical(held)} if held else {}


def _shared(state: FleetState) -> dict[str, bytes]:
    clusters = [state.clusters[name] for name in sorted(state.clusters)]
    return _versions(state) | {
        "fleet": canonical(
            SavedFleet(
                state.arrivals,
                state.held,
                state.retry_cause,
                state.outcomes,
                state.unfinished,
                _policies(state),
                _moves(state),
                state.incarnations,
                _joint(state),
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
                *(_save_proposal(key, p) for key, p in state.proposals.open.items()),
                *(
                    SavedProposal(key, plan=request)
                    for key, request in state.proposals.plans.items()
                ),
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
        kept[key] = msgspec.structs.replace(
            kept.get(key, Policy(kind, name, namespace)), rebalancing=rebalancing
        )
    return tuple([kept[key] for key in sorted(kept)])


def _moves(state: FleetState) -> SavedMoves | None:
    moves = state.moves
    departed = {name: tuple(left) for name, left in sorted(moves.departed.items())}
    saved = SavedMoves(
        moves.looked_at, moves.after, moves.stale, moves.minute, moves.made, departed
    )
    return saved if saved != SavedMoves() else None


def _joint(state: FleetState) -> SavedJointPlans | None:
    joint = state.joint
    held = tuple([msgspec.Raw(event.body) for event in joint.held])
    saved = SavedJointPlans(joint.promised, joint.promised_at, held, joint.heard, joint.settled)
    return saved if saved != SavedJointPlans() else None


def _load_joint(saved: SavedJointPlans | None) -> JointPlans:
    if saved is None:
        return JointPlans()
    held = [decode(bytes(body)) for body in saved.held]
    return JointPlans(
        saved.promised, saved.promised_at, held, dict(saved.heard), dict(saved.settled)
    )


def binding_in(section: bytes, name: str) -> bytes | None:
    """Return the bucket reduced to the one binding. None: the bucket does not have it."""
    found = [binding for binding in _bindings.decode(section) if binding.spec.name == name]
    return canonical(found) if found else None


def is_asked(section: bytes, name: str) -> bool:
    """Return whether the binding `name` has an open request, by its bucket."""
    return any(saved.asked for saved in _bindings.decode(section) if saved.spec.name == name)


def load(stream: str, sections: Mapping[str, bytes]) -> FleetState:
    """Load a fleet state from the sections of a snapshot (section name -> bytes), and rebuild its
    indexes and caches.
    `stream`: the name of the stream. `sections`: "fleet", "clusters", "capacity" and "proposals"
    are required; "versions" and "selections" are optional. The bindings are in several sections
    (buckets, by hash of the binding's name). If only some buckets are given, the state has only the
    bindings in these buckets, but everything about clusters."""
    fleet = _fleet.decode(sections["fleet"])
    moves = fleet.moves or SavedMoves()
    departed = {name: list(left) for name, left in moves.departed.items()}
    state = FleetState(
        stream,
        moves=RebalanceState(
            moves.looked_at, moves.after, False, moves.minute, moves.made, departed
        ),
        arrivals=fleet.arrivals,
        held=fleet.held,
        retry_cause=fleet.stirrer,
        outcomes=dict(fleet.outcomes),
        unfinished=fleet.unfinished,
        incarnations=fleet.incarnations,
        joint=_load_joint(fleet.joint),
    )
    for policy in fleet.policies:
        state.quotas.set(policy.key, policy, {})
        state.tainting.set(policy.key, policy.taints)
        if policy.rebalancing is not None:
            state.rebalancing[policy.key] = policy.rebalancing
    for cluster in _clusters.decode(sections["clusters"]):
        if cluster.facts is not None:
            state.tainting.told[cluster.name] = cluster.facts
        if cluster.standing:
            state.tainting.standing[cluster.name] = cluster.standing
        state.clusters[cluster.name] = ClusterState(
            cluster.name,
            cluster.facts,
            cluster.heard_at,
            cluster.heard_by,
            cluster.silent_since,
            dict(cluster.tainted_at),
        )
    demands = Interned(_asked_of)
    for saved in _capacity.decode(sections["capacity"]):
        held = state.clusters[saved.cluster]
        held.capacity, held.counted_at = saved.capacity, saved.counted_at
        held.pending = _load_pending(saved.pending, demands)
        held.promised = {
            other: _load_pending(these, demands) for other, these in saved.promised.items()
        }
        held.closed, held.doubt = dict(saved.closed), dict(saved.doubt)
    if "versions" in sections:
        state.versions = Versions.loaded(_saved_versions.decode(sections["versions"]))
    records = _load_bindings(state, sections)
    state.bindings.update({record.spec.name: record for record in records})
    for proposal in _proposals.decode(sections["proposals"]):
        if proposal.plan is not None:
            state.proposals.plans[proposal.id] = proposal.plan
            continue
        what = proposal.failover or proposal.eviction or proposal.reschedule
        assert what is not None
        state.proposals.open[proposal.id] = what
    if "selections" in sections:
        state.selections = selections.loaded(_placements.decode(sections["selections"]))
    state.rebuild()
    state.moves.stale = moves.stale  # making the indexes is nothing new
    return state


def _load_bindings(state: FleetState, sections: Mapping[str, bytes]) -> list[BindingState]:
    """Return the records of all buckets in order of name, and note the versions of their facts. One
    bucket after the other, so that what equal records do not share yet is never there of all."""
    records: list[BindingState] = []
    for section, body in sections.items():
        if section.startswith(_BINDINGS):
            for saved in _bindings.decode(body):
                records.append(_load_binding(state, saved))
                if saved.version != NO_VERSION:
                    state.versions.newest[_key_of(saved.spec.name)] = saved.version
    records.sort(key=lambda record: record.spec.name)
    return records


def _asked_of(requirements: Requirements, _: bytes) -> tuple[Requirements, Demand]:
    return requirements, demand_of(requirements)


def _load_pending(
    saved: Iterable[SavedPending], demands: Interned[Requirements, tuple[Requirements, Demand]]
) -> deque[Pending]:
    """A cluster may have pending replicas of many bindings and few classes: what a class asks for
    is made once."""
    pending: deque[Pending] = deque()
    for p in saved:
        requirements, demand = demands.of(p.requirements)
        if p.components:
            demand = demand_of_set(p.components)
        claim = Claim(p.namespace, p.priority_class)
        entry = Pending(p.seq, p.class_key, p.replicas, requirements, demand, claim, p.components)
        pending.append(entry)
    return pending


def _save_pending(pending: Iterable[Pending]) -> tuple[SavedPending, ...]:
    return tuple(
        [
            SavedPending(
                p.seq,
                p.class_key,
                p.replicas,
                p.requirements,
                p.claim.namespace,
                p.claim.priority_class,
                p.components,
            )
            for p in pending
        ]
    )


def _save_capacity(cluster: ClusterState) -> SavedCapacity:
    return SavedCapacity(
        cluster.name,
        cluster.capacity,
        _save_pending(cluster.pending),
        cluster.closed,
        cluster.doubt,
        cluster.counted_at,
        {other: _save_pending(these) for other, these in sorted(cluster.promised.items())},
    )


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


def _load_binding(state: FleetState, b: SavedBinding) -> BindingState:
    """Equal parts of records are shared, as in a state that has folded them (`bindings`)."""
    placement = state.parsed.of(b.spec.placement).placement
    requirements, class_key = state.classed.of(b.spec.requirements)
    spec = sharing(b.spec, placement, requirements)
    return BindingState(
        spec,
        b.arrival,
        b.cause,
        b.asked,
        b.withdrawn,
        b.targets or NOTHING,
        (b.targets if b.before is None else b.before) or NOTHING,
        b.assigned_by or NOTHING,
        None if b.applied is None else state.parsed.of(b.applied).placement,
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


def _save_proposal(
    key: UUID, proposal: FailoverProposed | EvictionProposed | RescheduleProposed
) -> SavedProposal:
    match proposal:
        case FailoverProposed():
            return SavedProposal(key, failover=proposal)
        case EvictionProposed():
            return SavedProposal(key, eviction=proposal)
        case RescheduleProposed():
            return SavedProposal(key, reschedule=proposal)
