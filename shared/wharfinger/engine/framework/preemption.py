"""Preemption: finds the pods to evict from a node so that another pod fits, at the lowest cost.
[kube-scheduler's DefaultPreemption]

The search works on a copy of each node whose refusal eviction can resolve:
- First it removes all pods of lower priority.
- If the new pod then fits, it puts the removed pods back one by one where the new pod still fits
  (reprieve): first those that a disruption budget protects, then by priority, highest first.
- The pods that cannot be put back are the node's victims.
- It chooses the node with the lowest `cost`: the fewest budget violations, then the lowest priority
  of the most important victim, and so on. A victim's priority is always lower than the new pod's.

Nothing is evicted here; the result is a value. Two options go beyond kube-scheduler:
- `whole_groups`: the pods of a gang are evicted together, whichever nodes they are on, or not at
  all.
- `across_nodes`: where the obstacle is on another node (a pod in the same topology domain, or one
  with anti-affinity to the new pod), that pod is evicted too. This is tried last, on as many nodes
  as victims are searched on, each with at most `OBSTACLES_MAX` obstacles.

The search is bounded by counts and starts at an offset derived from the pod's uid, so equal states
give equal answers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from wharfinger.domain.node import Pod
from wharfinger.domain.pod_traits import PodTerm, PodTraits
from wharfinger.domain.scheduler import PreemptionArgs
from wharfinger.domain.value import stable_hash
from wharfinger.engine.framework.budgets import Allowed, allowed, protected
from wharfinger.engine.framework.messages import unavailable
from wharfinger.engine.framework.pod_terms import others_term, own_term, spread_selector
from wharfinger.engine.framework.protocols import Cycle, Filters
from wharfinger.engine.framework.snapshot import NodeInfo
from wharfinger.engine.framework.status import Status, unresolvable

OBSTACLES_MAX = 32
"""How many obstacles (pods on other nodes that prevent the placement) a node may have. A node with
more is not considered."""

NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")
NOT_HELPFUL = unresolvable("Preemption is not helpful for scheduling")
TOO_MANY_OBSTACLES = unresolvable("too many pods on other nodes stand in the way of incoming pod")
NEVER = "not eligible due to preemptionPolicy=Never."
ALREADY_LEAVING = "not eligible due to a terminating pod on the nominated node."

_NOT_STARTED = 2**63
"""The start time of a pod that has not started: it counts as younger than every started pod."""

MayGo = Callable[[Pod], bool]


def anybody(pod: Pod) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class PreemptionCandidate:
    """A node on which the pod fits after `victims` are evicted. `victims`: the most important
    first; with `across_nodes` or `whole_groups` some may be on other nodes. `violations`: how many
    of the victims a disruption budget protects."""

    node: str
    victims: tuple[Pod, ...]
    violations: int = 0


@dataclass(frozen=True, slots=True)
class Preemption:
    """Holds the result of a preemption search. `chosen`: the candidate of lowest cost; None: there
    is no candidate, and `text` says why in kube-scheduler's words. `candidates`: all candidates
    found, in the order of the search. `failures`: node -> why there is no candidate on it."""

    chosen: PreemptionCandidate | None = None
    candidates: tuple[PreemptionCandidate, ...] = ()
    failures: dict[str, Status] = field(default_factory=dict)
    text: str = ""


def find(
    cycle: Cycle,
    pod: Pod,
    refused: Mapping[str, Status],
    arguments: PreemptionArgs,
    nominated: str = "",
    may_go: MayGo = anybody,
) -> Preemption:
    """Find the node on which a pod can be placed by preemption at the lowest `cost`: the fewest
    violated disruption budgets, then the least important victims. Return the chosen candidate (a
    node with its victims), all candidates that were found, and node -> why it is no candidate. If
    the pod may not preempt (see `ineligible`) or no candidate was found, return a message instead
    of a candidate.

    - `cycle`: the scheduling cycle of the pod, after the pre-filters; it is unchanged on return.
      Its snapshot should contain the pods nominated to other nodes as if they ran there.
    - `refused`: node -> why the node refuses the pod. Only nodes with the status Unschedulable are
      tried.
    - `arguments`: the profile's settings of preemption, such as how many candidates are enough.
    - `nominated`: the node to which an earlier preemption nominated the pod; empty: none.
    - `may_go`: returns whether a pod may be evicted. A victim must also have a lower priority.
    """
    if text := ineligible(cycle, pod, refused, nominated):
        return Preemption(text=text)
    search = _VictimSearch(cycle, pod, arguments, may_go)
    tried = _in_order(pod, curable(refused))
    wanted = candidates_wanted(len(tried), arguments)
    found, failures = _sought(tried, wanted, search.victims)
    if not found and arguments.across_nodes:
        found, failures = _sought(tried[:wanted], wanted, search.victims_across)
    if not found:
        total = len(cycle.snapshot.nodes)
        said = dict.fromkeys(cycle.snapshot.nodes, NOT_HELPFUL) | failures
        return Preemption(failures=failures, text=unavailable(total, said))
    return Preemption(min(found, key=cost), tuple(found), failures)


def survey(
    cycle: Cycle, pod: Pod, nodes: Iterable[str], arguments: PreemptionArgs, may_go: MayGo = anybody
) -> dict[str, PreemptionCandidate | Status]:
    """Search for victims on each of `nodes`, for explanations. Return node -> candidate, or why
    there is none. Unlike `find`, this tries all the nodes and chooses none of them. It considers
    victims on other nodes only as members of a gang."""
    search = _VictimSearch(cycle, pod, arguments, may_go)
    return {name: search.victims(name) for name in nodes}


def ineligible(cycle: Cycle, pod: Pod, refused: Mapping[str, Status], nominated: str) -> str:
    """Return the message why the pod may not preempt now; empty: it may.

    There are two causes. First, the pod has preemptionPolicy Never. Second, the pod waits for space
    on the node to which an earlier preemption nominated it: a pod of lower priority terminates on
    that node. The second cause does not count if the node refuses the pod with the status
    UnschedulableAndUnresolvable, because the freed space would not help there.

    `refused`: node -> why the node refuses the pod. `nominated`: the nominated node; empty: none.
    """
    if pod.requirements.traits.never_preempts:
        return NEVER
    node = cycle.snapshot.nodes.get(nominated)
    status = refused.get(nominated)
    if node is None or (status is not None and status.code == "UnschedulableAndUnresolvable"):
        return ""
    leaving = any(other.terminating and other.priority < pod.priority for other in node.pods)
    return ALREADY_LEAVING if leaving else ""


def curable(refused: Mapping[str, Status]) -> list[str]:
    """Return the nodes whose refusal eviction can perhaps resolve (status Unschedulable), sorted by
    name."""
    return sorted(name for name, status in refused.items() if status.code == "Unschedulable")


def candidates_wanted(nodes: int, arguments: PreemptionArgs) -> int:
    """Return after how many candidates the search stops: the profile's percentage of `nodes`, but
    at least its minimum number and at most `nodes`. Example: 10 % of 5,000 nodes is 500 candidates.
    """
    share = nodes * arguments.min_candidates_percent // 100
    return min(nodes, max(share, arguments.min_candidates))


def importance(pod: Pod) -> tuple[int, int, str]:
    """Return the sort key of a pod, the most important first: higher priority, then earlier start
    (a pod that has not started comes last), then uid, so that the order is total."""
    return -pod.priority, pod.started_us or _NOT_STARTED, pod.uid


def cost(candidate: PreemptionCandidate) -> tuple[int, int, int, int, int, str]:
    """Return the sort key of a candidate, the best first. It compares in this order: number of
    budget violations; priority of the most important victim; sum of the victims' priorities, each
    plus 2^31 so that one more victim always adds to the sum; number of victims; earliest start
    among the victims of highest priority (later is better); node name."""
    victims = candidate.victims
    highest = max(v.priority for v in victims)
    earliest = min(v.started_us or _NOT_STARTED for v in victims if v.priority == highest)
    lifted = sum(v.priority + 2**31 for v in victims)
    return candidate.violations, highest, lifted, len(victims), -earliest, candidate.node


def _in_order(pod: Pod, nodes: Sequence[str]) -> list[str]:
    """Rotate the list of nodes so that it starts at an offset derived from the pod's uid. Different
    pods then begin their search on different nodes."""
    start = stable_hash("preemption", pod.uid) % len(nodes) if nodes else 0
    return [*nodes[start:], *nodes[:start]]


def _sought(
    nodes: Iterable[str], wanted: int, victims: Callable[[str], PreemptionCandidate | Status]
) -> tuple[list[PreemptionCandidate], dict[str, Status]]:
    """Search the nodes for preemption candidates (a node with the pods to evict). Return (the
    candidates, node -> why there is no candidate on it).

    The nodes are searched in the given order. The search stops when two conditions are met: there
    are at least `wanted` candidates, and at least one candidate violates no disruption budget.
    `victims`: returns the candidate of one node, or the reason why there is none.
    """
    found: list[PreemptionCandidate] = []
    failures: dict[str, Status] = {}
    kind = False
    for name in nodes:
        match victims(name):
            case PreemptionCandidate() as candidate:
                found.append(candidate)
                kind = kind or candidate.violations == 0
                if kind and len(found) >= wanted:
                    break
            case status:
                failures[name] = status
    return found, failures


@dataclass(frozen=True, slots=True)
class _Unit:
    """Pods that must be evicted together: one pod, or a whole gang. Sorted by importance, the most
    important first."""

    pods: tuple[Pod, ...]

    @property
    def order(self) -> tuple[int, int, str]:
        return importance(self.pods[0])


class _Trial:
    """A copy of the snapshot and of the plugins' counts, for trying out evictions. Pods are removed
    from it and added to it. A node is copied when it is first changed. `end` puts all removed pods
    back, so that one copy serves all trials of a search."""

    def __init__(self, cycle: Cycle, pod: Pod) -> None:
        assert cycle.filters is not None, "a cycle with plugins knows its filters"
        self._filters: Filters = cycle.filters
        self._pod = pod
        self._kept = cycle.snapshot.nodes
        self._nodes = dict(cycle.snapshot.nodes)
        self._cycle = replace(cycle.copy(), snapshot=replace(cycle.snapshot, nodes=self._nodes))
        self._touched: set[str] = set()

    def node(self, name: str) -> NodeInfo:
        if name not in self._touched:
            self._nodes[name] = self._kept[name].copy()
            self._touched.add(name)
        return self._nodes[name]

    def remove(self, unit: _Unit) -> None:
        for other in unit.pods:
            node = self.node(other.node)
            node.remove(other)
            self._filters.pod_removed(self._cycle, self._pod, other, node)

    def add(self, unit: _Unit) -> None:
        for other in unit.pods:
            node = self.node(other.node)
            node.add(other)
            self._filters.pod_added(self._cycle, self._pod, other, node)

    def refusal(self, name: str) -> Status | None:
        return self._filters.refusal(self._cycle, self._pod, self.node(name))

    def end(self, removed: Iterable[_Unit]) -> None:
        for unit in removed:
            self.add(unit)
        for name in self._touched:
            self._nodes[name] = self._kept[name]
        self._touched.clear()


class _VictimSearch:
    """Searches for the victims of one pod, node by node, on a what-if copy of the snapshot."""

    def __init__(self, cycle: Cycle, pod: Pod, arguments: PreemptionArgs, may_go: MayGo) -> None:
        self._snapshot = cycle.snapshot
        self._pod = pod
        self._may_go = may_go
        self._trial = _Trial(cycle, pod)
        self._budgets = cycle.snapshot.objects.budgets
        self._allowed: Allowed = allowed(self._budgets, self._all_pods())
        self._groups = self._whole_groups() if arguments.whole_groups else {}
        self._obstacles: list[tuple[Pod, frozenset[str]]] | None = None

    def victims(self, name: str) -> PreemptionCandidate | Status:
        """Find the minimal set of victims for the node. It searches the pods on the node and, with
        `whole_groups`, all pods of the gangs that these belong to. Return the candidate, or why
        there is none."""
        return self._selected(name, self._units(self._snapshot.nodes[name].pods))

    def victims_across(self, name: str) -> PreemptionCandidate | Status:
        """Find the minimal set of pods to evict so that the new pod fits on the node `name`. The
        set is taken from the pods on this node and from obstacles on other nodes. Return the
        candidate (the node with its victims), or why there is none.

        An obstacle is an evictable pod of lower priority on another node in the same topology
        domain, such as the same zone. It keeps the new pod away by anti-affinity of either pod, or
        because it counts for a hard topology spread of the new pod. A node with more than
        `OBSTACLES_MAX` obstacles has no candidate. Example: a pod in zone a with anti-affinity by
        zone to the new pod is an obstacle for all other nodes of zone a.
        """
        labels = self._snapshot.nodes[name].node.labels
        obstacles = [
            other
            for other, keys in self._counted()
            if other.node != name and self._shares(labels, self._snapshot.nodes[other.node], keys)
        ]
        if len(obstacles) > OBSTACLES_MAX:
            return TOO_MANY_OBSTACLES
        return self._selected(name, self._units([*self._snapshot.nodes[name].pods, *obstacles]))

    def _selected(self, name: str, units: list[_Unit]) -> PreemptionCandidate | Status:
        if not units:
            return NO_VICTIMS
        gone: list[_Unit] = []
        for unit in units:
            self._trial.remove(unit)
            gone.append(unit)
        refusal = self._trial.refusal(name)
        if refusal is None:
            gone, protected_uids = self._reprieved(name, units)
        self._trial.end(gone)
        if refusal is not None:
            return refusal

        def order(pod: Pod) -> tuple[int, int, bool, str]:
            # As kube-scheduler lists them: among pods of the same importance those that a budget
            # protects come first.
            priority, started, uid = importance(pod)
            return priority, started, pod.uid not in protected_uids, uid

        victims = sorted((pod for unit in gone for pod in unit.pods), key=order)
        violations = sum(pod.uid in protected_uids for pod in victims)
        return PreemptionCandidate(name, tuple(victims), violations) if victims else NO_VICTIMS

    def _reprieved(self, name: str, units: Sequence[_Unit]) -> tuple[list[_Unit], Container[str]]:
        """Put the removed units (pods that must be evicted together) back one by one, if the new
        pod still fits on node `name` with them. Units with a pod that a disruption budget protects
        come first, then the order is by importance. Return (the units that must be evicted, the
        uids of the pods that a budget protects)."""
        pods = [pod for unit in units for pod in unit.pods]
        broken = protected(sorted(pods, key=importance), self._budgets, self._allowed)
        sheltered = [unit for unit in units if any(pod.uid in broken for pod in unit.pods)]
        others = [unit for unit in units if unit not in sheltered]
        gone = [unit for unit in (*sheltered, *others) if not self._stays(name, unit)]
        return gone, broken

    def _stays(self, name: str, unit: _Unit) -> bool:
        self._trial.add(unit)
        if self._trial.refusal(name) is None:
            return True
        self._trial.remove(unit)
        return False

    # Who may go.

    def _all_pods(self) -> Iterator[Pod]:
        return (pod for info in self._snapshot.nodes.values() for pod in info.pods)

    def _lower(self, other: Pod) -> bool:
        return other.priority < self._pod.priority and self._may_go(other)

    def _units(self, pods: Iterable[Pod]) -> list[_Unit]:
        """Group pods into units that can be evicted together, the most important first. A unit is
        left out where one of its pods does not have a lower priority or may not be evicted."""
        units: dict[str, _Unit] = {}
        for other in pods:
            members = self._groups.get(_group(other), (other,))
            if all(self._lower(member) for member in members):
                unit = _Unit(tuple(members))
                units[unit.pods[0].uid] = unit
        return sorted(units.values(), key=lambda unit: unit.order)

    def _whole_groups(self) -> dict[tuple[str, str], tuple[Pod, ...]]:
        groups: dict[tuple[str, str], list[Pod]] = {}
        for other in self._all_pods():
            if other.requirements.traits.group and other.requirements.traits.min_count:
                groups.setdefault(_group(other), []).append(other)
        return {group: tuple(sorted(members, key=importance)) for group, members in groups.items()}

    # Obstacles on other nodes.

    def _shares(self, labels: Mapping[str, str], other: NodeInfo, keys: frozenset[str]) -> bool:
        return any(key in labels and other.node.labels.get(key) == labels[key] for key in keys)

    def _counted(self) -> list[tuple[Pod, frozenset[str]]]:
        """Return the evictable pods of lower priority that a topology-wide constraint
        (anti-affinity, hard spread) counts against the pod, the most important first. Each comes
        with the node labels (topology keys) of these constraints. Computed once."""
        if self._obstacles is None:
            rules = _Rules(self._pod.requirements.traits, self._snapshot.namespace_labels())
            found = ((other, rules.keys(other)) for other in self._all_pods() if self._lower(other))
            self._obstacles = sorted(
                ((o, keys) for o, keys in found if keys), key=lambda found: importance(found[0])
            )
        return self._obstacles


def _group(pod: Pod) -> tuple[str, str]:
    traits = pod.requirements.traits
    return traits.home, traits.group


class _Rules:
    """Holds the constraints between the pod and existing pods that cover whole topology domains:
    anti-affinity in both directions and hard topology spread. `keys` returns the topology keys of
    the constraints that concern an existing pod."""

    def __init__(self, traits: PodTraits, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._traits = traits
        self._home_labels = namespaces.get(traits.home, {})
        self._apart = [
            t
            for said in traits.anti_affinity
            if (t := own_term(said, traits, namespaces)) is not None
        ]
        self._spread = [(c.key, spread_selector(c, traits.labels)) for c in traits.spread if c.hard]

    def keys(self, other: Pod) -> frozenset[str]:
        theirs = other.requirements.traits
        apart = (term.key for term in self._apart if term.selects(theirs, {}))
        minding = (term.key for said in theirs.anti_affinity if (term := self._minds(said, theirs)))
        spread = (
            key
            for key, selector in self._spread
            if selector is not None
            and theirs.home == self._traits.home
            and selector.matches(theirs.labels)
        )
        return frozenset((*apart, *minding, *spread))

    def _minds(self, said: PodTerm, theirs: PodTraits) -> PodTerm | None:
        term = others_term(said, theirs)
        return said if term is not None and term.selects(self._traits, self._home_labels) else None
