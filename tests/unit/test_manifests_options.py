"""What annotations say beyond a policy's API: what they may say, and how it is told when they say
something else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.placement import Placement, ReplicaLimit, ReplicaScheduling, Steadiness
from wharfinger.events.intake import compile_manifests
from wharfinger.manifests.model import ExpectedError
from wharfinger.manifests.parse import load_manifests
from wharfinger.manifests.wharfinger import options


def placed(**said: str) -> Placement:
    named = {options.PREFIX + name.replace("_", "-"): text for name, text in said.items()}
    return options.extended(Placement(), named)


def limits(least: str = "", most: str = "") -> tuple[ReplicaLimit, ...]:
    said = {"min_replicas": least, "max_replicas": most}
    return placed(**{name: text for name, text in said.items() if text}).replicas.limits


def test_where_nothing_is_said_nothing_changes() -> None:
    assert placed() == Placement()
    assert (
        placed(remainder="webster", failover="evict", stabilization_window_s="300") == Placement()
    )


def test_each_says_one_thing() -> None:
    assert placed(remainder="in-order").replicas == ReplicaScheduling(remainder="in-order")
    assert placed(static_weights="within-capacity").replicas == ReplicaScheduling(
        within_capacity=True
    )
    assert placed(failover="reserve") == Placement(failover="reserve")
    assert placed(compat="strict") == Placement(strict=True)
    assert placed(
        failback_after_s="0",
        rebalance_after_s="60",
        stabilization_window_s="0",
        rebalance_gain_percent="0",
        rebalance_budget_percent="100",
    ) == Placement(steadiness=Steadiness(0, 60, 0, 0, 100))


def test_limits_are_by_cluster_and_the_star_is_for_all_others() -> None:
    assert limits("oslo=2, *=1", "oslo=10,*=5") == (
        ReplicaLimit("oslo", 2, 10),
        ReplicaLimit("*", 1, 5),
    )
    assert limits(most="oslo=10") == (ReplicaLimit("oslo", 0, 10),)
    assert limits(least="bergen=0,alta=3") == (ReplicaLimit("alta", 3), ReplicaLimit("bergen", 0))


def test_a_cluster_that_one_list_names_has_what_the_other_says_of_all() -> None:
    assert limits("*=1", "oslo=10") == (ReplicaLimit("oslo", 1, 10), ReplicaLimit("*", 1))
    assert limits("oslo=2", "*=5") == (ReplicaLimit("oslo", 2, 5), ReplicaLimit("*", 0, 5))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("remainder", "random", "'webster' or 'in-order'"),
        ("remainder", "", "'webster' or 'in-order'"),
        ("failover", "Reserve", "'evict' or 'reserve'"),
        ("static-weights", "true", "'within-capacity'"),
        ("compat", "yes", "'strict'"),
        ("failback-after-s", "-1", "an integer from 0 to 100000000"),
        ("failback-after-s", "1m", "an integer from 0 to 100000000"),
        ("rebalance-after-s", "9" * 400, "an integer from 0 to 100000000"),
        ("stabilization-window-s", "1.5", "an integer from 0 to 100000000"),
        ("rebalance-gain-percent", "101", "an integer from 0 to 100"),
        ("rebalance-budget-percent", "0", "an integer from 1 to 100"),
        ("rebalance-budget-percent", "\u0665", "an integer from 1 to 100"),
        ("min-replicas", "oslo", "clusters with a number from 0 to 2147483647 each"),
        ("min-replicas", "oslo=-1", "clusters with a number from 0"),
        ("min-replicas", "oslo=2,", "clusters with a number from 0"),
        ("min-replicas", "=2", "clusters with a number from 0"),
        ("min-replicas", "oslo=2,oslo=3", "each cluster once"),
        ("max-replicas", "oslo=0", "clusters with a number from 1"),
        ("max-replicas", "oslo=4294967296", "clusters with a number from 1"),
        (
            "max-replicas",
            ",".join(f"c{i}=1" for i in range(options.LIMITS_MAX + 1)),
            "at most 1000 clusters",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_annotation(
    name: str, text: str, expected: str
) -> None:
    with pytest.raises(ExpectedError) as caught:
        options.extended(Placement(), {options.PREFIX + name: text})
    assert str(caught.value).startswith(expected)
    assert caught.value.field == ("metadata", "annotations", options.PREFIX + name)


def test_a_most_below_the_least_is_refused() -> None:
    with pytest.raises(
        ExpectedError, match=r"at least 3 for oslo, which is what wharfinger\.io/min-replicas asks"
    ):
        limits("oslo=3", "oslo=2")
    with pytest.raises(ExpectedError, match="at least 3 for oslo"):
        limits("oslo=3", "*=2")


POLICY = (
    "apiVersion: policy.karmada.io/v1alpha1\nkind: ClusterPropagationPolicy\nmetadata:\n"
    "  name: p\n  annotations:\n"
    "    {name}: '{text}'\nspec: {{resourceSelectors: [{{apiVersion: apps/v1, kind: "
    "Deployment}}]}}\n"
)


def test_a_mistake_is_one_line_with_the_annotation_what_it_may_be_and_what_it_is() -> None:
    text = POLICY.format(name="wharfinger.io/remainder", text="random")
    (error,) = compile_manifests(load_manifests(text, "file.yaml").manifests).errors
    assert str(error) == (
        'file.yaml:6: metadata.annotations["wharfinger.io/remainder"]: '
        "expected 'webster' or 'in-order', got 'random'"
    )


def test_an_annotation_for_us_that_nobody_knows_is_told() -> None:
    for name, told in (("wharfinger.io/remaindr", True), ("example.com/remaindr", False)):
        intake = compile_manifests(
            load_manifests(POLICY.format(name=name, text="x"), "file.yaml").manifests
        )
        assert intake.errors == ()
        assert [u.field for u in intake.unacted] == (
            [f'metadata.annotations["{name}"]'] if told else []
        )


@settings(max_examples=examples(200), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(options.OF_POLICIES), st.text(alphabet="oslo=,*019- minwebstr", max_size=12)
    )
)
def test_any_text_is_an_answer_or_one_line(said: dict[str, str]) -> None:
    refused: ExpectedError | None = None
    extended = Placement()
    try:
        extended = options.extended(Placement(), said)
    except ExpectedError as error:
        refused = error
    if refused is not None:
        assert refused.field[:2] == ("metadata", "annotations")
        assert "\n" not in str(refused)
    for limit in extended.replicas.limits:
        assert limit.most is None or 0 <= limit.least <= limit.most
