"""The view that follows the ledger says what the tables say, however far apart it is moved on."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from tests.backends import fresh_database, in_a_loop
from tests.scenarios.fleet_plane import DYNAMIC
from tests.told_plane import ToldPlane, a_binding, a_cluster, a_policy

from wharfinger.answers import facts
from wharfinger.answers.fleet_view import Changed, FleetView
from wharfinger.domain.node import Node
from wharfinger.domain.placement import Placement
from wharfinger.events.accepted import Fact
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved, into_buckets
from wharfinger.runtime.ledger import Ledger

pytestmark = pytest.mark.integration

POLICIES = [a_policy("by-room", Placement(replicas=DYNAMIC)), a_policy("everywhere", Placement())]
CLUSTERS = ("oslo", "bergen", "turku")
NAMES = ("api", "web", "jobs", "mail")
Shown = dict[str, dict[str, object]]


async def by_tables(ledger: Ledger) -> Shown:
    policies, bound = await facts.policies_now(ledger)
    return {
        "bindings": {b.binding.name: b for b in await facts.bindings_now(ledger, None)},
        "clusters": {c.cluster.name: c for c in await facts.clusters_now(ledger)},
        "nodes": {f"{n.cluster}/{n.node.name}": n for n in await facts.nodes_now(ledger)},
        "policies": {p.key: (p, sum(b.policy == p.key for b in bound)) for p in policies},
    }


def by_view(view: FleetView) -> Shown:
    return {
        "bindings": {b.binding.name: b for b in view.bindings()},
        "clusters": {c.cluster.name: c for c in view.clusters()},
        "nodes": {f"{n.cluster}/{n.node.name}": n for n in view.nodes()},
        "policies": {p.key: (p, view.bound.get(p.key, 0)) for p in view.policies()},
    }


def some_nodes(chance: random.Random, cluster: str) -> Sequence[NodesObserved]:
    names = chance.sample(["n1", "n2", "n3", "n4"], chance.randint(1, 4))
    found = [Node(name, {"cpu": chance.choice([2000, 4000]), "memory": 2**34}) for name in names]
    return into_buckets(cluster, found, chance.choice([1, 2]))


def something(chance: random.Random) -> list[Fact]:
    cluster, policy = chance.choice(CLUSTERS), chance.choice(POLICIES)
    match chance.randrange(8):
        case 0:
            return [a_cluster(cluster, chance.choice([None, 60]), deleting=chance.random() < 0.1)]
        case 1 | 2:
            return list(some_nodes(chance, cluster))
        case 3:
            return [policy]
        case 4:
            return [BindingWithdrawn(f"shop/{chance.choice(NAMES)}-deployment")]
        case _:
            cpu = chance.choice([500, 3000, 9000])
            return [a_binding(chance.choice(NAMES), chance.randint(1, 5), policy, cpu)]


@pytest.mark.parametrize("seed", range(4))
def test_it_says_what_the_tables_say(
    database_server: str, migrated_database: str, seed: int
) -> None:
    with fresh_database(database_server, template=migrated_database) as url:
        in_a_loop(lambda: _followed(url, random.Random(seed)))


async def _followed(url: str, chance: random.Random) -> None:
    plane = await ToldPlane.opened(url)
    ledger = plane.ledger
    try:
        views = [FleetView()]  # from the beginning, row by row
        told: list[Fact] = [a_cluster(name) for name in CLUSTERS]
        for name in CLUSTERS:
            told += some_nodes(chance, name)
        await plane.tell(*told, *POLICIES)
        for _ in range(40):
            await plane.tell(
                *[fact for _ in range(chance.randint(1, 3)) for fact in something(chance)],
                after_s=chance.choice([1, 1, 1, 90]),
            )
            if chance.random() < 0.3:
                continue  # several steps at once
            if chance.random() < 0.2:
                views.append(await FleetView.load(ledger))
            expected = await by_tables(ledger)
            for view in views:
                before = by_view(view)
                changed = Changed()
                await view.follow(ledger, changed)
                after = by_view(view)
                for kind, key in sorted(named(after, expected)):
                    assert after[kind].get(key) == expected[kind].get(key)
                assert named(before, after) <= set(flat(changed))
            for name, shown in expected["bindings"].items():
                assert await facts.binding_now(ledger, name) == shown
                assert views[0].binding(name) == shown
            for one in expected["nodes"].values():
                assert isinstance(one, facts.NodeShown)
                assert views[-1].node(one.cluster, one.node.name) == one
        assert len(views) > 1
        assert {b.outcome for b in views[0].bindings()} - {"scheduled"}, "refused ones, too"
    finally:
        await ledger.close()


def named(before: Shown, after: Shown) -> set[tuple[str, str]]:
    """What is shown otherwise than before."""
    return {
        (kind, key)
        for kind in after
        for key in before[kind].keys() | after[kind].keys()
        if before[kind].get(key) != after[kind].get(key)
    }


def flat(changed: Changed) -> list[tuple[str, str]]:
    return [
        *[("bindings", name) for name in changed.bindings],
        *[("clusters", name) for name in changed.clusters],
        *[("nodes", "/".join(place)) for place in changed.nodes],
        *[("policies", key) for key in changed.policies],
    ]


def test_a_list_that_was_given_stays_as_it_was(
    database_server: str, migrated_database: str
) -> None:
    async def given(url: str) -> None:
        plane = await ToldPlane.opened(url)
        try:
            await plane.tell(a_cluster("oslo"), *into_buckets("oslo", [Node("n1", {})], 1))
            await plane.tell(POLICIES[0], *[a_binding(name, 1, POLICIES[0]) for name in NAMES])
            view = await FleetView.load(plane.ledger)
            first = view.bindings()
            shown = list(first)
            await plane.tell(
                a_binding("web", 3, POLICIES[0]), BindingWithdrawn("shop/api-deployment")
            )
            await view.follow(plane.ledger, Changed())
            assert list(first) == shown
            names = [b.binding.name for b in view.bindings()]
            assert names == [f"shop/{name}-deployment" for name in ("jobs", "mail", "web")]
        finally:
            await plane.ledger.close()

    with fresh_database(database_server, template=migrated_database) as url:
        in_a_loop(lambda: given(url))
