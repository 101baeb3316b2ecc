"""A workload that falls ill on a whole plane, by the commands a user has: it is placed elsewhere
first, and let go then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.integration.test_quotas_live import a_cluster, last, targets, tell
from tests.planes import assert_whole, ledger_decisions, settled, until

pytestmark = [pytest.mark.integration, pytest.mark.long]

NAME = "shop/web-deployment"


@pytest.fixture(scope="module")
def plane() -> Iterator[PlaneUnderTest]:
    with a_plane() as plane:
        plane.up()
        yield plane


def a_binding(health: str = "") -> str:
    status = (
        f"status: {{aggregatedStatus: [{{clusterName: oslo, health: {health}}}]}}" if health else ""
    )
    return f"""
apiVersion: work.karmada.io/v1alpha2
kind: ResourceBinding
metadata: {{name: web-deployment, namespace: shop}}
spec:
  resource: {{apiVersion: apps/v1, kind: Deployment, name: web, namespace: shop}}
  replicas: 3
  replicaRequirements: {{resourceRequest: {{cpu: "1"}}}}
  placement:
    replicaScheduling: {{replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}}
  failover:
    application: {{decisionConditions: {{tolerationSeconds: 2}},
      purgeMode: Gracefully, gracePeriodSeconds: 300}}
{status}
---"""


def test_what_falls_ill_is_replaced_and_then_let_go(plane: PlaneUnderTest, tmp_path: Path) -> None:
    tell(plane, tmp_path, "apply", a_cluster("oslo"))
    tell(plane, tmp_path, "apply", a_binding())
    until(lambda: targets(plane, NAME) == {"oslo": 3})
    tell(plane, tmp_path, "apply", a_cluster("bergen"))
    settled(plane)
    tell(plane, tmp_path, "apply", a_binding("Unhealthy"))
    until(lambda: targets(plane, NAME) == {"bergen": 3})
    made = [
        d
        for d in ledger_decisions(plane)
        if d["subject"] == NAME and d["stream"].startswith("fleet/")
    ]
    graceful = next(d["data"] for d in made if d["data"].get("leaving"))
    assert [one["cluster"] for one in graceful["leaving"]] == ["oslo"]
    assert {t["cluster"]: t["replicas"] for t in graceful["targets"]} == {"bergen": 3, "oslo": 3}
    assert last(plane, NAME)["data"]["explanation"]["why"] == "what replaces oslo stands"
    assert "what replaces oslo stands" in plane.command("explain", NAME)
    settled(plane)
    assert_whole(plane)
