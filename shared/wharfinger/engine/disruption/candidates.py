"""Determines which nodes may be disrupted, by which methods, and why the others may not.
[Karpenter]

Every node of a pool gets one record (`CandidateNode`): its pods that would have to move, their
disruption cost, and the reasons against disrupting it. A node of no known pool gets only a verdict.
There are four kinds of reasons. Some block every method: the node is already being removed, not
initialized, or nominated for pods. Reasons of pods block every method, except that expiry and drift
may ignore them where the pool has a terminationGracePeriod. The do-not-disrupt annotation of the
node blocks every method but expiry. The pool's consolidation settings, recent pod changes and an
unknown price block consolidation only.

Stricter than Karpenter: a pod without an owner blocks its node, since no controller would create it
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import DisruptionBudget
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import DO_NOT_DISRUPT, POOL_HASH, POOL_LABEL, NodePoolPolicy
from wharfinger.domain.time import SECOND
from wharfinger.engine.disruption.cluster_snapshot import ClusterSnapshot, DisruptionVerdict, Method
from wharfinger.engine.disruption.costs import node_cost
from wharfinger.engine.disruption.prices import Bought, NodePrices
from wharfinger.engine.framework import budgets as pod_budgets
from wharfinger.engine.nodes.readiness import is_initialized

CONSOLIDATION: frozenset[Method] = frozenset({"emptiness", "multi-node", "single-node"})
EVENTUAL: frozenset[Method] = frozenset({"expiry", "drift", "static-drift"})
"""Methods that pods can delay but not block, if their pool has a terminationGracePeriod."""

_ENDED = frozenset({"Succeeded", "Failed"})

_TYPE_KNOWN_AFTER = 3600 * SECOND
"""The minimum age of a node, in microseconds, before the lack of its instance type in the catalogue
counts as drift. Younger nodes are excepted because catalogues change."""


@dataclass(slots=True)
class CandidateNode:
    """A node of a pool, with the cost of disrupting it and the reasons against disrupting it.

    - `bought`: its instance type, zone, capacity type and price.
    - `pods`: the pods that would have to move, in order of uid.
    - `cost`: the disruption cost of the node, in thousandths of an ordinary pod
      (`costs.node_cost`).
    - `drifted`: how the node differs from its pool's present spec; empty if it does not differ.
    - `expires`: when the node expires, in microseconds; 0: never.

    Each of the following is one reason, or None if there is no such reason.

    - `against`: blocks all methods.
    - `held`: comes from a pod. It blocks all methods, except expiry and drift where the pool has a
      terminationGracePeriod.
    - `willing`: the do-not-disrupt annotation of the node. It blocks all methods but expiry.
    - `busy`: blocks consolidation only.
    """

    node: Node
    pool: NodePoolPolicy
    bought: Bought
    pods: tuple[Pod, ...] = ()
    cost: int = 0
    against: DisruptionVerdict | None = None
    held: DisruptionVerdict | None = None
    willing: DisruptionVerdict | None = None
    busy: DisruptionVerdict | None = None
    drifted: str = ""
    expires: int = 0
    _asks: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def price(self) -> int:
        return self.bought.price or 0

    def asks(self) -> tuple[int, int]:
        """Returns the sum of the requests of its pods: (cpu in thousandths of a core, memory in
        bytes)."""
        if self._asks is None:
            said = [pod.requirements.requests for pod in self.pods]
            self._asks = (
                sum([r.get("cpu", 0) for r in said]),
                sum([r.get("memory", 0) for r in said]),
            )
        return self._asks

    @property
    def worth(self) -> int:
        """Returns the price of the node per disruption cost: `price * 1000 // cost`. Consolidation
        tries nodes with a high value first."""
        return self.price * 1000 // self.cost


@dataclass(slots=True)
class Review:
    """The result of examining all nodes of a snapshot.

    `nodes`: name -> record of each node of a known pool, in order of name. `others`: verdicts on
    the nodes of no known pool. `initialized`: the names of all initialized nodes, of any pool or
    none. `quiet`: the names of the nodes that consolidation may use as destinations. Nodes on which
    a pod came or left too recently are not among them.
    """

    nodes: dict[str, CandidateNode]
    others: list[DisruptionVerdict]
    initialized: frozenset[str]
    quiet: frozenset[str]
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Pool -> (price, disruption cost) of all its nodes together. The policy `Balanced` compares a
    command with these totals."""


def review(scene: ClusterSnapshot, prices: NodePrices) -> Review:
    """Examines all nodes of a cluster before disruption is decided. For each node of a known node
    pool the result has a `CandidateNode`: its price, its disruption cost and the reasons against
    disrupting it. The result also has the sums of price and disruption cost for each pool, and a
    verdict on each node of no known pool.

    `scene`: the cluster's nodes, pods and pools. `prices`: the prices of its nodes.
    """
    pools = {pool.name: pool for pool in scene.pools}
    on: dict[str, list[Pod]] = {}
    for pod in scene.pods:
        on.setdefault(pod.node, []).append(pod)
    guard = _Guard(scene)
    found = Review({}, [], frozenset(), frozenset())
    initialized, quiet = set(), set()
    for node in sorted(scene.nodes, key=lambda n: n.name):
        pool = pools.get(node.labels.get(POOL_LABEL, ""))
        ready = is_initialized(node, () if pool is None else pool.startup_taints)
        if ready:
            initialized.add(node.name)
        if pool is None:
            found.others.append(_of_no_pool(node))
            quiet.add(node.name)
            continue
        looked = _looked(scene, prices, node, pool, on.get(node.name, ()), guard, ready)
        found.nodes[node.name] = looked
        if looked.busy is None or looked.busy.rule != "Quiet":
            quiet.add(node.name)
        price, cost = found.totals.get(pool.name, (0, 0))
        found.totals[pool.name] = (price + looked.price, cost + looked.cost)
    found.initialized, found.quiet = frozenset(initialized), frozenset(quiet)
    return found


def against(looked: CandidateNode, method: Method) -> DisruptionVerdict | None:
    """Returns the first reason that forbids disrupting one node by one method (such as drift or
    single-node consolidation), as a verdict; None: no reason does. Other nodes and budgets are not
    considered.

    Reasons are checked in this order:

    1. Reasons that block every method.
    2. Pods that may not be evicted. Expiry and drift ignore them if the pool has a
       terminationGracePeriod.
    3. The node's do-not-disrupt annotation. Expiry ignores it.
    4. Reasons that only concern this method.
    """
    if looked.against is not None:
        return looked.against
    if looked.held is not None and not (
        method in EVENTUAL and looked.pool.termination_grace_s is not None
    ):
        return looked.held
    if method != "expiry" and looked.willing is not None:
        return looked.willing
    if method in CONSOLIDATION:
        return _against_consolidation(looked, method)
    return _against_the_rest(looked, method)


def _against_consolidation(looked: CandidateNode, method: Method) -> DisruptionVerdict | None:
    if looked.busy is not None:
        return looked.busy
    if method != "emptiness" and looked.pool.consolidation == "WhenEmpty" and looked.pods:
        count = len(looked.pods)
        sentence = (
            f"pool {looked.pool.name} is consolidated when nodes are empty, "
            f"and {_pods(count)} would have to move"
        )
        return DisruptionVerdict(looked.name, "WhenEmpty", sentence)
    return None


def _against_the_rest(looked: CandidateNode, method: Method) -> DisruptionVerdict | None:
    static = looked.pool.replicas is not None
    if method in ("static-drift", "static-scale-down") and not static:
        return DisruptionVerdict(
            looked.name, "NotStatic", f"pool {looked.pool.name} has no fixed number of nodes"
        )
    if method == "drift" and static:
        return DisruptionVerdict(
            looked.name, "Static", f"pool {looked.pool.name} has a fixed number of nodes"
        )
    if method in ("drift", "static-drift") and not looked.drifted:
        return DisruptionVerdict(
            looked.name, "NotDrifted", f"it is as pool {looked.pool.name} says"
        )
    return None


# --- one node


def _looked(
    scene: ClusterSnapshot,
    prices: NodePrices,
    node: Node,
    pool: NodePoolPolicy,
    pods: Iterable[Pod],
    guard: _Guard,
    ready: bool,
) -> CandidateNode:
    found = CandidateNode(node, pool, prices.bought(node, pool))
    found.pods = tuple(sorted([pod for pod in pods if moves(pod)], key=lambda pod: pod.uid))
    found.cost = node_cost(found.pods)
    found.against = _against_all(scene, node, ready)
    found.held = guard.against(found)
    if node.annotations.get(DO_NOT_DISRUPT) == "true":
        found.willing = DisruptionVerdict(
            node.name, "DoNotDisrupt", f"it is annotated {DO_NOT_DISRUPT}=true"
        )
    found.busy = _busy(scene, found)
    found.drifted = _drift(scene, prices, found)
    if pool.expire_after_s is not None and node.created_us:
        found.expires = node.created_us + pool.expire_after_s * SECOND
    return found


def moves(pod: Pod) -> bool:
    """Returns whether the pod needs another node when its node is removed. DaemonSet pods, static
    pods, terminating pods and pods that have ended need none."""
    if pod.terminating or pod.requirements.traits.owner == "DaemonSet":
        return False
    upkeep = pod.upkeep
    if upkeep is None:
        return True
    if upkeep.static or upkeep.phase in _ENDED:
        return False
    return not (upkeep.owners and upkeep.of_daemon)


def _of_no_pool(node: Node) -> DisruptionVerdict:
    name = node.labels.get(POOL_LABEL, "")
    sentence = f"its pool {name} is not known" if name else "it belongs to no pool"
    return DisruptionVerdict(node.name, "NotManaged", sentence)


def _against_all(scene: ClusterSnapshot, node: Node, ready: bool) -> DisruptionVerdict | None:
    if node.name in scene.disrupting:
        return DisruptionVerdict(
            node.name, "Disrupting", f"it goes already ({scene.disrupting[node.name]})"
        )
    if node.name in scene.closed:
        return DisruptionVerdict(
            node.name, "Closed", "it takes nothing new, since it is to be removed"
        )
    if not ready:
        return DisruptionVerdict(
            node.name, "NotInitialized", "it is not ready to be counted on yet"
        )
    if node.name in scene.nominated:
        return DisruptionVerdict(
            node.name, "Nominated", "it is promised to pods that are on their way"
        )
    if node.name in scene.resting:
        why, until = scene.resting[node.name]
        return DisruptionVerdict(node.name, "Resting", why, until)
    return None


def _busy(scene: ClusterSnapshot, looked: CandidateNode) -> DisruptionVerdict | None:
    pool, name = looked.pool, looked.name
    if pool.replicas is not None:
        return DisruptionVerdict(
            name, "Static", f"pool {pool.name} has a fixed number of nodes and is not consolidated"
        )
    if pool.empty_after_s is None:
        return DisruptionVerdict(
            name, "Never", f"pool {pool.name} is never consolidated (consolidateAfter: Never)"
        )
    since = scene.quiet_since.get(name, looked.node.created_us)
    until = since + pool.empty_after_s * SECOND
    if scene.at < until:
        sentence = (
            f"a pod came or left {(scene.at - since) // SECOND} s ago, "
            f"and pool {pool.name} waits {pool.empty_after_s} s"
        )
        return DisruptionVerdict(name, "Quiet", sentence, until)
    if looked.bought.price is None:
        b = looked.bought
        what = ", ".join(said or "unknown" for said in (b.instance_type, b.zone, b.capacity_type))
        return DisruptionVerdict(
            name,
            "PriceUnknown",
            f"what it costs is not known: catalogue {pool.catalogue} has no {what}",
        )
    return None


def _drift(scene: ClusterSnapshot, prices: NodePrices, looked: CandidateNode) -> str:
    node, pool = looked.node, looked.pool
    if pool.has_drifted(node.annotations):
        made_by = node.annotations[POOL_HASH]
        return f"it was made by pool {pool.name} as it was before ({made_by}, now {pool.digest})"
    for key, values in prices.required(pool).items():
        # A label that a node does not have was not told of it: that is no sign of another pool.
        if key in node.labels and not values.allows(node.labels[key]):
            return f"its label {key}={node.labels[key]} is not what pool {pool.name} requires"
    types = prices.types(pool)
    known = looked.bought.instance_type
    if (
        len(types)
        and known
        and known not in types.row
        and scene.at - node.created_us >= _TYPE_KNOWN_AFTER
    ):
        return f"catalogue {pool.catalogue} has no {known} any more"
    return ""


# --- what is on it


class _Guard:
    """Determines which pods may not be evicted, and why.

    A pod may not be evicted if it has the do-not-disrupt annotation, if its PodDisruptionBudget
    allows no eviction now, or if more than one PodDisruptionBudget covers it. A pod that is not a
    replica of a binding also may not be evicted if it has no owner that would create it again, or
    if its owner is not known.
    """

    def __init__(self, scene: ClusterSnapshot) -> None:
        self._budgets: dict[str, list[DisruptionBudget]] = {}
        for budget in scene.objects.budgets:
            self._budgets.setdefault(budget.namespace, []).append(budget)
        self._left = pod_budgets.allowed(scene.objects.budgets, scene.pods) if self._budgets else {}
        self._covering: dict[tuple[str, tuple[tuple[str, str], ...]], list[DisruptionBudget]] = {}

    def against(self, looked: CandidateNode) -> DisruptionVerdict | None:
        """Returns the verdict on the first pod of the node, in order of uid, that may not be
        evicted. None: all pods may be evicted."""
        for pod in looked.pods:
            found = self._of_pod(pod)
            if found is not None:
                rule, sentence = found
                return DisruptionVerdict(looked.name, rule, f"pod {_named(pod)} {sentence}")
        return None

    def _of_pod(self, pod: Pod) -> tuple[str, str] | None:
        upkeep = pod.upkeep
        if upkeep is None:
            if not pod.binding:
                return (
                    "Unknown",
                    "is somebody else's, and nothing is known of whether it may be moved",
                )
        elif upkeep.annotations.get(DO_NOT_DISRUPT) == "true":
            return "PodDoNotDisrupt", f"is annotated {DO_NOT_DISRUPT}=true"
        elif not upkeep.owners and not pod.binding:
            return "NoOwner", "has no owner that would make it again"
        return self._of_budgets(pod) if self._budgets else None

    def _of_budgets(self, pod: Pod) -> tuple[str, str] | None:
        traits = pod.requirements.traits
        key = (traits.home, tuple(traits.labels.items()))
        covering = self._covering.get(key)
        if covering is None:
            covering = [b for b in self._budgets.get(traits.home, ()) if pod_budgets.covers(b, pod)]
            self._covering[key] = covering
        if len(covering) > 1:
            names = ", ".join(b.name for b in covering)
            return (
                "PodDisruptionBudget",
                f"is under {len(covering)} PodDisruptionBudgets ({names}), so none can be kept",
            )
        for budget in covering:
            left = self._left[(budget.namespace, budget.name)]
            if left <= 0 and pod.name not in budget.disrupted:
                return (
                    "PodDisruptionBudget",
                    (
                        f"is under PodDisruptionBudget {budget.namespace}/{budget.name}, "
                        "which lets none go now"
                    ),
                )
        return None


def _named(pod: Pod) -> str:
    if pod.binding:
        return (
            f"{pod.binding} #{pod.ordinal}" if pod.ordinal >= 0 else f"{pod.name} of {pod.binding}"
        )
    return f"{pod.requirements.traits.home}/{pod.name}"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
