"""What is to be replayed, cut into ranges that can be replayed independently: one or more a stream,
a long stream being cut at its snapshots.

A range begins at a whole snapshot, or at the genesis of its stream. Where a second range begins at
the end of a first, the first must end in exactly the state of that snapshot. So a
snapshot between two ranges is itself verified by the first of them, and the ranges together prove
as much as one replay from the first to the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wharfinger.kernel.decider import Micros
from wharfinger.kernel.round import Head
from wharfinger.runtime.ledger import Ledger, LedgerError, rounds
from wharfinger.runtime.ledger.heads import selected
from wharfinger.runtime.ledger.snapshot_points import Start, starts

NAMED_MAX = 5


class RangeError(LedgerError):
    """There is no such range: one line that says what there is."""


@dataclass(frozen=True, slots=True)
class ReplayRange:
    """Which rounds are wanted: of the stream `prefix`, or of all whose names begin with it. Rounds
    are numbers of each stream; `since` and `until` are times, both included. None: from the
    beginning, or to the end."""

    prefix: str = ""
    from_round: int | None = None
    to_round: int | None = None
    since: Micros | None = None
    until: Micros | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """Rounds `first` to `last` of a stream, to be decided again and compared, from the snapshot
    after round `start` (0: the genesis). The rounds between `start` and `first` are recovered, not
    compared. `weight`: an estimate of the work. `arrives`: the digest that the state at the end
    must have; empty: no other range begins there."""

    stream: str
    start: int
    first: int
    last: int
    weight: int
    arrives: bytes = b""

    @property
    def rounds(self) -> int:
        return self.last - self.first + 1


async def ranges_of(
    ledger: Ledger, asked: ReplayRange, deciding: Iterable[str], parts: int = 1
) -> list[Range]:
    """`deciding`: prefixes of the streams that decide anything. `parts`: how many would like to
    work at once.

    RangeError: no such stream, round or time.
    """
    prefixes = tuple(deciding)
    heads = {head.stream: head for head in await ledger.heads() if head.stream.startswith(prefixes)}
    wanted = selected(list(heads), asked.prefix)
    if not wanted and asked.prefix:
        raise RangeError(
            f"no stream of decisions is named {asked.prefix} or begins with it; "
            f"there {_are(list(heads))}"
        )
    bases = await rounds.bases(ledger.database)
    bounds: dict[str, tuple[int, int]] = {}
    for name in wanted:
        base = bases[name].round if name in bases else 0
        if (bound := await _bound(ledger, heads[name], base, asked)) is not None:
            bounds[name] = bound
    if wanted and not bounds:
        raise RangeError(_nothing_there(asked, [heads[name] for name in wanted]))
    stored = await starts(ledger.database, bounds)
    whole = sum([_weight(heads[name].round, heads[name].seq) for name in bounds])
    found: list[Range] = []
    for name, (first, last) in bounds.items():
        begin = _begin(name, first, stored[name], bases.get(name))
        goal = max(1, whole // parts) if parts > 1 else 0
        found += cut(heads[name], first, last, begin, stored[name], goal)
    return found


def shares_of(ranges: Sequence[Range], workers: int) -> list[list[Range]]:
    """Longest processing time first: each range, the heaviest first, goes to the worker with the
    least work. The shares are about equal, and the same on every run."""
    shares: list[tuple[int, list[Range]]] = [(0, []) for _ in range(min(workers, len(ranges)))]
    for piece in sorted(ranges, key=lambda r: (-r.weight, r.stream, r.first)):
        least = min(range(len(shares)), key=lambda place: shares[place][0])
        load, mine = shares[least]
        mine.append(piece)
        shares[least] = (load + piece.weight, mine)
    return [mine for _, mine in shares]


async def _bound(
    ledger: Ledger, head: Head, base: int, asked: ReplayRange
) -> tuple[int, int] | None:
    """The first and last wanted round of the stream; None: it has no wanted round. The rounds up to
    `base` were retired."""
    first, last = asked.from_round or 1, head.round
    if asked.since is not None:
        first = max(first, await ledger.round_at(head.stream, asked.since - 1) + 1)
    if first <= base:
        if asked.from_round is not None or asked.since is not None:
            raise RangeError(
                f"{head.stream}: the rounds up to {base} were retired, "
                f"its history begins at round {base + 1}"
            )
        first = base + 1
    if asked.to_round is not None:
        last = min(last, asked.to_round)
    if asked.until is not None:
        last = min(last, await ledger.round_at(head.stream, asked.until))
    return (first, last) if first <= last else None


def _begin(stream: str, first: int, stored: Sequence[Start], base: Head | None) -> Start:
    """The last whole snapshot before round `first`, or the genesis, where the stream still has
    one."""
    before = [
        start
        for start in stored
        if start.round < first and (base is None or start.round >= base.round)
    ]
    if not before and base is not None:
        raise RangeError(
            f"{stream}: there is no snapshot to begin at before round {first}, "
            "and its genesis was retired"
        )
    return before[-1] if before else Start(0, 0, b"")


def cut(
    head: Head, first: int, last: int, begin: Start, stored: Sequence[Start], goal: int
) -> list[Range]:
    """Cut a stream, from `begin` on, at snapshots about `goal` of work apart; 0: one piece."""
    cuts = _spaced([s for s in stored if first <= s.round < last], begin, goal) if goal else []
    end = _weight(head.round, head.seq)
    pieces: list[Range] = []
    for start, until in zip([begin, *cuts], [*cuts, None], strict=True):
        upto, weight = (
            (last, end) if until is None else (until.round, _weight(until.round, until.seq))
        )
        arrives = b"" if until is None else until.digest
        judged = max(first, start.round + 1)
        pieces.append(
            Range(
                head.stream,
                start.round,
                judged,
                upto,
                weight - _weight(start.round, start.seq),
                arrives,
            )
        )
    return pieces


def _spaced(stored: Sequence[Start], begin: Start, goal: int) -> list[Start]:
    """Pieces of half the goal, so that unequal pieces can still be shared out equally."""
    kept, at = [], _weight(begin.round, begin.seq)
    for start in stored:
        weight = _weight(start.round, start.seq)
        if weight - at >= goal // 2:
            kept.append(start)
            at = weight
    return kept


def _weight(rounds: int, seq: int) -> int:
    """A round costs about as much as a decision besides those in it."""
    return rounds + seq


def _nothing_there(asked: ReplayRange, heads: Sequence[Head]) -> str:
    """Why not one stream has a round in the range: they all end before it, or begin after."""
    longest = max(heads, key=lambda head: head.round)
    name = (
        longest.stream
        if len(heads) == 1
        else f"the longest of {len(heads)} streams, {longest.stream},"
    )
    if asked.from_round is not None and asked.from_round > longest.round:
        return f"there is no round {asked.from_round}: {name} ends at round {longest.round}"
    if not longest.round:
        return f"nothing has been decided yet: {name} has no round"
    return f"there is no round between these two points: {name} has rounds 1 to {longest.round}"


def _are(names: Sequence[str]) -> str:
    if not names:
        return "are none yet"
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{'is' if len(names) == 1 else 'are'} {', '.join(sorted(names)[:NAMED_MAX])}{more}"
