"""How pods are placed on nodes, as users configure it: profiles of plugins with their weights and
arguments.

The values of a KubeSchedulerConfiguration of any API version. Which plugins there
are and what they do is the engine's business (`engine.framework`); the names are theirs.
"""

from __future__ import annotations

from typing import Literal

from wharfinger.domain.pod_traits import TopologySpread, WeightedNodeTerm
from wharfinger.domain.selectors import NodeTerm
from wharfinger.domain.value import Value

DEFAULT_SCHEDULER = "default-scheduler"


def same_scheduler(one: str, other: str) -> bool:
    """Whether both name the same scheduler. An empty name is that of the default one."""
    return (one or DEFAULT_SCHEDULER) == (other or DEFAULT_SCHEDULER)


Point = Literal[
    "queueSort",
    "preEnqueue",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
]

ScoringType = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]


class PluginUse(Value, frozen=True):
    """A plugin at one extension point. `weight`: of its score; 0 elsewhere."""

    name: str
    weight: int = 0


class WeightedResource(Value, frozen=True):
    name: str
    weight: int = 1


class ShapePoint(Value, frozen=True):
    """`score` 0..10 at `utilization` 0..100 percent."""

    utilization: int
    score: int


DEFAULT_RESOURCES = (WeightedResource("cpu"), WeightedResource("memory"))


class FitArgs(Value, frozen=True):
    """Of the fit of amounts. `shape`: of RequestedToCapacityRatio."""

    strategy: ScoringType = "LeastAllocated"
    resources: tuple[WeightedResource, ...] = DEFAULT_RESOURCES
    shape: tuple[ShapePoint, ...] = ()
    ignored_resources: tuple[str, ...] = ()
    ignored_groups: tuple[str, ...] = ()

    def ignores(self, resource: str) -> bool:
        """Whether the profile leaves the resource to another component. Resources of Kubernetes
        itself cannot be left."""
        if "/" not in resource or "kubernetes.io/" in resource:
            return False
        return (
            resource in self.ignored_resources or resource.partition("/")[0] in self.ignored_groups
        )


class BalancedArgs(Value, frozen=True):
    """Of the balance of amounts. `by_change`: the formula of Kubernetes 1.36 and later, which
    scores by how much the pod changes the balance; before it was how balanced the node is with
    it."""

    resources: tuple[WeightedResource, ...] = DEFAULT_RESOURCES
    by_change: bool = False


class InterPodArgs(Value, frozen=True):
    """Of affinity between pods."""

    hard_weight: int = 1
    ignores_preferences_of_others: bool = False


class SpreadArgs(Value, frozen=True):
    """Of topology spread. `system`: pods without constraints of their own get the built-in ones
    instead of `constraints`."""

    system: bool = True
    constraints: tuple[TopologySpread, ...] = ()


class NodeAffinityArgs(Value, frozen=True):
    """Of affinity to nodes: what the profile adds to every pod. `required` None: nothing; terms are
    alternatives."""

    required: tuple[NodeTerm, ...] | None = None
    preferred: tuple[WeightedNodeTerm, ...] = ()


class PreemptionArgs(Value, frozen=True):
    """DefaultPreemption: on how many nodes victims are sought, the larger of a percentage and a
    number.

    Ours: `whole_groups`: pods of a group that is only of use whole are evicted together or not at
    all. `across_nodes`: where nothing else helps, pods on other nodes of the same zone (or of
    another domain that the pod is kept out of) may be evicted, too."""

    min_candidates_percent: int = 10
    min_candidates: int = 100
    whole_groups: bool = False
    across_nodes: bool = False


class VolumeBindingArgs(Value, frozen=True):
    bind_timeout_s: int = 600
    shape: tuple[ShapePoint, ...] = ()


class DynamicResourcesArgs(Value, frozen=True):
    filter_timeout_s: int = 10


class DynamicArgs(Value, frozen=True):
    """Of measured load. `stale`: what a node counts as whose measurements are missing or too old:
    `crane`: it passes the filter and a missing metric scores 0 (as crane-scheduler has it); `open`:
    it passes, and is scored by the metrics there are; `closed`: it is refused. `damped`: replicas
    placed since the last measurement count as hot at once."""

    stale: Literal["crane", "open", "closed"] = "open"
    damped: bool = True


class DevicesArgs(Value, frozen=True):
    """How the devices of a node are preferred. Which names there are is said by
    `engine.devices`."""

    strategy: str = ""


PluginArgs = (
    FitArgs
    | BalancedArgs
    | InterPodArgs
    | SpreadArgs
    | NodeAffinityArgs
    | PreemptionArgs
    | VolumeBindingArgs
    | DynamicResourcesArgs
    | DynamicArgs
    | DevicesArgs
)


class Arguments(Value, frozen=True):
    """The arguments of the plugins of one profile; those not given are the defaults. `others`:
    plugin name -> JSON text, for plugins that users have added."""

    fit: FitArgs = FitArgs()
    balanced: BalancedArgs = BalancedArgs()
    inter_pod: InterPodArgs = InterPodArgs()
    spread: SpreadArgs = SpreadArgs()
    node_affinity: NodeAffinityArgs = NodeAffinityArgs()
    preemption: PreemptionArgs = PreemptionArgs()
    volume_binding: VolumeBindingArgs = VolumeBindingArgs()
    dynamic_resources: DynamicResourcesArgs = DynamicResourcesArgs()
    dynamic: DynamicArgs = DynamicArgs()
    devices: DevicesArgs = DevicesArgs()
    others: dict[str, str] = {}


class Profile(Value, frozen=True):
    """`points`: extension point -> plugins in order, complete: defaults are filled in and `*` is
    resolved. `percentage`: of nodes to score, None: the configuration's. It is stored and has no
    effect: Wharfinger scores all nodes."""

    name: str = DEFAULT_SCHEDULER
    points: dict[Point, tuple[PluginUse, ...]] = {}
    arguments: Arguments = Arguments()
    percentage: int | None = None

    def at(self, point: Point) -> tuple[PluginUse, ...]:
        return self.points.get(point, ())


class ManagedResource(Value, frozen=True):
    name: str
    ignored_by_scheduler: bool = False


class Extender(Value, frozen=True):
    """An HTTP extender of the scheduler, called at `url` / verb; an empty verb: not called for it.
    `ignorable`: its failure rejects no pod. `resources`: called only for pods that request one of
    them; none: for all. `ca_file`, `cert_file`, `key_file`, `insecure`, `server_name`: of TLS."""

    url: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    weight: int = 1
    timeout_ms: int = 5000
    node_cache_capable: bool = False
    ignorable: bool = False
    resources: tuple[ManagedResource, ...] = ()
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    insecure: bool = False
    server_name: str = ""


class SchedulerConfig(Value, frozen=True):
    """`profiles` by name; a pod names its profile, without a name it is the one called
    `default-scheduler`. `percentage`: of nodes to score, 0: adaptive."""

    profiles: tuple[Profile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    percentage: int = 0
    initial_backoff_s: int = 1
    max_backoff_s: int = 10
    parallelism: int = 16

    def profile(self, name: str) -> Profile | None:
        wanted = name or DEFAULT_SCHEDULER
        return next((p for p in self.profiles if p.name == wanted), None)
