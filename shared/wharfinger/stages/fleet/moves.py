"""The book of moves that nobody asked for: who could be moved, when, and how many were of late.

What a better place is, `steadiness` says. Here is only what has to be remembered of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wharfinger.domain.binding import Binding
from wharfinger.kernel.decider import Micros
from wharfinger.stages.agenda import Agenda

SECOND: Micros = 1_000_000

MINUTE: Micros = 60 * SECOND

MOVES_A_MINUTE = 60
"""So many bindings of a stream are moved within a minute, however many could be: a cluster that returns must not set the whole
fleet in motion at once."""


@dataclass(slots=True)
class Moves:
    """`looked_at`: when the candidates were last looked at; `after`: the last of them in order of name, where a look
    did not reach all; `stale`: facts or counts have changed since. `minute`: when the running minute began, `made`:
    how many moves it saw. `departed`: cluster -> when how many replicas left it by such moves, of late.

    Derived: `candidates`: bindings that may be moved; `agenda`: when those that could lie better are moved."""

    looked_at: Micros = 0
    after: str = ""
    stale: bool = False
    minute: Micros = 0
    made: int = 0
    departed: dict[str, list[tuple[Micros, int]]] = field(default_factory=dict)
    candidates: dict[str, None] = field(default_factory=dict)
    agenda: Agenda[tuple[str]] = field(default_factory=Agenda)

    def copy(self) -> Moves:
        return Moves(
            self.looked_at, self.after, self.stale, self.minute, self.made,
            {name: left.copy() for name, left in self.departed.items()}, self.candidates.copy(), self.agenda.copy(),
        )  # fmt: skip

    def consider(self, name: str, spec: Binding, failback: Micros, rebalance: Micros, moved_at: Micros) -> None:
        """It may be moved; `failback`, `rebalance`: since when it could lie better (0: it could not)."""
        self.candidates[name] = None
        self.stale = True
        steadiness = spec.placement.steadiness
        dues = [
            since + after * SECOND
            for since, after in ((failback, steadiness.failback_after_s), (rebalance, steadiness.rebalance_after_s))
            if since and after is not None
        ]
        if dues:
            self.agenda.set((name,), max(min(dues), moved_at + steadiness.window_s * SECOND if moved_at else 0))
        else:
            self.agenda.discard((name,))

    def drop(self, name: str) -> None:
        if name in self.candidates:
            del self.candidates[name]
            self.agenda.discard((name,))

    def count(self, at: Micros) -> None:
        """One more was moved."""
        if at >= self.minute + MINUTE:
            self.minute, self.made = at, 0
        self.made += 1

    def depart(self, before: Mapping[str, int], now: Mapping[str, int], at: Micros, window: Micros) -> None:
        """Note what left which cluster, and forget what left before the window that ends now."""
        for name in [*self.departed]:
            self.departed[name] = [(when, n) for when, n in self.departed[name] if when + window > at]
            if not self.departed[name]:
                del self.departed[name]
        for name, n in before.items():
            if (gone := n - now.get(name, 0)) > 0:
                self.departed.setdefault(name, []).append((at, gone))

    def departures(self, cluster: str, at: Micros, window: Micros) -> int:
        """How many replicas left it within the window that ends now."""
        return sum([n for when, n in self.departed.get(cluster, ()) if when + window > at])

    def left(self, at: Micros) -> int:
        """How many more may be moved now."""
        return MOVES_A_MINUTE if at >= self.minute + MINUTE else max(0, MOVES_A_MINUTE - self.made)


def movable(spec: Binding, affinity: str) -> bool:
    """Whether its policy allows any move of what is placed. `affinity`: the one in force. What goes wherever it may follows the
    fleet anyway; sets of several components are not taken apart."""
    placement, steadiness = spec.placement, spec.placement.steadiness
    if spec.components or (spec.replicas == 0):
        return False
    if steadiness.failback_after_s is not None and place_of(spec, affinity) > 0:
        return True
    return steadiness.rebalance_after_s is not None and placement.replicas.type == "Divided"


def place_of(spec: Binding, affinity: str) -> int:
    """Which of the placement's affinities is in force, by number."""
    return next((i for i, term in enumerate(spec.placement.affinities) if term.name == affinity), 0)
