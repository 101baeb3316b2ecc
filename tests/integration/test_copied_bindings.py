"""The last decisions about the clusters of bindings, read from a ledger."""

from __future__ import annotations

import pytest
from tests.told_plane import START, ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.policies import PolicyApplied
from wharfinger.history import copied_bindings
from wharfinger.history.copied_bindings import last_decisions
from wharfinger.stages.actuator.copy_ages import DecidedReplicas

pytestmark = pytest.mark.integration

WEB, API = "shop/web-deployment", "shop/api-deployment"


def only_in(cluster: str) -> PolicyApplied:
    affinity = ClusterAffinity(cluster_names=(cluster,))
    return a_policy("p", Placement((affinity,), replicas=ReplicaScheduling("Divided", "Weighted")))


async def test_the_last_decisions_about_each_binding_are_told_with_their_time(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = await ToldPlane.opened(database_url)
    try:
        oslo, bergen = only_in("oslo"), only_in("bergen")
        for name in ("oslo", "bergen"):
            await plane.tell(a_cluster(name), *nodes(name, f"{name}-1"))
        await plane.tell(oslo, a_binding("web", 2, oslo), a_binding("api", 1, oslo))
        first = plane.time.at
        await plane.tell(a_binding("web", 3, oslo), after_s=60)
        await plane.tell(bergen, a_binding("web", 3, bergen), after_s=60)
        moved = plane.time.at
        await plane.tell(BindingWithdrawn(WEB), after_s=60)
        gone = plane.time.at
        found = await last_decisions(plane.ledger, {WEB, API, "shop/unknown"})
        assert found[API][0] == DecidedReplicas(first, {"oslo": 1})
        assert START < first == found[WEB][0].at
        assert [one.clusters for one in found[WEB]] == [{"oslo": 2}, {"oslo": 3}, {"bergen": 3}, {}]
        assert [one.at for one in found[WEB]][-2:] == [moved, gone]
        assert set(found) == {WEB, API}
        monkeypatch.setattr(copied_bindings, "DECISIONS_MAX", 2)
        assert (await last_decisions(plane.ledger, {WEB}))[WEB] == found[WEB][-2:]
        assert await last_decisions(plane.ledger, set()) == {}
    finally:
        await plane.ledger.close()
