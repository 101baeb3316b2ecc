"""Random clusters and random queries about them, in which every cluster filter has something to
refuse, and two laws of filters."""

from __future__ import annotations

from random import Random

from tests.fleets import CLUSTER_TAINTS

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement, SpreadConstraint
from wharfinger.domain.selectors import LabelSelector, Operator, Requirement
from wharfinger.domain.taints import Taint, Toleration
from wharfinger.engine.fleet.properties import ClusterProperties
from wharfinger.rules.clusters.filters import tests_of
from wharfinger.rules.clusters.rule import ClusterFilter, ClusterQuery

GVK = "apps/v1/Deployment"
NAMES = ("oslo", "bergen", "genoa")
KEYS, VALUES = ("tier", "disk"), ("gold", "silver", "1", "7")
OPERATORS: tuple[Operator, ...] = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
REGIONS = ("", "north", "south")
FULL = Taint("full", "PreferNoSchedule")


def a_requirement(
    random: Random, keys: tuple[str, ...], operators: tuple[Operator, ...]
) -> Requirement:
    operator = random.choice(operators)
    count = (
        0
        if operator in ("Exists", "DoesNotExist")
        else 1
        if operator in ("Gt", "Lt")
        else random.randint(1, 2)
    )
    return Requirement(random.choice(keys), operator, tuple(random.sample(VALUES, count)))


def a_cluster(random: Random, name: str = "oslo") -> Cluster:
    return Cluster(
        name,
        {k: random.choice(VALUES) for k in KEYS if random.random() < 0.6},
        region=random.choice(REGIONS),
        provider=random.choice(("", "aws")),
        zones=random.choice(((), ("a",), ("a", "b"))),
        taints=tuple(t for t in (*CLUSTER_TAINTS, FULL) if random.random() < 0.4),
        api_kinds=random.choice((None, ("batch/v1/Job",), (GVK,))),
        deleting=random.random() < 0.2,
    )


def some_names(random: Random) -> tuple[str, ...]:
    return tuple(name for name in NAMES if random.random() < 0.3)


def an_affinity(random: Random) -> ClusterAffinity:
    labels = LabelSelector(
        {k: random.choice(VALUES) for k in KEYS if random.random() < 0.3},
        tuple(
            a_requirement(random, ("zone-of", "size"), OPERATORS)
            for _ in range(random.randint(0, 2))
        ),
    )
    fields = tuple(
        Requirement(
            key,
            random.choice(("In", "NotIn", "Exists", "DoesNotExist")),
            ("north", "a")[: random.randint(1, 2)],
        )
        for key in random.sample(("region", "zone", "provider"), random.randint(0, 2))
    )
    return ClusterAffinity(
        cluster_names=random.choice(((), ("bergen",))),
        exclude=random.choice(((), ("oslo",))),
        labels=random.choice((None, labels, LabelSelector({"tier": "gold"}))),
        fields=fields if random.random() < 0.7 else (),
    )


def a_query(random: Random) -> ClusterQuery:
    affinity = an_affinity(random)
    by = [
        SpreadConstraint(field, max_groups=2)
        for field in ("region", "zone")
        if random.random() < 0.3
    ]
    by += [SpreadConstraint(label="tier")] if random.random() < 0.3 else []
    tolerations = random.choice(
        ((), (Toleration("closed", "Exists"),), (Toleration("", "Exists"),))
    )
    placement = Placement((affinity,), tolerations, tuple(by), strict=random.random() < 0.3)
    together = random.choice((None, None, some_names(random)))
    return ClusterQuery(
        placement,
        affinity,
        GVK,
        some_names(random),
        some_names(random),
        together,
        some_names(random),
    )


def prepared_alike(rule: ClusterFilter, query: ClusterQuery, clusters: list[Cluster]) -> None:
    """The conditions hold for the clusters that the filter passes: one by one, and in columns."""
    told = [rule.passes(query, cluster, False) for cluster in clusters]
    tests = list(tests_of(rule, query))
    assert [all(passes(cluster) for passes in tests) for cluster in clusters] == told
    conditions = rule.conditions(query)
    if conditions is not None:
        ordered = {cluster.name: cluster for cluster in sorted(clusters, key=lambda c: c.name)}
        held = ClusterProperties([*ordered.values()], [*ordered], 0, 0).all_hold(conditions)
        each = [rule.passes(query, cluster, False) for cluster in ordered.values()]
        assert ([True] * len(each) if held is None else held.tolist()) == each


def pass_once_undone(rule: ClusterFilter, query: ClusterQuery, cluster: Cluster) -> bool:
    """Whether the filter passes the cluster with the changes made that it names, and not before the
    last of them."""
    assert not rule.passes(query, cluster, False)
    assert rule.sentence(query, cluster)
    steps = list(rule.undo(query, cluster))
    assert all(change.text for change, _, _ in steps)
    passed = [rule.passes(changed, facts, False) for _, changed, facts in steps]
    return passed == [False] * (len(passed) - 1) + [True]
