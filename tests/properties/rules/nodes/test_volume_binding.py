"""VolumeBinding has no array form: asked node by node it decides what the framework says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.framework_world import ZONE
from tests.hunting import examples
from tests.node_rules import agree_when_asked, some_nodes, some_volumes

from wharfinger.domain.cluster_objects import ClusterObjects
from wharfinger.domain.node import Node
from wharfinger.domain.selectors import NodeTerm, Requirement
from wharfinger.domain.storage import (
    NO_PROVISIONER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)

MODES = ("ReadWriteOnce",)


def reached_from(zone: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Requirement(ZONE, "In", (zone,)),)),)


@settings(max_examples=examples(40), deadline=None)
@given(some_nodes(), st.lists(st.sampled_from("xyz"), max_size=3), st.data())
def test_asked_node_by_node_it_decides_the_same(
    nodes: list[Node], free: list[str], data: st.DataObject
) -> None:
    objects = ClusterObjects.of(
        [
            StorageClass("local", NO_PROVISIONER, waits=True),
            StorageClass("cloud", "csi.example.com", waits=True),
            *(
                PersistentVolume(
                    f"free-{i}", 10, MODES, "local", node_terms=reached_from(zone), available=True
                )
                for i, zone in enumerate(free)
            ),
            PersistentVolume("there", 10, MODES, node_terms=reached_from("x")),
            PersistentVolumeClaim("default", "bound", volume="there", bound=True),
            PersistentVolumeClaim("default", "local", "l", 5, MODES, "local"),
            PersistentVolumeClaim("default", "other", "o", 10, MODES, "local"),
            PersistentVolumeClaim("default", "cloud", "c", 10, MODES, "cloud"),
        ]
    )
    agree_when_asked(
        "VolumeBinding", nodes, objects, some_volumes(("bound", "local", "other", "cloud")), data
    )
