"""The snapshot format of the fleet stage: named sections of canonical JSON; equal states give equal
bytes.

Only what cannot be derived is saved; indexes and caches are rebuilt. Lists are sorted by name,
except those with an order of their own (proposals by arrival, deductions by seq).

Bindings are most of a state, so they are in buckets by hash of their name (`saved_bindings`), and
`delta` saves only the changed bindings of each bucket. A name that a delta lists without a value
was deleted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from uuid import UUID

import msgspec

from wharfinger.domain.binding import Component
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.ids import (
    BindingName,
    ClassKey,
    ClusterName,
    EventId,
    LabelText,
    NamespaceName,
    PolicyKey,
    StreamName,
    TaintPair,
)
from wharfinger.domain.policy import Policy
from wharfinger.domain.reasons import PlanOutcome
from wharfinger.domain.value import Value, canonical, json_decoder
from wharfinger.domain.workload import Requirements
from wharfinger.engine.fleet.estimate import Demand, demand_of, demand_of_set
from wharfinger.events.capacity import CapacityEstimated
from wharfinger.events.codec import decode
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import EvictionProposed, FailoverProposed, RescheduleProposed
from wharfinger.events.versions import SavedVersion, Versions
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.incarnations import Incarnations
from wharfinger.stages.fleet.moves import RebalanceState
from wharfinger.stages.fleet.quota_capacity import Claim
from wharfinger.stages.fleet.saved_bindings import (
    BUCKETS,
    SavedBinding,
    bucket,
    bucket_of,
    classed_in,
    load_bindings,
    name_hash,
)
from wharfinger.stages.fleet.state import FleetState, selections
from wharfinger.stages.fleet.state.clusters import ClusterState, Pending
from wharfinger.stages.fleet.state.joint_plans import JointPlans, ShardAnswers
from wharfinger.stages.interned import InternedJson


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
    promised: Mapping[StreamName, tuple[SavedPending, ...]] = {}


class _WrittenPending(SavedPending, frozen=True):
    """Not decoded: what many pending replicas have in common."""

    requirements: msgspec.Raw  # type: ignore[assignment]


class _WrittenCapacity(SavedCapacity, frozen=True):
    pending: tuple[_WrittenPending, ...]
    promised: Mapping[StreamName, tuple[_WrittenPending, ...]] = {}


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


SECTIONS: dict[str, object] = {
    "fleet": SavedFleet,
    "clusters": tuple[SavedCluster, ...],
    "capacity": tuple[SavedCapacity, ...],
    "proposals": tuple[SavedProposal, ...],
    "selections": selections.SavedSelections,
    "versions": tuple[SavedVersion, ...],
    **dict.fromkeys(BUCKETS, tuple[SavedBinding, ...]),
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


_clusters = json_decoder(tuple[SavedCluster, ...])
_capacity = json_decoder(tuple[_WrittenCapacity, ...])
_proposals = json_decoder(tuple[SavedProposal, ...])
_fleet = json_decoder(SavedFleet)
_saved_versions = json_decoder(tuple[SavedVersion, ...])
_placements = json_decoder(selections.SavedSelections)


def dump(state: FleetState) -> dict[str, bytes]:
    buckets: dict[str, list[str]] = {section: [] for section in BUCKETS}
    for name in sorted(state.bindings):
        buckets[bucket_of(name)].append(name)
    return (
        _shared(state)
        | _selections(state)
        | {section: bucket(state, names) for section, names in buckets.items()}
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
    sections = {section: bucket(state, names) for section, names in buckets.items()}
    hashes = {section: [name_hash(name) for name in names] for section, names in buckets.items()}
    return Delta(_shared(state) | sections, hashes)


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
    demands = InternedJson(partial(_asked_of, state))
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
    records = load_bindings(state, sections)
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


def _asked_of(state: FleetState, body: bytes) -> tuple[Requirements, Demand]:
    requirements, _ = classed_in(state, body)
    return requirements, demand_of(requirements)


def _load_pending(
    written: Iterable[_WrittenPending], demands: InternedJson[tuple[Requirements, Demand]]
) -> deque[Pending]:
    """A cluster may have pending replicas of many bindings and few classes: what a class asks for
    is made once."""
    pending: deque[Pending] = deque()
    for p in written:
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
