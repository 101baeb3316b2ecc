"""Tokens of the HTTP API: who may ask for what. Only a hash of the secret is stored.

A secret has 256 random bits, so that a plain hash of it is enough: it cannot be guessed, and what
the table shows cannot be turned back.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID, uuid4

from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger.database import Database, Record
from wharfinger.runtime.ledger.errors import LedgerError

PREFIX = "whf_"
"""Of a secret, so that scanners of repositories find one that was committed."""

ROLES = ("viewer", "operator", "auditor", "service", "admin")

_COLUMNS = (
    "id, name, roles, namespaces, sources, made_by, made_at_us, expires_at_us, revoked_at_us, once"
)
_NOW = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
# Two that are made at once wait for each other. No index holds names unique: ledgers of before may
# have several tokens of a name, and expiry is no change of a row.
_LOCK_NAME = "select pg_advisory_xact_lock(hashtextextended('token ' || $1, 0))"
_NAMED = (
    "select from token where name = $1 and revoked_at_us = 0 and not once "
    f"and (expires_at_us = 0 or expires_at_us > {_NOW}) limit 1"
)


@dataclass(frozen=True, slots=True)
class Token:
    """`namespaces`: those that its holder may see; empty: all. `sources`: of the facts that it may
    post. Times in microseconds; `expires_at` 0: never, `revoked_at` 0: it is not. `once`: good for
    one exchange."""

    id: UUID
    name: str
    roles: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    made_by: str = ""
    made_at: Micros = 0
    expires_at: Micros = 0
    revoked_at: Micros = 0
    once: bool = False


class TokenNameError(LedgerError):
    """Another token of this name is valid: what their holders do would be recorded as done by
    one."""


def secret_digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def make_token(
    database: Database,
    name: str,
    roles: Collection[str],
    made_by: str,
    *,
    lifetime_s: int,
    namespaces: Collection[str] = (),
    sources: Collection[str] = (),
    once: bool = False,
    unique: bool = False,
) -> tuple[str, Token]:
    """The secret, which is shown this once, and the token. `lifetime_s` 0: it does not expire.
    `unique`: no other valid token may have the name. TokenNameError: one has it."""
    secret = PREFIX + secrets.token_urlsafe(32)
    async with database.transaction() as transaction:
        if unique:
            await transaction.raw.execute(_LOCK_NAME, name)
            if await transaction.raw.fetchrow(_NAMED, name) is not None:
                raise TokenNameError(
                    f"a token named {name} is valid already: revoke it, or choose another name"
                )
        row = await transaction.raw.fetchrow(
            f"insert into token (sha256, {_COLUMNS}) "
            f"values ($1, $2, $3, $4, $5, $6, $7, {_NOW}, "
            f"case when $8::bigint = 0 then 0 else {_NOW} + $8::bigint * 1000000 end, 0, $9) "
            f"returning {_COLUMNS}",
            secret_digest(secret),
            uuid4(),
            name,
            sorted(roles),
            sorted(namespaces),
            sorted(sources),
            made_by,
            lifetime_s,
            once,
        )
    assert row is not None, "an insert returns its row"
    return secret, _token(row)


async def valid_token(database: Database, secret: str) -> Token | None:
    """The token of a secret, unless it has expired, was revoked, or is good for an exchange
    only."""
    async with database.reading() as raw:
        row = await raw.fetchrow(
            f"select {_COLUMNS} from token where sha256 = $1 and revoked_at_us = 0 and not once "
            f"and (expires_at_us = 0 or expires_at_us > {_NOW})",
            secret_digest(secret),
        )
    return None if row is None else _token(row)


async def exchanged(database: Database, secret: str) -> Token | None:
    """The token of a secret that is good once, which it is no more. None: there is no such."""
    async with database.transaction() as transaction:
        row = await transaction.raw.fetchrow(
            f"update token set revoked_at_us = {_NOW} where sha256 = $1 and once "
            f"and revoked_at_us = 0 and (expires_at_us = 0 or expires_at_us > {_NOW}) "
            f"returning {_COLUMNS}",
            secret_digest(secret),
        )
    return None if row is None else _token(row)


async def tokens(database: Database, made_by: str = "") -> list[Token]:
    """All tokens in order of time; those that `made_by` has made, where it is given."""
    async with database.reading() as raw:
        rows = await raw.fetch(
            f"select {_COLUMNS} from token where ($1 = '' or made_by = $1) and not once "
            "order by made_at_us, id",
            made_by,
        )
    return [_token(row) for row in rows]


async def revoke_token(database: Database, id_: UUID, made_by: str = "") -> bool:
    """False: there is no such token, or it was revoked before. `made_by`: it must be of them."""
    async with database.transaction() as transaction:
        done = await transaction.raw.execute(
            f"update token set revoked_at_us = {_NOW} where id = $1 and revoked_at_us = 0 "
            "and ($2 = '' or made_by = $2)",
            id_,
            made_by,
        )
    return done.endswith(" 1")


async def revoke_codes(database: Database, made_by: str) -> None:
    """Those that are good once and were not used."""
    async with database.transaction() as transaction:
        await transaction.raw.execute(
            f"update token set revoked_at_us = {_NOW} "
            "where made_by = $1 and once and revoked_at_us = 0",
            made_by,
        )


def _token(row: Record) -> Token:
    id_, name, roles, namespaces, sources, *rest = row
    return Token(id_, name, tuple(roles), tuple(namespaces), tuple(sources), *rest)
