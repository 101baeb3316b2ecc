"""What pools say of how their nodes are asked for and consolidated, one by one and together."""

from __future__ import annotations

import pytest
from tests.unit.test_manifests_karpenter import pool, told

from wharfinger.domain.node_pool import (
    CAPACITY_TYPE_LABEL,
    LEAST_SAVING,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.engine.nodes.occupancy import Occupancy
from wharfinger.engine.provisioning.problem import SolveOptions
from wharfinger.events.node_rendering import node_pool
from wharfinger.stages.cluster_snapshots import problem_of, scene_of
from wharfinger.stages.options import least_saving, options_of
from wharfinger.stages.pools import PoolFacts, PoolPolicies


def head(annotations: str) -> str:
    return (
        "apiVersion: karpenter.sh/v1\nkind: NodePool\n"
        f"metadata: {{name: p, annotations: {{{annotations}}}}}\n"
    )


ALL = (
    "wharfinger.io/min-values: BestEffort, wharfinger.io/preferences: Ignore, "
    "wharfinger.io/reserved-offerings: Fallback, "
    "wharfinger.io/spot-to-spot: 'true', wharfinger.io/packing: first-fit, "
    "wharfinger.io/least-saving: '0.25'"
)


def test_a_pool_says_by_annotations_what_is_an_option_elsewhere() -> None:
    found = pool("{}", head(ALL))
    assert (found.min_values, found.preferences, found.reserved, found.packing) == (
        "BestEffort",
        "Ignore",
        "Fallback",
        "first-fit",
    )
    assert (found.spot_to_spot, found.least_saving) == (True, 250_000_000)


def test_a_pool_that_says_nothing_is_as_ever_and_no_node_drifts_by_what_it_says() -> None:
    silent, saying = pool("{}"), pool("{}", head(ALL))
    assert options_of([silent]) == SolveOptions()
    assert least_saving([silent]) == LEAST_SAVING
    assert silent.digest == saying.digest


def test_what_is_said_is_written_as_it_was_read() -> None:
    written = node_pool(pool("{}", head(ALL)), "oslo")
    assert {
        f"wharfinger.io/{k}": v
        for k, v in (
            ("min-values", "BestEffort"),
            ("preferences", "Ignore"),
            ("reserved-offerings", "Fallback"),
            ("spot-to-spot", "true"),
            ("packing", "first-fit"),
            ("least-saving", "0.25"),
        )
    }.items() <= written["metadata"]["annotations"].items()
    assert "annotations" not in node_pool(NodePoolPolicy("p", digest="w1"), "oslo")["metadata"]


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ("wharfinger.io/min-values: bestEffort", "'Strict' or 'BestEffort'"),
        ("wharfinger.io/preferences: ''", "'Respect' or 'Ignore'"),
        ("wharfinger.io/reserved-offerings: 'yes'", "'Strict' or 'Fallback'"),
        ("wharfinger.io/spot-to-spot: 'TRUE'", "'false' or 'true'"),
        ("wharfinger.io/packing: best", "'priced' or 'first-fit'"),
        ("wharfinger.io/least-saving: '0.000'", "dollars an hour above 0"),
        ("wharfinger.io/least-saving: '-1'", "dollars an hour above 0"),
        ("wharfinger.io/least-saving: '0.0000000001'", "at most 9 places"),
    ],
)
def test_what_is_none_of_the_known_words_is_refused_with_its_line(
    annotation: str, text: str
) -> None:
    for spec in ("{}", "{disruption: {consolidationPolicy: WhenUnderutilized}}"):
        beta = head(annotation).replace("/v1\n", "/v1beta1\n") if spec != "{}" else head(annotation)
        (error,) = told(f"{beta}spec: {spec}\n")
        assert error.startswith("f:3: metadata.annotations")
        assert text in error


# --- several


def of(name: str, *capacity: str, count: int = 0, **said: object) -> NodePoolPolicy:
    requirements = [PoolRequirement(CAPACITY_TYPE_LABEL, "In", capacity)] if capacity else []
    if count:
        requirements.append(PoolRequirement("family", "Exists", (), count))
    return NodePoolPolicy(name, requirements=tuple(requirements), **said)  # type: ignore[arg-type]


def test_spot_may_replace_spot_where_every_pool_that_may_buy_it_says_so() -> None:
    bold, shy = of("a", "spot", spot_to_spot=True), of("b", "on-demand")
    assert options_of([bold, shy]).spot_to_spot
    assert not options_of([bold, of("c", "spot", "on-demand")]).spot_to_spot
    assert not options_of([bold, of("c")]).spot_to_spot, (
        "one that says no capacity type may buy any"
    )
    assert not options_of([of("d", "on-demand", spot_to_spot=True)]).spot_to_spot


def test_a_minimum_of_values_is_lowered_where_every_pool_that_asks_for_one_says_so() -> None:
    lenient = of("a", count=2, min_values="BestEffort")
    assert options_of([lenient, of("b")]).min_values == "BestEffort"
    assert options_of([lenient, of("b", count=3)]).min_values == "Strict"


def test_the_more_careful_word_holds() -> None:
    ignoring = of("a", preferences="Ignore", reserved="Fallback")
    assert options_of([ignoring]).preferences == "Ignore"
    assert options_of([ignoring, of("b")]).preferences == "Respect"
    assert not options_of([ignoring, of("b", "spot")]).reserved_strict
    assert options_of([ignoring, of("b", "reserved")]).reserved_strict
    assert options_of([of("a", packing="first-fit"), of("b")]).packing == "first-fit"
    assert least_saving([of("a", least_saving=5_000_000), of("b")]) == 5_000_000
    assert least_saving([of("a", least_saving=1), of("b")]) == LEAST_SAVING
    assert least_saving([of("a", least_saving=1)]) == 1


def test_a_pool_of_a_fixed_number_of_nodes_is_not_asked() -> None:
    fixed = of("f", replicas=3, packing="first-fit", least_saving=9_000_000)
    assert options_of([of("a", preferences="Ignore"), fixed]) == SolveOptions(preferences="Ignore")
    assert least_saving([of("a"), fixed]) == LEAST_SAVING


def test_scenes_and_problems_are_looked_at_as_the_pools_of_their_cluster_say() -> None:
    here = of("a", preferences="Ignore", least_saving=7_000_000, clusters=("oslo",))
    policies = PoolPolicies({"a": here, "b": of("b", packing="first-fit", clusters=("bergen",))})
    scene = scene_of(Occupancy(), policies, PoolFacts(), "oslo", 0)
    assert (scene.options, scene.epsilon) == (SolveOptions(preferences="Ignore"), 7_000_000)
    assert problem_of(Occupancy(), policies, PoolFacts(), "bergen", 0, ()).options == SolveOptions(
        packing="first-fit"
    )
