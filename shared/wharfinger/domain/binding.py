"""The binding: one workload to be placed, with the policy that places it. The unit of the fleet
stage."""

from __future__ import annotations

from wharfinger.domain.ids import (
    BindingName,
    Bounded,
    ClusterName,
    LabelKey,
    LabelText,
    PolicyKey,
    Token,
    Word,
    WorkloadName,
    WorkloadUid,
)
from wharfinger.domain.placement import Placement
from wharfinger.domain.value import Value, digest
from wharfinger.domain.workload import ObjectRef, Requirements


class TargetCluster(Value, frozen=True, gc=False):
    """A cluster and how many replicas it gets (0 for a workload without a count).

    Nothing in it refers to anything, and some decisions have thousands: the collector need not look
    at them."""

    cluster: Bounded[ClusterName]
    replicas: int


class Component(Value, frozen=True):
    """One kind of pod of a workload that has several: a set of all components, each with its
    replicas, is placed as one."""

    name: Bounded[WorkloadName]
    replicas: int
    requirements: Requirements = Requirements()


def bound_name(resource: ObjectRef) -> str:
    """The name of a workload's binding, as Karmada names it: `namespace/name-kind`, the kind in
    lower case, and of an RBAC object the name too, with `.` for each `:`."""
    name = f"{resource.name.replace(':', '.').lower()}-{resource.kind.lower()}"
    return f"{resource.namespace}/{name}" if resource.namespace else name


PART = "#"
"""Between a binding's name and a component's: no name in Kubernetes holds it."""


def part_of(binding: str, component: str) -> str:
    """The name under which clusters know one component of a binding."""
    return f"{binding}{PART}{component}"


def whole_of(name: str) -> str:
    """The binding that a name is of: its own, or that of a component of it."""
    return name.partition(PART)[0]


def range_key(name: str) -> str:
    """By what a binding is given to a fleet shard: its namespace with the slash, so that it is
    never empty. Groups of workloads and quotas hold within a namespace, so that all that share one
    are decided by one stream, one after the other."""
    namespace, slash, _ = whole_of(name).rpartition("/")
    return namespace + (slash or "/")


def set_key(components: tuple[Component, ...]) -> str:
    """The name of the class of workloads that consist of such components: their sets are counted
    alike. Names of components are none of it."""
    return digest([(c.replicas, c.requirements) for c in components])


class Binding(Value, frozen=True):
    """The whole state of its key on `wharfinger.bindings`.

    `name` is `namespace/name` (or `name`), unique in the plane. `uid` seeds ties. `reschedule` is a
    free token: a value not seen before asks for a fresh decision. `policy` says where the placement
    came from. `replicas` 0 with empty requirements is an object without replicas: it goes to the
    chosen clusters as it is. `labels` are the workload's own, by which a policy that comes later
    finds it. `components`: of a workload with several kinds of pods; `replicas` is 0 then.
    `scheduler`: whose it is; empty, `default-scheduler` or `wharfinger`: ours. `affinity_group`,
    `anti_affinity_group`: see `Placement.affinity_label`; compared within a namespace.
    `priority_class`: by which quotas may be scoped. `clusters`: where it already runs when it is
    first reported, for bindings taken over from another scheduler. `unacted`: the fields of the
    workload's manifest that are accepted and not acted on. `template`: a digest of the workload as
    it was applied, kept where its policy is lazy and waits for it to change. `created_us`: when the
    object of a hub was created; 0 where it is not known.
    """

    name: Bounded[BindingName]
    uid: WorkloadUid
    resource: ObjectRef
    replicas: int = 0
    requirements: Requirements = Requirements()
    placement: Placement = Placement()
    priority: int = 0
    suspended: bool = False
    reschedule: Token = ""
    policy: PolicyKey = ""
    labels: dict[LabelKey, LabelText] = {}
    components: tuple[Component, ...] = ()
    scheduler: str = ""
    affinity_group: LabelText = ""
    anti_affinity_group: LabelText = ""
    priority_class: LabelText = ""
    clusters: tuple[TargetCluster, ...] = ()
    unacted: tuple[Word, ...] = ()
    template: Token = ""
    created_us: int = 0


def divided_quota(binding: Binding) -> str:
    """Why several fleet shards cannot keep the quotas that the binding falls under; empty: they
    can. Its shard follows from its name, its quotas from its resource."""
    namespace = binding.resource.namespace
    if not namespace or range_key(binding.name) == f"{namespace}/":
        return ""
    return (
        f"binding {binding.name}: its resource is in namespace {namespace}, whose quotas another"
        f" fleet shard keeps: expected a name in that namespace, such as"
        f" {namespace}/{binding.name.rpartition('/')[2]}"
    )
