"""A range of the history taken along as one file, and a file replayed where there is no ledger.

`export` copies rounds, bytes and hashes as they are. With a key it replaces every name first: the
inputs are renamed, the stages' own deciders decide them again under the new names, and what they
decide has to be what the ledger recorded, up to renaming. So a redacted file holds nothing that was
not computed from new names only, and a range for which that does not hold gives no file.
`export_file` is the format, `renaming` what becomes of names.

Both ways one round at a time is in memory, and the state of one stream. A redaction also keeps
every distinct name.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from wharfinger.domain.ids import Meaning
from wharfinger.domain.value import Value, canonical, json_decoder
from wharfinger.engine.nodes.columns import MissingTie, Ties
from wharfinger.events.codec import made
from wharfinger.events.decisions import ProposalEnd, as_decision, effect_of
from wharfinger.events.envelope import Event
from wharfinger.events.registry import BY_TYPE, EVENT_TYPES
from wharfinger.events.streams import CLUSTER, FLEET, INTAKE
from wharfinger.history.checkpoint import plane_id
from wharfinger.history.deciders import DECIDERS
from wharfinger.history.export_file import (
    Chain,
    FileError,
    FileRange,
    FileWriter,
    Header,
    StreamRange,
    opened,
    replacing,
)
from wharfinger.history.points import NOW, HistoryPoint, PointError, moment_of, round_of
from wharfinger.history.redaction import RedactionError, ValueWalk, subject_of
from wharfinger.history.renaming import Collector, Renamer, ties
from wharfinger.history.states import state_at
from wharfinger.kernel.audit import Audit, AuditResult
from wharfinger.kernel.decider import Decider, Decision
from wharfinger.kernel.divergence import round_difference
from wharfinger.kernel.hashing import genesis
from wharfinger.kernel.recover import RecordedRound
from wharfinger.kernel.round import Head
from wharfinger.kernel.step import ENGINE, step
from wharfinger.runtime.ledger import CorruptLedger, Ledger, ranges
from wharfinger.runtime.ledger.heads import selected
from wharfinger.runtime.replay import Deciders, ReplayResult, joined
from wharfinger.stages.cluster import ClusterDecider
from wharfinger.stages.cluster import state as cluster_state
from wharfinger.stages.cluster.preemption import PREEMPTED
from wharfinger.stages.fleet import saved

Rounds = Callable[[], AsyncIterator[RecordedRound]]
Progress = Callable[[int], object]
"""Called with the number of rounds done."""

SOURCE: Final = "/redacted"
"""The CloudEvents source of the events in a redacted file."""

NOTE: Final = (
    "Names were replaced by keyed hashes. Event ids are hashes of the old ones; "
    "decision ids are derived from the renamed streams; "
    "hashes of rounds and requirement classes follow from both. "
    "Envelopes keep type and id alone, rounds no basis."
)


@dataclass(frozen=True, slots=True)
class ExportedStream:
    """One stream of an export: `rounds` follow `head` on the state that `sections` hold (none: its
    beginning). They are read as often as they are asked for, decisions with their data."""

    about: StreamRange
    head: Head
    sections: Mapping[str, bytes]
    rounds: Rounds


@dataclass(frozen=True, slots=True)
class Exported:
    """`bytes`: of the file. `replayed`: the proof that a redacted file replays; None where names
    are as they were."""

    path: Path
    bytes: int
    header: Header
    replayed: ReplayResult | None = None


@dataclass(frozen=True, slots=True)
class FileReplay:
    """What a file said it was, and what came of deciding it again."""

    header: Header
    result: ReplayResult


# --- exporting


async def export(
    ledger: Ledger,
    path: Path,
    *,
    stream: str = "",
    begin: HistoryPoint | None = None,
    end: HistoryPoint | None = None,
    key: bytes | None = None,
    progress: Progress = lambda _: None,
) -> Exported:
    """Write the rounds from `begin` to `end` (None: all there are) of a stream, or of all deciding
    streams whose names begin with it, to `path`. `key`: replace names by hashes under it.

    PointError: no such stream, round or time. FileError: the range cannot be written, or not be
    read. RedactionError: its names cannot be replaced. In all these cases there is no file.
    """
    parts = [part async for part in _parts(ledger, stream, begin, end)]
    plane = await _plane(ledger)
    if key is None:
        return await write_plain(path, parts, plane, progress)
    return await write_redacted(path, parts, plane, key, progress)


async def write_plain(
    path: Path, parts: Sequence[ExportedStream], plane: str, progress: Progress = lambda _: None
) -> Exported:
    header = _header(parts, plane)
    with replacing(path) as (_, raw):
        writer = FileWriter(raw, str(path), header, shared=_shared(parts))
        for part in parts:
            writer.begin(part.head, part.sections)
            async for recorded in part.rounds():
                writer.add(recorded)
                progress(1)
        size = writer.finish()
    return Exported(path, size, header)


async def write_redacted(
    path: Path,
    parts: Sequence[ExportedStream],
    plane: str,
    key: bytes,
    progress: Progress = lambda _: None,
) -> Exported:
    if not key:
        raise RedactionError("the key is empty: with it everybody could try names out")
    collector = await _collected(parts, progress)
    renamer = Renamer(key, collector)
    values = ties(renamer, collector.names[Meaning.NODE])
    redactions = sorted(
        [_Redaction(renamer, values, part) for part in parts], key=lambda r: r.head.stream
    )
    about = tuple([_renamed_range(renamer, r.part.about) for r in redactions])
    header = Header(
        ENGINE, renamer.secret("plane", plane.encode()).hex(), True, NOTE, _schemas(), about
    )
    with replacing(path) as (beside, raw):
        writer = FileWriter(raw, str(path), header, values, _shared(parts))
        for redaction in redactions:
            writer.begin(redaction.head, redaction.sections)
            async for recorded in redaction.part.rounds():
                writer.add(redaction.round(recorded))
                progress(1)
        size = writer.finish()
        raw.flush()
        result = replay_file(beside).result
        if result.divergences:
            first = result.divergences[0]
            raise FileError(
                f"{path}: the redacted file does not replay: {first.stream} round {first.round}: "
                f"{first.step}"
            )
    return Exported(path, size, header, result)


def _header(parts: Sequence[ExportedStream], plane: str) -> Header:
    return Header(ENGINE, plane, False, "", _schemas(), tuple([part.about for part in parts]))


def _schemas() -> tuple[str, ...]:
    return tuple(sorted(BY_TYPE))


def _shared(parts: Sequence[ExportedStream]) -> frozenset[str]:
    """Several fleet shards take the same broadcast events in, and the intake has what any stage
    took in from it."""
    streams = [part.head.stream for part in parts]
    if INTAKE in streams and len(streams) > 1:
        return frozenset(_schemas())
    if sum(stream.startswith(FLEET) for stream in streams) > 1:
        return frozenset(
            e.type for e in EVENT_TYPES if e.topic is not None and e.topic.delivery == "broadcast"
        )
    return frozenset()


# --- which rounds


async def _parts(
    ledger: Ledger, stream: str, begin: HistoryPoint | None, end: HistoryPoint | None
) -> AsyncIterator[ExportedStream]:
    heads = {head.stream: head for head in await ledger.heads()}
    names = _wanted(heads, stream)
    found = False
    for name in names:
        alone = len(names) == 1
        first = await _first(ledger, heads[name], begin, alone)
        last = await _last(ledger, heads[name], end, alone)
        summary = await ranges.summary(ledger.database, name, first, last)
        if summary is not None:
            found = True
            if begin is not None and summary.first > first:
                raise PointError(
                    f"{name}: the rounds before {summary.first} were retired, "
                    f"round {first} is not there"
                )
            about = StreamRange(
                name,
                summary.first,
                summary.last,
                summary.first_at,
                summary.last_at,
                summary.inputs,
                summary.decisions,
                summary.engines,
                summary.profiles,
            )
            yield await _part(ledger, about)
    if not found:
        raise PointError("there is no round in this range: nothing to export")


def _wanted(heads: Mapping[str, Head], stream: str) -> list[str]:
    """The intake decides nothing; it is there for those who name it."""
    names = [
        name
        for name in selected(list(heads), stream)
        if name.startswith((FLEET, CLUSTER)) or name == stream
    ]
    if not names:
        raise PointError(
            f"no stream is named {stream} or begins with it"
            if stream
            else "the ledger has no stream yet"
        )
    return names


async def _first(ledger: Ledger, head: Head, begin: HistoryPoint | None, alone: bool) -> int:
    """The first round wanted; one beyond the head, when it is none."""
    if begin is None:
        return await ranges.first_round(ledger.database, head.stream) or 1
    if begin.round is not None and begin.stream in ("", head.stream):
        return max(
            1,
            begin.round
            if not alone and not begin.stream
            else await round_of(ledger, head.stream, begin),
        )
    at = await moment_of(ledger, begin)
    return head.round + 1 if at is None else await ledger.round_at(head.stream, at - 1) + 1


async def _last(ledger: Ledger, head: Head, end: HistoryPoint | None, alone: bool) -> int:
    if end is None or end.text == NOW:
        return head.round
    if end.round is not None and not end.stream and not alone:
        return min(end.round, head.round)
    return min(await round_of(ledger, head.stream, end), head.round)


async def _part(ledger: Ledger, about: StreamRange) -> ExportedStream:
    stream, before = about.stream, about.first - 1
    head = await ledger.head_at(stream, before)
    sections: Mapping[str, bytes] = {}
    if before and maker(DECIDERS, stream) is not None:
        try:
            state = await state_at(ledger, stream, HistoryPoint("", stream, before))
        except CorruptLedger as error:
            raise FileError(
                f"{stream}: there is no snapshot from which round {about.first} could begin: "
                f"{error}"
            ) from None
        sections = state.decider.dump(state.state)
    return ExportedStream(
        about, head, sections, lambda: ledger.recorded_rounds(stream, about.first, about.last)
    )


async def _plane(ledger: Ledger) -> str:
    """Which plane it is; empty while nothing was ever accepted, or where the intake's first round
    is gone."""
    first = await ranges.first_round(ledger.database, INTAKE)
    return plane_id((await ledger.head_at(INTAKE, 1)).hash) if first == 1 else ""


# --- redacting


async def _collected(parts: Sequence[ExportedStream], progress: Progress) -> Collector:
    """The first pass: every name there is, and nothing that redaction could not hide."""
    collector = Collector()
    walk = ValueWalk(collector)
    for part in parts:
        stream = part.head.stream
        if maker(DECIDERS, stream) is None:
            raise RedactionError(
                f"{stream} decides nothing: what it holds cannot be shown to be the same under "
                "new names"
            )
        walk.text(Meaning.STREAM, stream)
        with_sections = {name: _decoded(stream, name, body) for name, body in part.sections.items()}
        for name, value in with_sections.items():
            _named(
                f"{stream} before round {part.about.first}, section {name}",
                partial(walk.value, value),
            )
        chain = Chain(part.head)
        async for recorded in part.rounds():
            r = recorded.round
            if (why := chain.broken(r)) is not None:
                raise FileError(
                    f"{stream} round {r.number}: {why}; `wharfinger audit verify` says more"
                )
            for event in recorded.events:
                collector.event(event)
                _named(
                    f"{stream} round {r.number}, {event.type} {event.subject}",
                    partial(walk.value, event.data),
                )
            for d in r.decisions:
                if as_decision(d.data).ABOUT == "plan":
                    # the id of a commitment is the cause of what follows in the round
                    collector.decisions[d.id] = (stream, d.seq)
                _named(
                    f"{stream} round {r.number}, decision {d.seq} on {d.subject}",
                    partial(walk.value, d.data),
                )
            progress(1)
    return collector


def _named(what: str, walk: Callable[[], object]) -> None:
    try:
        walk()
    except RedactionError as error:
        raise RedactionError(f"{what}: {error}; this range cannot be redacted") from None


def _decoded(stream: str, section: str, body: bytes) -> object:
    kinds: Mapping[str, object] = (
        saved.SECTIONS if stream.startswith(FLEET) else cluster_state.SECTIONS
    )
    kind = kinds.get(section)
    if kind is None:
        raise RedactionError(
            f"{stream}: redaction does not know the section {section} of its state"
        )
    return json_decoder(cast(type[object], kind)).decode(body)


class _Redaction:
    """One stream being decided again under new names, and held against what was recorded under the
    old ones."""

    def __init__(self, renamer: Renamer, values: Ties, part: ExportedStream) -> None:
        self.part = part
        self._names = renamer
        self._walk = ValueWalk(renamer)
        old = part.head
        stream = renamer.text(Meaning.STREAM, old.stream)
        start = genesis(stream) if not old.round else renamer.secret("head", old.hash)
        self.head = Head(stream, old.round, old.seq, start, old.epoch, old.at)
        self.sections = {
            name: canonical(self._walk.value(_decoded(old.stream, name, body)))
            for name, body in part.sections.items()
        }
        make = maker(deciders_of(values), stream)
        assert make is not None, "collected only where somebody decides"
        self._make = make
        self._decider: Decider[Any] = make(part.about.profiles[0])
        self._state: Any = None
        self._at = self.head

    def round(self, recorded: RecordedRound) -> RecordedRound:
        """RedactionError: something else was decided."""
        r = recorded.round
        self._under(r.profile)
        inputs = [self._event(event) for event in recorded.events]
        head = self._at
        base = Head(head.stream, head.round, head.seq, head.hash, r.epoch, head.at)
        again = step(self._decider, self._state, base, inputs, r.at, {}, engine=r.engine)
        self._compare(r.number, r.decisions, again.decisions)
        self._at = again.head()
        return RecordedRound(again, inputs)

    def _under(self, profile: str) -> None:
        """The decider of the round's profile. A new one loads the state that the old one left, as a
        new process would."""
        if self._state is None:
            self._decider = self._make(profile)
            stream = self.head.stream
            self._state = (
                self._decider.load(stream, self.sections)
                if self.head.round
                else self._decider.initial(stream)
            )
        elif self._decider.profile != profile:
            changed = self._make(profile)
            self._state = changed.load(self.head.stream, self._decider.dump(self._state))
            self._decider = changed

    def _event(self, event: Event[Value]) -> Event[Value]:
        return made(
            self._walk.value(event.data),
            id=self._names.id(event.id),
            source=SOURCE,
            subject="",
            version=event.version,
        )

    def _compare(
        self, number: int, recorded: Sequence[Decision], again: Sequence[Decision]
    ) -> None:
        renamed = [self._decision(d) for d in recorded]
        unremarked = [_unremarked(d) for d in again]
        found = round_difference([_unremarked(d) for d in renamed], unremarked)
        if found is not None:
            raise RedactionError(
                f"{self.part.head.stream} round {number}: decided again under new names, "
                f"decision {found.seq} differs "
                f"({found.step}): nothing was written"
            )

    def _decision(self, d: Decision) -> Decision:
        """As it has to come out."""
        data = self._walk.value(d.data)
        cause = d.cause
        # The id of a fleet decision says no name: that which the replicas came with, or that for
        # which they had to go.
        preempted = getattr(d.data, "reason", "") == PREEMPTED
        if cause is not None and getattr(d.data, "assignment", "") != str(cause) and not preempted:
            cause = self._names.id(cause)
        subject = self._walk.text(subject_of(d.data), d.subject)
        id = self._names.decision(d.stream, d.seq, str(d.id))
        return msgspec.structs.replace(
            d,
            stream=self.head.stream,
            id=UUID(id),
            subject=subject,
            cause=cause,
            data=data,
            body=canonical(data),
        )


def _unremarked(d: Decision) -> Decision:
    """Without what is said to people: that was put into words again."""
    data = d.data
    explanation = getattr(data, "explanation", None)
    if explanation is not None and (explanation.note or explanation.why):
        data = msgspec.structs.replace(
            data, explanation=msgspec.structs.replace(explanation, note="", why="")
        )
    elif isinstance(no := effect_of(data), ProposalEnd) and no.detail:
        data = msgspec.structs.replace(data, detail="")
    return d if data is d.data else msgspec.structs.replace(d, data=data, body=canonical(data))


def _renamed_range(renamer: Renamer, about: StreamRange) -> StreamRange:
    return msgspec.structs.replace(about, stream=renamer.text(Meaning.STREAM, about.stream))


# --- replaying


def replay_file(
    path: Path, on_stream: Callable[[AuditResult], object] = lambda _: None
) -> FileReplay:
    """Verify the file, and decide all of it again. `on_stream` hears of each stream done.

    FileError: it is not there, no such file, damaged, newer than we are, or its rounds do not
    follow each other.
    """
    began = time.perf_counter()
    results: list[AuditResult] = []
    with opened(path) as file:
        deciders = deciders_of(file.ties)
        for part in file.ranges():
            make = maker(deciders, part.head.stream)
            if make is not None:
                results.append(_replayed(path, part, make))
                on_stream(results[-1])
        return FileReplay(file.header, joined(results, time.perf_counter() - began))


def _replayed(path: Path, part: FileRange, make: Callable[[str], Decider[Any]]) -> AuditResult:
    stream = part.head.stream
    try:
        decider = make("")
        state = decider.load(stream, part.sections) if part.head.round else decider.initial(stream)
        audit = Audit(decider, state, part.head, make)
        for recorded in part.rounds:
            audit.replay(recorded)
    except (msgspec.MsgspecError, KeyError) as error:
        raise FileError(
            f"{path}: the state of {stream} before round {part.head.round + 1} cannot be read: "
            f"{error}"
        ) from None
    except MissingTie as error:
        raise FileError(f"{path}: {stream}: {error}") from None
    return audit.result


def deciders_of(values: Ties | None) -> Deciders:
    """Who decides the streams of a file; `values`: its tie values, where names were replaced."""
    if values is None:
        return DECIDERS
    return {**DECIDERS, CLUSTER: partial(ClusterDecider.of_profile, ties=values)}


def maker(deciders: Deciders, stream: str) -> Callable[[str], Decider[Any]] | None:
    return next((make for prefix, make in deciders.items() if stream.startswith(prefix)), None)


__all__ = [
    "Exported",
    "ExportedStream",
    "FileReplay",
    "deciders_of",
    "export",
    "replay_file",
    "write_plain",
    "write_redacted",
]
