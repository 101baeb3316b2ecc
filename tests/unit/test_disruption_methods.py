"""Which nodes go, in what way, and what is said of those that stay."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from tests.disruption_scenes import (
    AT,
    HOUR,
    LARGE,
    MIDDLE,
    SMALL,
    TYPES,
    UPKEEP,
    a_node,
    a_pod,
    a_pool,
    a_scene,
    going,
    verdict_on,
)
from tests.pools import GIB, ZONES, a_type, money, offered

from wharfinger.domain.cluster_objects import ClusterObjects, DisruptionBudget
from wharfinger.domain.node_pool import (
    DO_NOT_DISRUPT,
    POOL_HASH,
    ZONE_LABEL,
    NodeBudget,
    PoolRequirement,
)
from wharfinger.domain.pod_traits import PodTerm, PodTraits, TopologySpread
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.engine.disruption.cluster_snapshot import Command, DisruptionVerdict
from wharfinger.engine.disruption.methods import check, survey
from wharfinger.engine.disruption.price_bounds import floors
from wharfinger.engine.disruption.prices import NodePrices
from wharfinger.engine.provisioning.problem import SolveOptions


def test_a_node_that_holds_nothing_goes() -> None:
    found = survey(a_scene([a_node("n1"), a_node("n2")], [a_pod("web-1", "n2", 3.5)]))
    (command,) = found.commands
    assert (command.method, command.nodes, command.replacements) == ("emptiness", ("n1",), ())
    assert command.saving == money(0.192)
    assert command.arithmetic == "1 node: 1 x m5.xlarge at 0.192 $/h; saves 0.192 $/h"
    assert verdict_on(found, "n1").rule == "Goes"


def test_daemons_mirrors_and_what_has_ended_go_with_their_node() -> None:
    daemon = a_pod("proxy-1", "n1", upkeep=PodUpkeep(owners=(Owner("DaemonSet", "proxy"),)))
    mirror = a_pod("kubelet-1", "n1", upkeep=PodUpkeep(static=True))
    done = a_pod("job-1", "n1", upkeep=msgspec.structs.replace(UPKEEP, phase="Succeeded"))
    leaving = a_pod("web-9", "n1", terminating=True)
    found = survey(
        a_scene(
            [a_node("n1"), a_node("n2")], [daemon, mirror, done, leaving, a_pod("web-1", "n2", 3.5)]
        )
    )
    assert [command.nodes for command in found.commands] == [("n1",)]
    assert found.commands[0].moves == ()


def test_what_is_on_a_node_goes_where_there_is_room() -> None:
    found = survey(
        a_scene([a_node("n1"), a_node("n2")], [a_pod("web-1", "n1"), a_pod("web-2", "n2", 2)])
    )
    (command,) = found.commands
    assert (command.method, command.nodes) == ("single-node", ("n1",))
    assert [(move.pod, move.source, move.target) for move in command.moves] == [
        ("uid-web-1", "n1", "n2")
    ]
    assert verdict_on(found, "n2").rule == "Receives"


def test_a_node_is_replaced_by_a_smaller_one_that_holds_all() -> None:
    scene = a_scene([a_node("n1", LARGE)], [a_pod("web-1", "n1", 3)])
    (command,) = survey(scene).commands
    assert (command.method, command.nodes, len(command.replacements)) == ("single-node", ("n1",), 1)
    assert command.replacements[0].instance_types == ("m5.xlarge",)
    assert command.replacements[0].pods == {"uid-web-1": 1}
    assert [move.target for move in command.moves] == ["new:0"]
    assert command.saving == money(0.192)
    assert command.arithmetic == (
        "1 node: 1 x m5.2xlarge at 0.384 $/h; 1 new node: m5.xlarge at 0.192 $/h; saves 0.192 $/h"
    )


def test_several_nodes_are_replaced_by_fewer() -> None:
    """Karpenter's own case, with prices under which no node alone can be replaced by anything."""
    nodes = [a_node(f"n{i}") for i in range(3)]
    pods = [a_pod(f"web-{i}", f"n{i}", 2.6, 10) for i in range(3)]
    big = a_type("big", 8, 32, offered(0.3))
    scene = replace(a_scene(nodes, pods), types={"default": (MIDDLE, big)})
    found = survey(scene)
    (command,) = found.commands
    assert command.method == "multi-node"
    assert len(command.nodes) >= 2
    assert [claim.instance_types for claim in command.replacements] == [("big",)]
    assert command.saving == len(command.nodes) * money(0.192) - money(0.3)
    assert command.arithmetic.startswith(
        f"{len(command.nodes)} nodes: {len(command.nodes)} x m5.xlarge at 0.192 $/h = "
    )


def test_two_nodes_are_not_replaced_by_one_of_them() -> None:
    """What has no cheaper type than its own may as well stay."""
    nodes = [a_node("n1", LARGE), a_node("n2", MIDDLE)]
    pods = [a_pod("web-1", "n1", 5, 20), a_pod("web-2", "n2", 3.4)]
    scene = replace(a_scene(nodes, pods), types={"default": (MIDDLE, LARGE)})
    assert survey(scene).commands == ()


def test_a_saving_below_epsilon_is_none() -> None:
    cheaper = a_type("m5.xlarge-b", 4, 16, offered(0.1919))
    scene = a_scene([a_node("n1")], [a_pod("web-1", "n1", 3)])
    scene = replace(scene, types={"default": (MIDDLE, cheaper)})
    found = survey(scene)
    assert found.commands == ()
    assert verdict_on(found, "n1").rule == "NotCheaper"


def test_why_a_node_stays_is_told_with_its_numbers() -> None:
    found = survey(a_scene([a_node("n1")], [a_pod("web-1", "n1", 3)]))
    verdict = verdict_on(found, "n1")
    assert verdict.rule == "NotCheaper"
    assert "0.192 $/h" in verdict.sentence
    assert "1 pod of 1 would need new nodes" in verdict.sentence


# --- spot


def test_a_node_on_demand_is_replaced_by_spot_and_bound_to_it() -> None:
    (command,) = survey(
        a_scene([a_node("n1")], [a_pod("web-1", "n1", 3)], a_pool(requirements=()))
    ).commands
    (claim,) = command.replacements
    bought = [r.values for r in claim.requirements if r.key == "karpenter.sh/capacity-type"]
    assert bought == [("spot",)]
    assert command.saving == money(0.192) - claim.worst_price


def test_spot_is_not_replaced_by_spot_unless_that_is_wanted_and_there_are_enough_types() -> None:
    many = tuple(a_type(f"t{i:02d}", 4, 16, offered(None, 0.05 + i / 1000)) for i in range(16))
    scene = a_scene(
        [a_node("n1", bought="spot")], [a_pod("web-1", "n1", 3)], a_pool(requirements=())
    )
    few = replace(
        scene, types={"default": (*TYPES, many[0])}, options=SolveOptions(spot_to_spot=True)
    )
    enough = replace(
        scene, types={"default": (*TYPES, *many)}, options=SolveOptions(spot_to_spot=True)
    )
    off = replace(enough, options=SolveOptions())
    assert survey(off).commands == ()
    assert "spot" in verdict_on(survey(off), "n1").sentence
    assert survey(few).commands == ()
    assert "15 cheaper instance types are needed" in verdict_on(survey(few), "n1").sentence
    (command,) = survey(enough).commands
    assert command.replacements[0].instance_types == tuple(f"t{i:02d}" for i in range(15))


# --- who may not be touched


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("Disrupting", {"disrupting": {"n1": "Drifted"}}),
        ("Closed", {"closed": frozenset({"n1"})}),
        ("Nominated", {"nominated": frozenset({"n1"})}),
        ("Resting", {"resting": {"n1": ("it was moved to lately", AT + HOUR)}}),
    ],
)
def test_nodes_that_something_goes_on_with_are_left_alone(
    rule: str, said: dict[str, object]
) -> None:
    found = survey(a_scene([a_node("n1"), a_node("n2")], (), **said))
    assert going(found) == ["n2"]
    assert verdict_on(found, "n1").rule == rule


def test_a_node_that_is_not_initialized_neither_goes_nor_takes_anything() -> None:
    young = a_node("n1", labels={"karpenter.sh/initialized": "false"})
    scene = a_scene([young, a_node("n2")], [a_pod("web-1", "n2", 3)])
    found = survey(scene)
    assert found.commands == ()
    assert verdict_on(found, "n1").rule == "NotInitialized"


def test_a_node_may_ask_to_be_left_alone() -> None:
    node = a_node("n1", annotations={DO_NOT_DISRUPT: "true"})
    assert verdict_on(survey(a_scene([node])), "n1").rule == "DoNotDisrupt"


def test_a_pod_may_ask_to_be_left_alone() -> None:
    pod = a_pod(
        "web-1", "n1", upkeep=msgspec.structs.replace(UPKEEP, annotations={DO_NOT_DISRUPT: "true"})
    )
    verdict = verdict_on(survey(a_scene([a_node("n1"), a_node("n2")], [pod])), "n1")
    assert (verdict.rule, verdict.sentence) == (
        "PodDoNotDisrupt",
        f"pod default/web-1 is annotated {DO_NOT_DISRUPT}=true",
    )


def test_a_pod_that_nobody_would_make_again_holds_its_node() -> None:
    bare = a_pod("shell-1", "n1", upkeep=PodUpkeep())
    unknown = a_pod("other-1", "n2", upkeep=None)
    ours = a_pod("web-1", "n3", upkeep=None, binding="web", ordinal=0)
    found = survey(a_scene([a_node("n1"), a_node("n2"), a_node("n3")], [bare, unknown, ours]))
    assert verdict_on(found, "n1").rule == "NoOwner"
    assert verdict_on(found, "n2").rule == "Unknown"
    assert going(found) == ["n3"]


def test_a_budget_of_pods_that_lets_none_go_holds_the_node() -> None:
    selector = LabelSelector({"app": "web"})
    pods = [a_pod("web-1", "n1"), a_pod("web-2", "n2", 2)]

    def held(*budgets: DisruptionBudget) -> DisruptionVerdict:
        return verdict_on(
            survey(
                a_scene([a_node("n1"), a_node("n2")], pods, objects=ClusterObjects(budgets=budgets))
            ),
            "n1",
        )

    none = held(DisruptionBudget("default", "web", selector, allowed=0))
    assert none.rule == "PodDisruptionBudget"
    assert "default/web" in none.sentence
    assert (
        held(DisruptionBudget("default", "web", selector, min_available="2")).rule
        == "PodDisruptionBudget"
    )
    assert held(DisruptionBudget("default", "web", selector, allowed=1)).rule == "Goes"
    assert (
        held(DisruptionBudget("default", "web", selector, allowed=0, disrupted=("web-1",))).rule
        == "Goes"
    )
    two = held(*(DisruptionBudget("default", f"web{i}", selector, allowed=1) for i in range(2)))
    assert two.rule == "PodDisruptionBudget"
    assert "2 PodDisruptionBudgets" in two.sentence


def test_pools_say_whether_and_when_they_are_consolidated() -> None:
    nodes = [a_node("n1"), a_node("n2")]
    pods = [a_pod("web-1", "n1"), a_pod("web-2", "n2", 2)]
    rules = {
        "Never": a_pool(empty_after_s=None),
        "Static": a_pool(replicas=2),
        "WhenEmpty": a_pool(consolidation="WhenEmpty"),
    }
    for rule, pool in rules.items():
        found = survey(a_scene(nodes, pods, pool))
        assert found.commands == ()
        assert verdict_on(found, "n1").rule == rule


def test_a_node_is_looked_at_when_it_has_been_quiet_for_long_enough() -> None:
    scene = a_scene(
        [a_node("n1")], (), a_pool(empty_after_s=60), quiet_since={"n1": AT - 20_000_000}
    )
    verdict = verdict_on(survey(scene), "n1")
    assert (verdict.rule, verdict.until) == ("Quiet", AT + 40_000_000)
    assert going(survey(replace(scene, at=verdict.until))) == ["n1"]


def test_consolidation_does_not_count_on_nodes_that_are_not_quiet() -> None:
    scene = a_scene(
        [a_node("n1"), a_node("n2")],
        [a_pod("web-1", "n1", 3)],
        a_pool(empty_after_s=60),
        quiet_since={"n1": AT - HOUR, "n2": AT},
    )
    assert survey(scene).commands == ()
    assert going(survey(replace(scene, quiet_since={"n1": AT - HOUR, "n2": AT - HOUR}))) == ["n2"]


def test_a_node_without_a_known_price_is_not_consolidated() -> None:
    found = survey(a_scene([a_node("n1", a_type("strange"), created_us=AT - HOUR // 2)]))
    assert verdict_on(found, "n1").rule == "PriceUnknown"


def test_nodes_of_no_pool_are_nobody_s_business_but_take_pods() -> None:
    foreign = a_node("n2", labels={"karpenter.sh/nodepool": "theirs"})
    found = survey(a_scene([a_node("n1"), foreign], [a_pod("web-1", "n1")]))
    assert going(found) == ["n1"]
    assert verdict_on(found, "n2").rule == "NotManaged"


# --- budgets


def test_a_pass_stays_within_the_budget_of_each_pool_over_all_commands() -> None:
    nodes = [a_node(f"n{i:02d}") for i in range(15)]
    found = survey(a_scene(nodes, (), a_pool(budgets=(NodeBudget("10%"),))))
    assert len(going(found)) == 2
    verdict = verdict_on(found, "n14")
    assert verdict.rule == "BudgetSpent"
    assert verdict.sentence == "budget 10% allows 2 of 15 nodes at once, and 2 go by this pass"


def test_what_goes_already_and_what_is_not_ready_is_taken_from_the_budget() -> None:
    nodes = [a_node(f"n{i:02d}") for i in range(9)] + [a_node("n09", ready=False)]
    scene = a_scene(nodes, (), a_pool(budgets=(NodeBudget("3"),)), disrupting={"n00": "Empty"})
    assert len(going(survey(scene))) == 1


def test_budgets_are_told_apart_by_reason() -> None:
    budgets = (NodeBudget("0", ("Underutilized",)), NodeBudget("100%", ("Empty",)))
    found = survey(
        a_scene(
            [a_node("n1"), a_node("n2"), a_node("n3")],
            [a_pod("web-1", "n2"), a_pod("web-2", "n3", 2)],
            a_pool(budgets=budgets),
        )
    )
    assert going(found) == ["n1"]
    assert verdict_on(found, "n2").rule == "BudgetSpent"


# --- drift, expiry, static pools


def test_a_node_made_by_an_older_pool_drifts_and_is_replaced_at_any_price() -> None:
    old = a_node("n1", annotations={POOL_HASH: "1"})
    pool = a_pool(digest="2", consolidation="WhenEmpty")
    (command,) = survey(a_scene([old], [a_pod("web-1", "n1", 3)], pool)).commands
    (claim,) = command.replacements
    assert (command.method, claim.instance_types[0]) == ("drift", "m5.xlarge")
    assert command.saving == money(0.192) - claim.worst_price


def test_a_node_whose_labels_its_pool_does_not_allow_any_more_drifts() -> None:
    pool = a_pool(
        requirements=(PoolRequirement("topology.kubernetes.io/zone", "In", (ZONES[1],)),),
        consolidation="WhenEmpty",
    )
    (command,) = survey(
        a_scene([a_node("n1"), a_node("n2", zone=ZONES[1])], [a_pod("web-1", "n1")], pool)
    ).commands[-1:]
    assert (command.method, command.nodes) == ("drift", ("n1",))


def test_a_node_of_a_type_that_is_gone_drifts_after_an_hour() -> None:
    kind = a_type("strange")
    pool = a_pool(consolidation="WhenEmpty")
    young, old = (
        a_node("n1", kind, created_us=AT - HOUR // 2),
        a_node("n2", kind, created_us=AT - HOUR),
    )
    found = survey(a_scene([young, old], [a_pod("a-1", "n1"), a_pod("b-1", "n2")], pool))
    assert going(found) == ["n2"]


def test_the_empty_drift_first_and_then_the_oldest_within_the_budget() -> None:
    nodes = [
        a_node(f"n{i}", annotations={POOL_HASH: "1"}, created_us=AT - (9 - i) * HOUR)
        for i in range(4)
    ]
    pool = a_pool(digest="2", empty_after_s=None, budgets=(NodeBudget("2", ("Drifted",)),))
    found = survey(a_scene(nodes, [a_pod(f"web-{i}", f"n{i}") for i in range(3)], pool))
    assert going(found) == ["n3", "n0"]


def test_pods_only_delay_drift_where_the_pool_says_for_how_long() -> None:
    held = a_pod(
        "web-1", "n1", upkeep=msgspec.structs.replace(UPKEEP, annotations={DO_NOT_DISRUPT: "true"})
    )
    old = a_node("n1", annotations={POOL_HASH: "1"})
    for grace, rule in ((None, "PodDoNotDisrupt"), (300, "Goes")):
        pool = a_pool(digest="2", termination_grace_s=grace)
        assert verdict_on(survey(a_scene([old, a_node("n2")], [held], pool)), "n1").rule == rule


def test_an_expired_node_goes_without_regard_to_budgets_once_its_pods_have_a_place() -> None:
    pool = a_pool(expire_after_s=3600, budgets=(NodeBudget("0"),))
    young = a_node("n2", created_us=AT - HOUR // 2)
    found = survey(a_scene([a_node("n1"), young], [a_pod("web-1", "n1")], pool))
    (command,) = found.commands
    assert (command.method, command.nodes, command.moves[0].target) == ("expiry", ("n1",), "n2")
    nowhere = survey(replace(a_scene([a_node("n1")], [a_pod("web-1", "n1")], pool), types={}))
    assert nowhere.commands == ()
    assert verdict_on(nowhere, "n1").rule == "NoRoom"


def test_when_a_node_will_expire_is_told() -> None:
    pool = a_pool(expire_after_s=2 * 24 * 3600)
    verdict = verdict_on(survey(a_scene([a_node("n1")], [a_pod("web-1", "n1", 3.9)], pool)), "n1")
    assert verdict.until == AT + 24 * HOUR


def test_a_static_pool_sheds_what_it_has_too_many_of_the_emptiest_first() -> None:
    nodes = [a_node(f"n{i}") for i in range(3)]
    pods = [a_pod("web-1", "n0"), a_pod("web-2", "n1"), a_pod("web-3", "n1")]
    found = survey(a_scene(nodes, pods, a_pool(replicas=1, empty_after_s=None)))
    assert [command.method for command in found.commands] == ["static-scale-down"] * 2
    assert going(found) == ["n2", "n0"]


def test_a_drifted_node_of_a_static_pool_is_replaced_by_one_of_the_same_pool() -> None:
    old = a_node("n1", annotations={POOL_HASH: "1"})
    pool = a_pool("fixed", replicas=2, digest="2", empty_after_s=None)
    nodes = [
        msgspec.structs.replace(n, labels={**n.labels, "karpenter.sh/nodepool": "fixed"})
        for n in (old, a_node("n2"))
    ]
    (command,) = survey(a_scene(nodes, [a_pod("web-1", "n1")], pool, a_pool())).commands
    assert command.method == "static-drift"
    assert [claim.pool for claim in command.replacements] == ["fixed"]
    assert [move.target for move in command.moves] == ["new:0"]


# --- balance


def test_a_balanced_pool_moves_pods_only_for_a_saving_that_is_worth_it() -> None:
    """Five pods of nine for a fifth of the price is too much, one pod of nine is not."""
    nodes = [a_node("n1"), a_node("n2", LARGE), a_node("n3", LARGE)]
    busy = [a_pod(f"web-{i}", "n1", 0.2) for i in range(30)]
    rest = [a_pod("big-1", "n2", 1), a_pod("big-2", "n3", 1.5)]
    pool = a_pool(consolidation="Balanced")
    found = survey(a_scene(nodes[:1] + nodes[1:2], [*busy[:15], rest[0]], pool))
    assert verdict_on(found, "n2").rule == "Goes"
    found = survey(
        a_scene([a_node("n1", SMALL), nodes[1]], [*busy[:9], a_pod("big-1", "n2", 5)], pool)
    )
    assert verdict_on(found, "n1").rule == "Unbalanced"
    assert "must be at least 1/2 of the other" in verdict_on(found, "n1").sentence


# --- what minds others


def test_pods_that_do_not_bear_each_other_are_not_put_together() -> None:
    alone = PodTraits(
        labels={"app": "web"},
        anti_affinity=(PodTerm("kubernetes.io/hostname", LabelSelector({"app": "web"})),),
    )
    pods = [a_pod("web-1", "n1", 0.5, traits=alone), a_pod("web-2", "n2", 0.5, traits=alone)]
    found = survey(a_scene([a_node("n1", SMALL), a_node("n2", SMALL)], pods))
    assert found.commands == ()


def test_pods_that_want_to_stand_together_move_together() -> None:
    zone = "topology.kubernetes.io/zone"
    together = PodTraits(
        labels={"app": "db"}, affinity=(PodTerm(zone, LabelSelector({"app": "db"})),)
    )
    pods = [a_pod(f"db-{i}", "n1", 0.5, traits=together) for i in range(3)]
    pods.append(a_pod("web-1", "n2", 5))
    found = survey(a_scene([a_node("n1"), a_node("n2", LARGE, zone=ZONES[1])], pods))
    assert going(found) == ["n1"]
    assert {move.target for move in found.commands[0].moves} == {"n2"}


def test_pods_that_want_to_be_in_one_zone_are_not_divided_between_old_nodes_and_new_ones() -> None:
    zone = "topology.kubernetes.io/zone"
    near = PodTraits(labels={"app": "db"}, affinity=(PodTerm(zone, LabelSelector({"app": "db"})),))
    nodes = [
        a_node("n0", MIDDLE, zone=ZONES[1], annotations={POOL_HASH: "2"}),
        a_node("n1", LARGE, zone=ZONES[1], annotations={POOL_HASH: "1"}),
    ]
    pods = [
        a_pod("api-1", "n0", 3.25, 6),
        a_pod("db-1", "n1", 0.5, 0.5, traits=near),
        a_pod("db-2", "n1", 3.5, 1.5),
    ]
    scene = a_scene(nodes, pods, a_pool(consolidation="WhenEmpty", digest="2"))
    (command,) = survey(scene).commands
    assert (command.method, command.nodes) == ("drift", ("n1",))
    assert {move.target for move in command.moves} == {"new:0"}


def test_a_spread_over_hosts_counts_the_nodes_that_are_made() -> None:
    """One new node for db, one for both replicas of web, would hold none and two of web."""
    host = "kubernetes.io/hostname"
    web = LabelSelector({"app": "web"})
    spread = (TopologySpread(host, 1, True, web),)
    nodes = [
        a_node(
            "n0",
            SMALL,
            taints=(Taint("dedicated", "NoSchedule", "x"),),
            annotations={POOL_HASH: "2"},
        ),
        a_node(
            "n1",
            SMALL,
            taints=(Taint("dedicated", "NoSchedule", "x"),),
            annotations={POOL_HASH: "another"},
        ),
    ]
    near = PodTraits(labels={"app": "web"}, affinity=(PodTerm(ZONE_LABEL, web),))
    apart = PodTraits(labels={"app": "db"}, anti_affinity=(PodTerm(host, web),))
    pods = [
        a_pod(
            "web-0", "n0", 0.25, 0.5, traits=near, tolerations=(Toleration("dedicated", "Exists"),)
        ),
        a_pod(
            "web-1", "n1", 0.25, 0.5, traits=near, tolerations=(Toleration("dedicated", "Exists"),)
        ),
        a_pod(
            "db-1", "n1", 0.25, 0.5, traits=apart, tolerations=(Toleration("dedicated", "Exists"),)
        ),
        a_pod(
            "web-2",
            "n1",
            0.25,
            0.5,
            traits=PodTraits(labels={"app": "web"}, spread=spread),
            tolerations=(Toleration("dedicated", "Exists"),),
        ),
    ]
    found = survey(a_scene(nodes, pods, a_pool(digest="2")))
    for command in found.commands:
        on = {move.pod: move.target for move in command.moves}
        assert on.get("uid-web-1") != on.get("uid-web-2"), command


def test_new_nodes_for_nothing_cost_nothing() -> None:
    scene = a_scene([a_node("n1")])
    total = (4000, 16 * GIB)
    assert floors(scene.pools, NodePrices.of(scene), total, total).about([]) == 0


# --- again, when it is to be decided


def test_what_was_found_holds_as_long_as_nothing_has_changed() -> None:
    scene = a_scene([a_node("n1"), a_node("n2")], [a_pod("web-1", "n1"), a_pod("web-2", "n2", 2)])
    (command,) = survey(scene).commands
    assert check(scene, command.method, command.nodes, command.replacements) == command


def test_a_proposal_is_refused_when_what_it_counted_on_has_gone() -> None:
    scene = a_scene([a_node("n1"), a_node("n2")], [a_pod("web-1", "n1"), a_pod("web-2", "n2", 2)])
    refusals = {
        "Changed": replace(scene, nodes=[a_node("n2")]),
        "Nominated": replace(scene, nominated=frozenset({"n1"})),
        "NoRoom": replace(scene, pods=[*scene.pods, a_pod("web-3", "n2", 1.5)]),
        "BudgetSpent": replace(scene, pools=(a_pool(budgets=(NodeBudget("0"),)),)),
        "Disrupting": replace(scene, disrupting={"n1": "Empty"}),
    }
    for rule, changed in refusals.items():
        found = check(changed, "single-node", ("n1",))
        assert isinstance(found, DisruptionVerdict), rule
        assert found.rule == rule


def test_a_replacement_holds_if_all_its_types_still_do() -> None:
    scene = a_scene([a_node("n1", LARGE)], [a_pod("web-1", "n1", 1.5)])
    (command,) = survey(scene).commands
    again = check(scene, command.method, command.nodes, command.replacements)
    assert isinstance(again, Command)
    assert again.saving == command.saving
    grown = replace(scene, pods=[*scene.pods, a_pod("web-2", "n1", 1.5)])
    refused = check(grown, command.method, command.nodes, command.replacements)
    assert isinstance(refused, DisruptionVerdict)
    assert refused.rule == "NotCheaper"


def test_fewer_new_nodes_than_proposed_are_as_well() -> None:
    scene = a_scene([a_node("n1", LARGE)], [a_pod("web-1", "n1", 1.5)])
    (command,) = survey(scene).commands
    roomy = replace(scene, nodes=[*scene.nodes, a_node("n2")])
    found = check(roomy, command.method, command.nodes, command.replacements)
    assert isinstance(found, Command)
    assert found.replacements == ()


def test_an_empty_node_that_holds_something_now_is_not_empty() -> None:
    scene = a_scene([a_node("n1"), a_node("n2")], [a_pod("web-1", "n1")])
    found = check(scene, "emptiness", ("n1",))
    assert isinstance(found, DisruptionVerdict)
    assert found.rule == "NotEmpty"
