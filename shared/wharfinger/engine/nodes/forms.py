"""The array forms of a rule: data from which the kernels evaluate it without calling it for each
node.

A rule in `wharfinger.rules.nodes` is a plugin as in kube-scheduler: it evaluates one pod on one
node. To place thousands of pods on thousands of nodes it also returns one of these forms, from its
method `form`:

- `FactColumn`: it reads facts of the node alone (labels, taints, name, cordon), which change
  rarely;
- `AmountFit`, `AmountBalance`: it compares requests with free amounts (`ResourceRows`);
- `TopologyCounter`: it counts other pods by domains of a node label;
- `LoadColumn`, `DeviceColumn`: it reads measured load, or the devices of a node one by one.

A rule without a form, such as most plugins of users, is evaluated node by node (`fallback`). Both
ways must decide the same: the property test of each rule compares them on generated nodes and pods
(`tests/properties/rules/nodes`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Literal

from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.scheduler import ScoringType, WeightedResource
from wharfinger.domain.workload import Requirements
from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import Column, NodeTable
from wharfinger.engine.nodes.counting import Counting
from wharfinger.engine.nodes.node_facts import Bools, NodeFacts
from wharfinger.engine.nodes.tallies import TopologyTally
from wharfinger.engine.nodes.verdicts import NodeVerdict

Scale = Literal["against", "toward", "plain"]
"""How raw scores become 0..100. `against`: 100 for nodes with 0, 0 for the feasible node with the
most. `toward`: 100 for the feasible node with the most. `plain`: they are 0..100 already."""


def refuses_nothing(asked: Requirements, facts: NodeFacts) -> Iterable[tuple[Bools, NodeVerdict]]:
    return ()


def scores_nothing(asked: Requirements, facts: NodeFacts) -> Column | None:
    return None


@dataclass(frozen=True, slots=True, eq=False)
class FactColumn:
    """The rule reads facts of the node alone.

    `refuses`: bool[slots] with the verdict of the nodes where it is true. `scores`: raw scores
    int64[slots], None: 0 everywhere; of one profile one column of each scale but `plain` is read
    here, the others are asked node by node. `reads`: what the rule reads of the requirements beyond
    node selector, node terms and preferences, tolerations and node name: classes that are equal in
    all of it share one column."""

    refuses: Callable[[Requirements, NodeFacts], Iterable[tuple[Bools, NodeVerdict]]] = (
        refuses_nothing
    )
    scores: Callable[[Requirements, NodeFacts], Column | None] = scores_nothing
    scale: Scale = "plain"
    reads: Callable[[Requirements], Hashable] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AmountFit:
    """The rule refuses a node that has less free than is asked for, and scores how much is
    allocated.

    `ignores`: whether a resource is not checked. `short`, `short_of_devices`: the verdicts, the
    second where whole devices lack. `resources`: those that are scored; `shape`: (utilization
    0..100, score 0..100) of RequestedToCapacityRatio."""

    short: NodeVerdict
    short_of_devices: NodeVerdict
    ignores: Callable[[str], bool] | None
    strategy: ScoringType
    resources: tuple[WeightedResource, ...]
    shape: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class AmountBalance:
    """The rule scores how evenly `resources` are allocated; `by_change`: how much the pod changes
    that."""

    resources: tuple[str, ...]
    by_change: bool


@dataclass(frozen=True, slots=True, eq=False)
class TopologyCounter:
    """The rule counts pods by domains of a node label.

    `count`: adds the counters that matter to a class (`topology.Counting`). `speaks`: whether such
    a pod says anything of other pods itself; pods that do not, and look the same to others, share
    their counters. `scores`: which of the kernels' two scores of counters it uses; of one profile
    one rule may use each. `apart`: tallies of pods that keep a pod of the class off their node,
    itself among them, so that one fits on a node."""

    count: Callable[[Counting], None]
    speaks: Callable[[PodTraits], bool]
    scores: Literal["spread", "attraction", ""] = ""
    apart: Callable[[PodClass, NodeTable], list[TopologyTally]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LoadColumn:
    """The rule reads measured load (`engine.load.columns`). `exempt`: whether the filter does not
    apply to such a pod."""

    refused: NodeVerdict
    exempt: Callable[[PodTraits], bool]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceColumn:
    """The rule looks at the devices of a node one by one. `strategy`: by which they are scored;
    empty: they are not. `ignores`: whether a kind of device is not scored."""

    strategy: str
    ignores: Callable[[str], bool]


Form = FactColumn | AmountFit | AmountBalance | TopologyCounter | LoadColumn | DeviceColumn
