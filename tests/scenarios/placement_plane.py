"""A plane for stories about placements: managed clusters, sets, placements and scores in few words,
and what was decided of them.

All stages run, in the deterministic world; time is said with what is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from wharfinger.domain.cluster import Cluster, ManagedClusterFacts, ManagedTaint
from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import (
    AddOnScore,
    ClusterScores,
    ClusterSet,
    Priority,
    ScoreValue,
    Selection,
    Selector,
    SetBinding,
)
from wharfinger.domain.value import Value
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.decisions import PlacementDecided, PlacementHeld, PlacementReleased
from wharfinger.events.envelope import derived_id
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.kernel.decider import Decision
from wharfinger.kernel.recover import RecordedRound
from wharfinger.stages.fleet.state.selections import SelectionRecord, Selections
from wharfinger.stages.world import World

SECOND = 1_000_000
START = 1_750_000_000 * SECOND

GLOBAL = PolicyApplied(
    Policy("ManagedClusterSet", "global", cluster_set=ClusterSet("LabelSelector", Selector()))
)
MEMORY = Priority(builtin="ResourceAllocatableMemory")
STEADY = Priority(builtin="Steady")
Selected = PlacementDecided | PlacementHeld | PlacementReleased


def a_managed(
    name: str,
    gi: int = 64,
    *taints: ManagedTaint,
    deleting: bool = False,
    labels: dict[str, str] | None = None,
) -> ClusterObserved:
    """A managed cluster with so much memory, all of it allocatable."""
    memory = {"memory": f"{gi}Gi"}
    return ClusterObserved(
        Cluster(
            name,
            labels or {},
            deleting=deleting,
            managed=ManagedClusterFacts(taints=taints, allocatable=memory, capacity=memory),
        )
    )


def bound(namespace: str, cluster_set: str = "global") -> PolicyApplied:
    binding = SetBinding(cluster_set)
    return PolicyApplied(
        Policy("ManagedClusterSetBinding", cluster_set, namespace, set_binding=binding)
    )


def a_placement(name: str = "demo", namespace: str = "apps", **said: Any) -> PolicyApplied:
    return PolicyApplied(Policy("Placement", name, namespace, selection=Selection(**said)))


def no_placement(name: str = "demo", namespace: str = "apps") -> PolicyRemoved:
    return PolicyRemoved("Placement", name, namespace)


def a_score(cluster: str, value: int, until_us: int | None = None) -> PolicyApplied:
    """What the add-on `load` says of a cluster under the name `idle`."""
    scores = ClusterScores((ScoreValue("idle", value),), until_us)
    return PolicyApplied(Policy("AddOnPlacementScore", "load", cluster, scores=scores))


IDLE = Priority("AddOn", addon=AddOnScore("load", "idle"))


@dataclass
class PlacementPlane:
    world: World = field(
        default_factory=lambda: World(recorded=True, repeat_after_s=None, at=START)
    )
    rounds: list[RecordedRound] = field(default_factory=list)
    told: int = 0

    def tell(self, *facts: Value, after_s: float = 1.0) -> list[Decision]:
        """All in one go. What was decided of placements, on the way and then."""
        events = []
        for fact in facts:
            self.told += 1
            events.append(
                made(fact, id=derived_id("told", self.told), source="/tests", subject="fleet")
            )
        return self._of_placements(self.world.tell(events, self.world.at + int(after_s * SECOND)))

    def wait(self, seconds: float) -> list[Decision]:
        return self._of_placements(self.world.wait(self.world.at + int(seconds * SECOND)))

    def _of_placements(self, rounds: Iterable[RecordedRound]) -> list[Decision]:
        new = list(rounds)
        self.rounds += new
        return [d for r in new for d in r.round.decisions if isinstance(d.data, Selected)]

    @property
    def selections(self) -> Selections:
        found = next(self.world.fleet_states()).selections
        assert found is not None
        return found

    def current(self, key: str = "apps/demo") -> SelectionRecord:
        return self.selections.active[key]

    def selected(self, key: str = "apps/demo") -> list[str]:
        return list(self.current(key).clusters)

    def condition(self, type_: str, key: str = "apps/demo") -> tuple[str, str]:
        return next((c.status, c.reason) for c in self.current(key).conditions if c.type == type_)


def told(decisions: Sequence[Decision]) -> list[str]:
    """`+oslo -bergen`, `held`, `released`: what each decision says, in a word."""
    return [_word(d.data) for d in decisions]


def _word(data: Value) -> str:
    match data:
        case PlacementDecided():
            return (
                " ".join([*(f"+{n}" for n in data.added), *(f"-{n}" for n in data.removed)])
                or data.trigger
            )
        case PlacementHeld():
            return "held" if data.until_us else "settled"
        case _:
            return "released"
