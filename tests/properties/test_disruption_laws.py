"""Laws of disruption over random clusters: nobody loses a place, no budget is exceeded, and it
comes to an end."""

# The kernels are typed by the arrays they get.
# mypy: allow-untyped-calls

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.disruption_scenes import (
    AT,
    LARGE,
    MIDDLE,
    SMALL,
    TYPES,
    a_node,
    a_pod,
    a_pool,
    a_scene,
    applied,
    begun,
    price_of,
)
from tests.hunting import examples
from tests.pools import GIB, ZONES

from wharfinger.domain.cluster_objects import ClusterObjects, DisruptionBudget
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import POOL_HASH, POOL_LABEL, NodeBudget
from wharfinger.domain.pod_traits import HostPort, PodTerm, PodTraits, TopologySpread
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.engine.disruption import kernels, vectors
from wharfinger.engine.disruption.candidates import moves
from wharfinger.engine.disruption.cluster_snapshot import (
    UNBUDGETED,
    ClusterSnapshot,
    Command,
    DisruptionVerdict,
)
from wharfinger.engine.disruption.methods import check, survey
from wharfinger.engine.disruption.price_bounds import floors
from wharfinger.engine.disruption.prices import NodePrices
from wharfinger.engine.framework import budgets as pod_budgets
from wharfinger.engine.framework.profile import default_profile, framework
from wharfinger.engine.framework.snapshot import Snapshot
from wharfinger.engine.nodes.columns import Column

FRAMEWORK = framework(default_profile())
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
APPS = ("web", "db", "api")

RANDOM = settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def traits(draw: st.DrawFn) -> PodTraits:
    app = draw(st.sampled_from(APPS))
    selector = LabelSelector({"app": draw(st.sampled_from(APPS))})
    said: dict[str, object] = {}
    match draw(st.integers(0, 9)):
        case 0:
            said["anti_affinity"] = (PodTerm(draw(st.sampled_from((HOST, ZONE))), selector),)
        case 1:
            said["affinity"] = (PodTerm(ZONE, LabelSelector({"app": app})),)
        case 2:
            key = draw(st.sampled_from((HOST, ZONE)))
            said["spread"] = (
                TopologySpread(key, draw(st.integers(1, 2)), True, LabelSelector({"app": app})),
            )
        case 3:
            said["ports"] = (HostPort(draw(st.sampled_from((80, 443)))),)
        case _:
            pass
    return PodTraits(labels={"app": app}, **said)  # type: ignore[arg-type]


@st.composite
def scenes(draw: st.DrawFn, plain: bool = False) -> ClusterSnapshot:
    """A few nodes of one or two pools, and what is on them: as much as fits, as chance has it."""
    pools = [a_pool("general", budgets=(NodeBudget(draw(st.sampled_from(("100%", "50%", "1")))),))]
    if not plain and draw(st.booleans()):
        pools.append(
            a_pool(
                "other", digest="2", consolidation=draw(st.sampled_from(("Balanced", "WhenEmpty")))
            )
        )
    nodes: list[Node] = []
    pods: list[Pod] = []
    for i in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from((SMALL, MIDDLE, LARGE)))
        pool = draw(st.sampled_from(pools)).name
        said: dict[str, object] = {"pool": pool}
        if draw(st.integers(0, 5)) == 0:
            said["annotations"] = {POOL_HASH: "1"}
        if not plain and draw(st.integers(0, 5)) == 0:
            said["taints"] = (Taint("dedicated", "NoSchedule", "x"),)
        node = a_node(f"n{i}", kind, draw(st.sampled_from(ZONES)), **said)  # type: ignore[arg-type]
        nodes.append(node)
        free = {"cpu": kind.allocatable["cpu"], "memory": kind.allocatable["memory"]}
        for k in range(draw(st.integers(0, 4))):
            cpu, gib = draw(st.integers(1, 16)) / 4, draw(st.integers(1, 12)) / 2
            if cpu * 1000 > free["cpu"] or gib * GIB > free["memory"]:
                continue
            free["cpu"] -= round(cpu * 1000)
            free["memory"] -= round(gib * GIB)
            own = (
                PodTraits(labels={"app": draw(st.sampled_from(APPS))}) if plain else draw(traits())
            )
            tolerations = (
                (Toleration("dedicated", "Exists"),)
                if said.get("taints") or draw(st.booleans())
                else ()
            )
            pods.append(
                a_pod(
                    f"{own.labels['app']}-{i}-{k}",
                    node.name,
                    cpu,
                    gib,
                    own,
                    tolerations=tolerations,
                )
            )
    budgets: tuple[DisruptionBudget, ...] = ()
    if draw(st.booleans()):
        app = draw(st.sampled_from(APPS))
        budgets = (
            DisruptionBudget(
                "default", "pdb", LabelSelector({"app": app}), allowed=draw(st.integers(0, 2))
            ),
        )
    return a_scene(nodes, pods, *pools, objects=ClusterObjects(budgets=budgets))


def seated(scene: ClusterSnapshot, moved: set[str]) -> None:
    """Every moved pod would be let onto its node by each plugin of the framework, the others where
    they are."""
    for pod in scene.pods:
        if pod.uid in moved:
            others = [other for other in scene.pods if other.uid != pod.uid]
            outcome = FRAMEWORK.run(
                Snapshot.of(scene.nodes, others, scene.objects),
                msgspec.structs.replace(pod, node=""),
            )
            assert pod.node in outcome.feasible, (pod, outcome.message)


@RANDOM
@given(scenes())
def test_whoever_moves_has_a_place_that_the_framework_would_give_it(scene: ClusterSnapshot) -> None:
    now = scene
    for command in survey(scene).commands:
        now = applied(now, [command])
        seated(now, {move.pod for move in command.moves})


@RANDOM
@given(scenes())
def test_nobody_is_forgotten_and_every_node_is_spoken_of_once(scene: ClusterSnapshot) -> None:
    found = survey(scene)
    gone = [name for command in found.commands for name in command.nodes]
    assert len(set(gone)) == len(gone)
    assert [verdict.node for verdict in found.verdicts] == sorted(node.name for node in scene.nodes)
    assert {verdict.node for verdict in found.verdicts if verdict.rule == "Goes"} == set(gone)
    moved = [move for command in found.commands for move in command.moves]
    assert sorted(move.pod for move in moved) == sorted(
        p.uid for p in scene.pods if p.node in gone and moves(p)
    )
    assert not {move.target for move in moved} & set(gone)


@RANDOM
@given(scenes())
def test_budgets_of_nodes_and_of_pods_hold_over_all_commands_of_a_pass(
    scene: ClusterSnapshot,
) -> None:
    found = survey(scene)
    for pool in scene.pools:
        own = {node.name for node in scene.nodes if node.labels[POOL_LABEL] == pool.name}
        counted = [c for c in found.commands if c.method not in UNBUDGETED]
        going = sum(name in own for command in counted for name in command.nodes)
        said = pool.budgets[0].nodes
        most = -(-len(own) * int(said[:-1]) // 100) if said.endswith("%") else int(said)
        assert going <= most
    moved = {move.pod for command in found.commands for move in command.moves}
    for budget in scene.objects.budgets:
        if budget.allowed == 0:
            assert not any(
                pod_budgets.covers(budget, pod) for pod in scene.pods if pod.uid in moved
            )


@RANDOM
@given(scenes(), st.integers(0, 2**32))
def test_the_order_in_which_facts_lie_changes_nothing(scene: ClusterSnapshot, seed: int) -> None:
    chance = random.Random(seed)
    nodes, pods = list(scene.nodes), list(scene.pods)
    chance.shuffle(nodes)
    chance.shuffle(pods)
    assert survey(replace(scene, nodes=nodes, pods=pods)) == survey(scene)


@RANDOM
@given(scenes())
def test_what_was_found_is_found_again_one_command_after_the_other(scene: ClusterSnapshot) -> None:
    """The stage that owns the cluster checks each command when those before it have been
    decided."""
    now = scene
    for command in survey(scene).commands:
        again = check(now, command.method, command.nodes, command.replacements)
        assert isinstance(again, Command), (command, again)
        assert again.nodes == command.nodes
        assert again.saving >= command.saving
        now = begun(now, command)


@RANDOM
@given(scenes(), st.data())
def test_a_command_is_refused_whole_when_its_node_is_promised_or_gone(
    scene: ClusterSnapshot, data: st.DataObject
) -> None:
    commands = survey(scene).commands
    if not commands:
        return
    command = data.draw(st.sampled_from(commands))
    node = data.draw(st.sampled_from(command.nodes))
    others = [n for n in scene.nodes if n.name != node]
    for changed in (replace(scene, nominated=frozenset({node})), replace(scene, nodes=others)):
        found = check(changed, command.method, command.nodes, command.replacements)
        assert isinstance(found, DisruptionVerdict)
        assert found.node == node


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scenes(plain=True))
def test_on_a_fixed_fleet_proposals_end_and_each_pass_costs_less(scene: ClusterSnapshot) -> None:
    """Each command of consolidation saves at least epsilon, so there is an end to them."""
    now = replace(
        scene, nodes=[msgspec.structs.replace(node, annotations={}) for node in scene.nodes]
    )
    bound = price_of(now) // now.epsilon
    for step in range(50):
        found = survey(now)
        if not found.commands:
            break
        assert all(
            command.saving >= now.epsilon
            for command in found.commands
            if command.method != "emptiness"
        )
        after = applied(now, found.commands, AT + (step + 1) * 3_600_000_000)
        assert price_of(after) <= price_of(now) - sum(command.saving for command in found.commands)
        now = after
    assert not survey(now).commands
    assert step <= bound


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_kernels_and_their_stand_ins_agree(data: st.DataObject) -> None:
    nodes, pods, rows = (data.draw(st.integers(1, n)) for n in (6, 8, 3))
    chance = random.Random(data.draw(st.integers(0, 2**32)))

    def some(most: int, *shape: int) -> Column:
        size = int(np.prod(shape))
        return np.array([chance.randint(0, most) for _ in range(size)], dtype=np.int64).reshape(
            shape
        )

    free = some(40, 3, nodes) * 2**20
    asks = some(12, rows, 3) * 2**20
    given_ = (
        nodes,
        some(rows - 1, pods),
        asks,
        some(1, rows),
        some(1, 2, nodes).astype(np.int8),
        some(1, nodes).astype(np.int8),
    )
    measure = (np.array([4, 3, 0]), np.array([0, 10, 0]), chance.randint(0, 1))
    found = []
    for settle in (kernels.settle, vectors.settle):
        targets, left = np.zeros(pods, dtype=np.int64), free.copy()
        count = settle(*given_, left, *measure, targets)
        assert (left == free).all()
        found.append((count, targets.tolist()))
    assert found[0] == found[1]
    caps, prices = some(20, 4) + 1, some(50, 4) + 1
    costs = [np.zeros(30, dtype=np.int64) for _ in range(2)]
    kernels.cover(caps, prices, costs[0])
    vectors.cover(caps, prices, costs[1])
    assert (costs[0] == costs[1]).all()


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 32), st.integers(1, 60)), min_size=1, max_size=6))
def test_a_floor_is_never_above_what_can_be_bought(pods: list[tuple[int, int]]) -> None:
    """One node for each pod, or one for all where one type holds them all: both cost at least the
    floor."""
    asked = [(cpu * 250, gib * GIB // 2) for cpu, gib in pods]
    pool = a_pool()
    scene = a_scene([], (), pool)
    total = (sum(cpu for cpu, _ in asked), sum(memory for _, memory in asked))
    floor = floors([pool], NodePrices.of(scene), total, total).least(*total)

    def cheapest(cpu: int, memory: int) -> int:
        prices = [
            min(o.price for o in kind.offerings if o.capacity_type == "on-demand")
            for kind in TYPES
            if kind.allocatable["cpu"] >= cpu and kind.allocatable["memory"] >= memory
        ]
        return min(prices, default=10**18)

    assert floor <= cheapest(*total)
    assert floor <= sum(cheapest(cpu, memory) for cpu, memory in asked)


def test_the_same_scene_gives_the_same_bytes() -> None:
    nodes = [a_node(f"n{i}", LARGE, ZONES[i % 2]) for i in range(6)]
    pods = [a_pod(f"web-{i}", f"n{i % 6}", 1.25, 3) for i in range(12)]
    scene = a_scene(nodes, pods)
    encoder = msgspec.json.Encoder()
    assert encoder.encode(survey(scene)) == encoder.encode(survey(scene))
