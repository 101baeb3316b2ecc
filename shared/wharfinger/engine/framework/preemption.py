"""Who would have to go from which node so that a pod fits, and which node costs least. [kube-scheduler's DefaultPreemption]

A pod that fits nowhere may take the place of pods of lower priority. For each node that refused it for something that others'
leaving can cure, on a copy of it: all of lower priority go; if the pod fits then, they return one by one, first those that a
disruption budget protects, the important before the unimportant, and whoever can stay, stays. The rest are the node's victims.
Of the nodes that is taken which breaks the fewest budgets, whose most important victim is least important, and so on
(`cost`). A victim's priority is always lower than the pod's.

Nothing is evicted here; what is found is a value. Two things go beyond kube-scheduler, and are off unless asked for:

`whole_groups`: pods of a group that is only of use whole go together, on whichever nodes they are, or not at all.
`across_nodes`: where the obstacle is on another node, a pod that is counted in the same zone or minds the newcomer, those go, too.
It is tried when nothing else helps, on as many nodes as victims are sought on, each with at most `OBSTACLES_MAX` obstacles.

What is bounded is bounded by counts, and where the search begins is told by the pod's uid, so that one state has one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
"""Pods on other nodes that may stand in the way of one node, beyond which the node is given up."""

NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")
NOT_HELPFUL = unresolvable("Preemption is not helpful for scheduling")
TOO_MANY_OBSTACLES = unresolvable("too many pods on other nodes stand in the way of incoming pod")
NEVER = "not eligible due to preemptionPolicy=Never."
ALREADY_LEAVING = "not eligible due to a terminating pod on the nominated node."

_NOT_STARTED = 2**63
"""A pod that has not started is younger than any that has."""

MayGo = Callable[[Pod], bool]


def anybody(pod: Pod) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node the pod would fit on without `victims`, the most important first; `violations`: how many of them go against a
    budget. Victims may be on other nodes where that was asked for."""

    node: str
    victims: tuple[Pod, ...]
    violations: int = 0


@dataclass(frozen=True, slots=True)
class Preemption:
    """`candidates`: what was found on each node, in the order of search; `failures`: node -> why nothing was. `chosen`: the best
    candidate. `text`: where there is none, why, in the words users know."""

    chosen: Candidate | None = None
    candidates: tuple[Candidate, ...] = ()
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
    """The best node for a pod that fits nowhere. `cycle`: as the pre-filters left it; it is the same afterwards.
    `refused`: node -> why. `nominated`: the node that was promised to the pod before. `may_go`: who may be evicted at all,
    besides having a lower priority.

    Pods that other nodes were promised to should be in the snapshot, as if they were there already."""
    if text := ineligible(cycle, pod, refused, nominated):
        return Preemption(text=text)
    search = _Search(cycle, pod, arguments, may_go)
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
) -> dict[str, Candidate | Status]:
    """What preemption would do on each of `nodes`, none left out and nothing chosen: for explanations."""
    search = _Search(cycle, pod, arguments, may_go)
    return {name: search.victims(name) for name in nodes}


def ineligible(cycle: Cycle, pod: Pod, refused: Mapping[str, Status], nominated: str) -> str:
    """Why the pod may not evict anybody now; empty: it may. Where its victims are still leaving the node that was promised to it,
    it waits for them, unless the node has become one it could not run on anyway."""
    if pod.requirements.traits.never_preempts:
        return NEVER
    node = cycle.snapshot.nodes.get(nominated)
    status = refused.get(nominated)
    if node is None or (status is not None and status.code == "UnschedulableAndUnresolvable"):
        return ""
    leaving = any(other.terminating and other.priority < pod.priority for other in node.pods)
    return ALREADY_LEAVING if leaving else ""


def curable(refused: Mapping[str, Status]) -> list[str]:
    """Nodes that refused for something that evicting others might cure, in order of name."""
    return sorted(name for name, status in refused.items() if status.code == "Unschedulable")


def candidates_wanted(nodes: int, arguments: PreemptionArgs) -> int:
    """On how many of so many nodes victims are sought."""
    share = nodes * arguments.min_candidates_percent // 100
    return min(nodes, max(share, arguments.min_candidates))


def importance(pod: Pod) -> tuple[int, int, str]:
    """Of pods on one node, the most important first: higher priority, longer running; then by uid, so that the order is one."""
    return -pod.priority, pod.started_us or _NOT_STARTED, pod.uid


def cost(candidate: Candidate) -> tuple[int, int, int, int, int, str]:
    """What a candidate costs, the least first: budgets broken; priority of the most important victim; sum of priorities, each
    lifted by 2^31 so that one more victim always adds; how many; then, the later the longest running of the most important
    victims started, the better; then by name."""
    victims = candidate.victims
    highest = max(v.priority for v in victims)
    earliest = min(v.started_us or _NOT_STARTED for v in victims if v.priority == highest)
    lifted = sum(v.priority + 2**31 for v in victims)
    return candidate.violations, highest, lifted, len(victims), -earliest, candidate.node


def _in_order(pod: Pod, nodes: Sequence[str]) -> list[str]:
    """From a place on that the pod's uid tells: not always the same nodes are the first to lose their pods."""
    start = stable_hash("preemption", pod.uid) % len(nodes) if nodes else 0
    return [*nodes[start:], *nodes[:start]]


def _sought(
    nodes: Iterable[str], wanted: int, victims: Callable[[str], Candidate | Status]
) -> tuple[list[Candidate], dict[str, Status]]:
    """Until enough are found, one of which at least breaks no budget."""
    found: list[Candidate] = []
    failures: dict[str, Status] = {}
    kind = False
    for name in nodes:
        match victims(name):
            case Candidate() as candidate:
                found.append(candidate)
                kind = kind or candidate.violations == 0
                if kind and len(found) >= wanted:
                    break
            case status:
                failures[name] = status
    return found, failures


@dataclass(frozen=True, slots=True)
class _Unit:
    """Pods that go together: one, or a whole group. In order of importance."""

    pods: tuple[Pod, ...]

    @property
    def order(self) -> tuple[int, int, str]:
        return importance(self.pods[0])


class _Trial:
    """Copies of the nodes that a trial touches, and counts that follow. What was taken away is put back at the end, so that one
    copy of the counts serves all trials of a search."""

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


class _Search:
    """The victims of one pod, node by node."""

    def __init__(self, cycle: Cycle, pod: Pod, arguments: PreemptionArgs, may_go: MayGo) -> None:
        self._snapshot = cycle.snapshot
        self._pod = pod
        self._may_go = may_go
        self._trial = _Trial(cycle, pod)
        self._budgets = cycle.snapshot.objects.budgets
        self._allowed: Allowed = allowed(self._budgets, self._all_pods())
        self._groups = self._whole_groups() if arguments.whole_groups else {}
        self._obstacles: list[tuple[Pod, frozenset[str]]] | None = None

    def victims(self, name: str) -> Candidate | Status:
        """Among the pods on the node, and the groups that they are of."""
        return self._selected(name, self._units(self._snapshot.nodes[name].pods))

    def victims_across(self, name: str) -> Candidate | Status:
        """As well among pods on other nodes that are counted in the node's domains."""
        labels = self._snapshot.nodes[name].node.labels
        obstacles = [
            other
            for other, keys in self._counted()
            if other.node != name and self._shares(labels, self._snapshot.nodes[other.node], keys)
        ]
        if len(obstacles) > OBSTACLES_MAX:
            return TOO_MANY_OBSTACLES
        return self._selected(name, self._units([*self._snapshot.nodes[name].pods, *obstacles]))

    def _selected(self, name: str, units: list[_Unit]) -> Candidate | Status:
        if not units:
            return NO_VICTIMS
        gone: list[_Unit] = []
        for unit in units:
            self._trial.remove(unit)
            gone.append(unit)
        refusal = self._trial.refusal(name)
        if refusal is None:
            gone, violations = self._reprieved(name, units)
        self._trial.end(gone)
        if refusal is not None:
            return refusal
        victims = sorted((pod for unit in gone for pod in unit.pods), key=importance)
        return Candidate(name, tuple(victims), violations) if victims else NO_VICTIMS

    def _reprieved(self, name: str, units: Sequence[_Unit]) -> tuple[list[_Unit], int]:
        """Who still has to go when all have returned that can, and how many of those a budget protects."""
        pods = [pod for unit in units for pod in unit.pods]
        broken = protected(sorted(pods, key=importance), self._budgets, self._allowed)
        sheltered = [unit for unit in units if any(pod.uid in broken for pod in unit.pods)]
        others = [unit for unit in units if unit not in sheltered]
        gone = [unit for unit in (*sheltered, *others) if not self._stays(name, unit)]
        violations = sum(pod.uid in broken for unit in gone for pod in unit.pods)
        return gone, violations

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
        """Of those that may go, the most important first."""
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
        """Pods of lower priority that stand in the pod's way within whole domains, with the node labels these are of."""
        if self._obstacles is None:
            rules = _Rules(self._pod.requirements.traits, self._snapshot.namespace_labels())
            found = ((other, rules.keys(other)) for other in self._all_pods() if self._lower(other))
            self._obstacles = sorted(((o, keys) for o, keys in found if keys), key=lambda found: importance(found[0]))
        return self._obstacles


def _group(pod: Pod) -> tuple[str, str]:
    traits = pod.requirements.traits
    return traits.home, traits.group


class _Rules:
    """What of a pod, and of those that are there, speaks about whole domains."""

    def __init__(self, traits: PodTraits, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._traits = traits
        self._home_labels = namespaces.get(traits.home, {})
        self._apart = [t for said in traits.anti_affinity if (t := own_term(said, traits, namespaces)) is not None]
        self._spread = [(c.key, spread_selector(c, traits.labels)) for c in traits.spread if c.hard]

    def keys(self, other: Pod) -> frozenset[str]:
        theirs = other.requirements.traits
        apart = (term.key for term in self._apart if term.selects(theirs, {}))
        minding = (term.key for said in theirs.anti_affinity if (term := self._minds(said, theirs)))
        spread = (
            key
            for key, selector in self._spread
            if selector is not None and theirs.home == self._traits.home and selector.matches(theirs.labels)
        )
        return frozenset((*apart, *minding, *spread))

    def _minds(self, said: PodTerm, theirs: PodTraits) -> PodTerm | None:
        term = others_term(said, theirs)
        return said if term is not None and term.selects(self._traits, self._home_labels) else None
