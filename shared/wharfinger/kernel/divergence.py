"""Where what was decided and what is decided again part, said in the words of the step that parted first.

A decision is made in steps: something triggers it, candidates are filtered, what fits is estimated, scores are compared,
places selected, replicas divided. What a decision says of itself (its data and recorded explanation) shows each step's
result, so the first step whose results differ is where to look; everything after it differs because of it. Only the
differing parts of that one step are shown.

Pure and total: bytes that cannot be read any more are a difference too. `audit` asks, and knows when to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from wharfinger.domain.binding import TargetCluster
from wharfinger.domain.value import Value, canonical
from wharfinger.domain.workload import Requirements
from wharfinger.events.codec import UndecodableError, decode_data
from wharfinger.events.decisions import (
    BindingReleased,
    ClusterSilenced,
    Explanation,
    ExtenderAsked,
    FailoverHeld,
    FailoverResumed,
    NodeRemovalDecided,
    NodeShare,
    PlanCommitted,
    PlanRefused,
    ProposalRefused,
    ReplicasNominated,
    ReplicasPlaced,
    ReplicasRefused,
    ReplicasReleased,
    ScheduleDecided,
    ScheduleRefused,
)
from wharfinger.events.disruption import DisruptionDecided, DisruptionEnded
from wharfinger.events.placements import PlacementDecided
from wharfinger.events.provisioning import NodeClaimEnded, NodeClaimRequested
from wharfinger.kernel.decider import Decision

Step = Literal[
    # of the record: nothing was decided otherwise, what was written is no longer there
    "unreadable",
    "chain",
    "time",
    "profile",
    "hash",
    "snapshot",
    # of the round: what came in, in which order it was answered, what was answered at all
    "input order",
    "trigger",
    # of one decision, in the order in which it is made
    "request",
    "held",
    "filter",
    "estimate",
    "score",
    "selection",
    "division",
    "ordinals",
    "devices",
    "explanation",
    "id",
    "bytes",
    # of the decider: it raised instead of answering
    "failure",
]

Blame = Literal["record", "decider"]
"""`record`: the rows are not those that the round's hash covers, they were changed later. `decider`: the rows are as they
were written, and today's code decides otherwise."""

NOTHING = "nothing"
UNDECIDED = "no such decision"
PARTS_SHOWN = 6
VALUE_LENGTH = 120


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference of a round: in which step, and what that step gave then (`recorded`) and gives now (`replayed`).

    `seq`, `subject`: of the decision; 0 and empty where it is the round as a whole. `engine`: which decided the round.
    `follows`: the state had parted from history before, so this may be a consequence of an earlier one.
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
class Difference:
    """Of two lists of decisions: the place of the first that differs, and how."""

    seq: int
    subject: str
    step: Step
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True)
class Result:
    """What one step gave: its parts by name. `sampled`: only a few of the candidates are told, so that only those that both
    sides tell of can be compared; which of them are told is a matter of later steps."""

    step: Step
    parts: Mapping[str, str]
    sampled: bool = False


# --- two rounds


def first_difference(recorded: Sequence[Decision], replayed: Sequence[Decision]) -> Difference | None:
    """None: the same decisions, byte for byte. The recorded decisions' `data` are not looked at, only their bytes are."""
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


def _other_subject(recorded: Sequence[Decision], replayed: Sequence[Decision]) -> Difference:
    """Something else is answered here: in another order, or one of the two is answered on one side only."""
    a, b = recorded[0], replayed[0]
    a_comes = any(d.subject == a.subject for d in replayed)
    b_came = any(d.subject == b.subject for d in recorded)
    if a_comes and b_came:
        return Difference(a.seq, a.subject, "input order", _in_turn(recorded), _in_turn(replayed))
    return _not_decided(recorded, ()) if not a_comes else _not_decided((), replayed)


def _not_decided(recorded: Sequence[Decision], replayed: Sequence[Decision]) -> Difference:
    """The first of the one side, which the other does not have."""
    if recorded:
        return Difference(recorded[0].seq, recorded[0].subject, "trigger", _summary(recorded[0]), UNDECIDED)
    return Difference(replayed[0].seq, replayed[0].subject, "trigger", UNDECIDED, _summary(replayed[0]))


def _in_turn(decisions: Sequence[Decision]) -> str:
    shown = ", then ".join([d.subject for d in decisions[:4]])
    return f"{shown}, ..." if len(decisions) > 4 else shown


def _summary(d: Decision) -> str:
    """One decision in a line: what became of whom, and why it was due."""
    data = _read(d)
    why = data.trigger if isinstance(data, ScheduleDecided | ScheduleRefused) else ""
    return f"{d.outcome} {d.subject}{f' ({why})' if why else ''}"


# --- two decisions about the same


def _of_one(a: Decision, b: Decision) -> Difference:
    if a.body == b.body:
        return _of_envelope(a, b)
    data = _read(a)
    if data is None:
        return Difference(a.seq, b.subject, "bytes", f"cannot be read: {_cut(_text(a.body))}", _cut(_text(b.body)))
    for mine, its in _paired(list(results(data, a.cause)), list(results(b.data, b.cause))):
        names = differing(mine, its)
        if names:
            return Difference(a.seq, b.subject, mine.step, told(mine.parts, names), told(its.parts, names))
    if _envelope(a).parts != _envelope(b).parts:
        return _of_envelope(a, b)
    apart = _first_byte(a.body, b.body)
    return Difference(
        a.seq, b.subject, "bytes", f"from byte {apart}: {_cut(_text(a.body[apart:]))}", _cut(_text(b.body[apart:]))
    )


def _of_envelope(a: Decision, b: Decision) -> Difference:
    """The bytes are the same; what stands around them is not."""
    mine, its = _envelope(a), _envelope(b)
    names = differing(mine, its)
    step: Step = "trigger" if names == ["cause"] else "id"
    return Difference(a.seq, b.subject, step, told(mine.parts, names), told(its.parts, names))


def _envelope(d: Decision) -> Result:
    parts = {"seq": str(d.seq), "id": str(d.id), "type": d.type, "subject": d.subject, "outcome": d.outcome}
    return Result("id", {**parts, "cause": _because(d.cause)})


def _read(d: Decision) -> Value | None:
    """What the bytes say; a recorded decision may have been fetched without having been decoded."""
    try:
        return decode_data(d.type, d.body)
    except UndecodableError:
        return None


def _paired(a: Sequence[Result], b: Sequence[Result]) -> Iterator[tuple[Result, Result]]:
    """Step by step, in the order of the first; a step that one kind of decision does not have is passed over."""
    others = {result.step: result for result in b}
    for result in a:
        if result.step in others:
            yield result, others[result.step]


def differing(a: Result, b: Result) -> list[str]:
    """The names of the parts that differ, in the order of the first, then of the second."""
    names = dict.fromkeys((*a.parts, *b.parts))
    if a.sampled:
        names = {name: None for name in names if name in a.parts and name in b.parts}
    return [name for name in names if a.parts.get(name) != b.parts.get(name)]


def told(parts: Mapping[str, str], names: Sequence[str]) -> str:
    """`oslo 3, bergen 1`: the named parts, those that are there."""
    there = [name for name in names if name in parts]
    shown = [f"{name} {_cut(parts[name])}".rstrip() for name in there[:PARTS_SHOWN]]
    if len(there) > PARTS_SHOWN:
        shown.append(f"and {len(there) - PARTS_SHOWN} more")
    return ", ".join(shown) or NOTHING


# --- the steps of each kind of decision


def results(data: Value, cause: UUID | None) -> Iterator[Result]:
    """What each step gave, in the order in which the stage makes them. `selection` is in all: it says what came of it."""
    match data:
        case ScheduleDecided() | ScheduleRefused():
            yield from _scheduled(data, cause)
        case ReplicasPlaced():
            yield from _placed(data, cause)
        case ReplicasRefused():
            yield Result("trigger", {"assignment": data.assignment, "cause": _because(cause)})
            yield Result("request", {"class": data.class_key})
            yield _filtered(data.explanation, {})
            yield Result("selection", {"outcome": f"refused: {data.reason}"})
            yield Result("division", {"refused": str(data.count)})
            yield Result("explanation", {"note": data.explanation.note})
        case ReplicasReleased():
            yield _because_of(cause, assignment=data.assignment, reason=data.reason)
            yield Result("selection", {"outcome": "released", **{share.node: "" for share in data.released}})
            yield from _shared(data.released, {"not yet placed": str(data.unbound)})
        case ExtenderAsked():
            yield _because_of(cause, assignment=data.assignment)
            yield Result("selection", {"outcome": "asked", f"{data.extender} {data.verb}": ""})
            yield Result("filter", {f"{i}": name for i, name in enumerate(data.nodes)})
        case ReplicasNominated():
            yield _because_of(cause, assignment=data.assignment)
            yield Result("selection", {"outcome": "nominated", data.node: f"until {data.until_us}"})
            yield Result("division", {data.node: str(data.replicas)})
        case BindingReleased():
            yield _because_of(cause, binding=data.binding, uid=data.uid)
            yield Result("held", {**_counts(data.previous), **{f"component {name}": "" for name in data.former}})
            yield Result("selection", {"outcome": "released"})
        case ProposalRefused():
            yield _because_of(cause, proposal=data.proposal, kind=data.kind, target=data.target)
            detail = f" ({data.detail})" if data.detail else ""
            yield Result("selection", {"outcome": f"refused: {data.reason}{detail}"})
        case NodeRemovalDecided():
            yield _because_of(cause, proposal=data.proposal, reason=data.reason)
            yield Result("selection", {"outcome": "removed", data.node: ""})
        case NodeClaimRequested():
            yield _because_of(cause, command=data.command)
            yield Result("request", {"requests": _text(canonical(data.requests)), "until": str(data.until_us)})
            yield _filtered(data.explanation, {"ceiling": str(data.ceiling)})
            types = {name: str(place) for place, name in enumerate(data.instance_types)}
            yield Result("estimate", {"price": str(data.price), **types})
            made_of = {"requirements": _text(canonical(data.requirements)), "taints": _text(canonical(data.taints))}
            yield Result("selection", {"outcome": "claimed", data.pool: "", data.claim: "", **made_of})
            yield Result("division", {binding: str(count) for binding, count in data.replicas.items()})
            yield Result("explanation", {"note": data.explanation.note})
        case NodeClaimEnded():
            yield _because_of(cause, claim=data.claim)
            yield Result("selection", {"outcome": data.outcome, data.node: data.instance_type, "reason": data.reason})
            yield Result("estimate", {"price": str(data.price)})
        case DisruptionDecided():
            yield _because_of(cause, proposal=data.proposal, method=data.method)
            yield Result("filter", {"why": data.explanation.note})
            yield Result("estimate", {node.name: f"{node.price} {node.disruption}" for node in data.nodes})
            yield Result("score", {"saving": str(data.saving), "disruption": str(data.disruption)})
            nodes = {node.name: node.instance_type for node in data.nodes}
            yield Result(
                "selection", {"outcome": "disrupted", **nodes, **{f"claim {name}": "" for name in data.claims}}
            )
            yield Result("division", {f"{m.binding} {m.ordinal}": f"{m.source} to {m.target}" for m in data.moves})
            yield Result("explanation", {"reason": data.reason, "until": str(data.until_us)})
        case DisruptionEnded():
            yield _because_of(cause, command=data.command)
            yield Result(
                "selection", {"outcome": data.outcome, "reason": data.reason, **dict.fromkeys(data.removed, "")}
            )
            yield Result("score", {"predicted": str(data.predicted), "realised": str(data.realised)})
            yield Result("division", {"moved": str(data.moved)})
        case PlanCommitted():
            yield _because_of(cause, plan=data.plan)
            yield Result("request", {"steps": str(data.steps)})
            yield Result("selection", {"outcome": "committed"})
        case PlanRefused():
            yield _because_of(cause, plan=data.plan)
            yield Result("held", dict.fromkeys(data.changed, ""))
            yield Result("selection", {"outcome": f"refused: {data.reason}", "about": data.subject, **_outcomes(data)})
        case ClusterSilenced():
            yield _because_of(cause, cluster=data.cluster, silent_since_us=str(data.silent_since_us))
            yield Result("selection", {"outcome": "silenced"})
        case PlacementDecided():
            yield from _selected(data, cause)
        case FailoverHeld() | FailoverResumed():
            yield Result("filter", {"silent": str(data.silent), "clusters": str(data.clusters)})
            yield Result("selection", {"outcome": "held" if isinstance(data, FailoverHeld) else "resumed"})
        case _:
            yield _because_of(cause)
            fields = {name: _text(canonical(getattr(data, name))) for name in data.__struct_fields__}
            yield Result("selection", {"outcome": type(data).__name__, **fields})


def _scheduled(data: ScheduleDecided | ScheduleRefused, cause: UUID | None) -> Iterator[Result]:
    """Of the fleet stage: `stages.fleet.places` in its order."""
    why, targets = data.explanation, _counts(data.targets)
    move = {"move": data.move} if isinstance(data, ScheduleDecided) and data.move else {}
    yield _because_of(cause, trigger=data.trigger, **move)
    components = data.components if isinstance(data, ScheduleDecided) else ()
    sets = {f"component {c.name}": f"{c.replicas} of {c.requirements.class_key}" for c in components}
    gone = {f"former component {name}": "" for name in data.former}
    yield Result("request", {**_asked(data.uid, data.replicas, data.priority, data.requirements), **sets, **gone})
    yield Result("held", _counts(data.previous))
    yield _filtered(why, {"affinity": data.affinity})
    named = (*why.chosen, *why.runners_up)
    yield Result("estimate", {c.name: f"{c.estimate} ({c.estimated_by or 'unknown'})" for c in named}, sampled=True)
    yield Result("score", {c.name: str(c.score) for c in named}, sampled=True)
    came_of_it, suspect = _outcome(data)
    yield Result("selection", {"outcome": came_of_it, **dict.fromkeys(targets, ""), **suspect})
    yield Result("division", {**targets, **{f"weight of {name}": str(n) for name, n in why.division.items()}})
    yield _rest(why)


def _selected(data: PlacementDecided, cause: UUID | None) -> Iterator[Result]:
    """Of the fleet stage: `stages.fleet.selections`."""
    why = data.explanation
    scores = {name: score for group in data.groups for name, score in group.scores.items()}
    yield _because_of(cause, trigger=data.trigger)
    yield _filtered(why, {})
    yield Result("score", {name: str(score) for name, score in scores.items()}, sampled=True)
    changes = {**{f"with {name}": "" for name in data.added}, **{f"without {name}": "" for name in data.removed}}
    about = {"generation": str(data.generation), "unscheduled": str(data.unscheduled)}
    said = {c.type: f"{c.status} {c.reason}: {c.message}" for c in data.conditions}
    yield Result("selection", {"outcome": "decided", **dict.fromkeys(scores, ""), **changes, **about, **said})
    parts = {"part": f"{data.part} of {data.parts}", "complete": str(data.complete)}
    groups = {f"group {g.index} {g.name}".rstrip(): ", ".join(g.scores) for g in data.groups}
    yield Result("division", {**groups, **parts})
    yield _rest(why)


def _outcome(data: ScheduleDecided | ScheduleRefused) -> tuple[str, dict[str, str]]:
    """What came of it, and which targets are silent."""
    if isinstance(data, ScheduleDecided):
        return "scheduled", {f"suspect {name}": "" for name in data.suspect}
    note = data.explanation.note
    return f"refused: {data.reason}{f' ({note})' if note else ''}", {}


def _outcomes(data: PlanRefused) -> dict[str, str]:
    both = {"expected": data.expected, "found": data.found}
    return {name: _text(canonical(outcome)) for name, outcome in both.items() if outcome is not None}


def _placed(data: ReplicasPlaced, cause: UUID | None) -> Iterator[Result]:
    """Of the cluster stage: `engine.nodes.place`, then who of the binding's replicas goes where."""
    why = data.explanation
    yield Result("trigger", {"assignment": data.assignment, "cause": _because(cause)})
    yield Result("request", {"class": data.requirements.class_key})
    yield _filtered(why, {})
    named = (*why.chosen, *why.runners_up)
    yield Result("score", {node.name: str(node.score) for node in named}, sampled=True)
    yield Result("selection", {"outcome": "placed", **{share.node: "" for share in data.placed}})
    yield from _shared(data.placed, {})
    yield _rest(why)


def _shared(shares: Sequence[NodeShare], besides: Mapping[str, str]) -> Iterator[Result]:
    yield Result("division", {**{share.node: str(len(share.ordinals)) for share in shares}, **besides})
    order = {"nodes in order": ", ".join([share.node for share in shares])}
    yield Result("ordinals", {**{share.node: _ordinals(share.ordinals) for share in shares}, **order})
    yield Result(
        "devices",
        {
            f"{share.node} #{ordinal}": " ".join([f"{index}:{milli}m" for index, milli in devices])
            for share in shares
            for ordinal, devices in zip(share.ordinals, share.devices, strict=False)
        },
    )


def _filtered(why: Explanation, besides: Mapping[str, str]) -> Result:
    counts = {"candidates": str(why.candidates), "feasible": str(why.feasible)}
    return Result("filter", {**besides, **counts, **{reason: str(n) for reason, n in sorted(why.refused.items())}})


def _rest(why: Explanation) -> Result:
    """What is only told, and decides nothing: who is named, and the sentence for people."""
    names = {"chosen": why.chosen, "runners-up": why.runners_up}
    told = {k: ", ".join([c.name for c in v]) for k, v in names.items()}
    sets = {"failover": _text(canonical(why.failover))} if why.failover is not None else {}
    return Result("explanation", {**told, "note": why.note, **sets, **({"why": why.why} if why.why else {})})


def _because_of(cause: UUID | None, **why: str) -> Result:
    return Result("trigger", {**why, "cause": _because(cause)})


def _because(cause: UUID | None) -> str:
    return "time" if cause is None else str(cause)


def _asked(uid: str, replicas: int, priority: int, requirements: Requirements) -> dict[str, str]:
    asked = {"uid": uid, "replicas": str(replicas), "priority": str(priority), "class": requirements.class_key}
    return {**asked, **{name: str(amount) for name, amount in sorted(requirements.requests.items())}}


def _counts(targets: Sequence[TargetCluster]) -> dict[str, str]:
    return {target.cluster: str(target.replicas) for target in targets}


def _ordinals(numbers: Sequence[int]) -> str:
    """`0-3 7`: runs of neighbours as they stand."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return " ".join(["-".join(map(str, run)) for run in runs])


def _first_byte(a: bytes, b: bytes) -> int:
    return next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _text(body: bytes) -> str:
    return body.decode(errors="replace")


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_LENGTH else text[: VALUE_LENGTH - 3] + "..."
