"""DynamicResources has no array form: asked node by node it decides what the framework says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples
from tests.node_rules import agree_when_asked, some_nodes

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.device_claims import (
    DeviceClass,
    OfferedDevice,
    ResourceClaim,
    ResourceSlice,
    WantedDevices,
)
from wharfinger.domain.node import Node
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.workload import Requirements

CLAIMS = {"one": 1, "another": 1, "two": 2}


@settings(max_examples=examples(30), deadline=None)
@given(some_nodes(), st.lists(st.integers(0, 2), min_size=7, max_size=7), st.data())
def test_asked_node_by_node_it_decides_the_same(
    nodes: list[Node], offered: list[int], data: st.DataObject
) -> None:
    objects = ClusterObjects.of(
        [
            DeviceClass("gpu"),
            *(
                ResourceSlice(
                    f"slice-{node.name}",
                    "gpu.example.com",
                    node.name,
                    node=node.name,
                    devices=tuple(OfferedDevice(str(i)) for i in range(count)),
                )
                for node, count in zip(nodes, offered, strict=False)
            ),
            *(
                ResourceClaim("default", name, (WantedDevices("r", "gpu", count=count),))
                for name, count in CLAIMS.items()
            ),
        ]
    )
    names = st.lists(st.sampled_from((*CLAIMS, "missing")), max_size=2, unique=True).map(tuple)
    asked = names.map(
        lambda claims: Requirements({"cpu": 100}, pod=PodTraits(resource_claims=claims))
    )
    agree_when_asked("DynamicResources", nodes, objects, asked, data)
