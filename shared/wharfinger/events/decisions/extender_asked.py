"""An extender is asked about a replica."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.text import count
from wharfinger.domain.value import Value
from wharfinger.events.decisions.kind import (
    About,
    Writer,
    meaning_of_about,
    no_assignment_items,
    no_effect,
    no_outcome_item,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.renaming import ANSWERED_IN_WORDS
from wharfinger.events.decisions.steps import StepResult, trigger


class ExtenderAsked(Value, frozen=True):
    """An extender is asked about one replica of the binding: `verb` is filter, prioritize, preempt
    or bind; `nodes`: those it is asked about, the best first by what the plugins say. The binding
    waits for the answer, which is recorded as an input."""

    TYPE: ClassVar[str] = "extender.asked"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "binding"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("asked",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("cluster",)

    cluster: str
    binding: str
    assignment: str
    extender: str
    verb: str
    nodes: tuple[str, ...]

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause, ids={"assignment": self.assignment})
        yield StepResult("selection", {"outcome": "asked", f"{self.extender} {self.verb}": ""})
        yield StepResult("filter", {f"{i}": name for i, name in enumerate(self.nodes)})

    def sentence(self) -> str:
        return f"{self.verb} of {self.extender} for {count(len(self.nodes), 'node')}"

    def why_not_renamed(self) -> str:
        return f"{self.cluster} {ANSWERED_IN_WORDS}"

    answered_proposal = no_proposal
    refusal = no_refusal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    subject_meaning = meaning_of_about
    effect = no_effect
