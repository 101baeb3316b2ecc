"""One cluster for both ways of placing: the framework, which asks each rule about each node, and
the arrays.

`Both` holds them together on generated nodes, pods and profiles: the same nodes feasible, the same
totals, the same reasons and the same sentence. `alone` is a profile with one rule, for the property
tests of single rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st
from tests.cluster_world import observed
from tests.framework_world import HOST, ZONE, only, pod_labels, spread_lists, term_lists

from wharfinger.domain.cluster_objects import ClusterObjects, NamespaceLabels, PodSelecting
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import (
    HostPort,
    PodTraits,
    VolumeUse,
    WeightedNodeTerm,
    WeightedPodTerm,
)
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
from wharfinger.engine.framework.cycle import CycleOutcome
from wharfinger.engine.framework.profile import default_profile, framework
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.nodes.counterfactual import RefusedNode
from wharfinger.engine.nodes.message import message
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.nodes.place import Placer
from wharfinger.engine.nodes.profile_rules import reason_of
from wharfinger.events.cluster_state import PodsObserved
from wharfinger.events.decisions import NodeShare

MIB = 2**20
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
IMAGES = {"web:1": 700 * MIB, "db:2": 60 * MIB}

REASON_OF: dict[str, NodeReason] = {
    "NodeUnschedulable": "Unschedulable",
    "NodeName": "NodeName",
    "TaintToleration": "TaintToleration",
    "NodeAffinity": "NodeAffinity",
    "NodePorts": "NodePorts",
    "NodeResourcesFit": "InsufficientResources",
    "Devices": "InsufficientDevices",
    "Dynamic": "LoadTooHigh",
    "PodTopologySpread": "PodTopologySpread",
    "InterPodAffinity": "InterPodAffinity",
    "VolumeRestrictions": "Volumes",
    "NodeVolumeLimits": "Volumes",
    "VolumeBinding": "Volumes",
    "VolumeZone": "Volumes",
    "DynamicResources": "DynamicResources",
}

taints = st.lists(
    st.builds(Taint, st.sampled_from("ab"), st.sampled_from(EFFECTS)), max_size=2
).map(tuple)
tolerations = st.lists(
    st.builds(
        Toleration,
        st.sampled_from(("a", "b", "")),
        st.just("Exists"),
        effect=st.sampled_from(("", *EFFECTS)),
    ),
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
    lambda terms: st.tuples(
        *[st.builds(WeightedPodTerm, st.integers(1, 100), st.just(term)) for term in terms]
    )
)
ports = st.lists(
    st.builds(
        HostPort, st.sampled_from((80, 81)), st.just("TCP"), st.sampled_from(("", "10.0.0.1"))
    ),
    max_size=1,
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
            draw(
                st.sampled_from(
                    ((), (), (Device("T4"), Device("T4")), (Device("T4"), Device("V100")))
                )
            ),
            {HOST: f"n{i}", **draw(st.sampled_from(({ZONE: "x"}, {ZONE: "y"}, {ZONE: "z"}, {})))},
            draw(taints),
            draw(st.integers(0, 9)) == 0,
            images={
                name: IMAGES[name]
                for name in draw(st.lists(st.sampled_from(sorted(IMAGES)), unique=True))
            },
        )
        for i in range(draw(st.integers(1, 7)))
    ]


DEVICES = ((), (), (), (DeviceRequest(1),), (DeviceRequest(2),), (DeviceRequest(1, 400, ("T4",)),))


@st.composite
def some_requirements(draw: st.DrawFn, simple: bool = False, devices: bool = True) -> Requirements:
    often: st.SearchStrategy[bool] = st.just(True) if simple else st.booleans()

    def some(strategy: st.SearchStrategy[Any], otherwise: Any) -> Any:
        return otherwise if draw(often) and draw(st.booleans()) else draw(strategy)

    requests = draw(
        st.sampled_from(
            (
                {},
                {"cpu": 500},
                {"cpu": 700, "memory": 1000 * MIB},
                {"memory": 512 * MIB},
                {"cpu": 1, "example.com/fpga": 1},
                {"cpu": 0, "memory": 1},
            )
        )
    )
    traits = PodTraits(
        namespace=draw(st.sampled_from(("", "default", "other"))),
        labels=draw(pod_labels),
        images=some(st.sampled_from((("web:1",), ("web:1", "db:2"), ("none",))), ()),
        node_name=draw(st.sampled_from(("", "", "", "", "", "", "n0"))),
        preferences=some(
            st.lists(st.builds(WeightedNodeTerm, st.integers(1, 100), node_terms), max_size=2).map(
                tuple
            ),
            (),
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
        draw(st.sampled_from(DEVICES)) if devices else (),
        some(st.sampled_from(({ZONE: "x"}, {HOST: "n1"})), {}),
        some(st.lists(node_terms, max_size=2).map(tuple), ()),
        draw(tolerations),
        None if draw(st.integers(0, 5)) == 0 else traits,
    )


@st.composite
def some_objects(draw: st.DrawFn) -> ClusterObjects:
    teams = draw(
        st.sampled_from(
            (
                (),
                (NamespaceLabels("default", {"team": "x"}),),
                (NamespaceLabels("other", {"team": "x"}),),
            )
        )
    )
    services = draw(st.lists(st.sampled_from("ab"), max_size=1))
    return ClusterObjects.of(
        [
            *teams,
            *(
                PodSelecting("Service", "default", f"s-{app}", LabelSelector({"app": app}))
                for app in services
            ),
        ]
    )


RESOURCES = (
    (WeightedResource("cpu"), WeightedResource("memory")),
    (WeightedResource("cpu", 3), WeightedResource("memory", 2)),
    (
        WeightedResource("memory", 5),
        WeightedResource("example.com/fpga", 2),
        WeightedResource("nvidia.com/gpu", 3),
    ),
)
FIT_ARGUMENTS = (
    *(FitArgs("LeastAllocated", resources) for resources in RESOURCES),
    *(FitArgs("MostAllocated", resources) for resources in RESOURCES),
    *(
        FitArgs(
            "RequestedToCapacityRatio",
            resources,
            (ShapePoint(0, 0), ShapePoint(40, 9), ShapePoint(100, 2)),
        )
        for resources in RESOURCES
    ),
    FitArgs(ignored_groups=("example.com",)),
)
AFFINITY_ARGUMENTS = (
    NodeAffinityArgs(),
    NodeAffinityArgs(
        (NodeTerm((Requirement(ZONE, "Exists"),)),),
        (WeightedNodeTerm(7, NodeTerm((Requirement(ZONE, "In", ("y",)),))),),
    ),
)


@st.composite
def some_profiles(draw: st.DrawFn) -> Profile:
    """Mostly the default; else other strategies, weights, orders and arguments."""
    profile = default_profile()
    if draw(st.booleans()):
        return profile
    resources = draw(st.sampled_from(RESOURCES))
    fit = draw(st.sampled_from(FIT_ARGUMENTS))
    common = (*resources, WeightedResource("ephemeral-storage"))
    arguments = Arguments(
        fit=msgspec.structs.replace(fit, resources=resources) if draw(st.booleans()) else fit,
        balanced=BalancedArgs(resources if draw(st.booleans()) else common, draw(st.booleans())),
        inter_pod=InterPodArgs(draw(st.sampled_from((0, 1, 50))), draw(st.booleans())),
        spread=SpreadArgs(draw(st.booleans())),
        node_affinity=draw(st.sampled_from(AFFINITY_ARGUMENTS)),
    )
    filters = (
        draw(st.permutations(profile.at("filter"))) if draw(st.booleans()) else profile.at("filter")
    )
    scores = [
        PluginUse(use.name, draw(st.integers(1, 5)))
        for use in profile.at("score")
        if draw(st.integers(0, 4))
    ]
    points = {
        **profile.points,
        "filter": tuple(filters),
        "score": tuple(scores),
        "preScore": tuple(
            use for use in profile.at("preScore") if any(s.name == use.name for s in scores)
        ),
    }
    return msgspec.structs.replace(profile, points=points, arguments=arguments)


class Both:
    """The same cluster for both ways."""

    def __init__(
        self, nodes: Sequence[Node], objects: ClusterObjects, profile: Profile, asked: bool = False
    ) -> None:
        """`asked`: rules without an array form may be asked node by node."""
        self.book = Occupancy()
        for event in observed(list(nodes)):
            self.book.observe_nodes(event, 0)
        self.book.observe_objects(objects)
        self.nodes, self.objects = nodes, objects
        self.pods: list[Pod] = []
        self.placer = Placer(self.book.table, profile, self.snapshot if asked else None)
        self.framework = framework(profile)

    def run(self, pods: Sequence[Pod]) -> None:
        """These are seen on their nodes."""
        self.pods += pods
        for node in self.nodes:
            here = tuple(pod for pod in pods if pod.node == node.name)
            if here:
                self.book.observe_pods(PodsObserved("oslo", node.name, here))

    def outcome(self, requirements: Requirements) -> CycleOutcome:
        return self.framework.run(self.snapshot(), Pod("new", "new", requirements))

    def snapshot(self) -> Snapshot:
        return Snapshot.of(self.nodes, self.pods, self.objects)

    def agree(self, requirements: Requirements, sentence: bool = True) -> str | None:
        """Both ways about one more pod; where the arrays place it, and charge it. `sentence`: they
        say the same where no node is feasible. A rule that is asked node by node and refuses the
        pod as a whole is counted once a node."""
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
            assert not sentence or message(self.placer, cls) == outcome.message
            return None
        ties = self.book.table.tie_ranks(cls.seed)
        assert choice.row.name == max(outcome.best, key=lambda name: int(ties[rows[name].slot]))
        assert [c.row.name for c in ranked] == sorted(
            outcome.totals, key=lambda name: (-outcome.totals[name], -int(ties[rows[name].slot]))
        )[:3]
        number = len(self.pods)
        share = NodeShare(choice.row.name, (0,), (choice.devices,))
        self.book.place(f"b{number}", (share,), requirements, 0)
        self.pods.append(
            Pod(
                f"own{number}",
                f"own{number}",
                requirements,
                choice.row.name,
                devices=choice.devices,
            )
        )
        return choice.row.name

    def _same_reasons(self, outcome: CycleOutcome, requirements: Requirements) -> None:
        refused: dict[NodeReason, int] = {}
        for name in self.book.table.rows:
            status = outcome.rejected or outcome.first.get(name)
            if status is not None:
                reason = REASON_OF.get(status.plugin) or reason_of(
                    self.framework.plugins[status.plugin]
                )
                if status.plugin == "NodeResourcesFit" and all(
                    "gpu" in text for text in status.reasons
                ):
                    reason = "InsufficientDevices"
                refused[reason] = refused.get(reason, 0) + 1
        assert self.placer.diagnose(self.book.class_of(requirements)).refused == refused


def running(nodes: Sequence[Node], data: st.DataObject) -> list[Pod]:
    """Pods that do not care whether they fit: others have put them there."""
    said = data.draw(
        st.lists(
            st.tuples(st.sampled_from([n.name for n in nodes]), some_requirements(), st.booleans()),
            max_size=5,
        )
    )
    return [
        Pod(
            f"p{i}",
            f"p{i}",
            msgspec.structs.replace(requirements, devices=()),
            node,
            terminating=terminating,
        )
        for i, (node, requirements, terminating) in enumerate(said)
    ]


def alone(rule: str, arguments: Arguments | None = None) -> Profile:
    """A profile in which this rule alone filters and scores."""
    return only(rule, arguments=arguments).profile


def refused_node(nodes: Sequence[Node], node: Node, asked: Requirements) -> RefusedNode:
    """The node as a rule gets it that is asked what would undo its refusal."""
    both = Both(nodes, ClusterObjects(), default_profile())
    table = both.book.table
    return RefusedNode(table, table.rows[node.name], node, both.book.class_of(asked))


def some_volumes(
    claims: Sequence[str], disks: Sequence[str] = ()
) -> st.SearchStrategy[Requirements]:
    """Pods with volumes: of these claims, of these disks."""
    uses = st.one_of(
        *([st.builds(VolumeUse, st.sampled_from(claims))] if claims else []),
        *(
            [st.builds(VolumeUse, st.just(""), st.sampled_from(disks), st.booleans())]
            if disks
            else []
        ),
    )
    volumes = st.lists(uses, max_size=2).map(tuple)
    return volumes.map(lambda found: Requirements({"cpu": 100}, pod=PodTraits(volumes=found)))


def agree_when_asked(
    rule: str,
    nodes: Sequence[Node],
    objects: ClusterObjects,
    asked: st.SearchStrategy[Requirements],
    data: st.DataObject,
) -> None:
    """A rule without an array form: what it is asked for node by node is what the framework says,
    pod after pod; in one batch as well, where each pod is in sight of those before it."""
    both = Both(nodes, objects, alone(rule), asked=True)
    there = data.draw(
        st.lists(st.tuples(st.sampled_from([n.name for n in nodes]), asked), max_size=4)
    )
    both.run(
        [Pod(f"p{i}", f"p{i}", requirements, node) for i, (node, requirements) in enumerate(there)]
    )
    wanted = data.draw(st.lists(asked, min_size=1, max_size=3))
    batch = both.placer.place_batch(
        [(both.book.class_of(requirements), 1) for requirements in wanted]
    )
    one_by_one = [both.agree(requirements, sentence=False) for requirements in wanted]
    placed = [choices[0].row.name if choices else None for choices in batch]
    assert placed.count(None) <= one_by_one.count(None)
    assert placed == one_by_one or placed.count(None) < one_by_one.count(None)
