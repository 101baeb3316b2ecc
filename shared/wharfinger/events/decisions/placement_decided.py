"""Topic `wharfinger.decisions`, what is decided about placements: which clusters one selects, in
which groups.

Written by the stream `fleet/0` alone, since balance between placements needs one who sees all of
them. Subject: `placement/<namespace>/<name>`.

A set of clusters is one thing, and who takes half of it tears down what runs in the other half. So
a set has a `generation`, and one that is too large for a message comes in parts, all of one round,
of which only the last says `complete`: a reader puts the parts of a generation together and takes
them when that one has come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.text import count, some
from wharfinger.events.decisions.effects import DecidedGroup, SelectionPart
from wharfinger.events.decisions.kind import (
    About,
    Writer,
    meaning_of_about,
    no_assignment_items,
    no_outcome_item,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.renaming import COMPARED_TEXTS
from wharfinger.events.decisions.steps import StepResult, explained, filtered, trigger

PART_SIZE = 1000
"""Clusters that one part names, and clusters that it says have left. With names of 253 characters
it stays under 1 MiB."""


SATISFIED, MISCONFIGURED = "PlacementSatisfied", "PlacementMisconfigured"
"""The types of the two conditions."""


class PlacementDecided(SelectionPart, frozen=True):
    """The set that a placement selects, or a part of it."""

    TYPE: ClassVar[str] = "placement.decided"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "placement"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("selected", "unsatisfied", "misconfigured")
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet",)

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        why = self.explanation
        scores = {name: score for group in self.groups for name, score in group.scores.items()}
        yield trigger(cause, {"trigger": self.trigger})
        yield filtered(why, {})
        yield StepResult(
            "score", {name: str(score) for name, score in scores.items()}, sampled=True
        )
        changes = {
            **{f"with {name}": "" for name in self.added},
            **{f"without {name}": "" for name in self.removed},
        }
        about = {"generation": str(self.generation), "unscheduled": str(self.unscheduled)}
        conditions = {c.type: f"{c.status} {c.reason}: {c.message}" for c in self.conditions}
        selected = dict.fromkeys(scores, "")
        yield StepResult(
            "selection", {"outcome": "decided", **selected, **changes, **about, **conditions}
        )
        parts = {"part": f"{self.part} of {self.parts}", "complete": str(self.complete)}
        groups = {f"group {g.index} {g.name}".rstrip(): ", ".join(g.scores) for g in self.groups}
        yield StepResult("division", {**groups, **parts})
        yield explained(why)

    def sentence(self) -> str:
        """`2 clusters (generation 3): +genoa -oslo; 1 unscheduled`; a part says which it is."""
        clusters = sum(len(group.scores) for group in self.groups)
        part = f", part {self.part} of {self.parts}" if self.parts > 1 else ""
        changes = [*(f"+{name}" for name in self.added), *(f"-{name}" for name in self.removed)]
        moved = f": {some(changes)}" if changes else ""
        missing = f"; {self.unscheduled} unscheduled" if self.unscheduled else ""
        wrong = next(
            (
                f"; {c.message}"
                for c in self.conditions
                if c.type == MISCONFIGURED and c.status == "True"
            ),
            "",
        )
        return (
            f"{count(clusters, 'cluster')} (generation "
            f"{self.generation}{part}){moved}{missing}{wrong}"
        )

    def why_not_renamed(self) -> str:
        return f"placement {self.placement} {COMPARED_TEXTS}"

    def effect(self) -> SelectionPart:
        return self

    answered_proposal = no_proposal
    refusal = no_refusal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    subject_meaning = meaning_of_about


def joined(pieces: Iterable[DecidedGroup]) -> tuple[DecidedGroup, ...]:
    """Groups out of their pieces, in the order in which they begin."""
    found: dict[int, DecidedGroup] = {}
    for piece in pieces:
        before = found.get(piece.index)
        scores = piece.scores if before is None else {**before.scores, **piece.scores}
        found[piece.index] = DecidedGroup(piece.index, piece.name, scores)
    return tuple(found.values())
