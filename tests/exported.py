"""Parts of an export made of rounds that lie in memory, for tests that need no database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from wharfinger.history.deciders import decider_of
from wharfinger.history.export import ExportedStream
from wharfinger.history.export_file import StreamRange
from wharfinger.kernel.recover import RecordedRound, recover
from wharfinger.kernel.step import empty_head


def part_of(stream: str, recorded: Sequence[RecordedRound], first: int = 1) -> ExportedStream:
    """The rounds of a stream from `first` on, on the state that those before lead to."""
    head, sections = empty_head(stream), {}
    if first > 1:
        before = recorded[: first - 1]
        decider = decider_of(stream, before[-1].round.profile)
        assert decider is not None
        sections = decider.dump(recover(decider, decider.initial(stream), before))
        head = before[-1].round.head()
    wanted = recorded[first - 1 :]

    async def rounds() -> AsyncIterator[RecordedRound]:
        for one in wanted:
            yield one

    numbers = [r.round for r in wanted]
    about = StreamRange(
        stream,
        numbers[0].number,
        numbers[-1].number,
        numbers[0].at,
        numbers[-1].at,
        sum(len(r.inputs) for r in numbers),
        sum(len(r.decisions) for r in numbers),
        tuple(sorted({r.engine for r in numbers})),
        tuple(sorted({r.profile for r in numbers})),
    )
    return ExportedStream(about, head, sections, rounds)


def parts_of(
    by_stream: Mapping[str, Sequence[RecordedRound]], first: int = 1
) -> list[ExportedStream]:
    """Of every stream that has so many rounds."""
    return [
        part_of(name, rounds, first)
        for name, rounds in sorted(by_stream.items())
        if len(rounds) >= first
    ]
