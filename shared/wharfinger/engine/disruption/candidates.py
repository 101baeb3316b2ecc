"""Which nodes may be touched, by whom, and why the others may not.

Every node gets one look (`Looked`): what it is, who on it would have to move, what that costs, and what speaks against
touching it. Some of that speaks against everything (it goes already, somebody is promised it), some only against what is
voluntary, and some counts no more once its pool says how long pods may delay its end. [Karpenter]

Stricter than there: a pod without an owner holds its node, since nobody would make it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from wharfinger.domain.cluster_objects import DisruptionBudget
from wharfinger.domain.node import Node, Pod
from wharfinger.domain.node_pool import DO_NOT_DISRUPT, POOL_HASH, POOL_LABEL, NodePoolPolicy
from wharfinger.engine.disruption.costs import node_cost
from wharfinger.engine.disruption.prices import Bought, Prices
from wharfinger.engine.disruption.scene import Method, Scene, Verdict
from wharfinger.engine.framework import budgets as pod_budgets
from wharfinger.engine.nodes.readiness import is_initialized

SECOND = 1_000_000

CONSOLIDATION: frozenset[Method] = frozenset({"emptiness", "multi-node", "single-node"})
EVENTUAL: frozenset[Method] = frozenset({"expiry", "drift", "static-drift"})
"""Methods that pods only delay, where their pool says for how long at most."""

_ENDED = frozenset({"Succeeded", "Failed"})

_TYPE_KNOWN_AFTER = 3600 * SECOND
"""A node is so old before the lack of its instance type counts: catalogues change."""


@dataclass(slots=True)
class Looked:
    """`pods`: those that would have to move, in order of uid. `cost`: `costs.node_cost`. `against`: what speaks against all
    methods; `held`: what on it does, unless its pool ends that; `willing`: against what is voluntary; `busy`: against
    consolidation. `drifted`: how it is not as its pool says now. `expires`: when it does, 0: never."""

    node: Node
    pool: NodePoolPolicy
    bought: Bought
    pods: tuple[Pod, ...] = ()
    cost: int = 0
    against: Verdict | None = None
    held: Verdict | None = None
    willing: Verdict | None = None
    busy: Verdict | None = None
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
        """Cpu (milli) and memory (bytes) of its pods together."""
        if self._asks is None:
            said = [pod.requirements.requests for pod in self.pods]
            self._asks = sum([r.get("cpu", 0) for r in said]), sum([r.get("memory", 0) for r in said])
        return self._asks

    @property
    def worth(self) -> int:
        """Price by disruption: what is looked at first when it is the most."""
        return self.price * 1000 // self.cost


@dataclass(slots=True)
class Review:
    """`nodes` of pools, by name, in order of name. `others`: verdicts on nodes of no pool. `initialized`: all that are,
    of whatever pool; `quiet`: those that consolidation may count on."""

    nodes: dict[str, Looked]
    others: list[Verdict]
    initialized: frozenset[str]
    quiet: frozenset[str]
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Pool -> price and disruption of all its nodes, for what must be in proportion to them."""


def review(scene: Scene, prices: Prices) -> Review:
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


def against(looked: Looked, method: Method) -> Verdict | None:
    """What speaks against touching the node by this method, whoever else goes; None: nothing."""
    if looked.against is not None:
        return looked.against
    if looked.held is not None and not (method in EVENTUAL and looked.pool.termination_grace_s is not None):
        return looked.held
    if method != "expiry" and looked.willing is not None:
        return looked.willing
    if method in CONSOLIDATION:
        return _against_consolidation(looked, method)
    return _against_the_rest(looked, method)


def _against_consolidation(looked: Looked, method: Method) -> Verdict | None:
    if looked.busy is not None:
        return looked.busy
    if method != "emptiness" and looked.pool.consolidation == "WhenEmpty" and looked.pods:
        count = len(looked.pods)
        sentence = (
            f"pool {looked.pool.name} is consolidated when nodes are empty, and {_pods(count)} would have to move"
        )
        return Verdict(looked.name, "WhenEmpty", sentence)
    return None


def _against_the_rest(looked: Looked, method: Method) -> Verdict | None:
    static = looked.pool.replicas is not None
    if method in ("static-drift", "static-scale-down") and not static:
        return Verdict(looked.name, "NotStatic", f"pool {looked.pool.name} has no fixed number of nodes")
    if method == "drift" and static:
        return Verdict(looked.name, "Static", f"pool {looked.pool.name} has a fixed number of nodes")
    if method in ("drift", "static-drift") and not looked.drifted:
        return Verdict(looked.name, "NotDrifted", f"it is as pool {looked.pool.name} says")
    return None


# --- one node


def _looked(
    scene: Scene, prices: Prices, node: Node, pool: NodePoolPolicy, pods: Iterable[Pod], guard: _Guard, ready: bool
) -> Looked:
    found = Looked(node, pool, prices.bought(node, pool))
    found.pods = tuple(sorted([pod for pod in pods if moves(pod)], key=lambda pod: pod.uid))
    found.cost = node_cost(found.pods)
    found.against = _against_all(scene, node, ready)
    found.held = guard.against(found)
    if node.annotations.get(DO_NOT_DISRUPT) == "true":
        found.willing = Verdict(node.name, "DoNotDisrupt", f"it is annotated {DO_NOT_DISRUPT}=true")
    found.busy = _busy(scene, found)
    found.drifted = _drift(scene, prices, found)
    if pool.expire_after_s is not None and node.created_us:
        found.expires = node.created_us + pool.expire_after_s * SECOND
    return found


def moves(pod: Pod) -> bool:
    """Whether the pod has to be somewhere else when its node goes: not what comes and goes with nodes, and not what has
    ended or is about to."""
    if pod.terminating or pod.requirements.traits.owner == "DaemonSet":
        return False
    upkeep = pod.upkeep
    if upkeep is None:
        return True
    if upkeep.static or upkeep.phase in _ENDED:
        return False
    return not (upkeep.owners and upkeep.of_daemon)


def _of_no_pool(node: Node) -> Verdict:
    name = node.labels.get(POOL_LABEL, "")
    sentence = f"its pool {name} is not known" if name else "it belongs to no pool"
    return Verdict(node.name, "NotManaged", sentence)


def _against_all(scene: Scene, node: Node, ready: bool) -> Verdict | None:
    if node.name in scene.disrupting:
        return Verdict(node.name, "Disrupting", f"it goes already ({scene.disrupting[node.name]})")
    if node.name in scene.closed:
        return Verdict(node.name, "Closed", "it takes nothing new, since it is to be removed")
    if not ready:
        return Verdict(node.name, "NotInitialized", "it is not ready to be counted on yet")
    if node.name in scene.nominated:
        return Verdict(node.name, "Nominated", "it is promised to pods that are on their way")
    if node.name in scene.resting:
        why, until = scene.resting[node.name]
        return Verdict(node.name, "Resting", why, until)
    return None


def _busy(scene: Scene, looked: Looked) -> Verdict | None:
    pool, name = looked.pool, looked.name
    if pool.replicas is not None:
        return Verdict(name, "Static", f"pool {pool.name} has a fixed number of nodes and is not consolidated")
    if pool.empty_after_s is None:
        return Verdict(name, "Never", f"pool {pool.name} is never consolidated (consolidateAfter: Never)")
    since = scene.quiet_since.get(name, looked.node.created_us)
    until = since + pool.empty_after_s * SECOND
    if scene.at < until:
        sentence = f"a pod came or left {(scene.at - since) // SECOND} s ago, and pool {pool.name} waits {pool.empty_after_s} s"
        return Verdict(name, "Quiet", sentence, until)
    if looked.bought.price is None:
        b = looked.bought
        what = ", ".join(said or "unknown" for said in (b.instance_type, b.zone, b.capacity_type))
        return Verdict(name, "PriceUnknown", f"what it costs is not known: catalogue {pool.catalogue} has no {what}")
    return None


def _drift(scene: Scene, prices: Prices, looked: Looked) -> str:
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
    if len(types) and known and known not in types.row and scene.at - node.created_us >= _TYPE_KNOWN_AFTER:
        return f"catalogue {pool.catalogue} has no {known} any more"
    return ""


# --- what is on it


class _Guard:
    """Which pods may not be moved, and why: their own word, nobody who would make them again, and budgets of pods."""

    def __init__(self, scene: Scene) -> None:
        self._budgets: dict[str, list[DisruptionBudget]] = {}
        for budget in scene.objects.budgets:
            self._budgets.setdefault(budget.namespace, []).append(budget)
        self._left = pod_budgets.allowed(scene.objects.budgets, scene.pods) if self._budgets else {}
        self._covering: dict[tuple[str, tuple[tuple[str, str], ...]], list[DisruptionBudget]] = {}

    def against(self, looked: Looked) -> Verdict | None:
        """The first pod in order of uid that holds its node."""
        for pod in looked.pods:
            found = self._of_pod(pod)
            if found is not None:
                rule, sentence = found
                return Verdict(looked.name, rule, f"pod {_named(pod)} {sentence}")
        return None

    def _of_pod(self, pod: Pod) -> tuple[str, str] | None:
        upkeep = pod.upkeep
        if upkeep is None:
            if not pod.binding:
                return "Unknown", "is somebody else's, and nothing is known of whether it may be moved"
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
                    f"is under PodDisruptionBudget {budget.namespace}/{budget.name}, which lets none go now",
                )
        return None


def _named(pod: Pod) -> str:
    if pod.binding:
        return f"{pod.binding} #{pod.ordinal}" if pod.ordinal >= 0 else f"{pod.name} of {pod.binding}"
    return f"{pod.requirements.traits.home}/{pod.name}"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
