"""The fleet generator: the same seed gives the same bytes, and what it gives is a fleet."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter

import pytest

from wharfinger.domain.value import canonical
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.policies import PolicyApplied
from wharfinger_cli.generate import FleetPlan, generate

PLAN = FleetPlan(clusters=12, nodes=300, bindings=500, seed=7)

DIGEST_SCRIPT = """
import hashlib
from wharfinger.domain.value import canonical
from wharfinger_cli.generate import FleetPlan, generate
events = generate(FleetPlan(clusters=12, nodes=300, bindings=500, seed=7))
print(hashlib.sha256(b"".join(e.key.encode() + canonical(e.data) for e in events)).hexdigest())
"""


def digest(plan: FleetPlan) -> str:
    return hashlib.sha256(
        b"".join(e.key.encode() + canonical(e.data) for e in generate(plan))
    ).hexdigest()


@pytest.mark.parametrize("hash_seed", ["0", "1", "4711"])
def test_the_same_seed_gives_the_same_bytes_in_every_process(hash_seed: str) -> None:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    said = subprocess.run(
        [sys.executable, "-c", DIGEST_SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == digest(PLAN)


def test_another_seed_gives_another_fleet() -> None:
    assert digest(PLAN) != digest(FleetPlan(12, 300, 500, seed=8))


def test_it_gives_exactly_what_was_asked_for_under_distinct_keys() -> None:
    events = list(generate(PLAN))
    of = [type(e.data) for e in events]
    assert of.count(ClusterObserved) == 12
    assert of.count(BindingRequested) == 500
    assert sum(len(e.data.nodes) for e in events if isinstance(e.data, NodesObserved)) == 300
    assert (
        max(Counter(e.key for e in events if not isinstance(e.data, PolicyApplied)).values()) == 1
    )


def test_more_bindings_leave_the_fleet_as_it_was() -> None:
    def fleet(bindings: int) -> list[bytes]:
        plan = FleetPlan(12, 300, bindings, seed=7)
        return [
            canonical(e.data) for e in generate(plan) if not isinstance(e.data, BindingRequested)
        ]

    assert fleet(1) == fleet(900)


def test_every_binding_names_a_policy_that_is_applied_and_carries_its_placement() -> None:
    events = list(generate(PLAN))
    placements = {
        e.data.policy.key: e.data.policy.propagation.placement
        for e in events
        if isinstance(e.data, PolicyApplied) and e.data.policy.propagation
    }
    bound = [e.data.binding for e in events if isinstance(e.data, BindingRequested)]
    assert {b.policy for b in bound} == set(placements)
    assert all(b.placement == placements[b.policy] for b in bound)


def test_a_fleet_has_several_regions_gpus_taints_and_no_empty_cluster() -> None:
    events = list(generate(PLAN))
    clusters = [e.data.cluster for e in events if isinstance(e.data, ClusterObserved)]
    per_cluster = Counter({e.data.cluster: 0 for e in events if isinstance(e.data, NodesObserved)})
    for e in events:
        if isinstance(e.data, NodesObserved):
            per_cluster[e.data.cluster] += len(e.data.nodes)
    assert len({c.region for c in clusters}) > 5
    assert set(per_cluster) == {c.name for c in clusters}
    assert min(per_cluster.values()) > 0
    nodes = [n for e in events if isinstance(e.data, NodesObserved) for n in e.data.nodes]
    assert {d.model for n in nodes for d in n.devices} == {"T4", "A100"}
    assert all(bool(n.taints) == bool(n.devices) for n in nodes)


def test_nothing_at_all_can_be_asked_for() -> None:
    kinds = {type(e.data) for e in generate(FleetPlan(clusters=0, nodes=5, bindings=0, seed=1))}
    assert kinds == {PolicyApplied}
