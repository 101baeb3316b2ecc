"""What a pod says about its node, as it is read, and what member clusters tell of their pods and of
what pods are placed by."""

from __future__ import annotations

import msgspec
import pytest

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster_objects import DisruptionBudget, NamespaceLabels, PodSelecting
from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import (
    HostPort,
    PodTerm,
    PodTraits,
    TopologySpread,
    VolumeUse,
    WeightedNodeTerm,
    WeightedPodTerm,
)
from wharfinger.domain.pod_upkeep import PodUpkeep
from wharfinger.domain.policy import Policy
from wharfinger.domain.selectors import LabelSelector, NodeTerm, Requirement
from wharfinger.domain.workload import Requirements
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.cluster_state import FinishedPodsObserved, ObjectsObserved, PodsObserved
from wharfinger.events.intake import Intake, compile_deletions, compile_manifests
from wharfinger.events.policies import PolicyApplied
from wharfinger.manifests.kubernetes import core as kubernetes
from wharfinger.manifests.kubernetes.core import pod_of
from wharfinger.manifests.parse import Manifest, load_manifests

MI = 2**20
GI = 2**30
WEB = LabelSelector({"app": "web"})


def manifests(*texts: str) -> list[Manifest]:
    loaded = load_manifests("---\n".join(texts), "file.yaml")
    assert [str(e) for e in loaded.errors] == []
    return list(loaded.manifests)


def told(text: str) -> list[str]:
    return [str(e) for e in load_manifests(text, "file.yaml").errors]


def applied(
    *texts: str, policies: tuple[Policy, ...] = (), bindings: tuple[Binding, ...] = ()
) -> Intake:
    intake = compile_manifests(manifests(*texts), policies, bindings)
    assert [str(e) for e in intake.errors] == []
    return intake


def pod(spec: str, meta: str = "name: p", status: str = "{}") -> kubernetes.PodManifest:
    (manifest,) = manifests(
        f"apiVersion: v1\nkind: Pod\nmetadata: {{{meta}}}\nspec: {spec}\nstatus: {status}\n"
    )
    assert isinstance(manifest.model, kubernetes.PodManifest)
    return manifest.model


def traits(spec: str, meta: str = "name: p", status: str = "{}") -> PodTraits:
    found = pod(spec, meta, status).requirements().pod
    assert found is not None
    return found


def bindings(intake: Intake) -> dict[str, Binding]:
    return {f.key: f.data.binding for f in intake.facts if isinstance(f.data, BindingRequested)}


def policies(intake: Intake) -> tuple[Policy, ...]:
    return tuple(f.data.policy for f in intake.facts if isinstance(f.data, PolicyApplied))


# What a pod says.


def test_a_pod_that_says_nothing_stays_as_small_as_it_was() -> None:
    plain = "{containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]}"
    assert pod(plain).requirements() == Requirements({"cpu": 1000, "memory": GI})
    assert pod("{containers: [{name: a}]}").requirements() == Requirements()


def test_what_others_see_of_a_pod_leaves_its_class_what_it_is() -> None:
    plain = pod("{containers: [{name: a}]}").requirements()
    seen = pod(
        "{containers: [{name: a, image: x}]}", "name: p, namespace: ns, labels: {app: web}"
    ).requirements()
    assert seen.class_key == plain.class_key
    assert seen.pod_key != plain.pod_key
    port = pod("{containers: [{ports: [{containerPort: 1, hostPort: 1}]}]}").requirements()
    assert port.class_key != plain.class_key


def test_where_others_are_is_taken_over_whole() -> None:
    term = "{topologyKey: zone, labelSelector: {matchLabels: {app: web}}"
    said = traits(
        "{containers: [{name: a}], affinity: {"
        " nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution:"
        "  [{weight: 7, preference: {matchExpressions: [{key: disk, operator: In, values: "
        "[ssd]}]}}]},"
        f" podAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{term}, namespaces: "
        "[a, b],"
        "  matchLabelKeys: [pod-template-hash]}],"
        f" preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 3, podAffinityTerm: "
        f"{term}}}}}]}},"
        " podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution:"
        "  [{topologyKey: host, namespaceSelector: {}, mismatchLabelKeys: [tenant]}]}}}"
    )
    ssd = Requirement("disk", "In", ("ssd",))
    assert said.preferences == (WeightedNodeTerm(7, NodeTerm((ssd,))),)
    assert said.affinity == (
        PodTerm("zone", WEB, ("a", "b"), match_label_keys=("pod-template-hash",)),
    )
    assert said.preferred_affinity == (WeightedPodTerm(3, PodTerm("zone", WEB)),)
    assert said.anti_affinity == (
        PodTerm("host", None, (), LabelSelector(), mismatch_label_keys=("tenant",)),
    )
    assert said.restrictive


def test_spread_is_hard_or_soft_and_knows_its_defaults() -> None:
    said = traits(
        "{containers: [{name: a}], topologySpreadConstraints: ["
        "{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 3, "
        "nodeTaintsPolicy: Honor,"
        " labelSelector: {matchLabels: {app: web}}},"
        "{maxSkew: 1, topologyKey: host, whenUnsatisfiable: ScheduleAnyway, nodeAffinityPolicy: "
        "Ignore}]}"
    )
    assert said.spread == (
        TopologySpread("zone", 2, True, WEB, 3, True, True),
        TopologySpread("host", 1, False, None, 1, False, False),
    )


def test_ports_of_the_host_are_those_of_what_runs_all_the_time() -> None:
    said = traits(
        "{initContainers: [{ports: [{containerPort: 1, hostPort: 1}]},"
        " {restartPolicy: Always, ports: [{containerPort: 2, hostPort: 2, protocol: UDP}]}],"
        " containers: [{ports: [{containerPort: 3, hostPort: 30, hostIP: 0.0.0.0},"
        " {containerPort: 4, hostPort: 4, hostIP: 10.0.0.1}, {containerPort: 5}]}]}"
    )
    assert said.ports == (HostPort(30), HostPort(4, "TCP", "10.0.0.1"), HostPort(2, "UDP"))
    network = traits("{hostNetwork: true, containers: [{ports: [{containerPort: 5}]}]}")
    assert network.ports == (HostPort(5),)


def test_volumes_that_tie_a_pod_to_places_are_told_and_no_others() -> None:
    said = traits(
        "{containers: [{name: a}], volumes: [{name: a, emptyDir: {}}, {name: b, configMap: "
        "{name: c}},"
        " {name: c, persistentVolumeClaim: {claimName: data, readOnly: true}}, {name: d, "
        "ephemeral: {}},"
        " {name: e, gcePersistentDisk: {pdName: disk, fsType: ext4, readOnly: true}},"
        " {name: f, awsElasticBlockStore: {volumeID: vol-1, readOnly: true}},"
        " {name: g, iscsi: {iqn: iqn.1, lun: 0, targetPortal: 'h:3260'}},"
        " {name: h, rbd: {monitors: [m1, m2], image: i}}]}"
    )
    assert said.volumes == (
        VolumeUse("data", "", True),
        VolumeUse("p-d"),
        VolumeUse("", "gcePersistentDisk/disk", True),
        VolumeUse("", "awsElasticBlockStore/vol-1"),
        VolumeUse("", "iscsi/iqn.1"),
        VolumeUse("", "rbd/m1/rbd/i"),
        VolumeUse("", "rbd/m2/rbd/i"),
    )


def test_a_replica_has_no_name_yet_so_its_own_claims_have_none() -> None:
    spec = "{containers: [{name: a}], volumes: [{name: d, ephemeral: {volumeClaimTemplate: {}}}]}"
    template = f"{{metadata: {{labels: {{app: web}}}}, spec: {spec}}}"
    (manifest,) = manifests(
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j}}\nspec: {{template: {template}}}\n"
    )
    assert manifest.unacted == ["spec.template.spec.volumes[0].ephemeral"]
    assert isinstance(manifest.model, kubernetes.Job)
    assert manifest.model.requirements().traits.volumes == ()


def test_the_claims_of_a_pod_are_found_by_their_own_names() -> None:
    claims = (
        "resourceClaims: [{name: gpu, resourceClaimName: mine}, {name: nic, "
        "resourceClaimTemplateName: t},"
        " {name: fpga, resourceClaimTemplateName: t}]"
    )
    model = pod(
        f"{{containers: [{{name: a}}], {claims}}}",
        status="{resourceClaimStatuses: [{name: nic, resourceClaimName: p-nic-7}]}",
    )
    assert model.requirements().traits.resource_claims == ("mine", "p-nic-7")
    assert list(model.unacted()) == [("spec", "resourceClaims", 2, "resourceClaimTemplateName")]


@pytest.mark.parametrize(
    ("meta", "spec", "group"),
    [
        ("labels: {scheduling.x-k8s.io/pod-group: g}", "{}", "g"),
        ("annotations: {scheduling.k8s.io/group-name: g}", "{}", "g"),
        ("labels: {scheduling.x-k8s.io/pod-group: g}", "{schedulingGroup: {podGroupName: h}}", "h"),
        ("labels: {}", "{workloadRef: {name: w, podGroup: g}}", "w/g"),
        ("labels: {}", "{workloadRef: {name: w, podGroup: g, podGroupReplicaKey: '1'}}", "w/g/1"),
    ],
)
def test_a_group_is_named_in_any_of_its_ways(meta: str, spec: str, group: str) -> None:
    assert traits(spec, f"name: p, {meta}").group == group


def test_the_rest_of_what_decides_is_taken_over() -> None:
    said = traits(
        "{schedulerName: packing, nodeName: n-1, preemptionPolicy: Never, schedulingGates: "
        "[{name: later}],"
        " containers: [{image: 'host:5000/a'}, {image: 'b:1'}], initContainers: [{name: c}]}",
        "name: p, ownerReferences: [{kind: Node}, {kind: DaemonSet, controller: true}]",
    )
    assert (said.scheduler, said.node_name, said.never_preempts, said.gates) == (
        "packing",
        "n-1",
        True,
        ("later",),
    )
    assert said.images == ("", "host:5000/a:latest", "b:1")
    assert said.owner == "DaemonSet"
    assert (
        pod("{schedulerName: default-scheduler, containers: [{name: a}]}").requirements().pod
        is None
    )


def test_scoring_counts_a_little_for_every_container_that_asks_nothing() -> None:
    both = "{requests: {cpu: 250m, memory: 1Gi}}"
    assert traits(f"{{containers: [{{resources: {both}}}, {{name: b}}]}}").scored == {
        "cpu": 350,
        "memory": GI + 200 * MI,
    }
    # An init container counts alone, and what is asked as nothing is nothing.
    said = traits(
        "{initContainers: [{name: i}], containers: [{resources: {requests: {cpu: 10m, memory: "
        "0}}}]}"
    )
    assert said.scored == {"cpu": 100, "memory": 200 * MI}
    over = traits(f"{{overhead: {{cpu: 1}}, containers: [{{resources: {both}}}, {{name: b}}]}}")
    assert over.scored["cpu"] == 1350


def test_what_a_pod_requests_as_a_whole_is_scored_once_it_runs() -> None:
    spec = (
        "{nodeName: n, resources: {requests: {cpu: 2}}, containers: [{resources: {requests: "
        "{cpu: 500m}}}]}"
    )
    model = pod(spec)
    assert pod_of(model, pending=True).requirements.requests == {"cpu": 2000}
    assert pod_of(model, pending=True).requirements.traits.scored == {
        "cpu": 500,
        "memory": 200 * MI,
    }
    assert pod_of(model).requirements.traits.scored == {}  # 2 cores, and the stand-in of its memory


def test_a_running_pod_has_a_node_and_a_pending_one_asks_for_it() -> None:
    model = pod(
        "{nodeName: n, priority: 7, schedulingGates: [{name: g}], containers: [{name: a}]}",
        "name: p, namespace: ns, uid: u-1, deletionTimestamp: '2026-03-01T12:00:00Z'",
        "{phase: Running, startTime: '1970-01-01T00:00:01Z', conditions: []}",
    )
    running = pod_of(model)
    assert running == Pod(
        "u-1",
        "p",
        Requirements(pod=PodTraits(namespace="ns")),
        "n",
        priority=7,
        started_us=10**6,
        terminating=True,
        upkeep=PodUpkeep(quality="BestEffort", phase="Running"),
    )
    pending = pod_of(model, pending=True)
    assert pending.upkeep is None
    assert (
        pending.node,
        pending.requirements.traits.node_name,
        pending.requirements.traits.gates,
    ) == ("", "n", ("g",))
    assert pod_of(pod("{containers: [{name: a}]}")).requirements.traits.namespace == "default"


def test_a_node_tells_its_images_by_every_name_and_its_addresses() -> None:
    (manifest,) = manifests(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n}\nstatus:\n  allocatable: {cpu: 1}\n"
        "  addresses: [{type: InternalIP, address: 10.0.0.1}, {type: Hostname, address: n}]\n"
        "  images: [{names: ['a@sha256:ab', 'host:1/a'], sizeBytes: 100}, {sizeBytes: 1}]\n"
    )
    assert isinstance(manifest.model, kubernetes.NodeManifest)
    node = manifest.model.to_domain()
    assert node.images == {"a@sha256:ab": 100, "host:1/a:latest": 100}
    assert node.addresses == ("10.0.0.1", "n")


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (
            (
                "{topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: "
                "DoNotSchedule}]}"
            ),
            (
                "spec.topologySpreadConstraints[0].maxSkew: expected an integer from 1 to "
                "2147483647, got 0"
            ),
        ),
        (
            (
                "{topologySpreadConstraints: [{maxSkew: 1, topologyKey: '', whenUnsatisfiable: "
                "DoNotSchedule}]}"
            ),
            (
                "spec.topologySpreadConstraints[0].topologyKey: expected a text that is not empty, "
                "got ''"
            ),
        ),
        (
            "{topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: Maybe}]}",
            (
                "spec.topologySpreadConstraints[0].whenUnsatisfiable: "
                "expected 'DoNotSchedule' or 'ScheduleAnyway', got 'Maybe'"
            ),
        ),
        (
            (
                "{topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: "
                "ScheduleAnyway, minDomains: 2}]}"
            ),
            "spec.topologySpreadConstraints[0].minDomains: expected no minDomains where "
            "whenUnsatisfiable is ScheduleAnyway, "
            "got 2",
        ),
        (
            "{containers: [{ports: [{containerPort: 1, hostPort: 70000}]}]}",
            "spec.containers[0].ports[0].hostPort: expected an integer from 0 to 65535, got 70000",
        ),
        (
            (
                "{affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
                "[{labelSelector: {}}]}}}"
            ),
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
            ".topologyKey: expected a value, got nothing",
        ),
        (
            "{affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: "
            "[{weight: 101, podAffinityTerm: {topologyKey: a}}]}}}",
            "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
            ".weight: expected an integer from 1 to 100, got 101",
        ),
        (
            "{volumes: [{name: a, persistentVolumeClaim: {}}]}",
            "spec.volumes[0].persistentVolumeClaim.claimName: expected a value, got nothing",
        ),
        (
            "{preemptionPolicy: Sometimes}",
            "spec.preemptionPolicy: expected 'PreemptLowerPriority' or 'Never', got 'Sometimes'",
        ),
    ],
)
def test_what_is_wrong_with_a_pod_is_told_in_one_line(spec: str, error: str) -> None:
    assert told(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {spec}\n") == [
        "file.yaml:4: " + error
    ]


# What a cluster tells.

BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: one, namespace: ns, labels: {wharfinger.io/cluster: oslo}}
spec: {minAvailable: 50%, selector: {matchLabels: {app: web}}}
status: {disruptionsAllowed: 1,
  disruptedPods: {p-2: "2026-03-01T12:00:00Z", p-1: "2026-03-01T12:00:00Z"}}
"""
NAMESPACE = (
    "apiVersion: v1\nkind: Namespace\nmetadata: {name: ns, labels: {wharfinger.io/cluster: oslo}}\n"
)
RUNNING = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: ns, annotations: {wharfinger.io/cluster: oslo}}
spec: {nodeName: NODE, containers: [{resources: {requests: {cpu: 1}}}]}
status: {phase: PHASE}
"""


def service(name: str, cluster: str = "oslo") -> str:
    whose = f", labels: {{wharfinger.io/cluster: {cluster}}}" if cluster else ""
    return (
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: ns{whose}}}\n"
        f"spec: {{selector: {{app: web}}}}\n"
    )


def running(name: str, node: str, phase: str = "Running") -> str:
    return RUNNING.replace("NAME", name).replace("NODE", node).replace("PHASE", phase)


def on_nodes(intake: Intake) -> dict[str, list[str]]:
    return {
        f.data.node: [p.name for p in f.data.pods]
        for f in intake.facts
        if isinstance(f.data, PodsObserved)
    }


def finished(intake: Intake) -> dict[str, list[str]]:
    return {
        f.key: [p.name for p in f.data.pods]
        for f in intake.facts
        if isinstance(f.data, FinishedPodsObserved)
    }


def test_objects_with_a_cluster_are_facts_of_it_by_kind_and_namespace() -> None:
    intake = applied(service("b"), service("a"), BUDGET, NAMESPACE)
    label = {"wharfinger.io/cluster": "oslo"}
    assert {f.key: f.data for f in intake.facts} == {
        "oslo/objects/Service/ns": ObjectsObserved(
            "oslo",
            "Service",
            "ns",
            tuple(PodSelecting("Service", "ns", name, WEB) for name in ("a", "b")),
        ),
        "oslo/objects/PodDisruptionBudget/ns": ObjectsObserved(
            "oslo",
            "PodDisruptionBudget",
            "ns",
            (DisruptionBudget("ns", "one", WEB, 1, "50%", "", ("p-1", "p-2")),),
        ),
        "oslo/objects/Namespace/": ObjectsObserved(
            "oslo",
            "Namespace",
            "",
            (NamespaceLabels("ns", {**label, "kubernetes.io/metadata.name": "ns"}),),
        ),
    }
    assert {f.partition_key for f in intake.facts} == {"oslo"}


def test_an_object_joins_what_is_known_of_its_kind_and_leaves_it_when_deleted() -> None:
    drawer = ("oslo", "Service", "ns")
    known = {drawer: (PodSelecting("Service", "ns", "a", WEB),)}
    (joined,) = compile_manifests(manifests(service("b")), known_objects=known).facts
    assert isinstance(joined.data, ObjectsObserved)
    assert [o.name for o in joined.data.objects] == ["a", "b"]
    (left,) = compile_deletions(
        manifests(service("b")), known_objects={drawer: joined.data.objects}
    ).facts
    assert left.data == ObjectsObserved(*drawer, known[drawer])


def test_a_service_without_a_cluster_is_something_to_be_sent() -> None:
    (error,) = compile_manifests(manifests(service("a", ""))).refusals
    assert "expected a policy that selects Service ns/a, got none" in str(error)
    assert "wharfinger.io/cluster" in str(error)


def test_a_service_without_a_selector_selects_nobody() -> None:
    bare = service("a").replace("spec: {selector: {app: web}}", "spec: {type: ExternalName}")
    (fact,) = applied(bare).facts
    assert isinstance(fact.data, ObjectsObserved)
    (selecting,) = fact.data.objects
    assert isinstance(selecting, PodSelecting)
    assert not selecting.selector.matches({})
    assert not selecting.selector.matches({"": ""})


def test_pods_that_run_are_told_with_their_nodes_all_of_a_node_together() -> None:
    intake = applied(
        running("b", "n-1"),
        running("a", "n-1"),
        running("c", "n-2"),
        running("d", "n-2", "Succeeded"),
    )
    assert on_nodes(intake) == {"n-1": ["a", "b"], "n-2": ["c"]}
    assert finished(intake) == {"oslo/finished/n-2": ["d"]}
    assert not bindings(intake)


def test_a_pod_that_moved_is_gone_from_where_it_was() -> None:
    before = {
        ("oslo", "n-1"): [
            p
            for f in applied(running("a", "n-1"), running("b", "n-1")).facts
            if isinstance(f.data, PodsObserved)
            for p in f.data.pods
        ]
    }
    moved = compile_manifests(manifests(running("a", "n-2")), known_pods=before)
    assert on_nodes(moved) == {"n-1": ["b"], "n-2": ["a"]}
    ended = compile_manifests(manifests(running("a", "n-1", "Failed")), known_pods=before)
    assert on_nodes(ended) == {"n-1": ["b"]}
    assert finished(ended) == {"oslo/finished/n-1": ["a"]}
    gone = compile_deletions(manifests(running("a", "n-1")), known_pods=before)
    assert on_nodes(gone) == {"n-1": ["b"]}


def test_a_finished_pod_is_there_until_it_is_deleted() -> None:
    ended = applied(running("a", "n-1", "Failed"), running("b", "n-1", "Succeeded"))
    (fact,) = [f.data for f in ended.facts if isinstance(f.data, FinishedPodsObserved)]
    assert [p.upkeep and p.upkeep.phase for p in fact.pods] == ["Failed", "Succeeded"]
    before = {("oslo", "n-1"): fact.pods}
    more = compile_manifests(manifests(running("c", "n-1", "Failed")), known_finished=before)
    assert finished(more) == {"oslo/finished/n-1": ["a", "b", "c"]}
    gone = compile_deletions(manifests(running("a", "n-1", "Failed")), known_finished=before)
    assert finished(gone) == {"oslo/finished/n-1": ["b"]}


def test_a_cluster_that_goes_takes_its_objects_and_pods_along() -> None:
    cluster = (
        "apiVersion: cluster.karmada.io/v1alpha1\nkind: Cluster\nmetadata: {name: oslo}\n"
        "spec: {syncMode: Pull}\n"
    )
    objects = {
        ("oslo", "Service", "ns"): (PodSelecting("Service", "ns", "a", WEB),),
        ("rena", "Service", "ns"): (),
    }
    pods = {("oslo", "n-1"): (Pod("u", "p", Requirements(), "n-1"),)}
    gone = compile_deletions(
        manifests(cluster), known_objects=objects, known_pods=pods, known_finished=pods
    )
    assert [f.key for f in gone.facts] == [
        "oslo/pods/n-1",
        "oslo/finished/n-1",
        "oslo/objects/Service/ns",
        "oslo",
    ]
    assert [f.data for f in gone.facts[:3]] == [
        PodsObserved("oslo", "n-1", ()),
        FinishedPodsObserved("oslo", "n-1", ()),
        ObjectsObserved("oslo", "Service", "ns", ()),
    ]


def test_the_same_object_of_two_clusters_is_two_things_and_of_one_cluster_one() -> None:
    assert len(applied(service("a"), service("a", "rena")).facts) == 2
    (error,) = compile_manifests(manifests(service("a"), service("a"))).errors
    assert "expected each object once, got Service ns/a of oslo again" in str(error)


# Priority classes and groups.

CRITICAL = (
    "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: critical}\n"
    "value: 1000\n"
)
USUAL = (
    "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: usual}\nvalue: -5\n"
    "globalDefault: true\n"
    "preemptionPolicy: Never\n"
)
GROUP = (
    "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: g, namespace: ns}\n"
    "spec: {schedulingPolicy: {gang: {minCount: COUNT}}}\n"
)


def job(spec: str, meta: str = "") -> str:
    return (
        "apiVersion: batch/v1\nkind: Job\n"
        "metadata: {name: j, namespace: ns, annotations: {wharfinger.io/placement: any}}\n"
        f"spec: {{template: {{metadata: {{{meta}}}, spec: {spec}}}}}\n"
    )


def ranked(intake: Intake) -> tuple[int, str, bool, tuple[str, ...]]:
    (binding,) = bindings(intake).values()
    return (
        binding.priority,
        binding.priority_class,
        binding.requirements.traits.never_preempts,
        binding.unacted,
    )


def test_the_number_of_a_priority_class_is_looked_up_here_or_in_what_is_known() -> None:
    named = job("{priorityClassName: critical}")
    unknown = (0, "critical", False, ("spec.template.spec.priorityClassName",))
    assert ranked(applied(named)) == unknown
    assert ranked(applied(named, CRITICAL)) == (1000, "critical", False, ())
    assert ranked(applied(named, policies=policies(applied(CRITICAL)))) == (
        1000,
        "critical",
        False,
        (),
    )


def test_a_number_that_is_there_already_is_taken_as_it_is() -> None:
    assert ranked(applied(job("{priorityClassName: critical, priority: 7}"), CRITICAL))[0] == 7


def test_pods_that_name_no_class_are_of_the_default_one() -> None:
    assert ranked(applied(job("{}"), USUAL, CRITICAL)) == (-5, "usual", True, ())
    assert ranked(applied(job("{preemptionPolicy: PreemptLowerPriority}"), USUAL)) == (
        -5,
        "usual",
        False,
        (),
    )
    lower = USUAL.replace("usual", "lower").replace("-5", "-9")
    assert ranked(applied(job("{}"), USUAL, lower))[:2] == (-9, "lower")


def test_the_classes_of_the_system_are_built_in_and_kept_for_it() -> None:
    assert ranked(applied(job("{priorityClassName: system-node-critical}"))) == (
        2_000_001_000,
        "system-node-critical",
        False,
        (),
    )
    (error,) = told(CRITICAL.replace("critical", "system-mine"))
    assert error.startswith(
        "file.yaml:3: metadata.name: expected a name that does not begin with 'system-'"
    )


def test_a_class_told_later_reaches_the_bindings_that_name_it() -> None:
    before = bindings(applied(job("{priorityClassName: critical}")))["ns/j-job"]
    assert bindings(applied(CRITICAL, bindings=(before,)))["ns/j-job"].priority == 1000
    assert bindings(applied(USUAL, bindings=(before,))) == {}


def test_how_many_of_a_group_go_together_is_looked_up_and_follows_the_group() -> None:
    member = job("{schedulingGroup: {podGroupName: g}}")
    group = GROUP.replace("COUNT", "4")
    (known,) = bindings(applied(member, group)).values()
    assert (known.requirements.traits.group, known.requirements.traits.min_count) == ("g", 4)
    (later,) = bindings(applied(GROUP.replace("COUNT", "6"), bindings=(known,))).values()
    assert later == msgspec.structs.replace(
        known,
        requirements=msgspec.structs.replace(
            known.requirements, pod=msgspec.structs.replace(known.requirements.traits, min_count=6)
        ),
    )
    elsewhere = GROUP.replace("COUNT", "9").replace("namespace: ns", "namespace: other")
    assert bindings(applied(elsewhere, bindings=(known,))) == {}


def test_the_copies_of_a_group_of_a_workload_are_as_large_as_the_group() -> None:
    workload = (
        "apiVersion: scheduling.k8s.io/v1alpha1\nkind: Workload\n"
        "metadata: {name: w, namespace: ns}\n"
        "spec: {podGroups: [{name: g, policy: {gang: {minCount: 3}}}]}\n"
    )
    (binding,) = bindings(
        applied(job("{workloadRef: {name: w, podGroup: g, podGroupReplicaKey: '2'}}"), workload)
    ).values()
    assert (binding.requirements.traits.group, binding.requirements.traits.min_count) == (
        "w/g/2",
        3,
    )
