"""Pods that stand apart, together or evenly: what users of Kubernetes know of it, one rule at a
time."""

from __future__ import annotations

import msgspec
import pytest
from tests.framework_world import HOST, ZONE, a_node, a_pod, feasible, on, only, reasons, selecting

from wharfinger.domain.cluster_objects import (
    ClusterObject,
    ClusterObjects,
    NamespaceLabels,
    PodSelecting,
)
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import PodTerm, TopologySpread, WeightedPodTerm
from wharfinger.domain.scheduler import Arguments, InterPodArgs, SpreadArgs
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.engine.framework.snapshot import Snapshot

SPREAD = only("PodTopologySpread")
AFFINITY = only("InterPodAffinity")
WEB = {"app": "web"}
ZONES = [a_node("x0", "x"), a_node("x1", "x"), a_node("y0", "y"), a_node("bare")]


def world(
    *pods: Pod, nodes: list[Node] = ZONES, objects: tuple[ClusterObject, ...] = ()
) -> Snapshot:
    return Snapshot.of(nodes, pods, ClusterObjects.of(objects))


def web(name: str, node: str = "", **more: object) -> Pod:
    return a_pod(name, node, labels=WEB, **more)  # type: ignore[arg-type]


# Spread.

NO_LABEL = ("node(s) didn't match pod topology spread constraints (missing required label)",)
UNEVEN = ("node(s) didn't match pod topology spread constraints",)


def evenly(skew: int = 1, key: str = ZONE, **more: object) -> tuple[TopologySpread, ...]:
    return (TopologySpread(key, skew, selector=selecting(app="web"), **more),)  # type: ignore[arg-type]


def test_a_zone_that_is_ahead_is_closed_until_the_other_has_caught_up() -> None:
    pod = web("new", spread=evenly())
    assert reasons(SPREAD, world(web("a", "x0")), pod) == {
        "x0": UNEVEN,
        "x1": UNEVEN,
        "bare": NO_LABEL,
    }
    assert feasible(SPREAD, world(web("a", "x0"), web("b", "y0")), pod) == {"x0", "x1", "y0"}


def test_who_is_about_to_end_is_not_counted() -> None:
    assert "x0" in feasible(
        SPREAD, world(web("a", "x0", terminating=True)), web("new", spread=evenly())
    )


def test_pods_of_other_namespaces_are_not_counted() -> None:
    assert "x0" in feasible(
        SPREAD, world(web("a", "x0", namespace="other")), web("new", spread=evenly())
    )


def test_a_selector_that_selects_by_nothing_counts_nobody() -> None:
    """Though everywhere else it matches everybody; so kube-scheduler has it."""
    everybody = (TopologySpread(ZONE, 1, selector=LabelSelector()),)
    there = world(web("a", "x0"), web("b", "x0"))
    assert feasible(SPREAD, there, web("new", spread=everybody)) == {"x0", "x1", "y0"}


def test_with_fewer_domains_than_asked_for_the_emptiest_counts_as_empty() -> None:
    there = world(web("a", "x0"), web("b", "y0"))
    assert feasible(SPREAD, there, web("new", spread=evenly(min_domains=2))) == {"x0", "x1", "y0"}
    assert feasible(SPREAD, there, web("new", spread=evenly(min_domains=3))) == set()


def test_zones_that_the_pod_cannot_use_do_not_hold_it_back() -> None:
    """Unless it says so: zone y is empty, and the pod is only for x."""
    here = (NodeTerm((Requirement(ZONE, "In", ("x",)),)),)

    def only_x(honours: bool) -> Pod:
        pod = web("new", spread=evenly(honours_affinity=honours))
        return msgspec.structs.replace(
            pod, requirements=msgspec.structs.replace(pod.requirements, node_terms=here)
        )

    there = world(web("a", "x0"))
    assert feasible(SPREAD, there, only_x(True)) == {"x0", "x1", "y0"}
    assert feasible(SPREAD, there, only_x(False)) == {"y0"}


def test_tainted_nodes_count_as_domains_unless_taints_are_honoured() -> None:
    closed = msgspec.structs.replace(a_node("y0", "y"), taints=(Taint("closed", "NoSchedule"),))
    there = world(web("a", "x0"), nodes=[a_node("x0", "x"), closed])
    assert feasible(SPREAD, there, web("new", spread=evenly())) == {"y0"}
    assert feasible(SPREAD, there, web("new", spread=evenly(honours_taints=True))) == {"x0", "y0"}
    tolerating = web("new", spread=evenly(honours_taints=True))
    requirements = msgspec.structs.replace(
        tolerating.requirements, tolerations=(Toleration(operator="Exists"),)
    )
    assert feasible(
        SPREAD, there, msgspec.structs.replace(tolerating, requirements=requirements)
    ) == {"y0"}


def test_by_match_label_keys_each_revision_is_spread_by_itself() -> None:
    def revision(name: str, number: str, node: str = "") -> Pod:
        spread = evenly(match_label_keys=("revision", "absent"))
        return a_pod(name, node, labels={**WEB, "revision": number}, spread=spread)

    there = world(revision("old", "1", "x0"))
    assert feasible(SPREAD, there, revision("new", "2")) == {"x0", "x1", "y0"}
    assert feasible(SPREAD, there, revision("new", "1")) == {"y0"}


SERVICE = PodSelecting("Service", "default", "web", selecting(app="web"))


def best(plugins_args: Arguments, snapshot: Snapshot, pod: Pod) -> set[str]:
    return set(only("PodTopologySpread", arguments=plugins_args).run(snapshot, pod).best)


def test_pods_of_a_service_are_spread_though_they_do_not_say_so() -> None:
    there = (web("a", "x0"), web("b", "x1"))
    nodes = ZONES[:3]
    assert best(Arguments(), world(*there, nodes=nodes, objects=(SERVICE,)), web("new")) == {"y0"}
    assert best(Arguments(), world(*there, nodes=nodes), web("new")) == {"x0", "x1", "y0"}
    off = Arguments(spread=SpreadArgs(system=False))
    assert best(off, world(*there, nodes=nodes, objects=(SERVICE,)), web("new")) == {
        "x0",
        "x1",
        "y0",
    }


def test_a_controller_tells_an_application_too_but_only_the_pods_own_kind() -> None:
    there = (web("a", "x0"), web("b", "x1"))
    owner = PodSelecting("ReplicaSet", "default", "web-1", selecting(app="web"))
    snapshot = world(*there, nodes=ZONES[:3], objects=(owner,))
    assert best(Arguments(), snapshot, web("new", owner="ReplicaSet")) == {"y0"}
    assert best(Arguments(), snapshot, web("new", owner="StatefulSet")) == {"x0", "x1", "y0"}


def test_a_profile_may_spread_hard_what_does_not_say_anything() -> None:
    args = Arguments(spread=SpreadArgs(system=False, constraints=(TopologySpread(ZONE, 1),)))
    plugins = only("PodTopologySpread", arguments=args)
    assert feasible(plugins, world(web("a", "x0"), objects=(SERVICE,)), web("new")) == {"y0"}
    assert feasible(plugins, world(web("a", "x0"), objects=(SERVICE,)), a_pod("new")) == {
        n.name for n in ZONES
    }


def test_nodes_without_the_label_of_a_soft_constraint_come_last() -> None:
    pod = web("new", spread=evenly(hard=False))
    scored = SPREAD.run(world(web("a", "x0")), pod).scores["PodTopologySpread"]
    assert scored is not None
    assert scored.normalised["bare"] == 0
    assert scored.normalised["y0"] > scored.normalised["x0"] == scored.normalised["x1"]


# Affinity and anti-affinity.

APART = (PodTerm(ZONE, selecting(app="web")),)
WITH_WEB = (PodTerm(ZONE, selecting(app="web")),)


def test_a_pod_stands_where_the_others_are() -> None:
    refused = reasons(AFFINITY, world(web("a", "x0")), a_pod("new", affinity=WITH_WEB))
    assert refused == dict.fromkeys(("y0", "bare"), ("node(s) didn't match pod affinity rules",))


def test_a_pod_stands_where_the_others_are_not() -> None:
    refused = reasons(AFFINITY, world(web("a", "x0")), a_pod("new", anti_affinity=APART))
    assert refused == dict.fromkeys(("x0", "x1"), ("node(s) didn't match pod anti-affinity rules",))


def test_the_others_may_mind() -> None:
    refused = reasons(AFFINITY, world(a_pod("shy", "x0", anti_affinity=APART)), web("new"))
    assert refused == dict.fromkeys(
        ("x0", "x1"), ("node(s) didn't satisfy existing pods anti-affinity rules",)
    )


def test_the_first_of_a_group_that_wants_to_stand_together_may_choose() -> None:
    """Where the label is there; a pod that is not of the group itself waits."""
    assert feasible(AFFINITY, world(), web("first", affinity=WITH_WEB)) == {"x0", "x1", "y0"}
    assert feasible(AFFINITY, world(), a_pod("other", affinity=WITH_WEB)) == set()
    assert feasible(AFFINITY, world(web("first", "y0")), web("second", affinity=WITH_WEB)) == {"y0"}


def test_who_is_wanted_matches_all_terms() -> None:
    terms = (PodTerm(ZONE, selecting(app="web")), PodTerm(HOST, selecting(tier="front")))
    there = world(web("a", "x0"), a_pod("b", "x0", labels={"tier": "front"}))
    assert feasible(AFFINITY, there, a_pod("new", affinity=terms)) == set()
    there.add(a_pod("c", "x1", labels={**WEB, "tier": "front"}))
    assert feasible(AFFINITY, there, a_pod("new", affinity=terms)) == {"x1"}


TEAMS = (
    NamespaceLabels("default"),
    NamespaceLabels("red", {"team": "red"}),
    NamespaceLabels("blue", {"team": "blue"}),
)


@pytest.mark.parametrize(
    ("term", "kept_apart_from"),
    [
        (PodTerm(HOST, selecting(app="web")), {"default"}),
        (PodTerm(HOST, selecting(app="web"), ("red",)), {"red"}),
        (PodTerm(HOST, selecting(app="web"), (), selecting(team="blue")), {"blue"}),
        (PodTerm(HOST, selecting(app="web"), ("red",), selecting(team="blue")), {"red", "blue"}),
        (PodTerm(HOST, selecting(app="web"), (), LabelSelector()), {"default", "red", "blue"}),
        (PodTerm(HOST, None), set()),
        (PodTerm(HOST, LabelSelector()), {"default"}),
    ],
)
def test_which_namespaces_a_term_means(term: PodTerm, kept_apart_from: set[str]) -> None:
    """Whichever of the two pods says it."""
    for namespace in ("default", "red", "blue"):
        other, speaker = web("other", namespace=namespace), a_pod("speaker", anti_affinity=(term,))
        apart = namespace in kept_apart_from
        assert ("y0" in feasible(AFFINITY, world(on(other, "y0"), objects=TEAMS), speaker)) != apart
        assert ("y0" in feasible(AFFINITY, world(on(speaker, "y0"), objects=TEAMS), other)) != apart


def test_labels_of_the_pod_itself_narrow_its_terms() -> None:
    blue, green = ({**WEB, "colour": colour} for colour in ("blue", "green"))
    there = world(a_pod("a", "y0", labels=blue))
    same = (PodTerm(ZONE, selecting(app="web"), match_label_keys=("colour",)),)
    other = (PodTerm(ZONE, selecting(app="web"), mismatch_label_keys=("colour",)),)
    assert "y0" not in feasible(AFFINITY, there, a_pod("new", labels=blue, anti_affinity=same))
    assert "y0" in feasible(AFFINITY, there, a_pod("new", labels=green, anti_affinity=same))
    assert "y0" in feasible(AFFINITY, there, a_pod("new", labels=blue, anti_affinity=other))
    assert "y0" not in feasible(AFFINITY, there, a_pod("new", labels=green, anti_affinity=other))


def preferred(
    outcome_of: Snapshot, pod: Pod, args: InterPodArgs | None = None
) -> dict[str, int] | None:
    plugins = only("InterPodAffinity", arguments=Arguments(inter_pod=args or InterPodArgs()))
    scored = plugins.run(outcome_of, pod).scores["InterPodAffinity"]
    return None if scored is None else scored.raw


def test_preferences_of_both_sides_add_up() -> None:
    likes = (WeightedPodTerm(10, WITH_WEB[0]),)
    dislikes = (WeightedPodTerm(3, PodTerm(ZONE, selecting(app="new"))),)
    needs = (PodTerm(ZONE, selecting(app="new")),)
    there = world(web("a", "x0", preferred_anti_affinity=dislikes), web("b", "y0", affinity=needs))
    pod = a_pod("new", labels={"app": "new"}, preferred_affinity=likes)
    assert preferred(there, pod) == {"bare": 0, "x0": 7, "x1": 7, "y0": 11}
    assert preferred(there, pod, InterPodArgs(hard_weight=5)) == {
        "bare": 0,
        "x0": 7,
        "x1": 7,
        "y0": 15,
    }
    assert preferred(there, a_pod("new", labels={"app": "new"})) == {
        "bare": 0,
        "x0": -3,
        "x1": -3,
        "y0": 1,
    }
    ignoring = InterPodArgs(ignores_preferences_of_others=True)
    assert preferred(there, a_pod("new", labels={"app": "new"}), ignoring) is None
    assert preferred(there, a_pod("indifferent")) is None
