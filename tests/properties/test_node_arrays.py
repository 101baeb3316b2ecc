"""The array way chooses what the framework chooses, whatever is asked of it, pod after pod; and its shortcuts change nothing.

Every example is a small cluster with everything that plugins look at. The framework asks each plugin about each node by name; the
arrays must find the same nodes feasible, refuse the others for the same plugin, and give the same totals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster_world import observed
from tests.framework_world import HOST, ZONE, pod_labels, spread_lists, term_lists

from wharfinger.domain.cluster_objects import ClusterObjects, NamespaceLabels, PodSelecting
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import HostPort, PodTraits, WeightedNodeTerm, WeightedPodTerm
from wharfinger.domain.reasons import NodeReason
from wharfinger.domain.resources import Device, DeviceRequest
from wharfinger.domain.scheduler import (
    Arguments,
    BalancedArgs,
    FitArgs,
    InterPodArgs,
    NodeAffinityArgs,
    PluginUse,
    Profile,
    ShapePoint,
    SpreadArgs,
    WeightedResource,
)
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.cycle import Outcome
from wharfinger.engine.framework.profile import default_profile, framework
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.nodes import kernels, place, vectors
from wharfinger.engine.nodes.columns import NodeTable
from wharfinger.engine.nodes.compiled import mixed
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.nodes.place import COMPILER, Placer
from wharfinger.events.cluster_state import PodsObserved
from wharfinger.events.decisions import NodeShare

MIB = 2**20
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
IMAGES = {"web:1": 700 * MIB, "db:2": 60 * MIB}

REASON_OF: dict[str, NodeReason] = {
    "NodeUnschedulable": "Unschedulable", "NodeName": "NodeName", "TaintToleration": "TaintToleration",
    "NodeAffinity": "NodeAffinity", "NodePorts": "NodePorts", "NodeResourcesFit": "InsufficientResources",
    "Devices": "InsufficientDevices", "Dynamic": "LoadTooHigh", "PodTopologySpread": "PodTopologySpread",
    "InterPodAffinity": "InterPodAffinity",
}  # fmt: skip

taints = st.lists(st.builds(Taint, st.sampled_from("ab"), st.sampled_from(EFFECTS)), max_size=2).map(tuple)
tolerations = st.lists(
    st.builds(Toleration, st.sampled_from(("a", "b", "")), st.just("Exists"), effect=st.sampled_from(("", *EFFECTS))),
    max_size=2,
).map(tuple)
expressions = st.one_of(
    st.builds(lambda v: Requirement(ZONE, "In", v), st.sampled_from((("x",), ("x", "y"), ("z",)))),
    st.builds(lambda op: Requirement(ZONE, op), st.sampled_from(("Exists", "DoesNotExist"))),
    st.just(Requirement(ZONE, "NotIn", ("x",))),
)
names = st.builds(
    lambda op, n: Requirement("metadata.name", op, n),
    st.sampled_from(("In", "In", "NotIn")),
    st.sampled_from((("n0",), ("n1",))),
)
node_terms = st.builds(
    NodeTerm,
    st.lists(expressions, max_size=2).map(tuple),
    st.one_of(st.just(()), st.tuples(names), st.tuples(names, names)),
)
weighted_terms = term_lists.flatmap(
    lambda terms: st.tuples(*[st.builds(WeightedPodTerm, st.integers(1, 100), st.just(term)) for term in terms])
)
ports = st.lists(
    st.builds(HostPort, st.sampled_from((80, 81)), st.just("TCP"), st.sampled_from(("", "10.0.0.1"))), max_size=1
).map(tuple)


@st.composite
def some_nodes(draw: st.DrawFn) -> list[Node]:
    return [
        Node(
            f"n{i}",
            {
                "cpu": draw(st.sampled_from((1000, 4000, 4000, 3999))),
                "memory": draw(st.sampled_from((0, 4096 * MIB, 4096 * MIB, 10**10))),
                **draw(st.sampled_from(({}, {"pods": 3}, {"pods": 110, "example.com/fpga": 2}))),
            },
            draw(st.sampled_from(((), (), (Device("T4"), Device("T4")), (Device("T4"), Device("V100"))))),
            {HOST: f"n{i}", **draw(st.sampled_from(({ZONE: "x"}, {ZONE: "y"}, {ZONE: "z"}, {})))},
            draw(taints),
            draw(st.integers(0, 9)) == 0,
            images={name: IMAGES[name] for name in draw(st.lists(st.sampled_from(sorted(IMAGES)), unique=True))},
        )
        for i in range(draw(st.integers(1, 7)))
    ]


@st.composite
def some_requirements(draw: st.DrawFn, simple: bool = False) -> Requirements:
    often: st.SearchStrategy[bool] = st.just(True) if simple else st.booleans()

    def some(strategy: st.SearchStrategy[Any], otherwise: Any) -> Any:
        return otherwise if draw(often) and draw(st.booleans()) else draw(strategy)

    requests = draw(
        st.sampled_from((
            {}, {"cpu": 500}, {"cpu": 700, "memory": 1000 * MIB}, {"memory": 512 * MIB}, {"cpu": 1, "example.com/fpga": 1},
            {"cpu": 0, "memory": 1},
        ))
    )  # fmt: skip
    traits = PodTraits(
        namespace=draw(st.sampled_from(("", "default", "other"))),
        labels=draw(pod_labels),
        images=some(st.sampled_from((("web:1",), ("web:1", "db:2"), ("none",))), ()),
        node_name=draw(st.sampled_from(("", "", "", "", "", "", "n0"))),
        preferences=some(
            st.lists(st.builds(WeightedNodeTerm, st.integers(1, 100), node_terms), max_size=2).map(tuple), ()
        ),
        ports=some(ports, ()),
        spread=some(spread_lists, ()),
        affinity=some(term_lists, ()),
        anti_affinity=some(term_lists, ()),
        preferred_affinity=some(weighted_terms, ()),
        preferred_anti_affinity=some(weighted_terms, ()),
    )
    return Requirements(
        requests,
        draw(
            st.sampled_from(((), (), (), (DeviceRequest(1),), (DeviceRequest(2),), (DeviceRequest(1, 400, ("T4",)),)))
        ),
        some(st.sampled_from(({ZONE: "x"}, {HOST: "n1"})), {}),
        some(st.lists(node_terms, max_size=2).map(tuple), ()),
        draw(tolerations),
        None if draw(st.integers(0, 5)) == 0 else traits,
    )


@st.composite
def some_objects(draw: st.DrawFn) -> ClusterObjects:
    teams = draw(
        st.sampled_from(((), (NamespaceLabels("default", {"team": "x"}),), (NamespaceLabels("other", {"team": "x"}),)))
    )
    services = draw(st.lists(st.sampled_from("ab"), max_size=1))
    return ClusterObjects.of(
        [*teams, *(PodSelecting("Service", "default", f"s-{app}", LabelSelector({"app": app})) for app in services)]
    )


@st.composite
def some_profiles(draw: st.DrawFn) -> Profile:
    """Mostly the default; else other strategies, weights, orders and arguments."""
    profile = default_profile()
    if draw(st.booleans()):
        return profile
    resources = draw(
        st.sampled_from((
            (WeightedResource("cpu"), WeightedResource("memory")),
            (WeightedResource("cpu", 3), WeightedResource("memory", 2)),
            (WeightedResource("memory", 5), WeightedResource("example.com/fpga", 2), WeightedResource("nvidia.com/gpu", 3)),
        ))
    )  # fmt: skip
    arguments = Arguments(
        fit=draw(
            st.sampled_from((
                FitArgs("LeastAllocated", resources), FitArgs("MostAllocated", resources),
                FitArgs("RequestedToCapacityRatio", resources, (ShapePoint(0, 0), ShapePoint(40, 9), ShapePoint(100, 2))),
                FitArgs(ignored_groups=("example.com",)),
            ))
        ),
        balanced=BalancedArgs(resources if draw(st.booleans()) else (*resources, WeightedResource("ephemeral-storage")),
                              draw(st.booleans())),
        inter_pod=InterPodArgs(draw(st.sampled_from((0, 1, 50))), draw(st.booleans())),
        spread=SpreadArgs(draw(st.booleans())),
        node_affinity=draw(
            st.sampled_from((
                NodeAffinityArgs(),
                NodeAffinityArgs((NodeTerm((Requirement(ZONE, "Exists"),)),),
                                 (WeightedNodeTerm(7, NodeTerm((Requirement(ZONE, "In", ("y",)),))),)),
            ))
        ),
    )  # fmt: skip
    filters = draw(st.permutations(profile.at("filter"))) if draw(st.booleans()) else profile.at("filter")
    scores = [PluginUse(use.name, draw(st.integers(1, 5))) for use in profile.at("score") if draw(st.integers(0, 4))]
    points = {**profile.points, "filter": tuple(filters), "score": tuple(scores), "preScore": tuple(
        use for use in profile.at("preScore") if any(s.name == use.name for s in scores)
    )}  # fmt: skip
    return msgspec.structs.replace(profile, points=points, arguments=arguments)


class Both:
    """The same cluster for both ways."""

    def __init__(self, nodes: Sequence[Node], objects: ClusterObjects, profile: Profile) -> None:
        self.book = Occupancy()
        for event in observed(list(nodes)):
            self.book.observe_nodes(event, 0)
        self.book.observe_objects(objects)
        self.nodes, self.objects = nodes, objects
        self.pods: list[Pod] = []
        self.placer = Placer(self.book.table, profile)
        self.framework = framework(profile)

    def run(self, pods: Sequence[Pod]) -> None:
        """These are seen on their nodes."""
        self.pods += pods
        for node in self.nodes:
            here = tuple(pod for pod in pods if pod.node == node.name)
            if here:
                self.book.observe_pods(PodsObserved("oslo", node.name, here))

    def outcome(self, requirements: Requirements) -> Outcome:
        snapshot = Snapshot.of(self.nodes, self.pods, self.objects)
        return self.framework.run(snapshot, Pod("new", "new", requirements))

    def agree(self, requirements: Requirements) -> str | None:
        """Both ways about one more pod; where the arrays place it, and charge it."""
        outcome = self.outcome(requirements)
        cls = self.book.class_of(requirements)
        look = self.placer.look(cls)
        rows = self.book.table.rows
        feasible = {name for name, row in rows.items() if look.verdicts[row.slot] == 0}
        assert feasible == set(outcome.feasible)
        assert {n: int(look.scores[rows[n].slot]) for n in feasible} == outcome.totals
        self._same_reasons(outcome, requirements)
        choice = self.placer.choose(cls)
        ranked = self.placer.ranked(cls, 3)
        if choice is None:
            assert not outcome.feasible
            assert self.placer.message(cls) == outcome.message
            return None
        ties = self.book.table.tie_ranks(cls.seed)
        assert choice.row.name == max(outcome.best, key=lambda name: int(ties[rows[name].slot]))
        assert [c.row.name for c in ranked] == sorted(
            outcome.totals, key=lambda name: (-outcome.totals[name], -int(ties[rows[name].slot]))
        )[:3]
        number = len(self.pods)
        share = NodeShare(choice.row.name, (0,), (choice.devices,))
        self.book.place(f"b{number}", (share,), requirements, 0)
        self.pods.append(Pod(f"own{number}", f"own{number}", requirements, choice.row.name, devices=choice.devices))
        return choice.row.name

    def _same_reasons(self, outcome: Outcome, requirements: Requirements) -> None:
        refused: dict[NodeReason, int] = {}
        for name in self.book.table.rows:
            status = outcome.rejected or outcome.first.get(name)
            if status is not None:
                reason = REASON_OF[status.plugin]
                if status.plugin == "NodeResourcesFit" and all("gpu" in text for text in status.reasons):
                    reason = "InsufficientDevices"
                refused[reason] = refused.get(reason, 0) + 1
        assert self.placer.diagnose(self.book.class_of(requirements)).refused == refused


def running(nodes: Sequence[Node], data: st.DataObject) -> list[Pod]:
    """Pods that do not care whether they fit: others have put them there."""
    said = data.draw(
        st.lists(st.tuples(st.sampled_from([n.name for n in nodes]), some_requirements(), st.booleans()), max_size=5)
    )
    return [
        Pod(f"p{i}", f"p{i}", msgspec.structs.replace(requirements, devices=()), node, terminating=terminating)
        for i, (node, requirements, terminating) in enumerate(said)
    ]


@settings(max_examples=80, deadline=None)
@given(some_nodes(), some_objects(), some_profiles(), st.data())
def test_both_ways_choose_the_same_pod_after_pod(
    nodes: list[Node], objects: ClusterObjects, profile: Profile, data: st.DataObject
) -> None:
    both = Both(nodes, objects, profile)
    both.run(running(nodes, data))
    for requirements in data.draw(st.lists(some_requirements(), min_size=1, max_size=4)):
        for _ in range(data.draw(st.integers(1, 3))):
            both.agree(requirements)


@settings(max_examples=60, deadline=None)
@given(some_nodes(), some_objects(), some_profiles(), st.data())
def test_a_batch_in_order_is_one_at_a_time(
    nodes: list[Node], objects: ClusterObjects, profile: Profile, data: st.DataObject
) -> None:
    """And more of them are placed, if not in order; the table stays as it was."""
    both = Both(nodes, objects, profile)
    both.run(running(nodes, data))
    table = both.book.table
    asked = data.draw(st.lists(st.tuples(some_requirements(simple=True), st.integers(1, 4)), min_size=1, max_size=4))
    requests = [(both.book.class_of(requirements), count) for requirements, count in asked]
    before = _seen(table)
    found = both.placer.place_batch(requests)
    assert _seen(table) == before
    together = sum(map(len, found))
    alone = [[both.agree(requirements) for _ in range(count)] for requirements, count in asked]
    one_by_one = [[name for name in names if name is not None] for names in alone]
    assert together >= sum(map(len, one_by_one))
    if together == sum(map(len, one_by_one)):
        assert [[choice.row.name for choice in choices] for choices in found] == one_by_one


def _seen(table: NodeTable) -> list[Any]:
    size = table.size
    carried = sorted(table.tallies.carried.items(), key=lambda item: repr(item[0]))
    tallies = [counts for _, (_, tally) in carried if any(counts := tally.by_slot[:size].tolist())]
    rows = [(row.free, row.scored, row.device_free, row.whole_left, len(row.classes)) for row in table.rows.values()]
    return [table.free[:, :size].tolist(), table.scored[:, :size].tolist(), repr(rows), tallies]


@settings(max_examples=50, deadline=None)
@given(some_nodes(), some_objects(), st.data())
def test_counts_that_followed_are_those_counted_anew(
    nodes: list[Node], objects: ClusterObjects, data: st.DataObject
) -> None:
    """Pods come, go and are relabelled, nodes go and come back; a book that has seen only the end agrees."""
    both = Both(nodes, objects, default_profile())
    wanted = data.draw(st.lists(some_requirements(), min_size=1, max_size=3))
    for step in range(data.draw(st.integers(1, 6))):
        for requirements in wanted:
            both.placer.look(both.book.class_of(requirements))
        node = data.draw(st.sampled_from(nodes))
        here = data.draw(st.lists(st.sampled_from(wanted), max_size=2))
        pods = tuple(
            Pod(f"{node.name}-{i}-{step}", "p", msgspec.structs.replace(asked, devices=()), node.name)
            for i, asked in enumerate(here)
        )
        both.book.observe_pods(PodsObserved("oslo", node.name, pods))
        if data.draw(st.integers(0, 3)) == 0:
            gone = [n for n in nodes if n.name != node.name]
            for event in (*observed(gone), *observed(nodes)):
                both.book.observe_nodes(event, 0)
    fresh = Both(nodes, objects, default_profile())
    for name, pods in both.book.pods.items():
        fresh.book.observe_pods(PodsObserved("oslo", name, pods))
    for requirements in wanted:
        kept, anew = (b.placer.look(b.book.class_of(requirements)) for b in (both, fresh))
        for name, row in both.book.table.rows.items():
            other = fresh.book.table.rows[name].slot
            assert kept.verdicts[row.slot] == anew.verdicts[other]
            if not kept.verdicts[row.slot]:
                assert kept.scores[row.slot] == anew.scores[other]


@pytest.fixture(scope="module")
def compiled() -> Any:
    COMPILER.compile_now()
    assert COMPILER.failure is None
    return COMPILER.kernels(0)


@settings(max_examples=50, deadline=None)
@given(some_nodes(), some_objects(), some_profiles(), st.data())
def test_machine_code_and_the_plain_functions_place_alike(
    compiled: Any, nodes: list[Node], objects: ClusterObjects, profile: Profile, data: st.DataObject
) -> None:
    both = Both(nodes, objects, profile)
    both.run(running(nodes, data))
    asked = data.draw(st.lists(st.tuples(some_requirements(simple=True), st.integers(1, 4)), min_size=1, max_size=4))
    requests = [(both.book.class_of(requirements), count) for requirements, count in asked]
    found = []
    for way in (compiled, kernels, mixed(kernels, vectors)):
        placer = Placer(both.book.table, profile)
        placer._kernels = lambda looks=1, way=way: way  # type: ignore[method-assign, misc]
        batches = [[(c.row.name, c.score, c.devices) for c in choices] for choices in placer.place_batch(requests)]
        looks = [placer.look(cls) for cls, _ in requests]
        found.append((batches, [(look.verdicts.tolist(), look.scores[look.verdicts == 0].tolist()) for look in looks]))
    assert found[0] == found[1] == found[2]


def test_the_quick_pass_is_the_exact_one() -> None:
    """Amounts of any size up to the bound: vectors of doubles give the integers."""
    random = np.random.default_rng(7)
    size = 4000
    alloc = np.vstack(
        (random.integers(1, 2**20, size), random.integers(1, kernels.QUICK_MAX, size), np.full(size, 2**53))
    )
    alloc = alloc.astype(np.int64)
    free = alloc - (alloc * random.random((3, size))).astype(np.int64) * random.integers(0, 2, (3, size))
    held = (alloc[:2] * random.random((2, size)) * 1.2).astype(np.int64)
    nothing, static = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    empty = np.zeros((0, 2), dtype=np.int64)
    for strategy in (kernels.LEAST, kernels.MOST):
        for cpu, memory in ((100, 2**28), (1, 1), (0, 2**45), (2**19, 0)):
            fit = np.array([(0, 0, 2, cpu), (0, 1, 3, memory)])
            balance = np.array([(0, cpu), (1, memory)])
            asks = np.array([(0, cpu, 5), (1, memory, 5), (2, 1, 5)])
            answers = []
            for quick, judge in ((0, kernels.judge), (1, kernels.judge), (1, vectors.judge)):
                form = np.array([strategy, 2, 3, 0, quick, cpu, memory, 0, 0])
                verdicts, scores = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
                inverse = 1.0 / alloc[:2]
                way = (static, free, alloc, inverse, held, nothing, asks, form, fit, balance, empty,
                       np.zeros((2, size), dtype=np.int64), np.zeros(0, dtype=np.int64), verdicts, scores)  # fmt: skip
                judge(size, *way)  # type: ignore[no-untyped-call]
                answers.append((verdicts.tolist(), scores[verdicts == 0].tolist()))
            assert answers[0] == answers[1] == answers[2]


def test_the_kernels_that_are_compiled_are_all_there_are() -> None:
    ours = kernels.__name__
    functions = [name for name, value in vars(kernels).items() if getattr(value, "__module__", "") == ours]
    assert sorted(kernels.ORDER) == sorted(functions)
    assert place.COMPILER is COMPILER
