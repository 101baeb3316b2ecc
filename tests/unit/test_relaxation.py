"""What a pod gives up to find a place, and in which order."""

from __future__ import annotations

from wharfinger.domain.pod_traits import (
    PodTerm,
    PodTraits,
    TopologySpread,
    WeightedNodeTerm,
    WeightedPodTerm,
)
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.taints import Toleration
from wharfinger.domain.workload import Requirements
from wharfinger.engine.provisioning.relaxation import PREFERRED_AWAY, bare, steps

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def zone(*values: str) -> NodeTerm:
    return NodeTerm((Requirement(ZONE, "In", values),))


CHOOSY = Requirements(
    {"cpu": 100},
    node_selector={"team": "blue"},
    node_terms=(zone("a"), zone("b"), zone("c")),
    pod=PodTraits(
        labels={"app": "web"},
        preferences=(WeightedNodeTerm(5, zone("a")), WeightedNodeTerm(50, zone("b"))),
        spread=(
            TopologySpread(ZONE, 1),
            TopologySpread(HOST, 2, hard=False),
            TopologySpread(ZONE, 3, hard=False),
        ),
        affinity=(PodTerm(ZONE),),
        preferred_affinity=(WeightedPodTerm(1, PodTerm(ZONE)), WeightedPodTerm(9, PodTerm(HOST))),
        preferred_anti_affinity=(
            WeightedPodTerm(7, PodTerm(HOST)),
            WeightedPodTerm(7, PodTerm(ZONE)),
        ),
    ),
)

IN_ORDER = [
    f"required node affinity {ZONE} In [a]",
    f"required node affinity {ZONE} In [b]",
    f"preferred pod affinity over {HOST} (weight 9)",
    f"preferred pod affinity over {ZONE} (weight 1)",
    f"preferred pod anti-affinity over {HOST} (weight 7)",
    f"preferred pod anti-affinity over {ZONE} (weight 7)",
    f"preferred node affinity {ZONE} In [b] (weight 50)",
    f"preferred node affinity {ZONE} In [a] (weight 5)",
    f"spread over {HOST} (maxSkew 2, ScheduleAnyway)",
    f"spread over {ZONE} (maxSkew 3, ScheduleAnyway)",
]


def test_one_thing_is_given_up_at_a_time_alternatives_first_and_taints_last() -> None:
    assert [said for _, said in steps(CHOOSY, tolerate_preferred=False)] == IN_ORDER
    assert [said for _, said in steps(CHOOSY, tolerate_preferred=True)] == [
        *IN_ORDER,
        "keeping off nodes tainted PreferNoSchedule",
    ]


def test_what_is_required_stays() -> None:
    *_, (last, _) = steps(CHOOSY, tolerate_preferred=True)
    assert last.node_terms == (zone("c"),)
    assert last.node_selector == {"team": "blue"}
    assert last.traits.spread == (TopologySpread(ZONE, 1),)
    assert last.traits.affinity == (PodTerm(ZONE),)
    assert last.traits.labels == {"app": "web"}
    assert last.tolerations == (PREFERRED_AWAY,)


def test_each_step_leaves_what_the_later_ones_give_up() -> None:
    seen = list(steps(CHOOSY, tolerate_preferred=False))
    first, third = seen[0][0], seen[2][0]
    assert first.node_terms == (zone("b"), zone("c"))
    assert first.traits == CHOOSY.traits
    assert third.traits.preferred_affinity == (WeightedPodTerm(1, PodTerm(ZONE)),)
    assert third.traits.preferred_anti_affinity == CHOOSY.traits.preferred_anti_affinity


def test_who_prefers_nothing_has_nothing_to_give_up() -> None:
    plain = Requirements({"cpu": 100}, node_terms=(zone("a"),))
    assert list(steps(plain, tolerate_preferred=False)) == []
    tolerant = Requirements(tolerations=(Toleration(operator="Exists", effect="PreferNoSchedule"),))
    assert list(steps(tolerant, tolerate_preferred=True)) == []


def test_preferences_that_are_not_looked_at_are_gone_at_once_but_alternatives_are_not() -> None:
    left = bare(CHOOSY)
    assert left.node_terms == CHOOSY.node_terms
    assert [said for _, said in steps(left, tolerate_preferred=True)] == IN_ORDER[:2]
    assert left.traits.spread == (TopologySpread(ZONE, 1),)
    assert bare(left) == left
