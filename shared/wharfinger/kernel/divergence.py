"""The first difference between a recorded round and its replay.

Two rounds differ in which decisions they hold, in their order, or in one decision. Of one decision
the first step with another result is named, and only the parts of that step that differ are shown:
the steps are what the kind of the decision says (`events.decisions.steps`); no kind is known here.

Pure and total: bytes that cannot be read any more are a difference too. `audit` calls it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from wharfinger.domain.value import Value
from wharfinger.events.decisions import as_decision
from wharfinger.events.decisions.steps import (
    StepName,
    because,
    cut,
    difference,
    differing_keys,
    shown,
)
from wharfinger.events.ledger_codec import decode_data
from wharfinger.events.message_codec import UndecodableError
from wharfinger.kernel.decider import Decision

RoundStep = Literal[
    # of the record: nothing was decided otherwise, what was written is no longer there
    "unreadable",
    "chain",
    "time",
    "profile",
    "hash",
    "snapshot",
    # of the round: what came in, in which order it was answered
    "input order",
    # of one decision as it is recorded, beside its steps
    "id",
    "bytes",
    # of the decider: it raised instead of answering
    "failure",
]

Step = RoundStep | StepName
"""The step of a decision that differs, or what of the round or record does."""

Blame = Literal["record", "decider"]
"""`record`: the rows are not those that the round's hash covers, they were changed later.
`decider`: the rows are as they were written, and today's code decides otherwise."""

UNDECIDED = "no such decision"


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference of a round: the step, its recorded result (`recorded`) and the present
    one (`replayed`).

    `seq`, `subject`: of the decision; 0 and empty where the round as a whole differs. `engine`: the
    version that decided the round. `follows`: the state differed before, so this may be a
    consequence of an earlier divergence.
    """

    stream: str
    round: int
    seq: int
    step: Step
    recorded: str
    replayed: str
    subject: str = ""
    blame: Blame = "record"
    engine: str = ""
    follows: bool = False


@dataclass(frozen=True, slots=True)
class RoundDifference:
    """Of two lists of decisions: the place of the first that differs, and how."""

    seq: int
    subject: str
    step: Step
    recorded: str
    replayed: str


# --- two rounds


def round_difference(
    recorded: Sequence[Decision], replayed: Sequence[Decision]
) -> RoundDifference | None:
    """Returns the first difference between two lists of decisions; None: they are equal byte for
    byte. Of the recorded decisions only the bytes are compared, not `data`."""
    for place, (a, b) in enumerate(zip(recorded, replayed, strict=False)):
        if not alike(a, b):
            if a.body != b.body and a.subject != b.subject:
                return _other_subject(recorded[place:], replayed[place:])
            return _of_one(a, b)
    if len(recorded) == len(replayed):
        return None
    place = min(len(recorded), len(replayed))
    return _not_decided(recorded[place:], replayed[place:])


def alike(a: Decision, b: Decision) -> bool:
    """`data` is left out: it is what `body` says, and comparing bytes is what an audit is for."""
    return (
        a.body == b.body
        and a.subject == b.subject
        and a.outcome == b.outcome
        and a.cause == b.cause
        and a.type == b.type
        and a.seq == b.seq
        and a.id == b.id
    )


def reworded(recorded: Sequence[Decision], replayed: Sequence[Decision]) -> bool:
    """Whether both lists hold the same decisions, apart from their explanations. No state follows
    from an explanation."""
    return len(recorded) == len(replayed) and all(
        _envelope(a) == _envelope(b) and _unexplained(a) == _unexplained(b)
        for a, b in zip(recorded, replayed, strict=True)
    )


def _unexplained(d: Decision) -> Value | bytes:
    """The data without its explanation; the bytes where they cannot be read."""
    data = _read(d)
    if data is None:
        return d.body
    if not hasattr(data, "explanation"):
        return data
    return msgspec.structs.replace(data, explanation=None)


def _other_subject(recorded: Sequence[Decision], replayed: Sequence[Decision]) -> RoundDifference:
    """Returns the difference where the two lists decide about different subjects: another order, or
    a decision that only one side has."""
    a, b = recorded[0], replayed[0]
    a_comes = any(d.subject == a.subject for d in replayed)
    b_came = any(d.subject == b.subject for d in recorded)
    if a_comes and b_came:
        return RoundDifference(
            a.seq, a.subject, "input order", _in_turn(recorded), _in_turn(replayed)
        )
    return _not_decided(recorded, ()) if not a_comes else _not_decided((), replayed)


def _not_decided(recorded: Sequence[Decision], replayed: Sequence[Decision]) -> RoundDifference:
    """The first of the one side, which the other does not have."""
    if recorded:
        return RoundDifference(
            recorded[0].seq, recorded[0].subject, "trigger", _summary(recorded[0]), UNDECIDED
        )
    return RoundDifference(
        replayed[0].seq, replayed[0].subject, "trigger", UNDECIDED, _summary(replayed[0])
    )


def _in_turn(decisions: Sequence[Decision]) -> str:
    subjects = ", then ".join([d.subject for d in decisions[:4]])
    return f"{subjects}, ..." if len(decisions) > 4 else subjects


def _summary(d: Decision) -> str:
    """One decision in a line: what became of whom, and why it was due."""
    data = _read(d)
    steps = as_decision(data).step_results(d.cause) if data is not None else ()
    why = next(
        (result.parts.get("trigger", "") for result in steps if result.step == "trigger"), ""
    )
    return f"{d.outcome} {d.subject}{f' ({why})' if why else ''}"


# --- two decisions about the same


def _of_one(a: Decision, b: Decision) -> RoundDifference:
    if a.body == b.body:
        return _of_envelope(a, b)
    data = _read(a)
    if data is None:
        return RoundDifference(
            a.seq, b.subject, "bytes", f"cannot be read: {cut(_text(a.body))}", cut(_text(b.body))
        )
    recorded, replayed = as_decision(data), as_decision(b.data)
    found = difference(recorded.step_results(a.cause), replayed.step_results(b.cause))
    if found is not None:
        return RoundDifference(a.seq, b.subject, found.step, found.left, found.right)
    if _envelope(a) != _envelope(b):
        return _of_envelope(a, b)
    apart = _first_byte(a.body, b.body)
    return RoundDifference(
        a.seq,
        b.subject,
        "bytes",
        f"from byte {apart}: {cut(_text(a.body[apart:]))}",
        cut(_text(b.body[apart:])),
    )


def _of_envelope(a: Decision, b: Decision) -> RoundDifference:
    """The bytes are the same; what stands around them is not."""
    mine, its = _envelope(a), _envelope(b)
    names = list(differing_keys(mine, its))
    step: Step = "trigger" if names == ["cause"] else "id"
    return RoundDifference(a.seq, b.subject, step, shown(mine, names), shown(its, names))


def _envelope(d: Decision) -> dict[str, str]:
    parts = {
        "seq": str(d.seq),
        "id": str(d.id),
        "type": d.type,
        "subject": d.subject,
        "outcome": d.outcome,
    }
    return {**parts, "cause": because(d.cause)}


def _read(d: Decision) -> Value | None:
    """What the bytes say; a recorded decision may have been fetched without having been decoded."""
    try:
        return decode_data(d.type, d.body)
    except UndecodableError:
        return None


def _first_byte(a: bytes, b: bytes) -> int:
    return next(
        (place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
        min(len(a), len(b)),
    )


def _text(body: bytes) -> str:
    return body.decode(errors="replace")
