"""What a kind of decision is: its data and everything that depends on the kind, in one file.

A kind is a class of values (the data of a decision, as the ledger stores and hashes it) with the
members below. Code that works on decisions of every kind (registry, relay, audit, comparison of
runs, tables) uses these members and names no kind. The list of kinds in the package is typed by
this protocol, so that a class with a missing member is a type error there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, Protocol
from uuid import UUID

from wharfinger.domain.ids import Meaning
from wharfinger.domain.reasons import Refusal
from wharfinger.events.assignments import AssignmentItem
from wharfinger.events.decisions.effects import Effect
from wharfinger.events.decisions.steps import StepResult
from wharfinger.events.outcomes import OutcomeItem

About = Literal[
    "binding",
    "cluster",
    "fleet",
    "node",
    "claim",
    "command",
    "plan",
    "placement",
    "proposal",
    "ledger",
]
"""`proposal`: the subject is the target of the proposal, which may be of any sort."""

Writer = Literal["fleet", "cluster", "ledger"]
"""The streams that decide a kind: those of fleet shards, those of clusters, the ledger's own. A
stage folds all that its streams decide."""

_MEANINGS: dict[About, Meaning] = {
    "binding": Meaning.BINDING,
    "cluster": Meaning.CLUSTER,
    "node": Meaning.NODE,
}

ClusterItem = tuple[str, AssignmentItem]
"""A cluster, and an item for it on topic `wharfinger.assignments`."""

ShardItem = tuple[str, str, OutcomeItem]
"""A cluster, a binding, and an item for the binding's fleet shard on topic
`wharfinger.outcomes`."""


class DecisionKind(Protocol):
    """The members of every kind. Field names of the data are free, so constants are in capitals."""

    TYPE: ClassVar[str]
    """Name of the event type, without prefix and version: `schedule.decided`."""
    VERSION: ClassVar[int]
    """Version of the event type that this class is the data of."""
    ABOUT: ClassVar[About]
    """What a decision of this kind is about; its subject is the name or id of that."""
    OUTCOMES: ClassVar[tuple[str, ...]]
    """The outcome words that decisions of this kind have in tables and indexes:
    `("scheduled",)`."""

    WRITERS: ClassVar[tuple[Writer, ...]]
    """The writers whose streams may contain a decision of this kind."""

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        """The result of each step, in the order in which the stage takes them. One step is always
        `selection`: it holds the outcome, by which two kinds can be distinguished. `cause`: of the
        decision; None: the passing of time."""
        ...

    def sentence(self) -> str:
        """The decision in a few words, without its subject and outcome word, which stand beside
        it."""
        ...

    def refusal(self) -> Refusal:
        """The typed reason of a refusal; empty: the decision is none."""
        ...

    def answered_proposal(self) -> str:
        """The id of the proposal that the decision names as answered; empty: it names none, and
        answers its cause."""
        ...

    def assignment_items(self, seq: int, decision: str) -> Iterator[ClusterItem]:
        """What clusters are sent, in order. `seq`, `decision`: number and id of the decision in its
        stream."""
        ...

    def outcome_item(self, seq: int, decision: str) -> ShardItem | None:
        """What the fleet shard of the binding is sent back; None: nothing."""
        ...

    def effect(self) -> Effect | None:
        """What follows from it for readers that add decisions up or act on them; None: nothing that
        any of them asks for."""
        ...

    def subject_meaning(self) -> Meaning:
        """What the subject of the decision is the name of."""
        ...

    def why_not_renamed(self) -> str:
        """Why a history with this decision cannot be exported under other names; empty: it can, the
        types of the fields say what their texts mean."""
        ...


class ComparedKind(DecisionKind, Protocol):
    """A kind that two runs are compared by: a decision about one binding, with one outcome word."""

    @property
    def binding(self) -> str: ...

    def result(self) -> tuple[object, ...]:
        """What was decided, without why, when and under which number: equal where two runs decide
        alike."""
        ...


def no_proposal(self: object) -> str:
    """`answered_proposal` of a kind that names none."""
    return ""


def no_refusal(self: object) -> Refusal:
    """`refusal` of a kind that refuses nothing."""
    return ""


def no_assignment_items(self: object, seq: int, decision: str) -> Iterator[ClusterItem]:
    """`assignment_items` of a kind that changes nothing in a cluster."""
    return iter(())


def no_outcome_item(self: object, seq: int, decision: str) -> ShardItem | None:
    """`outcome_item` of a kind that the fleet stage need not know of."""
    return None


def no_effect(self: object) -> None:
    """`effect` of a kind that only concerns the stage that decides it."""
    return


def meaning_of_about(self: DecisionKind) -> Meaning:
    """`subject_meaning` of a kind whose subject is what it is about."""
    return _MEANINGS.get(self.ABOUT, Meaning.STREAM)


def names_replaceable(self: object) -> str:
    """`why_not_renamed` of a kind whose texts are known by the types of their fields."""
    return ""
