"""What the commands know of a cluster's nodes, and how applying one more node leaves the others
where they were told."""

from __future__ import annotations

from wharfinger.domain.node import Node
from wharfinger.events.cluster_state import NodesObserved, into_buckets
from wharfinger.events.envelope import derived_id
from wharfinger.manifests.parse import load_manifests
from wharfinger_cli.apply import compiled, compiled_away
from wharfinger_cli.facts import LatestFacts, Told

NODES = [Node(f"n-{i}", {"cpu": 1000}) for i in range(5)]
NODE = """\
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {{wharfinger.io/cluster: oslo}}}}
status: {{allocatable: {{cpu: "1"}}}}
"""


def told(facts: LatestFacts, observed: list[NodesObserved], at: int) -> None:
    for part in observed:
        key = f"{part.cluster}/nodes/{part.bucket}"
        facts.latest["wharfinger.cluster-state", key] = Told(derived_id(key, at), part, at)


def test_a_cluster_is_cut_as_it_was_told_last() -> None:
    facts = LatestFacts()
    told(facts, into_buckets("oslo", NODES, 4), at=1)
    told(facts, into_buckets("oslo", NODES[:3], 2), at=2)
    told(facts, into_buckets("bergen", NODES, 3), at=1)
    assert facts.buckets == {"oslo": 2, "bergen": 3}
    # buckets 2 and 3 of the old cut are nobody's word
    assert facts.nodes == {"bergen": NODES, "oslo": NODES[:3]}


def test_applied_and_deleted_nodes_keep_the_cut_of_their_cluster() -> None:
    facts = LatestFacts()
    told(facts, into_buckets("oslo", NODES, 3), at=1)
    manifests = load_manifests(NODE.format(name="n-9"), "nodes.yaml").manifests
    applied = [f.data for f in compiled(manifests, facts).facts]
    assert applied == into_buckets(
        "oslo", [*NODES, Node("n-9", {"cpu": 1000}, labels={"wharfinger.io/cluster": "oslo"})], 3
    )
    deleted = [
        f.data
        for f in compiled_away(
            load_manifests(NODE.format(name="n-0"), "nodes.yaml").manifests, facts
        ).facts
    ]
    assert deleted == into_buckets("oslo", NODES[1:], 3)
