"""What the commands know of a cluster's nodes, and how applying one more node leaves the others
where they were told."""

from __future__ import annotations

from typing import Any

import pytest

from wharfinger.answers.changes import ObjectResult, results_of
from wharfinger.answers.facts import BindingShown, ClusterShown, NodeShown
from wharfinger.answers.selection import ListSelection, ListSelectionError
from wharfinger.answers.upkeep import drained, scaled, undrained
from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.drain import DRAIN
from wharfinger.domain.node import Node
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef
from wharfinger.events.accepted import Accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import NodesObserved, into_buckets
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.envelope import derived_id
from wharfinger.history.names import UnknownNameError
from wharfinger.manifests.parse import load_manifests
from wharfinger.runtime.ledger import LedgerError
from wharfinger_cli.apply import compiled, compiled_away
from wharfinger_cli.facts import LatestFacts, Told, cluster_text
from wharfinger_cli.failures import CommandError
from wharfinger_cli.kind_names import KIND_NAMES, kind_meant

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


def fact(data: Value, subject: str, key: str) -> Accepted:
    return Accepted(data, subject, key, key)


def test_apply_says_of_each_object_what_became_of_it() -> None:
    one, two = (
        BindingRequested(Binding(f"shop/{name}", name, ObjectRef("v1", "Pod", name, "shop")))
        for name in ("one", "two")
    )
    gone = BindingWithdrawn("shop/one")
    facts = [fact(one, "shop/one", "one"), fact(two, "shop/two", "two")]
    first = results_of(facts, {}, {"one", "two"})
    assert said(first) == ["created", "created"]
    topic = facts[0].topic.name
    before = {
        (topic, key): Told(derived_id(key), data, 1) for key, data in (("one", one), ("two", two))
    }
    assert said(results_of(facts, before, {"two"})) == ["unchanged", "changed"]
    ended = {**before, (topic, "one"): Told(derived_id("gone"), gone, 2)}
    assert said(results_of(facts, ended, {"one"})) == ["created", "unchanged"]
    deletion = [fact(gone, "shop/one", "one")]
    assert said(results_of(deletion, before, {"one"})) == ["deleted"]
    assert said(results_of(deletion, ended, set())) == ["unchanged"]


def said(results: tuple[ObjectResult, ...]) -> list[str]:
    return [one.result for one in results]


def test_an_object_of_several_facts_has_one_result() -> None:
    parts = [fact(part, "oslo", f"oslo/{part.bucket}") for part in into_buckets("oslo", NODES, 2)]
    assert set(said(results_of(parts, {}, {p.key for p in parts}))) == {"created"}
    assert said(results_of(parts, {}, {parts[0].key})) == ["changed"]


# --- one fact


def known_plane() -> LatestFacts:
    facts = LatestFacts()
    told(facts, into_buckets("oslo", NODES, 2), at=1)
    for name in ("oslo", "bergen"):
        data = ClusterObserved(Cluster(name))
        facts.latest["wharfinger.clusters", name] = Told(derived_id(name), data, 1)
    for name, replicas in (("shop/web-deployment", 2), ("shop/web-configmap", 0)):
        binding = Binding(name, name, ObjectRef("apps/v1", "Deployment", name, "shop"), replicas)
        facts.latest["wharfinger.bindings", name] = Told(
            derived_id(name), BindingRequested(binding), 1
        )
    return facts


def test_a_binding_is_scaled_by_as_much_of_its_name_as_only_one_has() -> None:
    data = scaled(known_plane(), "web-deployment", 5).data
    assert isinstance(data, BindingRequested)
    assert (data.binding.name, data.binding.replicas) == ("shop/web-deployment", 5)
    with pytest.raises(LedgerError, match="expected one binding, got"):
        scaled(known_plane(), "web", 5)
    with pytest.raises(LedgerError, match="has no replicas"):
        scaled(known_plane(), "shop/web-configmap", 5)
    with pytest.raises(UnknownNameError, match="no binding is named"):
        scaled(known_plane(), "bank/web", 5)


def test_what_was_drained_is_undrained() -> None:
    known = known_plane()
    fact = drained(known, "oslo/n-3")
    assert isinstance(fact.data, NodesObserved)
    assert [n.name for n in fact.data.nodes if n.unschedulable and DRAIN in n.taints] == ["n-3"]
    known.latest["wharfinger.cluster-state", fact.key] = Told(derived_id("d"), fact.data, 2)
    back = undrained(known, "n-3").data
    assert isinstance(back, NodesObserved)
    assert not [n for n in back.nodes if n.unschedulable or n.taints]
    cluster = drained(known, "bergen").data
    assert isinstance(cluster, ClusterObserved)
    assert cluster.cluster.taints == (DRAIN,)
    known.latest["wharfinger.clusters", "bergen"] = Told(derived_id("b"), cluster, 2)
    assert undrained(known, "bergen").data == ClusterObserved(Cluster("bergen"))
    with pytest.raises(UnknownNameError, match="no cluster and no node is called atlantis"):
        drained(known, "atlantis")


# --- what is listed


def shown(name: str, outcome: str, placed: int, **more: Any) -> BindingShown:
    binding = Binding(name, name, ObjectRef("v1", "Pod", name), 2, **more)
    targets = (TargetCluster("oslo", 2),) if outcome == "scheduled" else ()
    return BindingShown(binding, outcome, "", targets, placed)


SHOWN = [
    shown("shop/web", "scheduled", 2, policy="PropagationPolicy/shop/near", labels={"app": "web"}),
    shown("shop/api", "scheduled", 1, labels={"app": "api"}),
    shown("lab/big", "refused", 0, labels={"app": "big", "gpu": ""}),
    shown("lab/new", "waiting", 0),
]


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        (ListSelection(), ["shop/web", "shop/api", "lab/big", "lab/new"]),
        (ListSelection(namespaces=["shop"]), ["shop/web", "shop/api"]),
        (ListSelection(namespaces=["lab"], states=["refused", "waiting"]), ["lab/big", "lab/new"]),
        (ListSelection(states=["pending"]), ["shop/api"]),
        (ListSelection(clusters=["oslo"], labels=["app!=web"]), ["shop/api"]),
        (ListSelection(policies=["near"]), ["shop/web"]),
        (ListSelection(policies=["PropagationPolicy/shop/near"]), ["shop/web"]),
        (ListSelection(labels=["gpu"]), ["lab/big"]),
        (ListSelection(labels=["!app"]), ["lab/new"]),
        (ListSelection(labels=["app=web", "app=api"]), []),
        (ListSelection(clusters=["bergen"]), []),
    ],
)
def test_bindings_are_selected(selection: ListSelection, names: list[str]) -> None:
    assert [item.binding.name for item in selection.bindings(SHOWN)] == names


def test_nodes_and_clusters_are_selected_by_state_and_labels() -> None:
    nodes = [
        NodeShown("oslo", Node("a", {}, labels={"zone": "1"}), 0),
        NodeShown("bergen", Node("b", {}, unschedulable=True), 0),
    ]
    assert ListSelection(states=["cordoned"]).nodes(nodes) == nodes[1:]
    assert ListSelection(labels=["zone=1"]).nodes(nodes) == nodes[:1]
    clusters = [
        ClusterShown(Cluster("oslo", deleting=True), (), False),
        ClusterShown(Cluster("bergen"), (), True),
    ]
    assert ListSelection(states=["leaving"]).cluster_list(clusters) == clusters[:1]
    assert ListSelection(states=["silent"]).cluster_list(clusters) == clusters[1:]


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (ListSelection(states=["lost"]), "state: expected waiting, scheduled, refused, released"),
        (ListSelection(labels=["=web"]), "label: expected key=value, key!=value, key or !key"),
        (ListSelection(labels=["a b"]), "label: expected"),
        (ListSelection(labels=["!a=b"]), "label: expected"),
    ],
)
def test_what_cannot_be_selected_is_an_error(selection: ListSelection, said: str) -> None:
    with pytest.raises(ListSelectionError, match=said):
        selection.bindings(SHOWN)


@pytest.mark.parametrize(
    ("word", "kind"),
    [("b", "bindings"), ("Cluster", "clusters"), ("rb", "resourcebindings"), ("np", "nodepools")],
)
def test_kinds_have_short_names(word: str, kind: str) -> None:
    assert kind_meant(word) == kind


def test_no_two_kinds_share_a_name() -> None:
    words = [word for kind, others in KIND_NAMES.items() for word in (kind, *others)]
    assert len(words) == len(set(words))
    with pytest.raises(CommandError, match="did you mean cluster"):
        kind_meant("clustr")


def test_a_cluster_that_shows_a_kind_no_more_says_so() -> None:
    conditions = {"MayReadService": "False", "MayReadNode": "False", "Ready": "True"}
    refused = ClusterShown(Cluster("oslo", conditions=conditions), [], silent=True)
    assert str(cluster_text(refused)) == "silent; may not read Node, Service"
    assert str(cluster_text(ClusterShown(Cluster("oslo"), [], silent=False))) == ""
