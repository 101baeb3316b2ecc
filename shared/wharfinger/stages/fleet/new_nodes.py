"""Room that does not exist yet: what the pools of clusters could make, where what is free does not hold a binding.

Free room comes first: only what it does not hold is asked of pools, of the cheapest clusters first, and the binding's own strategy
divides as it always does, over estimates that were raised by exactly so much. Where that cannot be (a spread wants other clusters
than the cheap ones), estimates are raised by all that could be made. Replicas that are given to a cluster beyond what fits there
wait in it for their nodes; when none come, the cluster refuses them, and the class is closed there as after any refusal.

Nothing of this is asked while no cluster has pools whose prices are known, for sets of components, or by Karmada's strict way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from wharfinger.engine.fleet.assign import Assigned, Unassignable
from wharfinger.stages.fleet.columns import Array
from wharfinger.stages.fleet.feasible import Feasible
from wharfinger.stages.fleet.state import BindingState, FleetState

Answer = Assigned | Unassignable

Estimates = list[int] | Array

NAMED = 3
"""Of the clusters that make nodes for a binding so many are named."""


@dataclass(frozen=True, slots=True)
class Made:
    """What one cluster could make for a binding. `price`: of a replica, billionths of a dollar an hour; None: not known."""

    name: str
    count: int
    price: int | None


@dataclass(frozen=True, slots=True)
class Raised:
    """`answer` to `estimates`, which were raised for the clusters in `free`: name -> what fits there without new nodes."""

    estimates: Estimates
    answer: Answer
    free: Mapping[str, int] = field(default_factory=dict)

    def note(self, targets: Mapping[str, int], held: Mapping[str, int]) -> str:
        """How many wait for new nodes, and where; empty: none do."""
        waiting = {
            c: n for c, fits in self.free.items() if (n := targets.get(c, 0) - held.get(c, 0) - max(0, fits)) > 0
        }
        if not waiting:
            return ""
        named = ", ".join([*waiting][:NAMED]) + (f" and {len(waiting) - NAMED} more" if len(waiting) > NAMED else "")
        return f"{sum(waiting.values()):,} replicas wait for new nodes in {named}"


def raised(
    state: FleetState,
    record: BindingState,
    fit: Feasible,
    held: Mapping[str, int],
    estimates: Estimates,
    retry: bool,
    ask: Callable[[Estimates], Answer],
) -> Raised:
    """The answer to the estimates as they are, or, where free room does not hold the binding, to raised ones."""
    answer = ask(estimates)
    if not state.makers:
        return Raised(estimates, answer)
    regardless = retry and (
        record.plan.static or record.plan.duplicated
    )  # divided without a look at room, then cut to it
    if not (isinstance(answer, Unassignable) or regardless):
        return Raised(estimates, answer)
    made = {fit.index(state.clusters[m.name].position): m for m in could_make(state, record)}
    made.pop(-1, None)
    if not made:
        return Raised(estimates, answer)
    free = {m.name: int(estimates[i]) for i, m in made.items()}
    wanted = [dict.fromkeys(free, 0) | {m.name: m.count for m in made.values()}]
    if not regardless:
        kept = sum([n for c, n in held.items() if c in state.clusters and fit.index(state.clusters[c].position) >= 0])
        wanted.insert(0, shares([*made.values()], record.spec.replicas - kept - sum(max(0, int(n)) for n in estimates)))
    for share in wanted:
        more = estimates.copy()
        for i, m in made.items():
            more[i] = max(0, int(more[i])) + share.get(m.name, 0)
        found = answer if regardless else ask(more)
        if isinstance(found, Assigned):
            return Raised(more, found, free)
    return Raised(estimates, answer)


def could_make(state: FleetState, record: BindingState) -> list[Made]:
    """Clusters that could make nodes for the binding, in order of name; not one that has just refused some of it."""
    found: list[Made] = []
    for name, count in zip(state.makers, state.makeable(record), strict=False):
        lost = record.shrunk and record.targets.get(name, 0) < record.before.get(name, 0)
        capacity = state.clusters[name].capacity
        if count > 0 and not lost and capacity is not None:
            found.append(Made(name, count, capacity.price_of.get(record.class_key)))
    return found


def shares(made: list[Made], missing: int) -> dict[str, int]:
    """Of which cluster how much is asked, so that `missing` is held: of the cheapest first, then by name."""
    given: dict[str, int] = {}
    for m in sorted(made, key=lambda m: (m.price is None, m.price or 0, m.name)):
        if (n := min(m.count, missing)) > 0:
            given[m.name] = n
            missing -= n
    return given
