"""A pool, an overlay or a claim that is written as Karpenter writes it and read again is the same
one."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.cluster_objects import NodeClaimStatus
from wharfinger.domain.node_pool import NodeBudget, NodeOverlay, NodePoolPolicy, PoolRequirement
from wharfinger.domain.taints import Taint
from wharfinger.domain.value import Value
from wharfinger.events.cluster_state import ObjectsObserved
from wharfinger.events.decisions import NodeClaimEnded, NodeClaimRequested
from wharfinger.events.intake import compile_manifests
from wharfinger.events.node_rendering import node_claim, node_overlay, node_pool
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.rendering import Rendered
from wharfinger.manifests.karpenter.pools import with_digest
from wharfinger.manifests.parse import load_manifests

NAMES = st.sampled_from(["web", "shop", "a.example/b", "zone"])
LABELS = st.dictionaries(NAMES, NAMES, max_size=2)
VALUES = st.lists(NAMES, min_size=1, max_size=3, unique=True).map(tuple)
REQUIREMENTS = st.lists(
    st.builds(PoolRequirement, NAMES, st.sampled_from(["In", "NotIn"]), VALUES)
    | st.builds(
        PoolRequirement,
        NAMES,
        st.sampled_from(["Exists", "DoesNotExist"]),
        st.just(()),
        st.integers(0, 50),
    )
    | st.builds(
        PoolRequirement,
        NAMES,
        st.sampled_from(["Gt", "Lt", "Gte", "Lte"]),
        st.integers(0, 99).map(lambda n: (str(n),)),
    ),
    max_size=3,
).map(tuple)
PLAIN = REQUIREMENTS.map(
    lambda found: tuple(msgspec.structs.replace(r, min_values=0) for r in found)
)
TAINTS = st.lists(
    st.builds(Taint, NAMES, st.sampled_from(["NoSchedule", "NoExecute"]), NAMES), max_size=2
).map(tuple)
AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nodes", "nvidia.com/gpu"]), st.integers(1, 2**40), max_size=3
)
TIMES = st.none() | st.integers(0, 10**8)
REASONS = st.lists(
    st.sampled_from(["Empty", "Underutilized", "Drifted"]), max_size=2, unique=True
).map(tuple)
BUDGETS = st.lists(
    st.builds(NodeBudget, st.sampled_from(["0", "7", "10%", "100%"]), REASONS)
    | st.builds(
        NodeBudget,
        st.just("1"),
        REASONS,
        st.sampled_from(["0 9 * * mon-fri", "*/5 * 1,15 * *"]),
        st.integers(1, 999).map(lambda minutes: minutes * 60),
    ),
    max_size=2,
).map(tuple)
POOLS = st.builds(
    NodePoolPolicy,
    name=st.just("pool"),
    empty_after_s=TIMES,
    requirements=REQUIREMENTS,
    labels=LABELS,
    annotations=LABELS,
    taints=TAINTS,
    startup_taints=TAINTS,
    node_class=st.sampled_from(["", "g.example/Kind/name"]),
    expire_after_s=TIMES,
    termination_grace_s=TIMES,
    consolidation=st.sampled_from(["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"]),
    budgets=BUDGETS,
    limits=AMOUNTS,
    weight=st.integers(0, 100),
    catalogue=st.sampled_from(["default", "aws-north"]),
    clusters=st.sampled_from([(), ("oslo",), ("oslo", "bergen")]),
)
OVERLAYS = st.builds(
    NodeOverlay,
    st.just("o"),
    PLAIN,
    st.integers(0, 10_000),
    st.sampled_from(["", "0.25"]),
    st.just(""),
    st.dictionaries(st.just("example.com/fuse"), st.integers(1, 99)),
) | st.builds(NodeOverlay, st.just("o"), PLAIN, price_adjustment=st.sampled_from(["+0.05", "-10%"]))
CLAIMS = st.builds(
    NodeClaimRequested,
    cluster=st.just("oslo"),
    claim=st.just("pool-1"),
    pool=st.just("pool"),
    requirements=REQUIREMENTS,
    instance_types=st.lists(
        st.sampled_from(["m5.large", "m6i.large"]), min_size=1, unique=True
    ).map(tuple),
    requests=st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]), st.integers(1, 2**40)),
    replicas=st.just({"shop/web": 1}),
    price=st.just(96_000_000),
    until_us=st.just(1),
    ceiling=st.sampled_from([0, 192_000_000]),
    command=st.sampled_from(["", "single-node-1"]),
    labels=LABELS,
    annotations=LABELS,
    taints=TAINTS,
    startup_taints=TAINTS,
    node_class=st.sampled_from(["", "g.example/Kind/name"]),
    expire_after_s=TIMES,
    termination_grace_s=TIMES,
)


def told(found: Rendered) -> Value:
    """The one fact that the object states."""
    loaded = load_manifests(json.dumps(found), "f")
    intake = compile_manifests(loaded.manifests)
    assert [str(error) for error in (*loaded.errors, *intake.errors, *intake.unacted)] == []
    (fact,) = intake.facts
    return fact.data


@settings(max_examples=examples(100), deadline=None)
@given(POOLS)
def test_a_pool_comes_back(pool: NodePoolPolicy) -> None:
    own = pool.clusters[0] if len(pool.clusters) == 1 else ""
    pool = with_digest(pool, {})
    fact = told(node_pool(pool, own))
    assert isinstance(fact, PolicyApplied)
    assert fact.policy.namespace == own
    assert fact.policy.node_pool == pool


@settings(max_examples=examples(30), deadline=None)
@given(POOLS, st.integers(0, 9), st.integers(0, 9))
def test_a_static_pool_comes_back_with_karpenters_hash(
    pool: NodePoolPolicy, replicas: int, nodes: int
) -> None:
    static = msgspec.structs.replace(
        pool,
        replicas=replicas,
        weight=0,
        limits={"nodes": nodes} if nodes else {},
        empty_after_s=None,
        digest="123",
    )
    fact = told(node_pool(static))
    assert isinstance(fact, PolicyApplied)
    assert fact.policy.node_pool == static


@settings(max_examples=examples(50), deadline=None)
@given(OVERLAYS)
def test_an_overlay_comes_back(overlay: NodeOverlay) -> None:
    fact = told(node_overlay(overlay))
    assert isinstance(fact, PolicyApplied)
    assert fact.policy.overlay == overlay


@settings(max_examples=examples(60), deadline=None)
@given(CLAIMS, st.booleans())
def test_a_claim_is_known_again_by_what_it_was_asked_for(
    claim: NodeClaimRequested, came: bool
) -> None:
    ended = (
        NodeClaimEnded("oslo", "pool-1", "pool", "registered", "n-7", "m5.large", "z", "spot")
        if came
        else None
    )
    fact = told(node_claim(claim, ended))
    assert isinstance(fact, ObjectsObserved)
    assert (fact.cluster, fact.kind) == ("oslo", "NodeClaim")
    kind, zone, way, node = ("m5.large", "z", "spot", "n-7") if came else ("", "", "", "")
    yes = True if came else None
    assert fact.objects == (
        NodeClaimStatus(
            "pool-1", "pool", kind, zone, way, node, yes, yes, None, "", claim.requests
        ),
    )


def test_a_claim_that_failed_says_so() -> None:
    claim = NodeClaimRequested("oslo", "pool-1", "pool", (), ("m5.large",), {"cpu": 100}, {}, 1, 1)
    fact = told(
        node_claim(
            claim, NodeClaimEnded("oslo", "pool-1", "pool", "timed-out", reason="no node in 15 min")
        )
    )
    assert isinstance(fact, ObjectsObserved)
    (status,) = fact.objects
    assert isinstance(status, NodeClaimStatus)
    assert (status.launched, status.failure) == (False, "TimedOut")


def test_whoever_makes_the_node_is_told_everything_about_it() -> None:
    claim = NodeClaimRequested(
        "oslo",
        "pool-1",
        "pool",
        (PoolRequirement("zone", "In", ("a",), 1),),
        ("m5.large", "m6i.large"),
        {"cpu": 1500},
        {"w": 1},
        96_000_000,
        1,
        192_500_000,
        "single-node-1",
        {"team": "shop"},
        {},
        (Taint("x", "NoExecute"),),
        (),
        "g/K/n",
        3600,
        60,
    )
    assert node_claim(claim) == {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": "pool-1",
            "labels": {
                "wharfinger.io/cluster": "oslo",
                "zone": "a",
                "team": "shop",
                "wharfinger.io/node-claim": "pool-1",
                "karpenter.sh/nodepool": "pool",
            },
            "annotations": {
                "wharfinger.io/command": "single-node-1",
                "wharfinger.io/price-below": "0.1925",
            },
        },
        "spec": {
            "requirements": [
                {"key": "zone", "operator": "In", "values": ["a"], "minValues": 1},
                {
                    "key": "node.kubernetes.io/instance-type",
                    "operator": "In",
                    "values": ["m5.large", "m6i.large"],
                },
            ],
            "resources": {"requests": {"cpu": "1500m"}},
            "taints": [{"key": "x", "effect": "NoExecute"}],
            "nodeClassRef": {"group": "g", "kind": "K", "name": "n"},
            "expireAfter": "Never",
            "terminationGracePeriod": "60s",
        },
    }
