"""Laws of pools over random histories: nodes are asked for, come, fail and go, workloads change,
time passes, and what could go is proposed, in time or too late."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import CLUSTER, STREAM, a_node, replicas_in
from tests.hunting import examples
from tests.pool_world import BIG, SMALL, PoolPlane, a_budget, a_pool, wants
from tests.properties.test_cluster_stage import check_capacity, wild, wild_events, words

from wharfinger.domain.cluster_objects import NodeClaimStatus
from wharfinger.domain.instance_types import Catalogue, InstanceType, Offering
from wharfinger.domain.node_pool import POOL_LABEL, NodeBudget, NodePoolPolicy, PoolRequirement
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value, canonical
from wharfinger.events.cluster_state import ObjectsObserved, PodsObserved
from wharfinger.events.decisions import (
    DisruptionDecided,
    DisruptionEnded,
    NodeClaimEnded,
    NodeClaimRequested,
    NodeRemovalDecided,
    ReplicasPlaced,
    ReplicasReleased,
)
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import DeschedulingProposed, DisruptionProposed, Unseating
from wharfinger.kernel.audit import audit
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.recover import recover
from wharfinger.kernel.step import empty_head
from wharfinger.stages.cluster.decider import ClusterDecider
from wharfinger.stages.cluster.profile import IMMEDIATE, ClusterProfile, Window

BINDINGS = ("a", "b", "c")
STRATEGIES = ("RemoveDuplicates", "LowNodeUtilization", "HighNodeUtilization", "PodLifeTime")
UNAVAILABLE_MAX = 1
"""What the budget of each workload allows, where it has one."""
RETURN_S = 14 * 86_400
BUDGET = 2
"""Nodes of a pool that may go at a time."""

Key = tuple[str, int]


@dataclass
class Watched:
    """What somebody who only sees decisions and facts knows, by which the laws are held. `moving`:
    replicas that were moved on purpose and have not been seen where they went, and until when that
    counts; `moved`: bindings, in the last round. `commands` and `claims` began and did not end.
    `going`: nodes of commands, or to be removed. `left`: binding and node that a strategy took it
    off -> until when none may take it back; `asked`: what strategies proposed, by event id."""

    plane: PoolPlane
    moving: dict[Key, tuple[str, int]] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)
    commands: dict[str, DisruptionDecided] = field(default_factory=dict)
    claims: set[str] = field(default_factory=set)
    over: set[str] = field(default_factory=set)
    going: set[str] = field(default_factory=set)
    commanded: set[str] = field(default_factory=set)
    left: dict[tuple[str, str], int] = field(default_factory=dict)
    asked: dict[str, DeschedulingProposed] = field(default_factory=dict)

    def round(self, act: Callable[[], list[Decision]]) -> list[Decision]:
        before = {b: dict(h.placed) for b, h in self.plane.state.book.held.items()}
        count = len(self.plane.rounds)
        self.moved.clear()
        decisions = act()
        for recorded in self.plane.rounds[count:]:
            self._see(recorded.events)
            self._follow(recorded.round.decisions)
        self._hold(before, decisions)
        return decisions

    def _see(self, events: object) -> None:
        for event in events:  # type: ignore[attr-defined]
            if isinstance(event.data, DeschedulingProposed):
                self.asked[str(event.id)] = event.data
            if isinstance(event.data, PodsObserved):
                for pod in event.data.pods:
                    if self.moving.get((pod.binding, pod.ordinal), ("", 0))[0] == event.data.node:
                        del self.moving[(pod.binding, pod.ordinal)]
        self.moving = {
            key: (node, until)
            for key, (node, until) in self.moving.items()
            if until > self.plane.at
        }
        self.going &= set(self.plane.there)

    def _follow(self, decisions: tuple[Decision, ...]) -> None:
        book = self.plane.state.book
        ids = {str(d.id) for d in decisions} | self.commanded
        for d in decisions:
            match d.data:
                case DisruptionDecided() as decided:
                    assert decided.command not in self.commands
                    assert decided.command not in self.over
                    self.commands[decided.command] = decided
                    self.commanded.add(str(d.id))
                    self.going.update(node.name for node in decided.nodes)
                case DisruptionEnded() as over:
                    assert over.command in self.commands, "a command ends once, and after it began"
                    del self.commands[over.command]
                    self.over.add(over.command)
                    if over.outcome == "done":
                        assert set(over.removed) == set(over.nodes)
                    self.going -= set(over.nodes) - set(over.removed)
                case NodeRemovalDecided() as removed:
                    self.going.add(removed.node)
                case NodeClaimRequested() as asked:
                    assert asked.claim not in self.claims
                    assert asked.claim not in self.over
                    self.claims.add(asked.claim)
                case NodeClaimEnded() as ended:
                    self.claims.remove(ended.claim)
                    self.over.add(ended.claim)
                case ReplicasReleased() as released:
                    proposed = self.asked.get(str(d.cause))
                    for node, ordinal, _ in replicas_in(released.released):
                        self.moving.pop((released.binding, ordinal), None)
                        if proposed is not None:
                            key, until = (
                                (released.binding, node),
                                self.plane.at + proposed.return_s * 1_000_000,
                            )
                            self.left[key] = max(until, self.left.get(key, 0))
                case ReplicasPlaced() as placed if _is_move(d, ids):
                    for node, ordinal, _ in replicas_in(placed.placed):
                        if str(d.cause) in self.asked:
                            assert self.left.get((placed.binding, node), 0) <= self.plane.at, (
                                "there is no way back"
                            )
                        told = any(
                            pod.binding == placed.binding
                            for pods in book.pods.values()
                            for pod in pods
                        )
                        seconds = 900 if told else 30
                        self.moving[(placed.binding, ordinal)] = (
                            node,
                            self.plane.at + seconds * 1_000_000,
                        )
                        self.moved.add(placed.binding)
                case _:
                    pass

    def _hold(self, before: Mapping[str, Mapping[int, object]], decisions: list[Decision]) -> None:
        plane, book = self.plane, self.plane.state.book
        check_capacity(plane.state)
        for name in BINDINGS:
            count = len(before.get(name, {}))
            for d in decisions:
                if isinstance(d.data, ReplicasPlaced) and d.subject == name:
                    count += len(replicas_in(d.data.placed))
                if isinstance(d.data, ReplicasReleased) and d.subject == name:
                    count -= len(replicas_in(d.data.released))
            assert count == len(book.held[name].placed if name in book.held else ())
        self._moves_are_whole(decisions)
        self._budgets_hold()
        assert set(plane.state.running) == set(self.commands)
        assert set(plane.state.pools.claims) == self.claims
        running = {node.name for command in self.commands.values() for node in command.nodes}
        assert book.closed <= self.going
        assert running & set(plane.there) <= book.closed
        for name in book.unsettled:
            assert plane.decider.next_due(plane.state) is not None, f"{name} waits for nothing"
            waits = [claim for claim in plane.state.pools.claims.values() if name in claim.replicas]
            gathers = plane.state.gathers_for_nodes(plane.at)
            assert waits or gathers or name in plane.state.nominated

    def _moves_are_whole(self, decisions: list[Decision]) -> None:
        """What a command or a strategy lets go is placed elsewhere right behind."""
        ids = {str(d.id) for d in decisions} | self.commanded
        for at, d in enumerate(decisions):
            if isinstance(d.data, ReplicasReleased) and _is_move(d, ids):
                follows = decisions[at + 1]
                assert isinstance(follows.data, ReplicasPlaced)
                assert (follows.subject, follows.cause) == (d.subject, d.cause)
                ((left, ordinal, _),), ((came, again, _),) = (
                    replicas_in(d.data.released),
                    replicas_in(follows.data.placed),
                )
                assert ordinal == again
                assert left != came
                assert came not in self.going

    def _budgets_hold(self) -> None:
        plane = self.plane
        told = {budget.name for budget in plane.state.book.objects.budgets}
        for name in told & self.moved:
            assert sum(key[0] == name for key in self.moving) <= UNAVAILABLE_MAX
        limit = {p.name: int(p.budgets[0].nodes) for p in plane.state.policies.of(CLUSTER).values()}
        for pool, allowed in limit.items():
            going = [
                n
                for n in self.going
                if n in plane.there and plane.there[n].labels.get(POOL_LABEL) == pool
            ]
            assert len(going) <= allowed


def _is_move(d: Decision, commands: set[str]) -> bool:
    reason = getattr(d.data, "reason", "")
    return (
        str(d.cause) in commands
        or reason in STRATEGIES
        or (
            isinstance(d.data, ReplicasPlaced)
            and any(d.data.explanation.note.endswith(f": {s}") for s in STRATEGIES)
        )
    )


ACTS = (
    "scale",
    "scale",
    "deliver",
    "deliver",
    "deliver",
    "run",
    "run",
    "run",
    "run",
    "drop",
    "disrupt",
    "disrupt",
    "disrupt",
    "disrupt",
    "late",
    "unseat",
    "wait",
    "wait",
    "fail",
    "protect",
    "take",
)


def buying_in(window: Window) -> PoolPlane:
    plane = PoolPlane()
    plane.decider = ClusterDecider(ClusterProfile(buying=window))
    plane.state = plane.decider.initial(STREAM)
    return plane


def story(seed: int) -> Watched:
    """Every round of it is held against the laws."""
    chance = random.Random(seed)
    window = Window(SECOND, 10 * SECOND) if seed % 2 else IMMEDIATE
    plane = buying_in(window)
    watched = Watched(plane)
    plane.pools(a_pool(budgets=(NodeBudget(str(BUDGET)),), limits={"nodes": 6}))
    there = [
        plane.bought(kind, number=i)
        for kind, count in ((BIG, 2), (SMALL, 2))
        for i in range(chance.randint(0, count))
    ]
    plane.there = {node.name: node for node in (a_node("fixed", cpu=2500), *there)}
    watched.round(plane.tell_nodes)
    for binding in BINDINGS:
        wanted = wants(chance.choice((400, 900)), binding)
        watched.round(partial(plane.assign, binding, chance.randint(0, 4), wanted))
    kept: list[DisruptionProposed] = []
    for _ in range(chance.randint(4, 20)):
        watched.round(_act(chance, plane, kept))
    return watched


def _act(
    chance: random.Random, plane: PoolPlane, kept: list[DisruptionProposed]
) -> Callable[[], list[Decision]]:
    binding = chance.choice(BINDINGS)
    match chance.choice(ACTS):
        case "scale":
            replicas, wanted = chance.randint(0, 4), wants(chance.choice((400, 900, 1500)), binding)
            return lambda: plane.assign(binding, replicas, wanted, chance.randint(0, 1))
        case "deliver":
            some = [claim for claim in plane.claims if chance.random() < 0.5]
            return lambda: plane.deliver(*some) if some else plane.feed()
        case "run":
            seen = [name for name in plane.there if chance.random() < 0.7]
            return lambda: plane.feed(*plane.running_pods(seen))
        case "drop":
            names = sorted(plane.there)
            return lambda: plane.drop(chance.choice(names)) if names else plane.feed()
        case "disrupt":
            plane.at += chance.choice((0, 60)) * 1_000_000
            kept += (found := [plane.proposed(command) for command in plane.survey()])
            return lambda: plane.feed(*found)
        case "late":
            return lambda: plane.feed(*kept[-2:])
        case "unseat":
            held = plane.state.book.held.get(binding)
            seats = (
                [(replica.node, binding, o) for o, replica in sorted(held.placed.items())]
                if held
                else []
            )
            spans = {
                "return_s": chance.choice((0, 3600, RETURN_S)),
                "cooldown_s": chance.choice((0, 1800)),
            }
            return lambda: plane.unseat(chance.choice(STRATEGIES), *seats, **spans)
        case "wait":
            return lambda: plane.feed(seconds=chance.choice((1, 30, 300, 600, 3600)))
        case "fail":
            failed = NodeClaimStatus(
                "", "default", "small", "a", "on-demand", launched=False, failure="sold out"
            )
            return lambda: plane.claim_status(
                *[msgspec.structs.replace(failed, name=c.claim) for c in plane.claims[:1]]
            )
        case "protect":
            covered = [a_budget(name) for name in BINDINGS if chance.random() < 0.6]
            return lambda: plane.budgets(*covered)
        case _:
            return plane.take_away


LAWS = settings(max_examples=examples(40), deadline=None)
SEEDS = st.integers(0, 100_000)
SECOND = 1_000_000


@LAWS
@given(SEEDS)
def test_whatever_happens_nobody_is_lost_and_every_command_ends(seed: int) -> None:
    """The laws of every round are held on the way. In the end time alone brings everything to its
    end."""
    watched = story(seed)
    plane = watched.plane
    for _ in range(60):
        due = plane.decider.next_due(plane.state)
        if due is None:
            break
        plane.at = max(plane.at, due)
        watched.round(plane.feed)
    assert watched.commands == {}
    assert watched.claims == set()
    assert plane.state.book.unsettled == {}
    assert plane.state.motion == {}


@LAWS
@given(SEEDS, st.integers(0, 20))
def test_a_stream_with_commands_under_way_goes_on_alike_wherever_it_is_taken_up(
    seed: int, cut: int
) -> None:
    plane = story(seed).plane
    decider, rounds = plane.decider, plane.rounds
    cut = min(cut, len(rounds) - 1)
    recovered = recover(decider, decider.initial(STREAM), rounds[:cut])
    loaded = decider.load(STREAM, decider.dump(recovered))
    assert decider.dump(loaded) == decider.dump(recovered)
    head = rounds[cut - 1].round.head() if cut else empty_head(STREAM)
    for state in (recovered, loaded):
        assert audit(decider, state, head, rounds[cut:]).divergences == []
        assert decider.dump(state) == decider.dump(plane.state)


@LAWS
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.sampled_from((300, 900, 1500, 5000))),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.integers(0, SECOND - 1), min_size=8, max_size=8),
)
def test_how_assignments_are_timed_within_a_window_changes_no_node(
    workloads: list[tuple[int, int]], gaps: list[int]
) -> None:
    items = [(f"b{n}", count, wants(cpu), 0) for n, (count, cpu) in enumerate(workloads)]
    together, apart = (buying_in(Window(SECOND, 10 * SECOND)).pools(a_pool()) for _ in range(2))
    together.feed(together.assigned(*items))
    for item, gap in zip(items, gaps, strict=False):
        apart.at += gap
        apart.feed(apart.assigned(item))
    made = []
    for plane in (together, apart):
        decided = plane.feed(seconds=1)
        assert plane.state.book.unsettled.keys() == {name for name, *_ in items}
        made.append(
            sorted(
                (d.data.instance_types, sorted(d.data.replicas.items()))
                for d in decided
                if isinstance(d.data, NodeClaimRequested)
            )
        )
    assert made[0] == made[1]
    assert made[0]


@LAWS
@given(SEEDS)
def test_without_news_it_comes_to_rest(seed: int) -> None:
    """Not always in one round: a replica that takes the place of its former self may leave room for
    who waits."""
    plane = story(seed).plane
    plane.feed(seconds=1)  # closes the batch window
    plane.feed()
    plane.feed()
    before = plane.decider.dump(plane.state)
    assert plane.feed() == []
    assert plane.decider.dump(plane.state) == before


@settings(max_examples=examples(15), deadline=None)
@given(SEEDS)
def test_strategies_bring_no_workload_to_a_node_twice_whoever_restarts_meanwhile(seed: int) -> None:
    """The stage is taken up again from its history or from a snapshot, now and then; whoever
    proposes remembers nothing."""
    chance = random.Random(seed)
    plane = PoolPlane()
    plane.add(*[a_node(f"n{i}", cpu=4000) for i in range(5)])
    plane.assign("a", 2, wants(400, "a"))
    left: set[str] = set()
    for _ in range(12):
        plane.at += 300 * 1_000_000
        placed = sorted(plane.state.book.held["a"].placed.items())
        ordinal, replica = chance.choice(placed)
        decisions = plane.unseat("PodLifeTime", (replica.node, "a", ordinal), return_s=RETURN_S)
        for d in decisions:
            if isinstance(d.data, ReplicasPlaced):
                ((node, _, _),) = replicas_in(d.data.placed)
                left.add(replica.node)
                assert node not in left, "there is no way back"
        if chance.random() < 0.3:
            plane.state = recover(plane.decider, plane.decider.initial(STREAM), plane.rounds)
        if chance.random() < 0.3:
            plane.state = plane.decider.load(STREAM, plane.decider.dump(plane.state))
    assert left
    assert set(plane.state.left["a"]) == left


# --- hostile input: anything that decodes

wild_pools = st.builds(
    NodePoolPolicy,
    name=words,
    empty_after_s=st.none() | wild,
    requirements=st.lists(
        st.builds(
            PoolRequirement,
            words,
            st.sampled_from(["In", "NotIn", "Exists", "Gt", "Lt"]),
            st.lists(words, max_size=2).map(tuple),
            wild,
        ),
        max_size=2,
    ).map(tuple),
    labels=st.dictionaries(words, words, max_size=1),
    weight=wild,
    limits=st.dictionaries(words, wild, max_size=2),
    replicas=st.none() | st.integers(-2, 3),
    catalogue=st.sampled_from(["default", "", "x"]),
    expire_after_s=st.none() | wild,
)
wild_types = st.builds(
    InstanceType,
    name=words,
    capacity=st.dictionaries(words, wild, max_size=3),
    overhead=st.dictionaries(words, wild, max_size=1),
    labels=st.dictionaries(words, st.just(("a", "b")), max_size=1),
    offerings=st.lists(
        st.builds(Offering, words, st.sampled_from(["spot", "on-demand", "reserved"]), wild),
        max_size=2,
    ).map(tuple),
)
wild_policies: st.SearchStrategy[Value] = st.one_of(
    st.builds(
        PolicyApplied, st.builds(Policy, kind=st.just("NodePool"), name=words, node_pool=wild_pools)
    ),
    st.builds(
        PolicyApplied,
        st.builds(
            Policy,
            kind=st.just("InstanceTypes"),
            name=words,
            catalogue=st.builds(
                Catalogue,
                st.sampled_from(["default", "x"]),
                st.lists(wild_types, max_size=3).map(tuple),
                st.just(0),
            ),
        ),
    ),
    st.builds(PolicyRemoved, st.sampled_from(["NodePool", "InstanceTypes"]), words),
)
wild_proposals: st.SearchStrategy[Value] = st.one_of(
    st.builds(
        DisruptionProposed,
        st.just(STREAM),
        st.sampled_from([CLUSTER, "bergen"]),
        st.sampled_from(["emptiness", "drift", "expiry", "multi-node", "static-scale-down"]),
        st.lists(words, max_size=3).map(tuple),
        st.dictionaries(words, words, max_size=2),
    ),
    st.builds(
        DeschedulingProposed,
        st.just(STREAM),
        st.sampled_from([CLUSTER, "bergen"]),
        st.sampled_from([*STRATEGIES, ""]),
        words,
        st.lists(
            st.builds(
                Unseating, words, st.sampled_from(["", "a", "b"]), wild, words, st.tuples(words)
            ),
            max_size=3,
        ).map(tuple),
        return_s=wild,
        cooldown_s=wild,
    ),
    st.builds(
        ObjectsObserved,
        st.just(CLUSTER),
        st.just("NodeClaim"),
        st.just(""),
        st.lists(
            st.builds(
                NodeClaimStatus,
                words,
                words,
                launched=st.none() | st.booleans(),
                failure=words,
                node=words,
            ),
            max_size=2,
        ).map(tuple),
    ),
)


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.lists(st.one_of(wild_events, wild_policies, wild_proposals), max_size=4), max_size=8
    )
)
def test_nothing_that_decodes_brings_the_stage_down(rounds: list[list[Value]]) -> None:
    plane = PoolPlane().pools(a_pool())
    for inputs in rounds:
        for d in plane.feed(*inputs):
            assert len(canonical(getattr(d.data, "explanation", None))) <= 2048
        plane.decider.next_due(plane.state)
    assert plane.decider.dump(plane.decider.load(STREAM, plane.decider.dump(plane.state)))
