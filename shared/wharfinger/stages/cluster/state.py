"""What a cluster stream remembers: the book of its cluster, how far it has read each fleet stream, how it was told to place, how
loaded its nodes are, and what waits.

Stored are facts and the book, never columns or caches: those follow from the book, and a loaded state builds them anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from wharfinger.domain.cluster_objects import ClusterObject
from wharfinger.domain.instance_types import Catalogue
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import DisruptionReason, NodeOverlay, NodePoolPolicy
from wharfinger.domain.policy import LoadPolicy
from wharfinger.domain.scheduler import SchedulerConfig
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine.devices.workload import Demand, DemandSeen
from wharfinger.engine.load.annotations import written_of
from wharfinger.engine.load.book import LoadBook
from wharfinger.engine.nodes.columns import Taken, Ties
from wharfinger.engine.nodes.occupancy import Occupancy, Replica
from wharfinger.events.cluster_state import NodesObserved, PodsObserved
from wharfinger.events.decisions import NodeShare
from wharfinger.events.disruption import DisruptionDecided
from wharfinger.events.node_load import HotValueObserved, NodeLoadObserved
from wharfinger.events.plans import PlanRequested
from wharfinger.events.proposals import DeschedulingProposed, DisruptionProposed, NodeRemovalProposed
from wharfinger.events.streams import CLUSTER
from wharfinger.kernel.decider import Ask, Micros
from wharfinger.stages.cluster.loads import Loads
from wharfinger.stages.cluster.members import Group, Members
from wharfinger.stages.cluster.objects import Objects
from wharfinger.stages.cluster.profile import IMMEDIATE, ClusterProfile, Window
from wharfinger.stages.cluster.profiles import Profiles
from wharfinger.stages.pools import Offer, OpenClaim, OpenCommand, PoolFacts, PoolPolicies, SoldOut


class Nomination(Value, frozen=True, array_like=True):
    """Room that is being made for `replicas` of a binding on `node`, until `until` at the latest."""

    node: str
    replicas: int
    until: Micros


class Replacement(Value, frozen=True):
    """A claim of a command, and what became of it: a node at a price, or nothing, and why. Neither: it is waited for."""

    claim: str
    node: str = ""
    price: int = 0
    failed: str = ""


class Running(Value, frozen=True):
    """A command that was decided `at`, by the decision `id`, and is not over. `removed`: nodes whose removal was decided since;
    `moved`: how many replicas were moved."""

    decided: DisruptionDecided
    id: UUID
    at: Micros
    replacements: tuple[Replacement, ...] = ()
    removed: tuple[str, ...] = ()
    moved: int = 0

    def node_of(self, target: str) -> str:
        """The node that a move goes to; empty: it is not there yet."""
        return next((r.node for r in self.replacements if r.claim == target), target)


class Motion(Value, frozen=True, array_like=True):
    """A replica that was moved to `node` and has not been seen there. It counts as disrupted until `until` at the latest."""

    node: str
    until: Micros


class Question(Value, frozen=True, array_like=True):
    """To the extender at `url`; `id`: of the decision to ask it."""

    id: str
    url: str
    verb: str
    nodes: tuple[str, ...]


class Extending(Value, frozen=True):
    """What extenders were asked about one replica, and what they have said: question -> (answer, why there is none)."""

    questions: tuple[Question, ...] = ()
    answers: dict[str, tuple[str, str]] = {}

    def about(self, url: str, verb: str) -> tuple[Question | None, tuple[str, str] | None]:
        """The question and its answer, as far as there are."""
        question = next((q for q in self.questions if (q.url, q.verb) == (url, verb)), None)
        return question, None if question is None else self.answers.get(question.id)


@dataclass(slots=True)
class ClusterState:
    """`seen`: fleet stream -> highest seq taken in. `proposals`: event id -> what is still to be answered, in order.

    `causes`: node -> the event that last said something of it, kept for nodes whose replicas it may drive away. `requested`: plans
    to be answered, by the id of the event that asked. `on_behalf`: proposal of a plan -> the commitment it came with, which is
    the cause of its answer; both stand in one round, so this is never stored.

    `window`: the setting. `gathering`: when the first and the last of what waits for company came; None: nothing does. `groups`:
    group of pods -> since when it is not whole. `nominated`: binding -> room that is being made for it. `members`: of groups.
    `demand`: what was asked of this cluster, by which leftovers of devices are valued.
    `extending`: binding -> what extenders were asked about its next replica.

    `policies`: of pools, overlays and instance types. `pools`: what goes on in the pools of this cluster. `running`:
    commands that are not over, by name, in the order in which they were decided. `disruptions`, `descheduling`: proposals
    to be answered, by event id. `motion`: binding -> ordinal -> a move that is not seen to be done. `rested`: binding ->
    until when no strategy moves it again. `left`: binding -> node that a strategy took it off -> until when none takes it
    back there. `named`: how many claims and commands were given names.

    Never stored: `at` of the round, and of the round as well `tries`: binding -> how often it has looked for room to be made.
    `open_asks`: the questions that are open, as they are put; made once each.
    `besides`: (binding, ordinal, replica) of those that are charged to nodes and not in the book, which is so in a focused state.
    """

    stream: str
    book: Occupancy
    profiles: Profiles
    objects: Objects
    load: LoadBook
    loads: Loads
    window: Window = IMMEDIATE
    seen: dict[str, int] = field(default_factory=dict)
    proposals: dict[str, NodeRemovalProposed] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    requested: dict[UUID, PlanRequested] = field(default_factory=dict)
    on_behalf: dict[str, UUID] = field(default_factory=dict)
    gathering: tuple[Micros, Micros] | None = None
    groups: dict[Group, Micros] = field(default_factory=dict)
    nominated: dict[str, tuple[Nomination, ...]] = field(default_factory=dict)
    extending: dict[str, Extending] = field(default_factory=dict)
    policies: PoolPolicies = field(default_factory=PoolPolicies)
    pools: PoolFacts = field(default_factory=PoolFacts)
    running: dict[str, Running] = field(default_factory=dict)
    disruptions: dict[str, DisruptionProposed] = field(default_factory=dict)
    descheduling: dict[str, DeschedulingProposed] = field(default_factory=dict)
    motion: dict[str, dict[int, Motion]] = field(default_factory=dict)
    rested: dict[str, Micros] = field(default_factory=dict)
    left: dict[str, dict[str, Micros]] = field(default_factory=dict)
    named: int = 0
    members: Members = field(default_factory=Members)
    demand: Demand = field(default_factory=Demand)
    at: Micros = 0
    tries: dict[str, int] = field(default_factory=dict)
    open_asks: dict[str, Ask] = field(default_factory=dict)
    besides: Callable[[], Iterable[tuple[str, int, Replica]]] = tuple

    @property
    def cluster(self) -> str:
        return self.stream.removeprefix(CLUSTER)


def empty_state(stream: str, profile: ClusterProfile, ties: Ties | None = None) -> ClusterState:
    book, load = Occupancy(ties), LoadBook()
    profiles = Profiles(book.table, profile.scheduler)
    return ClusterState(stream, book, profiles, Objects(), load, Loads(load), profile.window)


# --- the stored form


class _Nodes(Value, frozen=True):
    bucket_count: int
    buckets: tuple[tuple[int, tuple[Node, ...]], ...]
    incoming_count: int
    incoming: tuple[tuple[int, tuple[Node, ...]], ...]
    closed: tuple[str, ...]
    taint_since: dict[str, dict[str, int]]


class _Pods(Value, frozen=True):
    by_node: dict[str, tuple[Pod, ...]]


class _Placed(Value, frozen=True, array_like=True):
    """`class_key`: of the pods it is interchangeable with (`PodClass.pod_key`), as everywhere in here."""

    ordinal: int
    node: str
    class_key: str
    at: int
    devices: Taken


class SavedHeld(Value, frozen=True):
    binding: str
    class_key: str
    uid: str
    assignment: str
    desired: int
    priority: int
    arrival: int
    replace: bool
    placed: tuple[_Placed, ...]


class _Bindings(Value, frozen=True):
    arrivals: int
    classes: dict[str, Requirements]
    held: tuple[SavedHeld, ...]
    demand: DemandSeen = DemandSeen()


class WaitingGroup(Value, frozen=True, array_like=True):
    namespace: str
    name: str
    since: Micros


class ToldObjects(Value, frozen=True):
    """All objects of one kind in one namespace."""

    kind: str
    namespace: str
    objects: tuple[ClusterObject, ...]


class _Stream(Value, frozen=True):
    seen: dict[str, int]
    proposals: tuple[tuple[str, NodeRemovalProposed], ...]
    causes: dict[str, str]
    plans: tuple[tuple[UUID, PlanRequested], ...] = ()
    gathering: tuple[Micros, Micros] | None = None
    groups: tuple[WaitingGroup, ...] = ()
    nominated: dict[str, tuple[Nomination, ...]] = {}
    extending: dict[str, Extending] = {}


class _Told(Value, frozen=True):
    configs: dict[str, SchedulerConfig] = {}
    load_policies: dict[str, LoadPolicy] = {}
    loads: tuple[NodeLoadObserved, ...] = ()
    hot: HotValueObserved | None = None
    objects: tuple[ToldObjects, ...] = ()


class _Offers(Value, frozen=True):
    """By policy key."""

    pools: dict[str, NodePoolPolicy] = {}
    overlays: dict[str, NodeOverlay] = {}
    catalogues: dict[str, Catalogue] = {}


class _Upkeep(Value, frozen=True):
    claims: tuple[OpenClaim, ...] = ()
    commands: tuple[OpenCommand, ...] = ()
    quiet_since: dict[str, Micros] = {}
    promised: dict[str, Micros] = {}
    leaving: dict[str, DisruptionReason] = {}
    sold_out: tuple[tuple[Offer, SoldOut], ...] = ()
    running: tuple[Running, ...] = ()
    disruptions: tuple[tuple[str, DisruptionProposed], ...] = ()
    descheduling: tuple[tuple[str, DeschedulingProposed], ...] = ()
    motion: tuple[tuple[str, int, Motion], ...] = ()
    rested: dict[str, Micros] = {}
    named: int = 0
    left: dict[str, dict[str, Micros]] = {}


SECTIONS: dict[str, type[Value]] = {
    "nodes": _Nodes, "pods": _Pods, "bindings": _Bindings, "stream": _Stream, "told": _Told, "offers": _Offers,
    "upkeep": _Upkeep,
}  # fmt: skip
"""What each section holds. States that were stored by earlier versions have no `told`: they were told nothing. A cluster without
pools has neither `offers` nor `upkeep`."""


def dump(state: ClusterState) -> dict[str, bytes]:
    book = state.book
    classes: dict[str, Requirements] = {}
    held: list[SavedHeld] = []
    for name, h in sorted(book.held.items()):
        classes[h.cls.pod_key] = h.cls.requirements
        placed: list[_Placed] = []
        for ordinal, replica in sorted(h.placed.items()):
            classes[replica.cls.pod_key] = replica.cls.requirements
            placed.append(_Placed(ordinal, replica.node, replica.cls.pod_key, replica.at, replica.devices))
        held.append(
            SavedHeld(
                name, h.cls.pod_key, h.uid, h.assignment, h.desired, h.priority, h.arrival, h.replace, tuple(placed)
            )
        )
    sections = {
        "nodes": canonical(
            _Nodes(
                book.bucket_count, _buckets(book.buckets), book.incoming_count, _buckets(book.incoming),
                tuple(sorted(book.closed)), book.taint_since,
            )
        ),
        "pods": canonical(_Pods(book.pods)),
        "bindings": canonical(_Bindings(book.arrivals, classes, tuple(held), state.demand.seen())),
        "stream": canonical(
            _Stream(
                state.seen, tuple(state.proposals.items()), state.causes, tuple(state.requested.items()),
                state.gathering, tuple([WaitingGroup(*group, since) for group, since in sorted(state.groups.items())]),
                state.nominated, state.extending,
            )
        ),
        "told": canonical(_told(state)),
    }  # fmt: skip
    for name, section in (("offers", _offers(state)), ("upkeep", _upkeep(state))):
        if section != type(section)():
            sections[name] = canonical(section)
    return sections


def _offers(state: ClusterState) -> _Offers:
    policies = state.policies
    return _Offers(policies.pools, policies.overlay_of, policies.parts)


def _upkeep(state: ClusterState) -> _Upkeep:
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
        tuple([(name, o, m) for name, moved in sorted(state.motion.items()) for o, m in sorted(moved.items())]),
        state.rested,
        state.named,
        state.left,
    )


def _told(state: ClusterState) -> _Told:
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
        (bucket, tuple(node for _, node in sorted(nodes.items()))) for bucket, nodes in sorted(buckets.items())
    )


def load(stream: str, sections: Mapping[str, bytes], profile: ClusterProfile, ties: Ties | None = None) -> ClusterState:
    """Facts first, then the book, as they came: what is derived is derived again on the way."""
    state = empty_state(stream, profile, ties)
    bindings = _load_facts(state, sections)
    for h in bindings.held:
        load_held(state.book, h, bindings.classes)
    for name, held in state.book.held.items():
        state.members.follow(name, held)
    count_placed(state)
    return state


def count_placed(state: ClusterState) -> None:
    """Which replicas came to which node lately, from the book; asked for where it was not followed."""
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
    """A state without the bindings in its book, and these as they were stored."""

    state: ClusterState
    held: tuple[SavedHeld, ...]
    classes: Mapping[str, Requirements]


def load_apart(empty: ClusterState, sections: Mapping[str, bytes]) -> Apart | None:
    """None: pods, taints or nodes on their way say more about what is held than the book by itself."""
    bindings = _load_facts(empty, sections)
    book = empty.book
    if book.pods or book.taint_since or book.incoming or not book.known:
        return None
    return Apart(empty, bindings.held, bindings.classes)


def _load_facts(state: ClusterState, sections: Mapping[str, bytes]) -> _Bindings:
    """All but the bindings, which are returned."""
    book = state.book
    nodes = msgspec.json.decode(sections["nodes"], type=_Nodes)
    for bucket, said in nodes.buckets:
        book.observe_nodes(NodesObserved(state.cluster, bucket, nodes.bucket_count, said), 0)
    for bucket, said in nodes.incoming:
        book.observe_nodes(NodesObserved(state.cluster, bucket, nodes.incoming_count, said), 0)
    loads_written(state, list(book.nodes))
    for name in nodes.closed:
        book.close(name)
    book.taint_since = nodes.taint_since
    for node, pods in msgspec.json.decode(sections["pods"], type=_Pods).by_node.items():
        book.observe_pods(PodsObserved(state.cluster, node, pods))
    told = msgspec.json.decode(sections["stream"], type=_Stream)
    state.seen, state.proposals, state.causes = dict(told.seen), dict(told.proposals), dict(told.causes)
    state.requested = dict(told.plans)
    state.gathering = told.gathering
    state.groups = {(g.namespace, g.name): g.since for g in told.groups}
    state.nominated = dict(told.nominated)
    state.extending = dict(told.extending)
    _load_told(state, sections.get("told"))
    _load_pools(state, sections)
    bindings = msgspec.json.decode(sections["bindings"], type=_Bindings)
    book.arrivals = bindings.arrivals
    state.demand = Demand(bindings.demand)
    return bindings


def _load_told(state: ClusterState, section: bytes | None) -> None:
    if section is None:
        return
    told = msgspec.json.decode(section, type=_Told)
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


def _load_pools(state: ClusterState, sections: Mapping[str, bytes]) -> None:
    if "offers" in sections:
        offers = msgspec.json.decode(sections["offers"], type=_Offers)
        state.policies = PoolPolicies(dict(offers.pools), dict(offers.overlays), dict(offers.catalogues))
    if "upkeep" not in sections:
        return
    told = msgspec.json.decode(sections["upkeep"], type=_Upkeep)
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


def objects_changed(state: ClusterState) -> None:
    """Let the book see the objects as they are now."""
    state.book.observe_objects(state.objects.all)


def loads_written(state: ClusterState, names: Iterable[str]) -> None:
    """What these nodes say of their own load now; of one that is gone nothing is known."""
    nodes, load = state.book.nodes, state.load
    for name in (*names, *(gone for gone in list(load.written) if gone not in nodes)):
        node = nodes.get(name)
        if name in load.written or (node is not None and node.measured):
            load.written_on(name, None if node is None else written_of(node))


def load_held(book: Occupancy, h: SavedHeld, classes: Mapping[str, Requirements]) -> None:
    for p in h.placed:
        share = NodeShare(p.node, (p.ordinal,), (p.devices,))
        book.place(h.binding, (share,), classes[p.class_key], p.at)
    book.restore(
        h.binding, classes[h.class_key], h.uid, h.assignment, h.desired, h.priority, h.arrival, h.replace
    )  # fmt: skip
