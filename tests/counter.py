"""The smallest decider that has everything: it counts withdrawn bindings and says so, one decision
a binding and one more whenever `every` of them are full. What a draft says depends on the drafts
before it, so that folding between drafts shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from wharfinger.domain.value import Value, canonical
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.events.codec import made
from wharfinger.events.decisions import BindingReleased, FailoverResumed, LedgerWentBack
from wharfinger.events.envelope import Event, derived_id
from wharfinger.kernel.decider import Decision, Draft, Micros
from wharfinger.kernel.incarnations import Incarnations, noted
from wharfinger.kernel.round import Head, Round
from wharfinger.kernel.step import step


@dataclass
class Counts:
    total: int = 0
    by_binding: dict[str, int] = field(default_factory=dict)
    waiting: dict[UUID, str] = field(default_factory=dict)
    incarnations: Incarnations = ()
    stream: str = ""


class Counter:
    def __init__(self, every: int = 3, padding: int = 0) -> None:
        self._every = every
        self._padding = padding

    @classmethod
    def of_profile(cls, text: str) -> Counter:
        """As a recorded round names it, else the default one."""
        every = text.removeprefix("counter/")
        return cls(int(every)) if every.isdecimal() else cls()

    @property
    def profile(self) -> str:
        return f"counter/{self._every}"

    def initial(self, stream: str) -> Counts:
        return Counts(stream=stream)

    def fold_input(self, state: Counts, event: Event[Value], at: Micros) -> None:
        if isinstance(event.data, BindingWithdrawn):
            state.waiting[event.id] = event.data.name
        if isinstance(event.data, LedgerWentBack):
            state.incarnations = noted(state.incarnations, state.stream, event.data)

    def is_redelivery(self, state: Counts, event: Event[Value]) -> bool:
        return False

    def outdated(self, state: Counts) -> int:
        return 0

    def fold_decision(self, state: Counts, decision: Decision, at: Micros) -> None:
        if isinstance(decision.data, BindingReleased):
            name = decision.data.binding
            state.total += 1
            state.by_binding[name] = state.by_binding.get(name, 0) + 1
            if decision.cause is not None:
                state.waiting.pop(decision.cause, None)

    def decide(self, state: Counts, at: Micros) -> Iterator[Draft]:
        for cause, name in list(state.waiting.items()):
            said = f"{state.total + 1}/{state.by_binding.get(name, 0) + 1}{'.' * self._padding}"
            yield Draft(BindingReleased(name, said), name, "released", cause)
            if state.total % self._every == 0:
                yield Draft(FailoverResumed(state.total, len(state.by_binding)), "fleet", "resumed")

    def end_round(self, state: Counts, decisions: int, profile: str) -> None:
        pass

    def next_due(self, state: Counts) -> Micros | None:
        return None

    def dump(self, state: Counts) -> dict[str, bytes]:
        return {
            "counts": canonical((state.total, state.by_binding)),
            "waiting": canonical([(str(cause), name) for cause, name in state.waiting.items()]),
        } | ({"incarnations": canonical(state.incarnations)} if state.incarnations else {})

    def load(self, stream: str, sections: Mapping[str, bytes]) -> Counts:
        total, by_binding = msgspec.json.decode(sections["counts"], type=tuple[int, dict[str, int]])
        waiting = msgspec.json.decode(sections["waiting"], type=list[tuple[UUID, str]])
        incarnations = msgspec.json.decode(sections.get("incarnations", b"[]"), type=Incarnations)
        return Counts(total, by_binding, dict(waiting), incarnations, stream)


def withdrawn(number: int, name: str = "") -> Event[Value]:
    """The `number`th event: same number, same id."""
    name = name or f"binding-{number % 7}"
    return made(
        BindingWithdrawn(name), id=derived_id("test", number), source="/tests", subject=name
    )


class Writer:
    """Steps a counter beside its head, as a stage would."""

    def __init__(self, head: Head, decider: Counter | None = None) -> None:
        self.decider = decider or Counter()
        self.head = head
        self.state = self.decider.initial(head.stream)
        self.events: dict[UUID, Event[Value]] = {}

    def step(
        self, inputs: Sequence[Event[Value]], at: Micros | None = None, snapshot: bytes = b""
    ) -> Round:
        at = self.head.at + 1_000 if at is None else at
        basis = {"wharfinger.bindings/0": (1, self.head.round + 1), "wharfinger.clusters/3": (2, 7)}
        self.events.update({e.id: e for e in inputs})
        round_ = step(self.decider, self.state, self.head, inputs, at, basis, snapshot)
        self.head = round_.head()
        return round_
