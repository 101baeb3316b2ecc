"""By which NodePools Karpenter decides itself."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from wharfinger.runtime.kube.node_pools import KarpenterPool

NO_NODES = {"budgets": [{"nodes": "0"}]}


@pytest.mark.parametrize(
    ("spec", "creates", "removes"),
    [
        ({}, True, True),
        ({"limits": {"cpu": "0"}, "disruption": NO_NODES}, False, False),
        ({"limits": {"cpu": 0}, "disruption": {"budgets": [{"nodes": "0%"}]}}, False, False),
        ({"limits": {"memory": "0Gi"}}, False, True),
        ({"limits": {"cpu": "1m", "memory": "100Gi"}, "disruption": NO_NODES}, True, False),
        ({"limits": {"cpu": "none"}}, True, True),
        ({"disruption": {"budgets": [{"nodes": "10%"}, {"nodes": "0"}]}}, True, False),
        (
            {"disruption": {"budgets": [{"nodes": "0", "schedule": "@daily", "duration": "1h"}]}},
            True,
            True,
        ),
        ({"disruption": {"budgets": [{"nodes": "0", "reasons": ["Drifted"]}]}}, True, True),
    ],
)
def test_a_pool_is_not_used_that_has_no_room_and_no_disruption(
    spec: dict[str, Any], creates: bool, removes: bool
) -> None:
    pool = msgspec.convert({"metadata": {"name": "general"}, "spec": spec}, KarpenterPool)
    assert (pool.creates, pool.removes) == (creates, removes)
