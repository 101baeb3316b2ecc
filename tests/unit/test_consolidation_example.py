"""The cluster of the consolidation example is closed to everything but the example's own
workloads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.intake import compile_manifests
from wharfinger.manifests.parse import load_files
from wharfinger.rules.clusters.filters import all_refusals
from wharfinger.rules.clusters.rule import ClusterQuery
from wharfinger_cli.demo import EXAMPLES, FLEET_PLAN
from wharfinger_cli.generate import generate

ROOT = Path(__file__).resolve().parents[2] / "examples"


def placements(*folders: str) -> dict[str, Placement]:
    loaded = load_files([ROOT / folder for folder in folders])
    assert not loaded.errors
    facts = compile_manifests(loaded.manifests).facts
    return {f.key: f.data.binding.placement for f in facts if isinstance(f.data, BindingRequested)}


def dock() -> Cluster:
    facts = compile_manifests(load_files([ROOT / "consolidation" / "cluster.yaml"]).manifests).facts
    (cluster,) = [fact.data.cluster for fact in facts if isinstance(fact.data, ClusterObserved)]
    return cluster


def refusals(placement: Placement) -> Sequence[str]:
    """Of a workload that may be in any cluster, if it were not for what is asked here."""
    return all_refusals(ClusterQuery(placement, ClusterAffinity(), "apps/v1/Deployment"), dock())


def test_nothing_else_that_the_demonstration_applies_may_go_there() -> None:
    generated = {
        f.key: f.data.binding.placement
        for f in generate(FLEET_PLAN)
        if isinstance(f.data, BindingRequested)
    }
    others = generated | placements(*EXAMPLES)
    assert len(others) == 308
    assert {
        name for name, placement in others.items() if "TaintToleration" not in refusals(placement)
    } == set()


def test_its_own_workloads_may() -> None:
    own = placements("consolidation/cluster.yaml", "consolidation/day.yaml")
    assert len(own) == 3
    assert [refusals(placement) for placement in own.values()] == [[]] * 3
