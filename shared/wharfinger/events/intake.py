"""From manifests to the facts they state: what `apply -f` and `delete -f` hand in.

Lies in `events` and not beside the models because it makes events, and imports only go down. Reads
manifests and what is known (policies, bindings, nodes), and returns facts, or, where anything at
all is wrong, only errors.

A workload becomes a binding as soon as a policy selects it. The binding carries the policy's
placement, so a policy that is applied, changed or removed later requests again every known binding
whose policy it changes; nothing else is needed to have them scheduled again. The binding also says
which policy has claimed it (`manifests.selection`). What a lazy policy says reaches a workload only
when the workload itself is applied and is another than before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeGuard, TypeVar

import msgspec

from wharfinger.domain.binding import Binding, bound_name
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.cluster_objects import ClusterObject, DaemonPods
from wharfinger.domain.node import Node, Pod, WaitingPod
from wharfinger.domain.placement import Placement, ReplicaScheduling
from wharfinger.domain.policy import Policy
from wharfinger.domain.quota import Quota
from wharfinger.domain.value import digest
from wharfinger.domain.workload import ObjectRef
from wharfinger.events.accepted import Accepted, Fact, accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.cluster_state import (
    WAITING_BUCKETS,
    FinishedPodsObserved,
    ObjectsObserved,
    PodsObserved,
    QuotasObserved,
    WaitingPodsObserved,
    WorkloadObserved,
    buckets_for,
    waiting_bucket,
)
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.envelope import derived_id
from wharfinger.events.fact_groups import Shelves
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.streams import BINDINGS, POLICIES
from wharfinger.manifests import any_object, crane, ocm
from wharfinger.manifests.cluster_fact import (
    CLUSTER,
    DEFAULT_NAMESPACE,
    ClusterFact,
    cluster_of,
    required_cluster,
)
from wharfinger.manifests.descheduler import policy as descheduler
from wharfinger.manifests.errors import ManifestError, Path, dotted, shown
from wharfinger.manifests.karmada import objects as karmada
from wharfinger.manifests.karmada import upkeep as karmada_upkeep
from wharfinger.manifests.karmada.selection import policy_for
from wharfinger.manifests.karpenter import node_claims
from wharfinger.manifests.karpenter import pools as karpenter
from wharfinger.manifests.kinds import versions_of
from wharfinger.manifests.kubernetes import cluster_objects
from wharfinger.manifests.kubernetes import core as kubernetes
from wharfinger.manifests.kubernetes import scheduler as kube_scheduler
from wharfinger.manifests.kubernetes import scheduler_policy as kube_policy
from wharfinger.manifests.kubernetes.levels import Levels
from wharfinger.manifests.kubernetes.pod import Whose
from wharfinger.manifests.model import ExpectedError, Object, Resource
from wharfinger.manifests.parse import Manifest
from wharfinger.manifests.wharfinger import rebalancing

PLACEMENT = "wharfinger.io/placement"
"""Annotation of a workload: `any` places it without a policy, on any cluster."""
ANY = "any"
NODE_BUCKETS = 8
"""Into how many events the nodes of a new cluster are cut. Their number only grows, where a bucket
would be too large for one event; then all buckets are reported again, and the old ones hold until
the last of the new has come."""
BY_HAND = ("ResourceBinding/", "ClusterResourceBinding/")
"""How `Binding.policy` begins where the binding itself was applied."""

ANYWHERE = Placement(replicas=ReplicaScheduling("Divided", "Aggregated"))
"""Where no policy says otherwise: all replicas in as few clusters as hold them."""

UNACTED_MAX = 32
"""Of a workload's fields that are not acted on so many go with its binding, so that one with very
many makes no large event."""

CRD = "CustomResourceDefinition"
NO_POLICY = "no policy selects them"
NO_OBJECT = "without metadata.name they are files of a tool, not objects of an API server"
STEERS = "they steer Karmada itself, and are not acted on here"
"""Why objects are skipped, of all of a kind."""

ClusterModel = karmada.ClusterManifest | ocm.ManagedCluster
SchedulerModel = (
    kube_scheduler.KubeSchedulerConfiguration
    | kube_policy.PolicyFile
    | kube_policy.ProviderConfiguration
)
LevelModel = cluster_objects.PriorityClass | cluster_objects.PodGroup | cluster_objects.GangWorkload
PolicyModel = (
    karmada.ClusterPropagationPolicy
    | karmada_upkeep.FederatedResourceQuota
    | karmada_upkeep.ClusterTaintPolicy
    | ocm.PlacementManifest
    | ocm.ManagedClusterSet
    | ocm.ManagedClusterSetBinding
    | ocm.AddOnPlacementScore
    | crane.DynamicSchedulerPolicy
    | karpenter.NodePool
    | karpenter.BetaNodePool
    | karpenter.NodeOverlayManifest
    | descheduler.DeschedulerPolicy
    | descheduler.OldDeschedulerPolicy
    | rebalancing.RebalancePolicyManifest
    | SchedulerModel
    | LevelModel
)

_MOVES_BINDINGS = PolicyModel | karmada_upkeep.WorkloadRebalancer
"""What says something of bindings whose workloads are not among the manifests."""

_READS_POLICIES = frozenset((POLICIES.name,))
_READS_ALL = frozenset((POLICIES.name, BINDINGS.name))

Place = tuple[str, str]
"""A cluster and a namespace. One event reports all quotas of it."""
Drawer = tuple[str, str, str]
"""A cluster, a kind and a namespace. One event reports all objects of it."""
Berth = tuple[str, str]
"""A cluster and a node of it. One event reports all pods of it."""
Queue = tuple[str, str, str]
"""A cluster, a namespace and a bucket. One event reports all waiting pods of it."""

A = TypeVar("A")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Skipped:
    """`why`: one reason for all objects of a kind. `error`: the one object with its line."""

    api_version: str
    kind: str
    why: str
    error: ManifestError


@dataclass(frozen=True, slots=True)
class SkippedKind:
    """All objects of one kind that are skipped for one reason."""

    api_version: str
    kind: str
    why: str
    count: int

    def __str__(self) -> str:
        return f"skipped {self.count} {self.kind} ({self.api_version}): {self.why}"


@dataclass(frozen=True, slots=True)
class Intake:
    """`facts` in the order in which they are useful: clusters, nodes, quotas, policies, bindings.
    Empty where there are errors.

    `unacted`: one entry a field that is accepted and not acted on in this version. `skipped`: one
    entry an object that is placed nowhere; no fact is about it. `reads`: the names of the topics
    of which any fact may change the others; of other topics only the facts under the same keys.
    """

    facts: tuple[Accepted, ...]
    errors: tuple[ManifestError, ...] = ()
    unacted: tuple[ManifestError, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    reads: frozenset[str] = frozenset()

    @property
    def skipped_kinds(self) -> tuple[SkippedKind, ...]:
        """One entry a kind and reason, with the number of its objects, as they first came."""
        counts = Counter((one.api_version, one.kind, one.why) for one in self.skipped)
        return tuple(SkippedKind(*kind, count) for kind, count in counts.items())

    @property
    def refusals(self) -> tuple[ManifestError, ...]:
        """All errors where everything is to be placed."""
        return _in_order([*self.errors, *(one.error for one in self.skipped)])


def compile_manifests(
    manifests: Sequence[Manifest],
    known_policies: Iterable[Policy] = (),
    known_bindings: Iterable[Binding] = (),
    known_nodes: Mapping[str, Iterable[Node]] | None = None,
    known_buckets: Mapping[str, int] | None = None,
    known_quotas: Mapping[Place, Iterable[Quota]] | None = None,
    known_objects: Mapping[Drawer, Iterable[ClusterObject]] | None = None,
    known_pods: Mapping[Berth, Iterable[Pod]] | None = None,
    known_finished: Mapping[Berth, Iterable[Pod]] | None = None,
    known_waiting: Mapping[Queue, Iterable[WaitingPod]] | None = None,
) -> Intake:
    """What applying `manifests` states. Nodes join the known ones of their cluster, replacing those
    of the same name, and so do the quotas of a namespace, the objects of a kind and the pods of a
    node.

    `known_buckets`: cluster -> into how many buckets its known nodes are cut; a cluster not named
    there is new.
    """
    run = _CompileRun(
        manifests,
        known_policies,
        known_bindings,
        known_nodes or {},
        known_buckets or {},
        known_quotas or {},
        known_objects or {},
        known_pods or {},
        known_finished or {},
        known_waiting or {},
    )
    run.refuse_repeats()
    clusters = run.clusters_observed()
    nodes = run.nodes_observed()
    policies = run.policies_applied()
    state = [*run.objects_observed(), *run.pods_observed(), *run.quotas_observed()]
    run.request_bindings()
    run.move_bindings()
    run.level_bindings()
    run.rebalance()
    return run.intake(
        [*clusters, *nodes, *state, *policies, *run.bindings_requested(), *run.workloads_observed()]
    )


def compile_deletions(
    manifests: Sequence[Manifest],
    known_policies: Iterable[Policy] = (),
    known_bindings: Iterable[Binding] = (),
    known_nodes: Mapping[str, Iterable[Node]] | None = None,
    known_buckets: Mapping[str, int] | None = None,
    known_quotas: Mapping[Place, Iterable[Quota]] | None = None,
    known_objects: Mapping[Drawer, Iterable[ClusterObject]] | None = None,
    known_pods: Mapping[Berth, Iterable[Pod]] | None = None,
    known_finished: Mapping[Berth, Iterable[Pod]] | None = None,
    known_waiting: Mapping[Queue, Iterable[WaitingPod]] | None = None,
) -> Intake:
    """What deleting `manifests` states. Bindings of a removed policy go to the next one that
    selects them, or stay as they are."""
    run = _CompileRun(
        manifests,
        known_policies,
        known_bindings,
        known_nodes or {},
        known_buckets or {},
        known_quotas or {},
        known_objects or {},
        known_pods or {},
        known_finished or {},
        known_waiting or {},
    )
    run.refuse_repeats()
    run.tell_what_cannot_be_taken_back()
    bindings = run.bindings_withdrawn()
    policies = run.policies_removed()
    run.move_bindings()
    gone = [
        *run.pods_removed(),
        *run.objects_removed(),
        *run.nodes_removed(),
        *run.quotas_removed(),
    ]
    return run.intake(
        [*bindings, *policies, *run.bindings_requested(), *gone, *run.clusters_forgotten()]
    )


def compile_policy_removal(
    removed: PolicyRemoved, known_policies: Iterable[Policy], known_bindings: Iterable[Binding]
) -> Intake:
    """What removing one policy states, as `compile_deletions` does it of its manifest."""
    key = f"{removed.kind}/{removed.namespace}/{removed.name}"
    left = [policy for policy in known_policies if policy.key != key]
    moved = moved_bindings(known_bindings, left, {key})
    facts: list[Fact] = [removed, *(BindingRequested(binding) for binding in moved)]
    return Intake(tuple(accepted(fact) for fact in facts), reads=_READS_ALL)


def stated_by(manifest: Manifest) -> tuple[str, str] | None:
    """The topic and the key of the fact by which the policy, the workload or the binding of a
    manifest is stated; None: it is of another kind."""
    model = manifest.model
    if isinstance(model, PolicyModel):
        removed = PolicyRemoved(_policy_kind(model), model.name, _policy_namespace(model))
        return POLICIES.name, accepted(removed).key
    if isinstance(model, any_object.Nameless) or (name := _binding_name(manifest)) is None:
        return None
    return BINDINGS.name, name


class _CompileRun:
    """One pass over the manifests, with what is known so far and the errors so far."""

    def __init__(
        self,
        manifests: Sequence[Manifest],
        known_policies: Iterable[Policy],
        known_bindings: Iterable[Binding],
        known_nodes: Mapping[str, Iterable[Node]],
        known_buckets: Mapping[str, int],
        known_quotas: Mapping[Place, Iterable[Quota]],
        known_objects: Mapping[Drawer, Iterable[ClusterObject]],
        known_pods: Mapping[Berth, Iterable[Pod]],
        known_finished: Mapping[Berth, Iterable[Pod]],
        known_waiting: Mapping[Queue, Iterable[WaitingPod]],
    ) -> None:
        self.manifests = _scoped(manifests)
        self.policies = {p.key: p for p in known_policies}
        self.bindings = {b.name: b for b in known_bindings}
        self.nodes = {cluster: {n.name: n for n in nodes} for cluster, nodes in known_nodes.items()}
        self.buckets = known_buckets
        self.quotas = Shelves(
            {place: [(q.name, q) for q in quotas] for place, quotas in known_quotas.items()}
        )
        self.objects = Shelves(
            {drawer: [(o.name, o) for o in objects] for drawer, objects in known_objects.items()}
        )
        self.pods = Shelves(
            {berth: [(p.uid, p) for p in pods] for berth, pods in known_pods.items()}
        )
        self.finished = Shelves(
            {berth: [(p.uid, p) for p in pods] for berth, pods in known_finished.items()}
        )
        self.waiting = Shelves(
            {queue: [(p.uid, p) for p in pods] for queue, pods in known_waiting.items()}
        )
        self.levels = Levels(self.policies.values())
        self.handled: set[str] = set()
        self.touched: set[str] = set()
        """Keys of the policies that the manifests apply or remove."""
        self.requested: dict[str, Binding] = {}
        self.errors: list[ManifestError] = []
        self.unacted: list[ManifestError] = []
        self.skipped: list[Skipped] = []

    def intake(self, facts: Iterable[Fact]) -> Intake:
        for manifest in self.manifests:
            self.unacted += [_noted(manifest, path) for path in self._unacted(manifest)]
        errors, unacted = _in_order(self.errors), _in_order(self.unacted)
        made = () if errors else tuple(accepted(fact) for fact in facts)
        of_all = any(isinstance(m.model, _MOVES_BINDINGS) for m in self.manifests)
        reads = _READS_ALL if of_all else _READS_POLICIES
        return Intake(made, errors, unacted, tuple(self.skipped), reads)

    def refuse_repeats(self) -> None:
        """Two manifests of one thing would leave it to chance which of them counts."""
        seen: dict[tuple[str, ...], Manifest] = {}
        for manifest in self.manifests:
            for identity in self._said(manifest, _identity, manifest):
                if (first := seen.setdefault(identity, manifest)) is not manifest:
                    where = f"{first.file}:{first.line_of('kind')}"
                    self.errors.append(
                        manifest.error(
                            f"expected each object once, got {identity[-1]} again ({where})"
                        )
                    )

    # Clusters and nodes.

    def clusters_observed(self) -> list[Fact]:
        return [
            ClusterObserved(cluster)
            for manifest in self.manifests
            if isinstance(manifest.model, ClusterModel)
            for cluster in self._said(manifest, _cluster, manifest)
        ]

    def clusters_forgotten(self) -> list[Fact]:
        return [
            ClusterForgotten(m.model.name)
            for m in self.manifests
            if isinstance(m.model, ClusterModel)
        ]

    def nodes_observed(self) -> list[Fact]:
        changed: dict[str, None] = {}
        for manifest in self.manifests:
            if isinstance(model := manifest.model, kubernetes.NodeManifest):
                for cluster, node in self._said(manifest, _node, model):
                    self.nodes.setdefault(cluster, {})[node.name] = node
                    changed[cluster] = None
        return self._buckets(changed)

    def nodes_removed(self) -> list[Fact]:
        changed: dict[str, None] = {}
        for manifest in self.manifests:
            match manifest.model:
                case karmada.ClusterManifest() | ocm.ManagedCluster() as cluster:
                    if self.nodes.pop(cluster.name, None) is not None:
                        changed[cluster.name] = None
                case kubernetes.NodeManifest() as node:
                    for name in self._said(manifest, _cluster_of, node):
                        if self.nodes.get(name, {}).pop(node.name, None) is not None:
                            changed[name] = None
        return self._buckets(changed)

    def _buckets(self, clusters: Iterable[str]) -> list[Fact]:
        """All buckets of each cluster, as many as it has had, or more where they would be too
        large."""
        facts: list[Fact] = []
        for cluster in clusters:
            facts += buckets_for(
                cluster,
                self.nodes.get(cluster, {}).values(),
                self.buckets.get(cluster, NODE_BUCKETS),
            )
        return facts

    # Quotas, other objects and pods of member clusters.

    def quotas_observed(self) -> list[Fact]:
        for manifest in self.manifests:
            if (model := _quota_of_a_cluster(manifest.model)) is not None:
                self.quotas.put((model.cluster, model.namespace), model.name, model.to_domain())
        return self._quotas()

    def quotas_removed(self) -> list[Fact]:
        for manifest in self.manifests:
            if isinstance(cluster := manifest.model, ClusterModel):
                self.quotas.clear(cluster.name)
            elif (model := _quota_of_a_cluster(manifest.model)) is not None:
                self.quotas.take((model.cluster, model.namespace), model.name)
        return self._quotas()

    def _quotas(self) -> list[Fact]:
        return [QuotasObserved(*place, quotas) for place, quotas in self.quotas.touched()]

    def objects_observed(self) -> list[Fact]:
        for manifest in self.manifests:
            for drawer, found in self._objects(manifest):
                self.objects.put(drawer, found.name, found)
        return self._drawers()

    def objects_removed(self) -> list[Fact]:
        for manifest in self.manifests:
            if isinstance(cluster := manifest.model, ClusterModel):
                self.objects.clear(cluster.name)
            for drawer, found in self._objects(manifest):
                self.objects.take(drawer, found.name)
        return self._drawers()

    def _objects(self, manifest: Manifest) -> Iterator[tuple[Drawer, ClusterObject]]:
        """The objects of member clusters that the manifest describes, each with its group."""
        if (model := _fact_of_a_cluster(manifest.model)) is not None:
            for cluster in self._said(manifest, required_cluster, model):
                for found in self._said(manifest, self._object, model):
                    yield (cluster, model.kind, getattr(found, "namespace", "")), found

    def _object(self, model: ClusterFact) -> ClusterObject:
        """Raises ExpectedError."""
        found = model.to_domain()
        if isinstance(found, DaemonPods) and isinstance(model, kubernetes.DaemonSet):
            return msgspec.structs.replace(
                found, priority=self.levels.value_of(model.spec.template.spec)
            )
        return found

    def _drawers(self) -> list[Fact]:
        return [ObjectsObserved(*drawer, objects) for drawer, objects in self.objects.touched()]

    def pods_observed(self) -> list[Fact]:
        """A pod that has moved is gone from where it was. One that has finished uses nothing any
        more, and is reported apart."""
        for manifest in self.manifests:
            if (model := _pod_of_a_cluster(manifest.model)) is not None:
                if model.pending:
                    self._pod_waits(manifest, model)
                    continue
                for pod in self._said(manifest, self._pod, model):
                    self._pod_gone(cluster_of(model), pod.uid)
                    shelf = self.finished if model.finished else self.pods
                    shelf.put((cluster_of(model), pod.node), pod.uid, pod)
        return self._berths()

    def _pod_waits(self, manifest: Manifest, model: kubernetes.PodManifest) -> None:
        for pod in self._said(manifest, self._waiting_pod, model):
            cluster, namespace = cluster_of(model), pod.requirements.traits.home
            self._pod_gone(cluster, pod.uid)
            self.waiting.put((cluster, namespace, str(waiting_bucket(pod.uid))), pod.uid, pod)

    def pods_removed(self) -> list[Fact]:
        for manifest in self.manifests:
            if isinstance(cluster := manifest.model, ClusterModel):
                self.pods.clear(cluster.name)
                self.finished.clear(cluster.name)
                self.waiting.clear(cluster.name)
            elif (model := _pod_of_a_cluster(manifest.model)) is not None:
                for pod in self._said(manifest, self._pod, model):
                    self._pod_gone(cluster_of(model), pod.uid)
        return self._berths()

    def _pod_gone(self, cluster: str, uid: str) -> None:
        self.pods.take_anywhere(cluster, uid)
        self.finished.take_anywhere(cluster, uid)
        self.waiting.take_anywhere(cluster, uid)

    def _waiting_pod(self, model: kubernetes.PodManifest) -> WaitingPod:
        """Raises ExpectedError."""
        pod = kubernetes.waiting_of(model)
        requirements, priority, _ = self.levels.of(
            model.spec, model.whose.namespace, pod.requirements
        )
        return msgspec.structs.replace(pod, requirements=requirements, priority=priority)

    def _pod(self, model: kubernetes.PodManifest) -> Pod:
        """Raises ExpectedError."""
        pod = kubernetes.pod_of(model)
        requirements, priority, _ = self.levels.of(
            model.spec, model.whose.namespace, pod.requirements
        )
        return msgspec.structs.replace(pod, requirements=requirements, priority=priority)

    def _berths(self) -> list[Fact]:
        there: list[Fact] = [PodsObserved(*berth, pods) for berth, pods in self.pods.touched()]
        return [
            *there,
            *(
                WaitingPodsObserved(cluster, namespace, int(bucket), WAITING_BUCKETS, pods)
                for (cluster, namespace, bucket), pods in self.waiting.touched()
            ),
            *(FinishedPodsObserved(*berth, pods) for berth, pods in self.finished.touched()),
        ]

    # Policies.

    def policies_applied(self) -> list[Fact]:
        facts: list[Fact] = []
        for manifest in self.manifests:
            if isinstance(model := manifest.model, PolicyModel):
                for policy in self._said(manifest, model.to_domain, manifest.json):
                    self.policies[policy.key] = policy
                    self.touched.add(policy.key)
                    facts.append(PolicyApplied(policy))
        self.levels = Levels(self.policies.values())
        return facts

    def policies_removed(self) -> list[Fact]:
        facts: list[Fact] = []
        for manifest in self.manifests:
            if isinstance(model := manifest.model, PolicyModel):
                for namespace in self._said(manifest, _policy_namespace, model):
                    removed = PolicyRemoved(_policy_kind(model), model.name, namespace)
                    key = f"{removed.kind}/{removed.namespace}/{removed.name}"
                    self.policies.pop(key, None)
                    self.touched.add(key)
                    facts.append(removed)
        return facts

    # Bindings.

    def bindings_requested(self) -> list[Fact]:
        return [BindingRequested(binding) for binding in self.requested.values()]

    def request_bindings(self) -> None:
        for manifest in self.manifests:
            match manifest.model:
                case karmada.ClusterResourceBinding() as by_hand:
                    found = self._said(manifest, self._by_hand, by_hand)
                case any_object.Nameless():
                    found = self._skip(manifest, NO_OBJECT)
                case model if _is_bound(model):
                    found = self._bound(manifest, model)
                case _:
                    found = []
            for binding in found:
                self.handled.add(binding.name)
                unacted = first_few([dotted(path) for path in self._unacted(manifest)])
                self.requested[binding.name] = msgspec.structs.replace(binding, unacted=unacted)

    def workloads_observed(self) -> list[Fact]:
        """How bindings fare in their clusters, where their manifests say so."""
        return [
            WorkloadObserved(
                item.cluster_name, model.binding_name, item.health or "Unknown", item.ready
            )
            for manifest in self.manifests
            if isinstance(model := manifest.model, karmada.ClusterResourceBinding)
            for item in model.status.aggregated_status
        ]

    def bindings_withdrawn(self) -> list[Fact]:
        """Of kinds that are not read, only those that are known: most objects of a chart have
        never been placed."""
        names = [
            name
            for m in self.manifests
            if (name := _binding_name(m)) is not None
            and (name in self.bindings or not isinstance(m.model, any_object.AnyObject))
        ]
        self.handled.update(names)
        return [BindingWithdrawn(name) for name in names]

    def move_bindings(self) -> None:
        """Known bindings that a policy of the manifests now takes, changes or gives up. What other
        policies say of bindings is for those who apply them."""
        left = [known for known in self.bindings.values() if known.name not in self.handled]
        for moved in moved_bindings(left, self.policies.values(), self.touched):
            self.requested[moved.name] = moved

    def level_bindings(self) -> None:
        """Requests known bindings again whose group or priority class was applied or changed after
        them. A group is for its namespace."""
        models = [m.model for m in self.manifests if isinstance(m.model, LevelModel)]
        if not models:
            return
        of_all = any(isinstance(model, cluster_objects.PriorityClass) for model in models)
        namespaces = {_policy_namespace(model) for model in models}
        left = [b for b in (self.bindings | self.requested).values() if b.name not in self.handled]
        for known in left:
            if not of_all and known.resource.namespace not in namespaces:
                continue
            if (levelled := self.levels.levelled(known, self.policies.get(known.policy))) != known:
                self.requested[known.name] = levelled

    def rebalance(self) -> None:
        """A fresh decision for every workload that a rebalancer lists."""
        known = self.bindings | self.requested
        by_resource = {binding.resource: name for name, binding in known.items()}
        for manifest in self.manifests:
            if isinstance(model := manifest.model, karmada_upkeep.WorkloadRebalancer):
                for i, workload in enumerate(model.spec.workloads):
                    resource = workload.to_domain()
                    if (name := by_resource.get(resource)) is None:
                        self.errors.append(_not_bound(manifest, i, resource))
                        continue
                    binding = self.requested.get(name, known[name])
                    self.requested[name] = msgspec.structs.replace(binding, reschedule=model.token)

    def tell_what_cannot_be_taken_back(self) -> None:
        for manifest in self.manifests:
            if isinstance(manifest.model, karmada_upkeep.WorkloadRebalancer):
                text = "what it asked for was asked once, and deleting it changes nothing"
                self.unacted.append(manifest.error(text, "metadata", "name"))

    def _by_hand(self, model: karmada.ClusterResourceBinding) -> Binding:
        """Raises ExpectedError. A fresh decision that was asked for otherwise is not asked for
        again."""
        binding = model.to_domain()
        known = self.bindings.get(binding.name)
        if known is None or binding.reschedule:
            return binding
        return msgspec.structs.replace(binding, reschedule=known.reschedule)

    def _bound(self, manifest: Manifest, model: Object) -> list[Binding]:
        """The binding of a workload or object. Where no policy selects it: no binding, and it is
        recorded as skipped."""
        for binding in self._said(manifest, self._unplaced, manifest):
            known = self.bindings.get(binding.name)
            if known is not None and _another(known.resource, binding.resource):
                self.errors.append(_taken(manifest, binding, known))
                return []
            policy = policy_for(
                binding.resource,
                binding.labels,
                self.policies.values(),
                known.policy if known is not None else "",
            )
            if policy is not None:
                assert policy.propagation is not None, (
                    "only policies that propagate select workloads"
                )
                if not policy.propagation.lazy:
                    return [under(binding, policy)]
                template = _template(manifest, model)
                if known is not None and _unchanged(binding, template, known):
                    return [msgspec.structs.replace(known, template=template)]
                return [msgspec.structs.replace(under(binding, policy), template=template)]
            if model.annotations.get(PLACEMENT) == ANY:
                return [binding]
            self._without_policy(manifest, binding.resource)
        return []

    def _unplaced(self, manifest: Manifest) -> Binding:
        """What a workload asks for, wherever it goes. Raises ExpectedError."""
        model = manifest.model
        assert isinstance(model, Object), "only objects are bound"
        resource = _reference(manifest, model)
        name = bound_name(resource)
        known = self.bindings.get(name)
        binding = Binding(
            name,
            model.metadata.uid or (known.uid if known else str(derived_id("binding", name))),
            resource,
            placement=ANYWHERE,
            reschedule=known.reschedule if known else "",
            labels=dict(model.metadata.labels),
        )
        if not isinstance(model, kubernetes.Workload):
            return self._with_replicas(binding, model)
        if any_object.annotated_replicas(model) is not None:
            raise ExpectedError(
                f"no such annotation: the replicas of a {model.kind} are in its spec",
                "metadata",
                "annotations",
                any_object.REPLICAS,
            )
        requirements, priority, priority_class = self.levels.of(
            model.template.spec, binding.resource.namespace, model.requirements()
        )
        return msgspec.structs.replace(
            binding,
            replicas=model.replicas,
            requirements=requirements,
            priority=priority,
            priority_class=priority_class,
        )

    def _with_replicas(self, binding: Binding, model: Object) -> Binding:
        """The replicas of a kind that is no workload here, where its shape or its annotation has
        them. Raises ExpectedError."""
        said = any_object.annotated_replicas(model)
        spec = model.spec if isinstance(model, any_object.AnyObject) else None
        if spec is None:
            return binding if said is None else msgspec.structs.replace(binding, replicas=said)
        namespace = binding.resource.namespace
        whose = Whose(model.metadata, namespace, model.kind)
        requirements, priority, priority_class = self.levels.of(
            spec.template.spec, namespace, spec.template.requirements(whose)
        )
        return msgspec.structs.replace(
            binding,
            replicas=spec.replicas if said is None else said,
            requirements=requirements,
            priority=priority,
            priority_class=priority_class,
        )

    def _without_policy(self, manifest: Manifest, resource: ObjectRef) -> None:
        what = f"{resource.kind} {resource.namespace}/{resource.name}".replace(" /", " ")
        if isinstance(manifest.model, kubernetes.Namespace):
            # files of workloads often bring theirs along
            self.unacted.append(
                manifest.error(
                    f"accepted, goes nowhere: no policy selects {what}", "metadata", "name"
                )
            )
            return
        said = (
            manifest.model.annotations.get(PLACEMENT)
            if isinstance(manifest.model, Object)
            else None
        )
        if said is not None:
            where = ("metadata", "annotations", PLACEMENT)
            self.errors.append(
                manifest.error(
                    f"expected '{ANY}' or a policy that selects {what}, got {shown(said)}", *where
                )
            )
            return
        if any_object.group_of(resource.api_version) in any_object.STEERS_KARMADA:
            self._skip(manifest, STEERS)
            return
        others = [v for v in versions_of(resource.kind) if v != resource.api_version]
        meant = f" (did you mean {' or '.join(others)}?)" if others else ""
        unread = meant if isinstance(manifest.model, any_object.AnyObject) else ""
        hint = f"apply one, or annotate it with {PLACEMENT}: {ANY}"
        if isinstance(manifest.model, ClusterFact):
            hint += f", or, where a member cluster has it, with {CLUSTER}"
        text = f"expected a policy that selects {what}, got none; {hint}{unread}"
        self._skip(manifest, NO_POLICY, manifest.error(text, "metadata", "name"))

    def _skip(
        self, manifest: Manifest, why: str, error: ManifestError | None = None
    ) -> list[Binding]:
        """Records that an object is placed nowhere. No binding."""
        if error is None:
            text = f"expected an object to place, got a {manifest.kind.kind}: {why}"
            error = manifest.error(text, "kind")
        kind = manifest.kind
        self.skipped.append(Skipped(kind.api_version, kind.kind, why, error))
        return []

    def _unacted(self, manifest: Manifest) -> list[Path]:
        """A priority class is acted on where it is known."""
        model = manifest.model
        ranked = (
            model.priority_class
            if isinstance(model, kubernetes.Workload | kubernetes.DaemonSet | any_object.AnyObject)
            else ""
        )
        known = ranked in self.levels
        return [path for path in model.unacted() if not (known and path[-1] == "priorityClassName")]

    def _said(self, manifest: Manifest, make: Callable[[A], T], of: A) -> list[T]:
        """The value that `make` gives for a manifest. If that fails: no value, and the error is
        recorded."""
        try:
            return [make(of)]
        except ExpectedError as error:
            told = manifest.not_expected(error)
            if told not in self.errors:
                self.errors.append(told)
            return []


def _cluster(manifest: Manifest) -> Cluster:
    """A managed cluster keeps its manifest: expressions of placements are asked about all of it."""
    model = manifest.model
    assert isinstance(model, ClusterModel), "only clusters are asked for one"
    return (
        model.to_domain(manifest.json)
        if isinstance(model, ocm.ManagedCluster)
        else model.to_domain()
    )


def _node(model: kubernetes.NodeManifest) -> tuple[str, Node]:
    return model.cluster, model.to_domain()


def _cluster_of(model: kubernetes.NodeManifest) -> str:
    return model.cluster


def moved_bindings(
    bindings: Iterable[Binding], policies: Iterable[Policy], touched: Set[str] | None = None
) -> list[Binding]:
    """Those of `bindings` that `policies` would have otherwise, as they would have them. Lazy
    policies wait for the workload. `touched`: only those whose policy before or after has one of
    these keys."""
    every, moved = list(policies), []
    if touched is not None and not touched:
        return []
    for known in bindings:
        if has_own_placement(known):
            continue
        policy = policy_for(known.resource, known.labels, every, known.policy)
        if policy is None or (policy.propagation is not None and policy.propagation.lazy):
            continue
        if touched is not None and touched.isdisjoint((policy.key, known.policy)):
            continue
        if (binding := under(known, policy)) != known:
            moved.append(binding)
    return moved


def under(binding: Binding, policy: Policy) -> Binding:
    """The binding as `policy` would have it."""
    propagation = policy.propagation
    assert propagation is not None, "only policies that propagate select workloads"
    placement = propagation.placement
    return msgspec.structs.replace(
        binding,
        placement=placement,
        priority=binding.priority
        if propagation.binding_priority is None
        else propagation.binding_priority,
        suspended=propagation.suspended,
        policy=policy.key,
        scheduler=propagation.scheduler,
        affinity_group=_group(binding.labels, placement.affinity_label),
        anti_affinity_group=_group(binding.labels, placement.anti_affinity_label),
        template="",
    )


def _group(labels: Mapping[str, str], label: str) -> str:
    """Workloads with the same value of the label are a group; one without it is in none."""
    value = labels.get(label, "") if label else ""
    return f"{label}={value}" if value else ""


def first_few(fields: Sequence[str]) -> tuple[str, ...]:
    left = len(fields) - UNACTED_MAX
    return (*fields[:UNACTED_MAX], f"and {left} more") if left > 0 else tuple(fields)


def _template(manifest: Manifest, model: Object) -> str:
    """What of a workload is its author's, whether it is read here or not."""
    spec = manifest.raw.get("spec") if isinstance(manifest.raw, dict) else None
    return digest([spec, dict(model.metadata.labels), dict(model.metadata.annotations)])


def _unchanged(binding: Binding, template: str, known: Binding) -> bool:
    """Whether a workload has not changed. Where no digest of its template was stored, only the
    fields that are read are compared."""
    if known.template:
        return known.template == template
    return all(getattr(binding, name) == getattr(known, name) for name in _OWN)


_OWN = (
    "uid",
    "resource",
    "replicas",
    "requirements",
    "priority",
    "priority_class",
    "labels",
    "components",
)
"""Of a binding, what its workload says and no policy."""


def has_own_placement(binding: Binding) -> bool:
    """Applied by hand, or requested by somebody who knew where it should go: no policy takes it
    over."""
    return binding.policy.startswith(BY_HAND) or (
        not binding.policy and binding.placement != ANYWHERE
    )


def _is_bound(model: Resource) -> TypeGuard[Object]:
    """Whether it is to be placed on clusters, with replicas or as it is. Objects that a member
    cluster reported about itself are not."""
    if _fact_of_a_cluster(model) or _pod_of_a_cluster(model) or _quota_of_a_cluster(model):
        return False
    return isinstance(
        model,
        kubernetes.Workload
        | kubernetes.CronJob
        | kubernetes.ConfigMap
        | kubernetes.ResourceQuota
        | ClusterFact
        | any_object.AnyObject,
    )


def _another(known: ObjectRef, resource: ObjectRef) -> bool:
    """Whether two objects of one binding name are of different APIs. Versions of one API are the
    same objects."""
    return (known.kind, any_object.group_of(known.api_version)) != (
        resource.kind,
        any_object.group_of(resource.api_version),
    ) and bool(known.kind)


def _taken(manifest: Manifest, binding: Binding, known: Binding) -> ManifestError:
    text = (
        f"expected a name of which there is no binding yet: {binding.name} is that of the "
        f"{known.resource.kind} {known.resource.name} of {known.resource.api_version}"
    )
    return manifest.error(text, "metadata", "name")


def _scoped(manifests: Sequence[Manifest]) -> list[Manifest]:
    """With the scope that a CustomResourceDefinition among them gives the objects of its kind."""
    scopes: dict[tuple[str, str], bool] = {}
    for manifest in manifests:
        if manifest.kind.kind == CRD and isinstance(manifest.raw, dict):
            spec = manifest.raw.get("spec")
            if isinstance(spec, dict) and isinstance(names := spec.get("names"), dict):
                of = (str(spec.get("group")), str(names.get("kind")))
                scopes[of] = spec.get("scope") != "Cluster"
    if not scopes:
        return list(manifests)
    return [
        replace(manifest, kind=replace(manifest.kind, namespaced=namespaced))
        if isinstance(manifest.model, any_object.AnyObject)
        and (namespaced := scopes.get(_api(manifest))) is not None
        else manifest
        for manifest in manifests
    ]


def _api(manifest: Manifest) -> tuple[str, str]:
    return any_object.group_of(manifest.kind.api_version), manifest.kind.kind


def _quota_of_a_cluster(model: Resource) -> kubernetes.ResourceQuota | None:
    return model if isinstance(model, kubernetes.ResourceQuota) and model.cluster else None


def _fact_of_a_cluster(model: Resource) -> ClusterFact | None:
    return (
        model
        if isinstance(model, ClusterFact) and (cluster_of(model) or not model.travels)
        else None
    )


def _pod_of_a_cluster(model: Resource) -> kubernetes.PodManifest | None:
    """One that is there, on its node or waiting for one; any other is something to be placed."""
    if not isinstance(model, kubernetes.PodManifest) or not cluster_of(model):
        return None
    return model if model.spec.node_name or model.pending else None


def _not_bound(manifest: Manifest, i: int, resource: ObjectRef) -> ManifestError:
    what = f"{resource.kind} {resource.namespace}/{resource.name}".replace(" /", " ")
    text = f"expected a workload that is known here, got {what} of {resource.api_version}"
    return manifest.error(text, "spec", "workloads", i)


def _reference(manifest: Manifest, model: Object) -> ObjectRef:
    namespace = ""
    if manifest.kind.namespaced:
        namespace = model.metadata.namespace or DEFAULT_NAMESPACE
    return ObjectRef(model.api_version, model.kind, model.name, namespace)


def _binding_name(manifest: Manifest) -> str | None:
    model = manifest.model
    if isinstance(model, karmada.ClusterResourceBinding):
        return model.binding_name
    return bound_name(_reference(manifest, model)) if _is_bound(model) else None


def _policy_namespace(model: PolicyModel) -> str:
    match model:
        case karmada.ClusterPropagationPolicy() | karmada_upkeep.FederatedResourceQuota():
            return model.namespace
        case ocm.PlacementManifest() | ocm.ManagedClusterSetBinding() | ocm.AddOnPlacementScore():
            return model.namespace
        case cluster_objects.PodGroup() | cluster_objects.GangWorkload():
            return model.namespace
        case karpenter.NodePool() | karpenter.BetaNodePool():
            return model.namespace
        case (
            ocm.ManagedClusterSet()
            | karmada_upkeep.ClusterTaintPolicy()
            | crane.DynamicSchedulerPolicy()
            | karpenter.NodeOverlayManifest()
            | descheduler.DeschedulerPolicy()
            | descheduler.OldDeschedulerPolicy()
            | rebalancing.RebalancePolicyManifest()
            | cluster_objects.PriorityClass()
            | kube_scheduler.KubeSchedulerConfiguration()
            | kube_policy.PolicyFile()
            | kube_policy.ProviderConfiguration()
        ):
            return ""


def _policy_kind(model: PolicyModel) -> str:
    """Under which it is known: how nodes are chosen is one policy, in whichever shape it was
    written."""
    return kube_scheduler.KIND if isinstance(model, SchedulerModel) else model.kind


def _identity(manifest: Manifest) -> tuple[str, ...]:
    """What a manifest is about; the last part is for people. Clusters of both systems share their
    names."""
    model = manifest.model
    match model:
        case karmada.ClusterManifest() | ocm.ManagedCluster():
            return "cluster", model.name, f"cluster {model.name}"
        case kubernetes.NodeManifest():
            return "node", model.cluster, model.name, f"node {model.name} of {model.cluster}"
        case kubernetes.ResourceQuota() if model.cluster:
            name = f"{model.namespace}/{model.name}"
            return "quota", model.cluster, name, f"quota {name} of {model.cluster}"
        case kubernetes.PodManifest() if _pod_of_a_cluster(model):
            name = f"{model.whose.namespace}/{model.name}"
            return "pod", cluster_of(model), name, f"pod {name} of {cluster_of(model)}"
        case ClusterFact() if _fact_of_a_cluster(model):
            cluster, found = required_cluster(model), _reference(manifest, model)
            name = f"{found.namespace}/{found.name}".removeprefix("/")
            return "object", cluster, model.kind, name, f"{model.kind} {name} of {cluster}"
        case node_claims.NodeClass():
            return "class", model.kind, model.name, f"{model.kind} {model.name}"
        case karmada_upkeep.WorkloadRebalancer():
            return "rebalancer", model.name, f"rebalancer {model.name}"
        case _ if isinstance(model, PolicyModel):
            name = f"{_policy_namespace(model)}/{model.name}".removeprefix("/")
            return "policy", _policy_kind(model), name, f"{_policy_kind(model)} {name}"
        case ocm.PlacementDecision():
            name = f"{model.namespace}/{model.name}"
            return "decision", name, f"PlacementDecision {name}"
        case any_object.Nameless():
            return "document", manifest.file, str(manifest.line_of("kind")), manifest.kind.kind
    name = _binding_name(manifest) or ""
    assert name, f"{manifest.kind.kind} is neither cluster, node, policy nor bound"
    return "binding", name, f"binding {name}"


def _noted(manifest: Manifest, field: Path) -> ManifestError:
    if manifest.model.unknown(field):
        text = (
            f"{manifest.kind.kind} has no such field in the releases known here; accepted, "
            "not acted on"
        )
        return manifest.error(text, *field)
    return manifest.error("accepted, not acted on in this version", *field)


def _in_order(errors: Iterable[ManifestError]) -> tuple[ManifestError, ...]:
    """By line within each file, files as they first came."""
    by_file: dict[str, list[ManifestError]] = {}
    for error in errors:
        by_file.setdefault(error.file, []).append(error)
    return tuple(e for group in by_file.values() for e in sorted(group, key=lambda e: e.line))
