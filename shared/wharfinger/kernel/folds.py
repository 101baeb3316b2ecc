"""What each kind of decision changes in the state of a stage: a table of functions, which the
modules of the stage fill beside the state that each of them changes.

A stage that has no function for a kind that its streams write cannot be imported (`covering`), so
a new kind without a fold is noticed before anything runs.

Example: `FOLDS.of(SomeKind)` above `def some_kind(state, data, decision, at)` enters the function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from wharfinger.domain.time import Micros
from wharfinger.domain.value import Value
from wharfinger.kernel.decider import Decision, S

D = TypeVar("D", bound=Value)
P = TypeVar("P")

Fold = Callable[[S, D, Decision, Micros], None]
"""State, data of the decision, the decision, and the time of its round in microseconds."""


class DecisionFolds(Generic[S]):
    """A table: class of a decision -> the function that folds it into the state. `others`: tables
    whose entries are copied. TypeError if a class occurs twice."""

    def __init__(self, *others: DecisionFolds[S]) -> None:
        self._folds: dict[type, Fold[S, Any]] = {}
        self._of_subclass: dict[type, Fold[S, Any]] = {}
        for other in others:
            for kind, fold in other._folds.items():
                self._enter(kind, fold)

    def _enter(self, kind: type, fold: Fold[S, Any]) -> None:
        """TypeError: the kind has a function."""
        if kind in self._folds:
            raise TypeError(f"{kind.__name__} is folded twice")
        self._folds[kind] = fold

    def of(self, kind: type[D]) -> Callable[[Fold[S, D]], Fold[S, D]]:
        """Enter the function below for this kind."""

        def entered(fold: Fold[S, D]) -> Fold[S, D]:
            self._enter(kind, fold)
            return fold

        return entered

    def within(self, whole: type[P], part: Callable[[P], S | None]) -> DecisionFolds[P]:
        """Returns a table with the same functions for states that contain such a state as a part.
        `whole`: their class. `part`: returns the part; if None, nothing is folded."""
        table = DecisionFolds[P]()
        for kind, fold in self._folds.items():
            table._enter(kind, _on_part(fold, part))
        return table

    def covering(self, kinds: Iterable[type]) -> DecisionFolds[S]:
        """Returns this table after a check that it has functions for exactly these classes.
        TypeError if not."""
        wanted = set(kinds)
        missing = sorted(kind.__name__ for kind in wanted - self._folds.keys())
        foreign = sorted(kind.__name__ for kind in self._folds.keys() - wanted)
        if missing or foreign:
            raise TypeError(f"not folded: {missing}; not decided by such a stream: {foreign}")
        return self

    def fold(self, state: S, decision: Decision, at: Micros) -> None:
        """Folds a decision with the function of its class or of a base class. AssertionError if
        there is none."""
        kind = type(decision.data)
        fold = self._folds.get(kind) or self._of_subclass.get(kind) or self._inherited(kind)
        if fold is None:
            raise AssertionError(f"{decision.type} is no decision of such a stream")
        fold(state, decision.data, decision, at)

    def _inherited(self, kind: type) -> Fold[S, Any] | None:
        """The function of the class that `kind` is a subclass of: recovery decodes into subclasses
        that leave the explanation unread (`events.ledger_codec.decode_data_to_fold`)."""
        found = next((self._folds[base] for base in kind.__mro__ if base in self._folds), None)
        if found is not None:
            self._of_subclass[kind] = found
        return found


def _on_part(fold: Fold[S, Any], part: Callable[[P], S | None]) -> Fold[P, Any]:
    def folded(state: P, data: Value, decision: Decision, at: Micros) -> None:
        found = part(state)
        if found is not None:
            fold(found, data, decision, at)

    return folded
