"""Subscriptions of webhooks, how far each receiver has come, and what was delivered to it.

A subscription belongs to the process that delivers it, which renews a lease. Its position and the
deliveries that follow from it are written in one transaction, so that a process that ends anywhere
leaves no gap. What a process records is refused once another one has the lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec

from wharfinger.domain.value import json_decoder
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.database import Database, Raw, Record
from wharfinger.runtime.ledger.feed import FeedFilter

LEASE_S = 5
KEPT_US = 30 * 24 * 3600 * 1_000_000
"""How long a delivery that has ended is kept."""

OLD_SECRET_S = 24 * 3600
"""How long the secret of before signs beside a new one."""

SEEN_S = 30 * 24 * 3600
"""How long a subscription holds whose maker has no token and does not come again: groups that it
came with are not asked for elsewhere."""

SEEN_EVERY_S = 24 * 3600
"""How often it is written down that a maker came again with the same groups."""

SUBSCRIPTIONS_MAX = 200
REMOVED_AT_ONCE = 10_000

WebhookState = Literal["active", "paused", "broken", "ended"]
"""`paused`: by its maker. `broken`: its receiver fails, and is asked once a minute. `ended`: its
receiver wants no more, its maker may no longer read, or the feed was retired before it was read."""

DeliveryState = Literal["waiting", "delivered", "dead"]
Ordering = Literal["key", "all", "none"]

_NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_COLUMNS = (
    "id, name, url, filter, ordering, secret, "
    f"case when old_until_us > {_NOW} then old_secret else ''::bytea end, made_by, namespaces, "
    "token, maker, seen_at_us, made_at_us, version, state, why, position, sequence, failures, "
    "probe_at_us"
)
_DELIVERY = (
    "sequence, position, event, key, state, tries, next_at_us, changed_at_us, status, error, "
    "answer, latency_us"
)
_MINE = "id = $1 and owner = $2"


class WebhookMaker(msgspec.Struct, frozen=True):
    """Who has made a subscription without a token of the plane: the way in, the name, and the
    groups of the last time."""

    way: str
    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Webhook:
    """`secret`, `old_secret`: sealed; the old one is empty where it signs no more. `namespaces`: of
    its maker; empty: all. `token`: SHA-256 of the token it was made with; empty: `maker` has made
    it, and came last at `seen_at`. `version`: of what its maker has set. `position`: the feed was
    looked at up to here. `sequence`: of its newest delivery. `failures`: in a row."""

    id: UUID
    name: str
    url: str
    filter: FeedFilter
    ordering: Ordering
    secret: bytes
    old_secret: bytes
    made_by: str
    namespaces: tuple[str, ...]
    token: bytes
    maker: WebhookMaker | None
    seen_at: Micros
    made_at: Micros
    version: int
    state: WebhookState
    why: str
    position: int
    sequence: int
    failures: int
    probe_at: Micros

    @property
    def holds_until(self) -> Micros | None:
        """None: as long as its token."""
        return None if self.maker is None else self.seen_at + SEEN_S * 1_000_000


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event to one receiver. `key`: events of the same key are delivered in order. `status`: of
    the last answer; 0: there was none. `answer`: its first bytes."""

    sequence: int
    position: int
    event: UUID
    key: str
    state: DeliveryState
    tries: int
    next_at: Micros
    changed_at: Micros
    status: int
    error: str
    answer: bytes
    latency_us: int


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """What came of one try. `wait_s`: seconds until the next one, of a delivery that still
    waits."""

    sequence: int
    state: DeliveryState
    tries: int
    wait_s: float
    status: int
    error: str
    answer: bytes
    latency_us: int


class WaitingDeliveries(NamedTuple):
    """`total`: that wait, due or not. `now`: the time of the database. `next_at`: when the next one
    becomes due that is not; None: there is none."""

    due: list[Delivery]
    total: int
    now: Micros
    next_at: Micros | None


def filter_bytes(wanted: FeedFilter) -> bytes:
    return msgspec.json.encode(
        {one.name: value for one in fields(wanted) if (value := getattr(wanted, one.name))}
    )


# --- what its maker does


async def make(
    database: Database,
    id_: UUID,
    name: str,
    url: str,
    wanted: FeedFilter,
    ordering: Ordering,
    secret: bytes,
    made_by: str,
    namespaces: Sequence[str],
    token: bytes,
    position: int,
    *,
    maker: WebhookMaker | None = None,
    owner: UUID | None = None,
) -> Webhook | None:
    """`maker`: where there is no token. `owner`: the process that has it first. None: there are as
    many as there may be."""
    async with database.transaction() as transaction:
        raw = transaction.raw
        await raw.execute("select pg_advisory_xact_lock(hashtext('wharfinger.webhooks'))")
        count = await raw.fetchrow("select count(*) from subscription")
        if count is None or int(count[0]) >= SUBSCRIPTIONS_MAX:
            return None
        row = await raw.fetchrow(
            "insert into subscription (id, name, url, filter, ordering, secret, old_secret, "
            "old_until_us, made_by, namespaces, token, made_at_us, version, state, why, position, "
            "sequence, failures, probe_at_us, maker, seen_at_us, owner, lease_until_us) values "
            f"($1, $2, $3, $4, $5, $6, '', 0, $7, $8, $9, {_NOW}, 1, 'active', '', $10, 0, 0, 0, "
            f"$11, case when $11 = ''::bytea then 0 else {_NOW} end, $12, "
            f"{_NOW} + {LEASE_S} * 1000000) returning {_COLUMNS}",
            id_,
            name,
            url,
            filter_bytes(wanted),
            ordering,
            secret,
            made_by,
            sorted(namespaces),
            token,
            position,
            _maker_bytes(maker),
            owner,
        )
    assert row is not None, "an insert returns its row"
    return _webhook(row)


async def webhooks(database: Database, made_by: str = "") -> list[Webhook]:
    """In order of time; those that `made_by` has made, where it is given."""
    async with database.reading() as raw:
        rows = await raw.fetch(
            f"select {_COLUMNS} from subscription where ($1 = '' or made_by = $1) "
            "order by made_at_us, id",
            made_by,
        )
    return [_webhook(row) for row in rows]


async def webhook(database: Database, id_: UUID) -> Webhook | None:
    async with database.reading() as raw:
        row = await raw.fetchrow(f"select {_COLUMNS} from subscription where id = $1", id_)
    return None if row is None else _webhook(row)


async def change(
    database: Database,
    id_: UUID,
    version: int,
    name: str,
    url: str,
    wanted: FeedFilter,
    ordering: Ordering,
    paused: bool,
    owner: UUID | None = None,
) -> Webhook | None:
    """It goes on where it was, and what waits is tried at once. `owner`: the process that has it
    from now on, if it had ended. None: it is of another version."""
    async with database.transaction() as transaction:
        raw = transaction.raw
        row = await raw.fetchrow(
            "update subscription set name = $3, url = $4, filter = $5, ordering = $6, "
            "state = $7, why = '', failures = 0, probe_at_us = 0, version = version + 1, "
            "owner = case when state = 'ended' then $8 else owner end, "
            f"lease_until_us = case when state = 'ended' then {_NOW} + {LEASE_S} * 1000000 "
            "else lease_until_us end "
            f"where id = $1 and version = $2 returning {_COLUMNS}",
            id_,
            version,
            name,
            url,
            filter_bytes(wanted),
            ordering,
            "paused" if paused else "active",
            owner,
        )
        if row is not None:
            await _wake(raw, id_)
    return None if row is None else _webhook(row)


async def seen(database: Database, of: Webhook, maker: WebhookMaker) -> Webhook:
    """Its maker came again, perhaps with other groups. What it has set is of the same version."""
    async with database.transaction() as transaction:
        row = await transaction.raw.fetchrow(
            f"update subscription set maker = $2, seen_at_us = {_NOW} where id = $1 "
            "and maker <> ''::bytea and (maker <> $2 or "
            f"seen_at_us < {_NOW} - {SEEN_EVERY_S}::bigint * 1000000) returning {_COLUMNS}",
            of.id,
            _maker_bytes(maker),
        )
    return of if row is None else _webhook(row)


def _maker_bytes(maker: WebhookMaker | None) -> bytes:
    return b"" if maker is None else msgspec.json.encode(maker)


async def rotate(database: Database, id_: UUID, version: int, secret: bytes) -> Webhook | None:
    """The secret of before signs too for `OLD_SECRET_S`. None: it is of another version."""
    async with database.transaction() as transaction:
        row = await transaction.raw.fetchrow(
            "update subscription set old_secret = secret, secret = $3, "
            f"old_until_us = {_NOW} + {OLD_SECRET_S}::bigint * 1000000, version = version + 1 "
            f"where id = $1 and version = $2 returning {_COLUMNS}",
            id_,
            version,
            secret,
        )
    return None if row is None else _webhook(row)


async def remove(database: Database, id_: UUID, version: int) -> bool:
    """With its deliveries. False: it is of another version."""
    async with database.transaction() as transaction:
        raw = transaction.raw
        done = await raw.execute(
            "delete from subscription where id = $1 and version = $2", id_, version
        )
        if not done.endswith(" 1"):
            return False
        await raw.execute("delete from delivery where subscription = $1", id_)
    return True


async def redeliver_from(database: Database, id_: UUID, after: int) -> Webhook | None:
    """What is beyond position `after` is delivered again, after what waits. None: there is no such
    subscription."""
    async with database.transaction() as transaction:
        row = await transaction.raw.fetchrow(
            "update subscription set position = $2, version = version + 1, "
            "state = case when state = 'ended' then 'active' else state end, "
            f"why = case when state = 'ended' then '' else why end where id = $1 returning "
            f"{_COLUMNS}",
            id_,
            after,
        )
    return None if row is None else _webhook(row)


async def redeliver(database: Database, id_: UUID, sequence: int | None = None) -> int:
    """Tries dead letters again, all or one. How many."""
    async with database.transaction() as transaction:
        done = await transaction.raw.execute(
            f"update delivery set state = 'waiting', tries = 0, next_at_us = {_NOW}, "
            f"changed_at_us = {_NOW} where subscription = $1 and state = 'dead' "
            "and ($2::bigint is null or sequence = $2)",
            id_,
            sequence,
        )
    return int(done.rpartition(" ")[2])


async def deliveries(
    database: Database, id_: UUID, states: Sequence[str], before: int, limit: int
) -> list[Delivery]:
    """The newest first. `before`: of a lower sequence; 0: from the newest on."""
    async with database.reading() as raw:
        rows = await raw.fetch(
            f"select {_DELIVERY} from delivery where subscription = $1 "
            "and (cardinality($2::text[]) = 0 or state = any($2)) "
            "and ($3::bigint = 0 or sequence < $3) order by sequence desc limit $4",
            id_,
            list(states),
            before,
            limit,
        )
    return [_delivery(row) for row in rows]


async def counts(database: Database, id_: UUID) -> dict[str, int]:
    """Of deliveries, by state."""
    async with database.reading() as raw:
        rows = await raw.fetch(
            "select state, count(*) from delivery where subscription = $1 group by state", id_
        )
    return {"waiting": 0, "delivered": 0, "dead": 0, **dict(rows)}


# --- who delivers


async def leased(database: Database, owner: UUID) -> list[Webhook]:
    """Those that are the caller's to deliver, for `LEASE_S` from now on. One whose maker may no
    longer read ends."""
    async with database.transaction() as transaction:
        raw = transaction.raw
        await raw.execute(
            "update subscription s set state = 'ended', why = case when s.maker = ''::bytea "
            "then 'the token it was made with was revoked or has expired' "
            f"else 'its maker has not come for {SEEN_S // 86_400} days' end "
            "where s.state in ('active', 'broken') and case when s.maker = ''::bytea "
            "then not exists (select from token t where t.sha256 = s.token "
            f"and t.revoked_at_us = 0 and (t.expires_at_us = 0 or t.expires_at_us > {_NOW})) "
            f"else s.seen_at_us < {_NOW} - {SEEN_S}::bigint * 1000000 end"
        )
        rows = await raw.fetch(
            f"update subscription set owner = $1, lease_until_us = {_NOW} + {LEASE_S} * 1000000 "
            "where state in ('active', 'broken') "
            f"and (owner is null or owner = $1 or lease_until_us < {_NOW}) returning {_COLUMNS}",
            owner,
        )
    return sorted((_webhook(row) for row in rows), key=lambda one: one.id)


async def let_go(database: Database, owner: UUID) -> None:
    """Another process may take over at once."""
    async with database.transaction() as transaction:
        await transaction.raw.execute(
            "update subscription set owner = null, lease_until_us = 0 where owner = $1", owner
        )


async def take(
    database: Database,
    owner: UUID,
    of: Webhook,
    after: int,
    through: int,
    found: Sequence[tuple[int, UUID, str]],
) -> bool:
    """Moves the position from `after` to `through`, with a delivery for each of `found` (position,
    event, key). False: it is no longer the caller's, or is somewhere else."""
    async with database.transaction() as transaction:
        raw = transaction.raw
        row = await raw.fetchrow(
            f"update subscription set position = $3, sequence = sequence + $4 where {_MINE} "
            "and position = $5 returning sequence",
            of.id,
            owner,
            through,
            len(found),
            after,
        )
        if row is None:
            return False
        first = int(row[0]) - len(found) + 1
        await raw.execute(
            "insert into delivery (subscription, sequence, position, event, key, state, tries, "
            "next_at_us, changed_at_us, status, error, answer, latency_us) "
            f"select $1, $2 + n - 1, position, event, key, 'waiting', 0, {_NOW}, {_NOW}, 0, '', "
            "'', 0 from unnest($3::bigint[], $4::uuid[], $5::text[]) with ordinality "
            "as f(position, event, key, n)",
            of.id,
            first,
            [position for position, _, _ in found],
            [event for _, event, _ in found],
            [key for _, _, key in found],
        )
    return True


async def waiting(
    database: Database, id_: UUID, limit: int, *, all_keys: bool = False
) -> WaitingDeliveries:
    """What is due in order of sequence, without those behind one of the same key that is not due
    yet. `all_keys`: also what is not due."""
    async with database.reading() as raw:
        row = await raw.fetchrow(
            "select n.now, count(sequence), min(next_at_us) filter (where next_at_us > n.now) "
            f"from (select {_NOW} as now) n left join delivery "
            "on subscription = $1 and state = 'waiting' group by n.now",
            id_,
        )
        assert row is not None, "it groups by one row"
        now, total, next_at = row
        rows = await raw.fetch(
            f"with held as (select key as held_key, min(sequence) as first from delivery "
            "where subscription = $1 and state = 'waiting' and next_at_us > $2 and not $4 "
            f"group by key) select {_DELIVERY} from delivery left join held on held_key = key "
            "where subscription = $1 and state = 'waiting' and (first is null or sequence < first) "
            "order by sequence limit $3",
            id_,
            now,
            limit,
            all_keys,
        )
    return WaitingDeliveries([_delivery(row) for row in rows], total, now, next_at)


async def record(
    database: Database, owner: UUID, id_: UUID, attempts: Sequence[DeliveryAttempt], failures: int
) -> bool:
    """What came of deliveries of one subscription. `failures`: in a row, with these. False: it is
    no longer the caller's."""
    async with database.transaction() as transaction:
        raw = transaction.raw
        row = await raw.fetchrow(
            f"update subscription set failures = $3 where {_MINE} returning id",
            id_,
            owner,
            failures,
        )
        if row is None:
            return False
        await raw.execute(
            "update delivery d set state = a.state, tries = a.tries, "
            f"next_at_us = {_NOW} + (a.wait_s * 1000000)::bigint, changed_at_us = {_NOW}, "
            "status = a.status, error = a.error, answer = a.answer, latency_us = a.latency_us "
            "from unnest($2::bigint[], $3::text[], $4::int[], $5::double precision[], $6::int[], "
            "$7::text[], $8::bytea[], $9::bigint[]) "
            "as a(sequence, state, tries, wait_s, status, error, answer, latency_us) "
            "where d.subscription = $1 and d.sequence = a.sequence",
            id_,
            [one.sequence for one in attempts],
            [one.state for one in attempts],
            [one.tries for one in attempts],
            [one.wait_s for one in attempts],
            [one.status for one in attempts],
            [one.error for one in attempts],
            [one.answer for one in attempts],
            [one.latency_us for one in attempts],
        )
    return True


async def set_state(
    database: Database, owner: UUID, id_: UUID, state: WebhookState, why: str, probe_s: float = 0.0
) -> None:
    """By who delivers. `probe_s`: seconds until its receiver is asked again. What its maker has
    paused meanwhile stays paused."""
    async with database.transaction() as transaction:
        raw = transaction.raw
        await raw.execute(
            "update subscription set state = $3, why = $4, "
            f"probe_at_us = {_NOW} + ($5::double precision * 1000000)::bigint "
            f"where {_MINE} and state in ('active', 'broken')",
            id_,
            owner,
            state,
            why,
            probe_s,
        )
        if state == "active":
            await _wake(raw, id_)


async def _wake(raw: Raw, id_: UUID) -> None:
    """What waits for its next try is due now."""
    await raw.execute(
        f"update delivery set next_at_us = {_NOW} where subscription = $1 and state = 'waiting' "
        f"and next_at_us > {_NOW}",
        id_,
    )


async def remove_old(database: Database) -> None:
    """Deliveries that ended long ago."""
    async with database.transaction() as transaction:
        await transaction.raw.execute(
            "delete from delivery where (subscription, sequence) in (select subscription, sequence "
            f"from delivery where changed_at_us < {_NOW} - {KEPT_US} and state <> 'waiting' "
            f"limit {REMOVED_AT_ONCE})"
        )


async def figures(database: Database, owner: UUID) -> tuple[dict[str, int], int]:
    """Subscriptions by state, and how many positions the slowest of the caller's is behind the
    feed: the first that waits, or what was not looked at."""
    async with database.reading() as raw:
        states = await raw.fetch("select state, count(*) from subscription group by state")
        row = await raw.fetchrow(
            "select coalesce(max(h.position - coalesce((select min(d.position) - 1 from delivery d "
            "where d.subscription = s.id and d.state = 'waiting'), s.position)), 0) "
            "from subscription s cross join feed_head h where s.owner = $1 "
            "and s.state in ('active', 'broken')",
            owner,
        )
    return {state: int(n) for state, n in states}, 0 if row is None else max(0, int(row[0]))


def _webhook(row: Record) -> Webhook:
    id_, name, url, wanted, ordering, secret, old, made_by, namespaces, token, maker, *rest = row
    return Webhook(
        id_,
        name,
        url,
        json_decoder(FeedFilter).decode(bytes(wanted)),
        ordering,
        bytes(secret),
        bytes(old),
        made_by,
        tuple(namespaces),
        bytes(token),
        json_decoder(WebhookMaker).decode(bytes(maker)) if maker else None,
        *rest,
    )


def _delivery(row: Record) -> Delivery:
    (*most, answer, latency) = row
    sequence, position, event, key, state, tries, next_at, changed_at, status, error = most
    return Delivery(
        sequence,
        position,
        event,
        key,
        state,
        tries,
        next_at,
        changed_at,
        status,
        error,
        bytes(answer),
        latency,
    )
