"""Node pools and overlays as Karpenter writes them: what they mean, and what of them is refused
with which line."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.cluster_objects import DaemonPods, NodeClaimStatus
from wharfinger.domain.node_pool import (
    CRON_NAMES,
    POOL_HASH,
    NodeBudget,
    NodeOverlay,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.policy import Policy
from wharfinger.domain.taints import Taint
from wharfinger.events.cluster_state import ObjectsObserved
from wharfinger.events.intake import Intake, compile_deletions, compile_manifests
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.manifests.karpenter.cron import schedule
from wharfinger.manifests.karpenter.pools import seconds
from wharfinger.manifests.model import ExpectedError
from wharfinger.manifests.parse import load_files, load_manifests

FILE = Path(__file__).parent / "manifests" / "karpenter.yaml"
HEAD = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: p}\n"
BETA = "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: p}\n"
OVERLAY = "apiVersion: karpenter.sh/v1alpha1\nkind: NodeOverlay\nmetadata: {name: o}\n"


def told(text: str) -> list[str]:
    loaded = load_manifests(text, "f")
    return [str(error) for error in (*loaded.errors, *compile_manifests(loaded.manifests).errors)]


def policies(text: str) -> list[Policy]:
    loaded = load_manifests(text, "f")
    assert [str(error) for error in loaded.errors] == []
    intake = compile_manifests(loaded.manifests)
    assert [str(error) for error in intake.errors] == []
    return [fact.data.policy for fact in intake.facts if isinstance(fact.data, PolicyApplied)]


def pool(spec: str, head: str = HEAD) -> NodePoolPolicy:
    (policy,) = policies(f"{head}spec: {spec}\n")
    assert policy.node_pool is not None
    return policy.node_pool


@pytest.fixture(scope="module")
def applied() -> Intake:
    return compile_manifests(load_files([FILE]).manifests)


def known(applied: Intake, key: str) -> Policy:
    (found,) = [
        f.data.policy for f in applied.facts if isinstance(f.data, PolicyApplied) and f.key == key
    ]
    return found


# Pools.


def test_a_pool_is_read_whole(applied: Intake) -> None:
    found = known(applied, "NodePool//everything").node_pool
    assert found is not None
    assert found == NodePoolPolicy(
        "everything",
        30,
        (
            PoolRequirement("karpenter.sh/capacity-type", "In", ("spot", "on-demand")),
            PoolRequirement("karpenter.k8s.aws/instance-family", "NotIn", ("t2", "t3")),
            PoolRequirement("karpenter.k8s.aws/instance-generation", "Gt", ("4",)),
            PoolRequirement("karpenter.k8s.aws/instance-cpu", "Lte", ("32",), 3),
            PoolRequirement("example.com/rack", "Exists"),
        ),
        {"team": "shop"},
        {"example.com/owner": "shop"},
        (Taint("dedicated", "NoSchedule", "shop"),),
        (Taint("example.com/cni", "NoExecute"),),
        "karpenter.k8s.aws/EC2NodeClass/plain",
        None,
        5400,
        "Balanced",
        (NodeBudget("3", ("Empty",)), NodeBudget("0%", (), "0 0 * * *", 600)),
        {"cpu": 1_000_000, "memory": 4 * 2**40, "nodes": 30, "nvidia.com/gpu": 8},
        50,
        None,
        "aws-north",
        ("hamar", "molde"),
        found.digest,
    )


def test_what_of_it_is_not_acted_on_is_told(applied: Intake) -> None:
    assert [(u.line, u.field) for u in applied.unacted] == [
        (9, 'metadata.annotations["wharfinger.io/colour"]'),
        (24, "spec.template.spec.requirements[4].values"),
        (59, "spec.template.spec.kubelet"),
        (119, "kind"),
        (125, "kind"),
        (130, "kind"),
        (145, "strategies.LowNodeUtilization.weight"),
        (168, "gracePeriodSeconds"),
        (172, "metricsProviders"),
        (177, "profiles[0].pluginConfig[1]"),
    ]


def test_a_pool_that_says_nothing_is_as_karpenter_defaults_it() -> None:
    found = pool("{}")
    assert (found.empty_after_s, found.expire_after_s, found.consolidation) == (
        0,
        720 * 3600,
        "WhenEmptyOrUnderutilized",
    )
    assert (found.budgets, found.termination_grace_s, found.catalogue, found.clusters) == (
        (NodeBudget("10%"),),
        None,
        "default",
        (),
    )


def test_no_budget_at_all_is_not_the_usual_budget() -> None:
    assert pool("{disruption: {budgets: []}}").budgets == ()


def test_a_pool_of_a_cluster_is_its_own_beside_another_of_the_same_name() -> None:
    label = "metadata: {name: p, labels: {wharfinger.io/cluster: %s}}\n"
    kind = "apiVersion: karpenter.sh/v1\nkind: NodePool\n"
    text = "---\n".join(f"{kind}{label % cluster}spec: {{}}\n" for cluster in ("oslo", "bergen"))
    found = policies(text)
    assert [(p.key, p.node_pool.clusters if p.node_pool else ()) for p in found] == [
        ("NodePool/oslo/p", ("oslo",)),
        ("NodePool/bergen/p", ("bergen",)),
    ]
    gone = compile_deletions(load_manifests(text, "f").manifests, found)
    assert [f.data for f in gone.facts] == [
        PolicyRemoved("NodePool", "p", c) for c in ("oslo", "bergen")
    ]


def test_a_static_pool_has_a_number_of_nodes_and_is_not_consolidated(applied: Intake) -> None:
    found = known(applied, "NodePool/hamar/always-five").node_pool
    assert found is not None
    assert (found.replicas, found.empty_after_s, found.limits, found.clusters) == (
        5,
        None,
        {"nodes": 8},
        ("hamar",),
    )


def test_an_older_pool_says_the_same_in_other_words(applied: Intake) -> None:
    found = known(applied, "NodePool//older").node_pool
    assert found is not None
    assert (found.consolidation, found.empty_after_s, found.expire_after_s) == (
        "WhenEmptyOrUnderutilized",
        0,
        86_400,
    )
    assert found.node_class == "karpenter.k8s.aws/EC2NodeClass/plain"
    empty = pool("{disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 5m}}", BETA)
    assert (empty.consolidation, empty.empty_after_s) == ("WhenEmpty", 300)


# What nodes are made by.


def test_the_digest_is_of_what_a_node_is_made_by_and_of_nothing_else() -> None:
    plain = pool(
        "{template: {metadata: {labels: {a: b, c: d}}, spec: {taints: [{key: x, effect: "
        "NoExecute}, {key: y, effect: NoExecute}]}}}"
    )
    shuffled = pool(
        "{weight: 3, limits: {cpu: 1}, disruption: {consolidateAfter: 1h}, template: {metadata: "
        "{labels: {c: d, a: b}}, spec:"
        " {requirements: [{key: z, operator: Exists}], taints: [{key: y, effect: NoExecute}, "
        "{key: x, effect: NoExecute}]}}}"
    )
    assert plain.digest == shuffled.digest
    for other in (
        "{template: {metadata: {labels: {a: b}}}}",
        "{template: {metadata: {annotations: {a: b}}}}",
        "{template: {spec: {startupTaints: [{key: x, effect: NoExecute}]}}}",
        "{template: {spec: {taints: [{key: x, effect: NoExecute}]}}}",
        "{template: {spec: {expireAfter: 1h}}}",
        "{template: {spec: {terminationGracePeriod: 1h}}}",
        "{template: {spec: {nodeClassRef: {group: g, kind: K, name: n}}}}",
    ):
        assert pool(other).digest != pool("{}").digest


def test_a_node_has_drifted_when_it_was_made_by_another_template() -> None:
    now, before = pool("{}"), pool("{template: {spec: {expireAfter: 1h}}}")
    assert now.has_drifted({POOL_HASH: before.digest})
    assert not now.has_drifted({POOL_HASH: now.digest})
    assert not now.has_drifted({}), "nobody has written by what it was made"
    assert not now.has_drifted({POOL_HASH: "12345678901234567890"}), (
        "a hash of Karpenter's says nothing of ours"
    )


def test_karpenters_own_hash_is_kept_where_it_has_written_one(applied: Intake) -> None:
    found = known(applied, "NodePool/hamar/always-five").node_pool
    assert found is not None
    assert found.digest == "12345678901234567890"
    assert found.has_drifted({POOL_HASH: "777"})
    assert not found.has_drifted({POOL_HASH: found.digest})


# Overlays.


def test_an_overlay_says_what_its_types_cost_and_hold_besides(applied: Intake) -> None:
    assert known(applied, "NodeOverlay//fuse").overlay == NodeOverlay(
        "fuse",
        (PoolRequirement("kubernetes.io/os", "In", ("linux",)),),
        7,
        "0.25",
        "",
        {"example.com/fuse": 4},
    )


@pytest.mark.parametrize(
    "adjustment", ["+0.05", "-0.01", "+10%", "-5%", "-100%", "+250%", "-99.9%", "+.5"]
)
def test_adjustments_of_prices(adjustment: str) -> None:
    (policy,) = policies(f"{OVERLAY}spec: {{requirements: [], priceAdjustment: '{adjustment}'}}\n")
    assert policy.overlay is not None
    assert policy.overlay.price_adjustment == adjustment


# Facts of clusters.


def test_a_claim_and_a_daemon_are_told_of_their_cluster(applied: Intake) -> None:
    drawers = {f.key: f.data.objects for f in applied.facts if isinstance(f.data, ObjectsObserved)}
    assert drawers["hamar/objects/NodeClaim/"] == (
        NodeClaimStatus(
            "everything-x7k2p",
            "everything",
            "m6i.large",
            "north-a",
            "spot",
            "hamar-9",
            True,
            True,
            None,
            "",
            {"cpu": 1500, "memory": 3 * 2**30},
            {"cpu": 2000, "memory": 8 * 2**30, "pods": 29},
            {"cpu": 1930, "memory": 7 * 2**30, "pods": 29},
            False,
            1_769_904_000_000_000,
        ),
    )
    (agent,) = drawers["hamar/objects/DaemonSet/ns"]
    assert isinstance(agent, DaemonPods)
    assert (agent.name, agent.priority, agent.requirements.requests) == (
        "node-agent",
        2_000_001_000,
        {"cpu": 50, "memory": 64 * 2**20},
    )
    assert agent.requirements.traits.owner == "DaemonSet"


@pytest.mark.parametrize(
    ("condition", "launched", "failure"),
    [
        ("{type: Launched, status: Unknown, reason: AwaitingReconciliation}", None, ""),
        ("{type: Launched, status: Unknown, reason: LaunchFailed}", None, "LaunchFailed"),
        (
            "{type: Launched, status: 'False', reason: InsufficientCapacityError}",
            False,
            "InsufficientCapacityError",
        ),
        ("{type: Registered, status: 'True'}", None, ""),
    ],
)
def test_a_claim_that_is_not_launched_says_why(
    condition: str, launched: bool | None, failure: str
) -> None:
    text = (
        "apiVersion: karpenter.sh/v1\nkind: NodeClaim\n"
        "metadata: {name: c, labels: {wharfinger.io/cluster: oslo}}\n"
        f"status: {{conditions: [{condition}]}}\n"
    )
    (fact,) = compile_manifests(load_manifests(text, "f").manifests).facts
    assert isinstance(fact.data, ObjectsObserved)
    (claim,) = fact.data.objects
    assert isinstance(claim, NodeClaimStatus)
    assert (claim.launched, claim.failure) == (launched, failure)


def test_a_claim_must_say_whose_it_is() -> None:
    (error,) = told("apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {name: c}\n")
    assert error.startswith(
        'f:3: metadata.labels["wharfinger.io/cluster"]: expected the label or annotation'
    )


# What is refused.

ASKED = "spec.template.spec.requirements[0]"


BUDGET = "spec.disruption.budgets[0]"


def budget(said: str) -> str:
    return f"{{disruption: {{budgets: [{said}]}}}}"


def asking(requirement: str) -> str:
    return f"{{template: {{spec: {{requirements: [{requirement}]}}}}}}"


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        (budget("{nodes: 130%}"), f"{BUDGET}.nodes", "a percentage from 0% to 100%"),
        (budget("{nodes: -1}"), f"{BUDGET}.nodes", "a number of nodes"),
        (budget("{schedule: '@daily'}"), f"{BUDGET}.duration", "beside the schedule"),
        (budget("{duration: 1h}"), f"{BUDGET}.schedule", "a schedule beside the duration"),
        (budget("{schedule: '* * *', duration: 1h}"), f"{BUDGET}.schedule", "five fields"),
        (budget("{schedule: '0 25 * * *', duration: 1h}"), f"{BUDGET}.schedule", "hour"),
        (budget("{schedule: '@every 1h', duration: 1h}"), f"{BUDGET}.schedule", "cron"),
        (budget("{schedule: '@daily', duration: 90s}"), f"{BUDGET}.duration", "hours and"),
        (budget("{reasons: [Bored]}"), f"{BUDGET}.reasons[0]", "'Drifted'"),
        ("{disruption: {consolidateAfter: 10}}", "spec.disruption.consolidateAfter", "a string"),
        ("{disruption: {consolidateAfter: 1d}}", "spec.disruption.consolidateAfter", "or Never"),
        (
            "{disruption: {consolidateAfter: 9999999999999h}}",
            "spec.disruption.consolidateAfter",
            "below 292 years",
        ),
        (
            "{disruption: {consolidationPolicy: WhenUnderutilized}}",
            "spec.disruption.consolidationPolicy",
            "'WhenEmpty'",
        ),
        (
            "{template: {spec: {terminationGracePeriod: Never}}}",
            "spec.template.spec.terminationGracePeriod",
            "a duration",
        ),
        ("{weight: 101}", "spec.weight", "an integer from 1 to 100"),
        ("{replicas: 2, weight: 1}", "spec.weight", "no weight in a pool with replicas"),
        ("{replicas: 2, limits: {cpu: 1}}", "spec.limits.cpu", "no limit but nodes"),
        ("{limits: {cpu: lots}}", "spec.limits.cpu", "a quantity"),
        (
            "{template: {metadata: {labels: {karpenter.sh/nodepool: x}}}}",
            "spec.template.metadata.labels[",
            "another label",
        ),
        (asking("{key: a, operator: In}"), f"{ASKED}.values", "at least one"),
        (
            asking("{key: a, operator: Gt, values: ['1', '2']}"),
            f"{ASKED}.values",
            "one value for Gt",
        ),
        (asking("{key: a, operator: Lte, values: [x]}"), f"{ASKED}.values", "an integer"),
        (asking("{key: a, operator: Exists, minValues: 51}"), f"{ASKED}.minValues", "from 1 to 50"),
        (
            asking("{key: a, operator: In, values: [x], minValues: 2}"),
            f"{ASKED}.values",
            "the 2 values",
        ),
        (asking("{key: a, operator: Near, values: [x]}"), f"{ASKED}.operator", "'In'"),
        (
            asking("{key: kubernetes.io/hostname, operator: Exists}"),
            f"{ASKED}.key",
            "another label",
        ),
        (
            "{template: {spec: {startupTaint: []}}}",
            "spec.template.spec.startupTaint",
            "did you mean startupTaints?",
        ),
    ],
)
def test_a_pool_that_cannot_be_is_refused_with_its_line(spec: str, field: str, text: str) -> None:
    (error,) = told(f"{HEAD}spec: {spec}\n")
    assert error.startswith(f"f:4: {field}"), error
    assert text in error


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ("wharfinger.io/clusters: 'oslo,,bergen'", "names separated by commas"),
        ("wharfinger.io/instance-types: 'a,b'", "the name of one catalogue"),
        ("wharfinger.io/instance-types: ''", "names separated by commas"),
    ],
)
def test_annotations_of_ours_are_read_as_strictly(annotation: str, text: str) -> None:
    (error,) = told(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\n"
        f"metadata: {{name: p, annotations: {{{annotation}}}}}\nspec: {{}}\n"
    )
    assert error.startswith("f:3: metadata.annotations")
    assert text in error


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        (
            "{disruption: {consolidationPolicy: WhenEmpty}}",
            "spec.disruption.consolidateAfter",
            "beside consolidationPolicy",
        ),
        (
            "{disruption: {consolidateAfter: 1m}}",
            "spec.disruption.consolidateAfter",
            "no consolidateAfter with",
        ),
    ],
)
def test_an_older_pool_waits_for_empty_nodes_only(spec: str, field: str, text: str) -> None:
    (error,) = told(f"{BETA}spec: {spec}\n")
    assert error.startswith(f"f:4: {field}: expected ")
    assert text in error


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("{requirements: [], price: '1', priceAdjustment: +1%}", "spec.priceAdjustment"),
        ("{requirements: [], price: cheap}", "spec.price"),
        ("{requirements: [], priceAdjustment: 10%}", "spec.priceAdjustment"),
        ("{requirements: [], priceAdjustment: -101%}", "spec.priceAdjustment"),
        ("{requirements: [], priceAdjustment: -100.5%}", "spec.priceAdjustment"),
        ("{requirements: [], capacity: {cpu: 1}}", "spec.capacity.cpu"),
        ("{requirements: [], weight: 10001}", "spec.weight"),
        (
            "{requirements: [{key: a, operator: Exists, minValues: 1}]}",
            "spec.requirements[0].minValues",
        ),
        ("{price: '1'}", "spec.requirements"),
    ],
)
def test_an_overlay_that_cannot_be_is_refused_with_its_line(spec: str, field: str) -> None:
    (error,) = told(f"{OVERLAY}spec: {spec}\n")
    assert error.startswith(f"f:4: {field}: expected "), error


# Schedules.


@pytest.mark.parametrize("name", sorted(CRON_NAMES))
def test_a_named_schedule_has_five_fields(name: str) -> None:
    assert len(schedule(name).split()) == 5


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("0 9 * * mon-fri", "0 9 * * mon-fri"),
        ("*/15 8-17/3 ? JAN,jul *", "*/15 8-17/3 * JAN,jul *"),
        ("0 0 */10 * *", "0 0 1,11,21,31 * *"),
        ("0 0 5,* * 3", "0 0 * * 3"),
        ("5/20 0 1 1 0", "5/20 0 1 1 0"),
    ],
)
def test_schedules_are_handed_on_as_everybody_reads_them(text: str, plain: str) -> None:
    assert schedule(text) == plain


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 7",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
        "1- * * * *",
        "*-3 * * * *",
        "1,,2 * * * *",
        "* * L * *",
        "TZ=UTC 0 0 * * *",
        "@reboot",
    ],
)
def test_other_schedules_are_refused(text: str) -> None:
    with pytest.raises(ExpectedError):
        schedule(text)


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.tuples(st.sampled_from(["*"]) | span | number.map(str), st.integers(1, 30)).map(
        lambda p: f"{p[0]}/{p[1]}"
    )
    return st.lists(st.just("*") | number.map(str) | span | step, min_size=1, max_size=3).map(
        ",".join
    )


@settings(max_examples=examples(100), deadline=None)
@given(
    st.tuples(fields(0, 59), fields(0, 23), fields(1, 28), fields(1, 12), fields(0, 6)).map(
        " ".join
    )
)
def test_whatever_schedule_is_taken_can_be_followed(text: str) -> None:
    """And is what it says when it is read again."""
    plain = schedule(text)
    assert schedule(plain) == plain
    minute, hour, *_ = (
        set(_numbers(field, low, high))
        for field, low, high in zip(text.split(), (0, 0), (59, 23), strict=False)
    )
    hit = next(CronSim(plain, datetime(2026, 1, 1)))
    assert (hit.minute in minute, hit.hour in hour) == (True, True)


def _numbers(field: str, low: int, high: int) -> list[int]:
    found: list[int] = []
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            found += range(low, high + 1, int(step or 1))
        else:
            end = int(last) if dash else high if step else int(first)
            found += range(int(first), end + 1, int(step or 1))
    return found


@given(st.lists(st.tuples(st.integers(0, 9999), st.sampled_from("smh")), min_size=1, max_size=5))
def test_durations_add_up(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{number}{unit}" for number, unit in parts)
    assert seconds(text) == sum(
        number * {"s": 1, "m": 60, "h": 3600}[unit] for number, unit in parts
    )
