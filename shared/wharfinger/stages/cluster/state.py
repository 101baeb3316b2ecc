"""The state of a cluster stream (`ClusterStageState`) and its stored form in snapshots.

A snapshot stores facts, occupancy and open work in named sections (`SECTIONS`). Columns and caches
are not stored; `load` rebuilds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from wharfinger.domain.cluster import Places
from wharfinger.domain.cluster_objects import ClusterObject
from wharfinger.domain.ids import (
    BindingName,
    ClassKey,
    EventId,
    FleetDecisionId,
    NamespaceName,
    NodeName,
    PodUid,
    PolicyKey,
    PolicyName,
    Remark,
    ResourceName,
    StreamName,
    TaintName,
    Word,
    WorkloadUid,
)
from wharfinger.domain.instance_types import Catalogue
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import DisruptionReason, NodeOverlay, NodePoolPolicy
from wharfinger.domain.policy import LoadPolicy
from wharfinger.domain.reasons import ProposalRefusal
from wharfinger.domain.scheduler import SchedulerConfig
from wharfinger.domain.value import Value, canonical, json_decoder
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.workload import ClusterDemand, DemandSeen
from wharfinger.engine.load.annotations import written_of
from wharfinger.engine.load.node_loads import LoadBook
from wharfinger.engine.nodes.columns import Taken, Ties
from wharfinger.engine.nodes.occupancy import AS_ASSIGNED, NodeTerms, Occupancy, Replica, ReplicaKey
from wharfinger.events.cluster_state import (
    ImageOnNodes,
    NodeImagesObserved,
    NodesObserved,
    PodsObserved,
    WaitingPodsObserved,
)
from wharfinger.events.decisions import DisplacedReplicas, DisruptionCommand, NodeShare
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import (
    DeschedulingProposed,
    DisruptionProposed,
    NodeRemovalProposed,
)
from wharfinger.events.streams import CLUSTER
from wharfinger.events.versions import SavedVersion, Versions
from wharfinger.kernel.decider import Micros
from wharfinger.kernel.incarnations import Incarnations
from wharfinger.stages.cluster.group_members import Group, Members
from wharfinger.stages.cluster.loads import Loads
from wharfinger.stages.cluster.objects import Objects
from wharfinger.stages.cluster.profile import IMMEDIATE, UNPLACED_US, ClusterProfile, Window
from wharfinger.stages.cluster.profiles import Profiles
from wharfinger.stages.extender_calls import ExtenderCall
from wharfinger.stages.pools import (
    OpenClaim,
    OpenCommand,
    PoolFacts,
    PoolOffer,
    PoolPolicies,
    SoldOut,
)


class Nomination(Value, frozen=True, array_like=True):
    """A reservation of room on `node` for `replicas` replicas of a binding. It expires at
    `until`."""

    node: NodeName
    replicas: int
    until: Micros


class Replacement(Value, frozen=True):
    """Records the claim for a replacement node of a command, and its outcome. If `node` is set, it
    succeeded; if `failed` (the reason) is set, it failed; otherwise it is still open. `price`:
    price of the node in billionths of a dollar an hour."""

    claim: str
    node: str = ""
    price: int = 0
    failed: str = ""


class RunningCommand(Value, frozen=True):
    """A disruption command in progress: decided `at` by the decision `id`, and neither done nor
    rolled back. `removed`: nodes whose removal was decided since; `moved`: number of replicas moved
    so far."""

    decided: DisruptionCommand
    id: UUID
    at: Micros
    replacements: tuple[Replacement, ...] = ()
    removed: tuple[str, ...] = ()
    moved: int = 0

    def node_of(self, target: str) -> str:
        """Returns the name of the node that a move goes to. `target`: a node, or the claim of a
        replacement. Empty if the node of that claim does not exist yet."""
        return next((r.node for r in self.replacements if r.claim == target), target)


class Motion(Value, frozen=True, array_like=True):
    """A replica that was moved to `node` and has not been seen there. It counts as disrupted until
    `until` at the latest."""

    node: NodeName
    until: Micros


class ExtenderQuestion(Value, frozen=True, array_like=True):
    """A call to the extender at `url` about `nodes`. `id`: of the decision to make the call."""

    id: str
    url: str
    verb: str
    nodes: tuple[str, ...]


class Extending(Value, frozen=True):
    """The extender calls made for the next replica of a binding, and the answers so far: question
    id -> (answer, error)."""

    questions: tuple[ExtenderQuestion, ...] = ()
    answers: dict[str, tuple[str, str]] = {}

    def about(self, url: str, verb: str) -> tuple[ExtenderQuestion | None, tuple[str, str] | None]:
        """Returns the call to this extender with this verb, and its answer. The call is None if it
        was not made; the answer is None if it has not arrived."""
        question = next((q for q in self.questions if (q.url, q.verb) == (url, verb)), None)
        return question, None if question is None else self.answers.get(question.id)


class SaidUnplaced(Value, frozen=True):
    """What was said of a waiting pod of `binding` that fits nowhere. `looked_us`: when it was last
    looked at."""

    binding: BindingName
    reason: Word
    message: Remark
    looked_us: Micros


class FailedPlacement(Value, frozen=True):
    """That a node did not take pods of a binding. `event`: the first fact that says so. `pods`:
    those that were not bound, and wait on."""

    event: EventId
    reason: Word
    message: Remark
    pods: tuple[PodUid, ...]


class RunningPreemption(Value, frozen=True, array_like=True):
    """Pods (`victims`, their uids) that are evicted from `node` so that a waiting pod of `binding`
    fits there, until `until`."""

    binding: BindingName
    node: NodeName
    victims: tuple[PodUid, ...]
    until: Micros


class FailedPreemption(Value, frozen=True, array_like=True):
    """Why a waiting pod did not get the room that was made for it. Before `retry` nothing else is
    preempted for it."""

    message: Remark
    retry: Micros


class RefusedEviction(Value, frozen=True):
    """What the API server said against an eviction. `event`: the fact that says so."""

    event: EventId
    message: Remark


class BarredNode(Value, frozen=True):
    """A node on which no pod of a binding is placed until `until_us`. `failures`: how often in a
    row it did not take one; the rest as the last of them said."""

    failures: int
    until_us: Micros
    reason: Word
    message: Remark


class Shrunk(Value, frozen=True):
    """A node that has less of `resources` than before, while it holds replicas. `event`: the latest
    event that showed it."""

    event: EventId
    resources: tuple[ResourceName, ...]


@dataclass(slots=True, weakref_slot=True)
class ClusterStageState:
    """Holds the state of one cluster stream.

    `seen`: fleet stream -> highest seq folded. `proposals`: event id -> open proposal to remove a
    node, in order of arrival. `causes`: node -> the last event about it, for nodes that may evict
    replicas. `requested`: open plans, by id of the event. `on_behalf`: proposal of a plan -> the
    commitment that is the cause of its answer; both are in one round, so it is never stored.

    `window`, `buying`, `work_max`, `unplaced_us`: settings. `unfinished`: the last round reached
    its bound of work; the rest is due at once. `gathering`: arrival times of the first and the last
    assignment in the open batch windows; None: both are closed. `groups`: pod group -> time since
    when it is incomplete. `nominated`: binding -> its nominations. `members`: the bindings of each
    pod group.
    `demand`: past device requests. `extending`: binding -> extender calls for its next replica.

    `policies`: pools, overlays and instance types. `pools`: facts about the pools of this cluster.
    `running`: open commands by name, in order of decision. `disruptions`, `descheduling`: open
    proposals, by event id. `motion`: binding -> ordinal -> a move not yet observed. `rested`:
    binding -> time until which strategies may not move it. `left`: binding -> node that it left ->
    time until which it may not return. `removals`: uid of a finished pod whose removal was decided
    -> time until which that stands. `expected`: key of their requirements -> room on new nodes that
    is reserved for waiting pods of other schedulers. `others_due`: when nodes are requested for
    such pods next; None: not without news. `shrunk`: nodes that became smaller under replicas and
    were not examined yet. `displaced`: binding -> its missing replicas that had a node before.
    `unplaced`: uid of a waiting pod of an assigned binding that fits on no node -> since when.
    `said`: uid of a waiting pod -> what was said of its having no node.
    `barred`: workload -> node that took no pod of it -> until when none is placed there.
    `preempting`: uid of a waiting pod -> the pods that are evicted for it. `in_vain`: uid of a
    waiting pod -> its preemption that failed last.
    `named`: number of names given to claims and commands.
    `incarnations`: each time the ledger lost its last decisions.

    Never stored: `at`, time of the round; `failed`: (binding, node) -> what this round took in
    about pods that the node did not take; `refused_evictions`: the same of waiting pods for which
    others were to be evicted; `touched`: nodes that hold replicas and have changed since pods that
    wait for them were looked at (after loading: all that hold replicas, which changes nothing);
    `spent`: replicas placed, released or refused in the round; `tries`: binding -> how often it
    tried to preempt in the round; `open_asks`: open extender calls, each built once; `besides`: in
    a reduced state (`focus`), yields (binding, ordinal, replica) for replicas that are charged to
    nodes without being recorded.
    """

    stream: str
    book: Occupancy
    profiles: Profiles
    objects: Objects
    load: LoadBook
    loads: Loads
    window: Window = IMMEDIATE
    buying: Window = IMMEDIATE
    work_max: int = 0
    unplaced_us: Micros = UNPLACED_US
    seen: dict[str, int] = field(default_factory=dict)
    proposals: dict[str, NodeRemovalProposed] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    requested: dict[UUID, PlanRequested] = field(default_factory=dict)
    on_behalf: dict[str, UUID] = field(default_factory=dict)
    gathering: tuple[Micros, Micros] | None = None
    groups: dict[Group, Micros] = field(default_factory=dict)
    nominated: dict[str, tuple[Nomination, ...]] = field(default_factory=dict)
    extending: dict[str, Extending] = field(default_factory=dict)
    versions: Versions = field(default_factory=Versions)
    policies: PoolPolicies = field(default_factory=PoolPolicies)
    pools: PoolFacts = field(default_factory=PoolFacts)
    running: dict[str, RunningCommand] = field(default_factory=dict)
    disruptions: dict[str, DisruptionProposed] = field(default_factory=dict)
    descheduling: dict[str, DeschedulingProposed] = field(default_factory=dict)
    motion: dict[str, dict[int, Motion]] = field(default_factory=dict)
    rested: dict[str, Micros] = field(default_factory=dict)
    left: dict[str, dict[str, Micros]] = field(default_factory=dict)
    removals: dict[str, Micros] = field(default_factory=dict)
    expected: dict[str, tuple[Nomination, ...]] = field(default_factory=dict)
    others_due: Micros | None = None
    shrunk: dict[str, Shrunk] = field(default_factory=dict)
    displaced: dict[str, tuple[DisplacedReplicas, ...]] = field(default_factory=dict)
    unplaced: dict[PodUid, Micros] = field(default_factory=dict)
    said: dict[PodUid, SaidUnplaced] = field(default_factory=dict)
    barred: dict[BindingName, dict[NodeName, BarredNode]] = field(default_factory=dict)
    preempting: dict[PodUid, RunningPreemption] = field(default_factory=dict)
    in_vain: dict[PodUid, FailedPreemption] = field(default_factory=dict)
    named: int = 0
    unfinished: bool = False
    incarnations: Incarnations = ()
    members: Members = field(default_factory=Members)
    demand: ClusterDemand = field(default_factory=ClusterDemand)
    at: Micros = 0
    failed: dict[tuple[BindingName, NodeName], FailedPlacement] = field(default_factory=dict)
    refused_evictions: dict[PodUid, RefusedEviction] = field(default_factory=dict)
    touched: dict[NodeName, None] = field(default_factory=dict)
    spent: int = 0
    tries: dict[str, int] = field(default_factory=dict)
    open_asks: dict[str, ExtenderCall] = field(default_factory=dict)
    besides: Callable[[], Iterable[tuple[str, int, Replica]]] = tuple

    @property
    def cluster(self) -> str:
        return self.stream.removeprefix(CLUSTER)

    def gathers(self, at: Micros) -> bool:
        """Returns whether the placement window is open at `at`. Assignments that arrive before it
        closes are placed in one batch with the present ones."""
        return self.gathering is not None and self.window.ends(*self.gathering) > at

    def gathers_for_nodes(self, at: Micros) -> bool:
        """Returns whether the provisioning window is open at `at`. When it closes, the stage
        requests nodes for all replicas that fit on no node."""
        return self.gathering is not None and self.buying.ends(*self.gathering) > at

    @property
    def work_left(self) -> int | None:
        """Returns the number of replicas that this round may still place, release or refuse; None
        if the round has no bound."""
        return max(0, self.work_max - self.spent) if self.work_max else None

    @property
    def exhausted(self) -> bool:
        """Returns whether the round has reached its bound of work."""
        return self.work_left == 0


def empty_state(
    stream: str, profile: ClusterProfile, ties: Ties | None = None
) -> ClusterStageState:
    book, load = Occupancy(ties), LoadBook()
    profiles = Profiles(book.table, profile.scheduler)
    return ClusterStageState(
        stream,
        book,
        profiles,
        Objects(),
        load,
        Loads(load),
        profile.window,
        profile.buying,
        profile.work,
        profile.unplaced_us,
    )


def may_provision(state: ClusterStageState) -> bool:
    """Returns whether the stage can request nodes: some pool of the cluster has a complete
    catalogue."""
    return state.policies.known(state.cluster)


def left_alone(state: ClusterStageState) -> tuple[ProposalRefusal, str] | None:
    """Returns (reason, sentence) if nothing is decided about the nodes of the cluster, because it
    keeps its own scheduler. None: decisions are made."""
    if state.book.places in ("none", "shadow"):
        return "Held", "the nodes and pods of this cluster are left to its own scheduler"
    return None


def places_pods(state: ClusterStageState) -> bool:
    """Returns whether the pods that wait in the cluster are placed, instead of assigned
    replicas."""
    return state.book.places == "pods"


# --- the stored form


class _BucketTerms(Value, frozen=True, array_like=True):
    bucket: int
    places: Places
    scheduler: PolicyName
    evicts: bool = False


class _Nodes(Value, frozen=True):
    bucket_count: int
    buckets: tuple[tuple[int, tuple[Node, ...]], ...]
    incoming_count: int
    incoming: tuple[tuple[int, tuple[Node, ...]], ...]
    closed: tuple[NodeName, ...]
    taint_since: dict[NodeName, dict[TaintName, Micros]]
    image_buckets: int = 0
    images: tuple[tuple[int, tuple[ImageOnNodes, ...]], ...] = ()
    terms: tuple[_BucketTerms, ...] = ()
    incoming_terms: tuple[_BucketTerms, ...] = ()


class _Pods(Value, frozen=True):
    by_node: dict[NodeName, tuple[Pod, ...]]
    waiting: tuple[WaitingPodsObserved, ...] = ()


class _PlacedReplica(Value, frozen=True, array_like=True):
    """Stores one placed replica. `class_key`: key of the class of pods with equal requirements
    (`PodClass.pod_key`); all class keys in this module are of this kind."""

    ordinal: int
    node: NodeName
    class_key: ClassKey
    at: Micros
    devices: Taken


class SavedHeld(Value, frozen=True):
    binding: BindingName
    class_key: ClassKey
    uid: WorkloadUid
    assignment: FleetDecisionId
    desired: int
    priority: int
    arrival: int
    replace: bool
    placed: tuple[_PlacedReplica, ...]


class _PodOfReplica(Value, frozen=True, array_like=True):
    """The pod that a placed replica is; apart from it, so that replicas without one are stored as
    ever."""

    binding: BindingName
    ordinal: int
    uid: PodUid


class _Bindings(Value, frozen=True):
    arrivals: int
    classes: dict[ClassKey, Requirements]
    held: tuple[SavedHeld, ...]
    demand: DemandSeen = DemandSeen()
    pods: tuple[_PodOfReplica, ...] = ()


class WaitingPodGroup(Value, frozen=True, array_like=True):
    namespace: NamespaceName
    name: PolicyName
    since: Micros


class ToldObjects(Value, frozen=True):
    """All objects of one kind in one namespace."""

    kind: Word
    namespace: NamespaceName
    objects: tuple[ClusterObject, ...]


class _Stream(Value, frozen=True):
    seen: dict[StreamName, int]
    proposals: tuple[tuple[EventId, NodeRemovalProposed], ...]
    causes: dict[NodeName, EventId]
    plans: tuple[tuple[UUID, PlanRequested], ...] = ()
    gathering: tuple[Micros, Micros] | None = None
    groups: tuple[WaitingPodGroup, ...] = ()
    nominated: dict[BindingName, tuple[Nomination, ...]] = {}
    extending: dict[BindingName, Extending] = {}
    unfinished: bool = False
    incarnations: Incarnations = ()


class _Told(Value, frozen=True):
    configs: dict[PolicyKey, SchedulerConfig] = {}
    load_policies: dict[PolicyKey, LoadPolicy] = {}
    loads: tuple[NodeLoadObserved, ...] = ()
    hot: HotValueObserved | None = None
    objects: tuple[ToldObjects, ...] = ()


class _Offers(Value, frozen=True):
    """Stores pools, overlays and parts of catalogues, each by policy key."""

    pools: dict[PolicyKey, NodePoolPolicy] = {}
    overlays: dict[PolicyKey, NodeOverlay] = {}
    catalogues: dict[PolicyKey, Catalogue] = {}


class _SaidOfPods(Value, frozen=True):
    """Pods of which the same was said."""

    said: SaidUnplaced
    pods: tuple[PodUid, ...]


class _Upkeep(Value, frozen=True):
    claims: tuple[OpenClaim, ...] = ()
    commands: tuple[OpenCommand, ...] = ()
    quiet_since: dict[NodeName, Micros] = {}
    promised: dict[NodeName, Micros] = {}
    leaving: dict[NodeName, DisruptionReason] = {}
    sold_out: tuple[tuple[PoolOffer, SoldOut], ...] = ()
    running: tuple[RunningCommand, ...] = ()
    disruptions: tuple[tuple[EventId, DisruptionProposed], ...] = ()
    descheduling: tuple[tuple[EventId, DeschedulingProposed], ...] = ()
    motion: tuple[tuple[BindingName, int, Motion], ...] = ()
    rested: dict[BindingName, Micros] = {}
    named: int = 0
    left: dict[BindingName, dict[NodeName, Micros]] = {}
    removals: dict[PodUid, Micros] = {}
    expected: dict[ClassKey, tuple[Nomination, ...]] = {}
    others_due: Micros | None = None
    shrunk: dict[NodeName, Shrunk] = {}
    displaced: dict[BindingName, tuple[DisplacedReplicas, ...]] = {}
    unplaced: dict[PodUid, Micros] = {}
    said: tuple[_SaidOfPods, ...] = ()
    barred: dict[BindingName, dict[NodeName, BarredNode]] = {}
    preempting: dict[PodUid, RunningPreemption] = {}
    in_vain: dict[PodUid, FailedPreemption] = {}


class _FactVersions(Value, frozen=True):
    held: tuple[SavedVersion, ...] = ()


SECTIONS: dict[str, type[Value]] = {
    "nodes": _Nodes,
    "pods": _Pods,
    "bindings": _Bindings,
    "stream": _Stream,
    "told": _Told,
    "offers": _Offers,
    "upkeep": _Upkeep,
    "versions": _FactVersions,
}
"""The type of each section of a snapshot. Snapshots of earlier versions have no `told`. A cluster
without pools has neither `offers` nor `upkeep`; one whose facts have no versions has no `versions`.
"""


def dump(state: ClusterStageState) -> dict[str, bytes]:
    book = state.book
    classes: dict[str, Requirements] = {}
    held: list[SavedHeld] = []
    for name, h in sorted(book.held.items()):
        classes[h.cls.pod_key] = h.cls.requirements
        placed: list[_PlacedReplica] = []
        for ordinal, replica in sorted(h.placed.items()):
            classes[replica.cls.pod_key] = replica.cls.requirements
            placed.append(
                _PlacedReplica(
                    ordinal, replica.node, replica.cls.pod_key, replica.at, replica.devices
                )
            )
        held.append(
            SavedHeld(
                name,
                h.cls.pod_key,
                h.uid,
                h.assignment,
                h.desired,
                h.priority,
                h.arrival,
                h.replace,
                tuple(placed),
            )
        )
    sections = {
        "nodes": canonical(
            _Nodes(
                book.bucket_count,
                _buckets(book.buckets),
                book.incoming_count,
                _buckets(book.incoming),
                tuple(sorted(book.closed)),
                book.taint_since,
                book.images.bucket_count,
                tuple(sorted(book.images.buckets.items())),
                _terms(book.terms),
                _terms(book.incoming_terms),
            )
        ),
        "pods": canonical(_Pods(book.reported, tuple(book.waiting.facts()))),
        "bindings": canonical(
            _Bindings(
                book.arrivals,
                classes,
                tuple(held),
                state.demand.seen(),
                tuple([_PodOfReplica(*key, uid) for uid, key in sorted(book.replica_of.items())]),
            )
        ),
        "stream": canonical(
            _Stream(
                state.seen,
                tuple(state.proposals.items()),
                state.causes,
                tuple(state.requested.items()),
                state.gathering,
                tuple(
                    [
                        WaitingPodGroup(*group, since)
                        for group, since in sorted(state.groups.items())
                    ]
                ),
                state.nominated,
                state.extending,
                state.unfinished,
                state.incarnations,
            )
        ),
        "told": canonical(_told(state)),
    }
    versions = _FactVersions(state.versions.saved())
    for name, section in (
        ("offers", _offers(state)),
        ("upkeep", _upkeep(state)),
        ("versions", versions),
    ):
        if section != type(section)():
            sections[name] = canonical(section)
    return sections


def _offers(state: ClusterStageState) -> _Offers:
    policies = state.policies
    return _Offers(policies.pools, policies.overlay_of, policies.parts)


def _upkeep(state: ClusterStageState) -> _Upkeep:
    pools = state.pools
    return _Upkeep(
        tuple([claim for _, claim in sorted(pools.claims.items())]),
        tuple([command for _, command in sorted(pools.commands.items())]),
        pools.quiet_since,
        pools.promised,
        pools.leaving,
        tuple(sorted(pools.sold_out.items(), key=lambda item: msgspec.structs.astuple(item[0]))),
        tuple(state.running.values()),
        tuple(state.disruptions.items()),
        tuple(state.descheduling.items()),
        tuple(
            [
                (name, o, m)
                for name, moved in sorted(state.motion.items())
                for o, m in sorted(moved.items())
            ]
        ),
        state.rested,
        state.named,
        state.left,
        state.removals,
        state.expected,
        state.others_due,
        state.shrunk,
        state.displaced,
        state.unplaced,
        tuple([_SaidOfPods(said, tuple(pods)) for said, pods in said_of_pods(state)]),
        state.barred,
        state.preempting,
        state.in_vain,
    )


def said_of_pods(state: ClusterStageState) -> list[tuple[SaidUnplaced, list[PodUid]]]:
    """Returns what was said of pods without a node, with the pods it was said of, in order."""
    found: dict[SaidUnplaced, list[PodUid]] = {}
    for uid, said in sorted(state.said.items()):
        found.setdefault(said, []).append(uid)
    return sorted(found.items(), key=lambda item: (item[0].binding, item[1]))


def _told(state: ClusterStageState) -> _Told:
    load = state.load
    return _Told(
        state.profiles.configs,
        load.policies,
        tuple([measured for _, measured in sorted(load.measured.items())]),
        load.hot,
        tuple([ToldObjects(*key, objects) for key, objects in sorted(state.objects.told.items())]),
    )


def _buckets(buckets: Mapping[int, Mapping[str, Node]]) -> tuple[tuple[int, tuple[Node, ...]], ...]:
    return tuple(
        (bucket, tuple(node for _, node in sorted(nodes.items())))
        for bucket, nodes in sorted(buckets.items())
    )


def _terms(terms: Mapping[int, NodeTerms]) -> tuple[_BucketTerms, ...]:
    return tuple([_BucketTerms(bucket, *said) for bucket, said in sorted(terms.items())])


def load(
    stream: str, sections: Mapping[str, bytes], profile: ClusterProfile, ties: Ties | None = None
) -> ClusterStageState:
    """Restores the state of a cluster stream from the sections of a snapshot.

    `sections`: name -> JSON bytes. `profile`: the settings of the stream that affect its decisions.
    `ties`: recorded values that break ties between nodes with equal scores, for a history whose
    names were redacted; None: the names break ties.

    Loads the facts first, then the bindings with their replicas. A snapshot stores neither the
    members of pod groups nor the records of replicas that were recently put on nodes. Both are
    derived from the loaded bindings.
    """
    state = empty_state(stream, profile, ties)
    bindings = _load_facts(state, sections)
    pods = {(of.binding, of.ordinal): of.uid for of in bindings.pods}
    for h in bindings.held:
        load_held(state.book, h, bindings.classes, pods)
    for name, held in state.book.held.items():
        state.members.follow(name, held)
    count_placed(state)
    touch_all(state)
    return state


def touch(state: ClusterStageState, names: Iterable[NodeName]) -> None:
    """Records that these nodes have changed: pods that wait for them may be refused there now."""
    book = state.book
    if book.replica_of:
        state.touched.update(dict.fromkeys([name for name in names if name in book.on_node]))


def touch_all(state: ClusterStageState) -> None:
    """Records the same of all nodes: after loading, and after the profiles have changed."""
    touch(state, state.book.on_node)


def count_placed(state: ClusterStageState) -> None:
    """Rebuilds the load book's records of recent placements from the occupancy. The stage calls it
    after loading and when a load policy changes, because placements are recorded only while a
    policy uses them. Without such a policy the records are emptied."""
    load = state.load
    load.records.clear()
    load.version += 1
    if load.idle or not load.policy.hot:
        return
    for name, here in state.book.on_node.items():
        for key, replica in here.items():
            load.placed(name, key, replica.at)


@dataclass(frozen=True, slots=True)
class Apart:
    """Holds a state without bindings in its occupancy, and the bindings as the snapshot stored
    them."""

    state: ClusterStageState
    held: tuple[SavedHeld, ...]
    classes: Mapping[str, Requirements]


def load_apart(empty: ClusterStageState, sections: Mapping[str, bytes]) -> Apart | None:
    """Loads a snapshot into `empty`, but returns its bindings as stored instead of adding them to
    the occupancy.

    Returns None if the reduced state would not suffice: the snapshot has observed or waiting pods,
    NoExecute taints, incoming buckets, nodes that became smaller or are barred, or an
    incomplete set of nodes.
    """
    bindings = _load_facts(empty, sections)
    book = empty.book
    occupied = book.pods or bindings.pods or book.waiting.pods or book.taint_since or book.incoming
    if occupied or empty.shrunk or empty.barred or not book.known:
        return None
    return Apart(empty, bindings.held, bindings.classes)


def _load_facts(state: ClusterStageState, sections: Mapping[str, bytes]) -> _Bindings:
    """Loads a snapshot into `state`, except the bindings and their replicas: nodes, pods, pools,
    open proposals and all other facts. Returns the decoded section of the bindings, which the
    caller loads afterwards. `sections`: name -> JSON bytes."""
    book = state.book
    nodes = json_decoder(_Nodes).decode(sections["nodes"])
    book.images.bucket_count = nodes.image_buckets
    for bucket, images in nodes.images:
        book.observe_images(
            NodeImagesObserved(state.cluster, bucket, nodes.image_buckets, images), 0
        )
    for count, buckets, saved_terms in (
        (nodes.bucket_count, nodes.buckets, nodes.terms),
        (nodes.incoming_count, nodes.incoming, nodes.incoming_terms),
    ):
        terms = {of.bucket: (of.places, of.scheduler, of.evicts) for of in saved_terms}
        for bucket, said in buckets:
            of_bucket = terms.get(bucket, AS_ASSIGNED)
            book.observe_nodes(NodesObserved(state.cluster, bucket, count, said, *of_bucket), 0)
    loads_written(state, list(book.nodes))
    for name in nodes.closed:
        book.close(name)
    book.taint_since = nodes.taint_since
    observed = json_decoder(_Pods).decode(sections["pods"])
    for node, pods in observed.by_node.items():
        book.observe_pods(PodsObserved(state.cluster, node, pods))
    for waiting in observed.waiting:
        book.observe_waiting(waiting)
    told = json_decoder(_Stream).decode(sections["stream"])
    state.seen, state.proposals, state.causes = (
        dict(told.seen),
        dict(told.proposals),
        dict(told.causes),
    )
    state.requested = dict(told.plans)
    state.gathering = told.gathering
    state.groups = {(g.namespace, g.name): g.since for g in told.groups}
    state.nominated = dict(told.nominated)
    state.extending = dict(told.extending)
    state.unfinished = told.unfinished
    state.incarnations = told.incarnations
    _load_told(state, sections.get("told"))
    _load_pools(state, sections)
    if "versions" in sections:
        state.versions = Versions.loaded(
            json_decoder(_FactVersions).decode(sections["versions"]).held
        )
    bindings = json_decoder(_Bindings).decode(sections["bindings"])
    book.arrivals = bindings.arrivals
    state.demand = ClusterDemand(bindings.demand)
    return bindings


def _load_told(state: ClusterStageState, section: bytes | None) -> None:
    if section is None:
        return
    told = json_decoder(_Told).decode(section)
    for key, config in told.configs.items():
        state.profiles.applied(key, config)
    for key, policy in told.load_policies.items():
        state.load.policy_applied(key, policy)
    for measured in told.loads:
        state.load.observe(measured)
    if told.hot is not None:
        state.load.observe(told.hot)
    for of_kind in told.objects:
        state.objects.observe(of_kind.kind, of_kind.namespace, of_kind.objects)
    if told.objects:
        objects_changed(state)


def _load_pools(state: ClusterStageState, sections: Mapping[str, bytes]) -> None:
    if "offers" in sections:
        offers = json_decoder(_Offers).decode(sections["offers"])
        state.policies = PoolPolicies(
            dict(offers.pools), dict(offers.overlays), dict(offers.catalogues)
        )
    if "upkeep" not in sections:
        return
    told = json_decoder(_Upkeep).decode(sections["upkeep"])
    state.pools = PoolFacts(
        {claim.claim: claim for claim in told.claims},
        {command.command: command for command in told.commands},
        dict(told.quiet_since),
        dict(told.promised),
        dict(told.leaving),
        dict(told.sold_out),
    )
    state.running = {running.decided.command: running for running in told.running}
    state.disruptions, state.descheduling = dict(told.disruptions), dict(told.descheduling)
    for binding, ordinal, motion in told.motion:
        state.motion.setdefault(binding, {})[ordinal] = motion
    state.rested, state.named = dict(told.rested), told.named
    state.left = {binding: dict(left) for binding, left in told.left.items()}
    state.removals = dict(told.removals)
    state.expected, state.others_due = dict(told.expected), told.others_due
    state.shrunk, state.displaced = dict(told.shrunk), dict(told.displaced)
    state.unplaced = dict(told.unplaced)
    state.said = {uid: of.said for of in told.said for uid in of.pods}
    state.barred = {binding: dict(nodes) for binding, nodes in told.barred.items()}
    state.preempting, state.in_vain = dict(told.preempting), dict(told.in_vain)


def objects_changed(state: ClusterStageState) -> None:
    """Passes the present objects of the cluster to the occupancy."""
    state.book.observe_objects(state.objects.all)


def loads_written(state: ClusterStageState, names: Iterable[str]) -> None:
    """Updates the loads that the nodes `names` publish in their annotations (`written`). Removes
    the entries of nodes that no longer exist."""
    nodes, load = state.book.nodes, state.load
    for name in (*names, *(gone for gone in list(load.written) if gone not in nodes)):
        node = nodes.get(name)
        if name in load.written or (node is not None and node.measured):
            load.written_on(name, None if node is None else written_of(node))


def load_held(
    book: Occupancy,
    h: SavedHeld,
    classes: Mapping[str, Requirements],
    pods: Mapping[ReplicaKey, PodUid] = {},
) -> None:
    for p in h.placed:
        uid = pods.get((h.binding, p.ordinal))
        share = NodeShare(p.node, (p.ordinal,), (p.devices,), () if uid is None else (uid,))
        book.place(h.binding, (share,), classes[p.class_key], p.at)
    book.restore(
        h.binding,
        classes[h.class_key],
        h.uid,
        h.assignment,
        h.desired,
        h.priority,
        h.arrival,
        h.replace,
    )
