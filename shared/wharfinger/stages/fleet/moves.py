"""Holds the state of voluntary moves (failback and rebalance): which bindings may move, when, and
how many moved recently. `steadiness` decides the moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wharfinger.domain.binding import Binding
from wharfinger.domain.time import SECOND
from wharfinger.kernel.decider import Micros
from wharfinger.stages.due_times import Agenda

MINUTE: Micros = 60 * SECOND

MOVES_A_MINUTE = 60
"""How many bindings of a stream may be moved in a minute. A cluster that returns must not move the
whole fleet at once."""


@dataclass(slots=True)
class RebalanceState:
    """Tracks voluntary moves of a fleet stream: the candidates, their due times, and the moves that
    count against the limits. Times are in microseconds.

    `looked_at`: when the candidates were last evaluated.
    `after`: where that evaluation was partial, the last binding evaluated, in order of name.
    `stale`: facts or counts changed since.
    `minute`: start of the present minute. `made`: number of moves in it.
    `departed`: cluster -> (time, replicas) of recent voluntary moves out of it.
    Derived: `candidates`, the bindings that may be moved; `agenda`, when each binding that can be
    improved is due.
    """

    looked_at: Micros = 0
    after: str = ""
    stale: bool = False
    minute: Micros = 0
    made: int = 0
    departed: dict[str, list[tuple[Micros, int]]] = field(default_factory=dict)
    candidates: dict[str, None] = field(default_factory=dict)
    agenda: Agenda[tuple[str]] = field(default_factory=Agenda)

    def copy(self) -> RebalanceState:
        return RebalanceState(
            self.looked_at,
            self.after,
            self.stale,
            self.minute,
            self.made,
            {name: left.copy() for name, left in self.departed.items()},
            self.candidates.copy(),
            self.agenda.copy(),
        )

    def consider(
        self, name: str, spec: Binding, failback: Micros, rebalance: Micros, moved_at: Micros
    ) -> None:
        """Register a binding as a candidate for voluntary moves (failback and rebalance), and set
        the time at which its move is due.

        `failback`, `rebalance`: since when a move of that kind would have improved the targets, in
        microseconds; 0: there is none. `moved_at`: time of the last move; 0: never moved.

        The due time of each kind is (since when) + (the delay in the policy: `failback_after_s` or
        `rebalance_after_s`). The earlier of the two is used. It is not earlier than `moved_at` plus
        the policy's `window_s`. Example: an improvement possible since 10:00, delay 5 minutes, last
        move at 9:50, window 20 minutes: due at 10:10. Without a possible improvement, or without a
        delay in the policy, the binding is not due.
        """
        self.candidates[name] = None
        self.stale = True
        steadiness = spec.placement.steadiness
        dues = [
            since + after * SECOND
            for since, after in (
                (failback, steadiness.failback_after_s),
                (rebalance, steadiness.rebalance_after_s),
            )
            if since and after is not None
        ]
        if dues:
            self.agenda.set(
                (name,), max(min(dues), moved_at + steadiness.window_s * SECOND if moved_at else 0)
            )
        else:
            self.agenda.discard((name,))

    def drop(self, name: str) -> None:
        if name in self.candidates:
            del self.candidates[name]
            self.agenda.discard((name,))

    def forget_all(self) -> None:
        """Clear the derived parts. The caller then calls `consider` for every binding that may be
        moved."""
        self.candidates, self.agenda = {}, Agenda()

    def count(self, at: Micros) -> None:
        """Count one move at time `at`. A new minute starts where the present one is over."""
        if at >= self.minute + MINUTE:
            self.minute, self.made = at, 0
        self.made += 1

    def depart(
        self, before: Mapping[str, int], now: Mapping[str, int], at: Micros, window: Micros
    ) -> None:
        """Record for each cluster how many replicas a move takes out of it at time `at`. The move
        is a failback or rebalance by a policy. Example: `before` {a: 5, b: 1} and `now` {a: 2, b:
        4}: 3 replicas leave a. `before`, `now`: cluster -> replicas before and after the move.
        Records that are `window` microseconds old or older are deleted."""
        for name in [*self.departed]:
            self.departed[name] = [
                (when, n) for when, n in self.departed[name] if when + window > at
            ]
            if not self.departed[name]:
                del self.departed[name]
        for name, n in before.items():
            if (gone := n - now.get(name, 0)) > 0:
                self.departed.setdefault(name, []).append((at, gone))

    def departures(self, cluster: str, at: Micros, window: Micros) -> int:
        """Return how many replicas left the cluster within the window (microseconds) that ends at
        time `at`."""
        return sum([n for when, n in self.departed.get(cluster, ()) if when + window > at])

    def left(self, at: Micros) -> int:
        """Return how many more bindings may be moved in the minute of time `at`."""
        return MOVES_A_MINUTE if at >= self.minute + MINUTE else max(0, MOVES_A_MINUTE - self.made)


def movable(spec: Binding, affinity: str) -> bool:
    """Return whether the policy allows voluntary moves of this binding: failback, while the active
    affinity term is not the first one; or rebalance, if its replicas are Divided. False for sets of
    components and for objects without replicas. `affinity`: the name of the active term."""
    placement, steadiness = spec.placement, spec.placement.steadiness
    if spec.components or (spec.replicas == 0):
        return False
    if steadiness.failback_after_s is not None and place_of(spec, affinity) > 0:
        return True
    return steadiness.rebalance_after_s is not None and placement.replicas.type == "Divided"


def place_of(spec: Binding, affinity: str) -> int:
    """Return the index of the affinity term with this name in the placement; 0 where
    there is none."""
    return next((i for i, term in enumerate(spec.placement.affinities) if term.name == affinity), 0)
