"""The feed against the streams: dense, each position one decision's, each decision's position, no
effect before its cause, and correlations that lead back to the first cause.

Only counted and compared here: that the decisions are what they were is for the chains. What has no
position yet is no error, because the publisher gives it in its turn; what was published without one
is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from wharfinger.events.streams import INTAKE
from wharfinger.runtime.ledger.chain import BadRow, bad_row
from wharfinger.runtime.ledger.database import Raw

FEED = "feed"
"""What a bad row of it is named after, in the place of a stream; its place is a position."""

_RUNS = """
select f.first_position, f.stream, s.name, f.first_seq, f.count, octet_length(f.correlations),
    f.at_us, r.at_us, s.seq, coalesce(h.seq, 0)
from feed f left join stream s on s.id = f.stream left join horizon h on h.stream = f.stream
left join decision d on d.stream = f.stream and d.seq = f.first_seq + f.count - 1
    and d.day = (f.at_us / 86400000000)::int
left join round r on r.stream = d.stream and r.number = d.round and r.day = d.day
order by f.first_position
"""

_PUBLISHED = """
select s.name, s.seq, coalesce(h.seq, 0), coalesce(c.seq, 0) from stream s
left join horizon h on h.stream = s.id
left join (select stream, max(seq) as seq from cursor group by stream) c on c.stream = s.name
order by s.name
"""

# A fact is named by its event, a decision by its own id. A cause that has no position came from
# outside, or was retired. The decisions of each run are read by their key: joined freely, all of
# the stream may be compared with each of its runs.
CAUSES = f"""
with placed as materialized (
    select f.first_position + d.seq - f.first_seq as position,
        case when s.name = '{INTAKE}' then d.cause else d.id end as id,
        case when s.name <> '{INTAKE}' then d.cause end as cause,
        substr(f.correlations, ((d.seq - f.first_seq) * 16 + 1)::int, 16) as correlation
    from feed f join stream s on s.id = f.stream
    cross join lateral (
        select d.id, d.seq, d.cause from decision d
        where d.stream = f.stream and d.seq >= f.first_seq and d.seq < f.first_seq + f.count
            and d.day = (f.at_us / 86400000000)::int
        offset 0
    ) d
)
select e.position, e.id, e.cause, e.correlation, c.position, c.correlation
from placed e left join placed c on c.id = e.cause
where c.position >= e.position or e.correlation <> coalesce(c.correlation,
    case when $1 and e.cause is not null then e.correlation
        else uuid_send(coalesce(e.cause, e.id)) end)
order by e.position limit 1
"""


async def verify_feed(raw: Raw) -> BadRow | None:
    """The first row that is wrong, as of the moment that `raw` reads."""
    try:
        through = await _runs(raw)
        await _complete(raw, through)
        await _causes(raw)
    except BadRow as caught:
        return caught
    return None


async def _runs(raw: Raw) -> Mapping[str, int]:
    """Dense, and in each stream one after the other. The last seq of each that has a position."""
    head = await raw.fetchrow("select position, earliest from feed_head")
    if head is None:
        raise bad_row(FEED, 0, 0, "feed: head", "its row", "missing")
    position, earliest = head
    expected, through = 1, dict[str, int]()
    for first, id_, name, first_seq, size, octets, at, of_round, last, retired in await raw.fetch(
        _RUNS
    ):
        # what is wholly retired is taken away
        if first != expected and not expected < first <= earliest:
            raise bad_row(FEED, 0, first, "feed: first position", expected, first)
        if name is None:
            raise bad_row(FEED, 0, first, "feed: stream", "a stream of decisions", id_)
        begun: int = through.get(name, min(retired, first_seq - 1))
        for what, wanted, found in (
            (f"feed: seq of {name}", begun + 1, first_seq),
            ("feed: correlations", f"{16 * size} bytes", f"{octets} bytes"),
            ("feed: count", "at least 1", size if size < 1 else "at least 1"),
        ):
            if wanted != found:
                raise bad_row(FEED, 0, first, what, wanted, found)
        through[name] = first_seq + size - 1
        if through[name] > last:
            raise bad_row(FEED, 0, first, f"feed: seq of {name}", f"at most {last}", through[name])
        if through[name] > retired and of_round != at:
            raise bad_row(FEED, 0, first, "feed: time", of_round, at)
        expected = first + size
    if position != expected - 1 and not (expected - 1 < position < earliest):
        raise bad_row(FEED, 0, position, "feed: head", expected - 1, position)
    return through


async def _complete(raw: Raw, through: Mapping[str, int]) -> None:
    """What was published had its position. A ledger without any has not been numbered yet."""
    if not through:
        return
    for name, _, retired, published in await raw.fetch(_PUBLISHED):
        given = max(through.get(name, 0), retired)
        if given < published:
            raise bad_row(
                name, 0, given + 1, "feed", f"a position: published through {published}", "none"
            )


async def _causes(raw: Raw) -> None:
    retired = await raw.fetchrow("select exists (select from horizon)")
    row = await raw.fetchrow(CAUSES, retired is not None and retired[0])
    if row is None:
        return
    position, id_, cause, correlation, caused_at, of_cause = row
    if caused_at is not None and caused_at >= position:
        raise bad_row(FEED, 0, position, "feed: cause", f"a position before {position}", caused_at)
    wanted = _text(of_cause) if of_cause is not None else str(cause or id_)
    raise bad_row(FEED, 0, position, "feed: correlation", wanted, _text(correlation))


def _text(correlation: Sequence[int] | bytes) -> str:
    data = bytes(correlation)
    return str(UUID(bytes=data)) if len(data) == 16 else data.hex()
