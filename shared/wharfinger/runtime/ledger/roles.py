"""Roles of the database: what each part of a plane may do with each table.

Roles without a login, one for each kind of program. Who runs a plane gives each program a login
that is a member of one of them. The owner of the tables is none of them: it migrates
(`wharfinger migrate`) and retires (`wharfinger ledger retire`), and no service needs it.

History (`HISTORY`) is only added to: no role may update or delete a row of it. What a service must
change is beside it, and verify or a rebuild shows what was done to that.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.errors import LedgerError
from wharfinger.runtime.ledger.schema import metadata

TABLES = tuple(sorted(metadata.tables))

HISTORY = (
    "round",
    "input",
    "event",
    "decision",
    "feed",
    "access",
    "retirement",
    "plan",
    "row_record",
)
"""Tables whose rows no service changes."""

SECRET = ("token", "idempotency", "access", "access_head", "operation", "subscription", "delivery")
"""Tables that a reader does not see."""

PREFIX = "wharfinger_"

SCRAM_ROUNDS = 4096
"""PostgreSQL's own default of `scram_iterations`."""

SELECT, INSERT, DELETE = "select", "insert", "delete"


def _update(*columns: str) -> str:
    return f"update ({', '.join(columns)})"


_ROUNDS: Mapping[str, tuple[str, ...]] = {
    "stream": (INSERT, _update("round", "seq", "hash", "epoch", "at_us", "snapshot")),
    "round": (INSERT,),
    "input": (INSERT,),
    "event": (INSERT,),
    "decision": (INSERT,),
    "fact": (INSERT, _update("partition_key", "event", "sha256", "seq", "at_us")),
    "plan": (INSERT,),
    # moved by the statement that commits a round; old ones go when they were compared
    "record_mark": (INSERT, _update("at_offset", "sha256", "epoch", "noted_at"), DELETE),
}
_INCARNATION = (INSERT, _update("counter", "boot_id"))
"""Who reads or writes topics compares them with the ledger at its start, and begins the incarnation
of one that began again."""

_READ = tuple(name for name in TABLES if name not in SECRET)


@dataclass(frozen=True, slots=True)
class DatabaseRole:
    """`name` without `PREFIX`. `reads`: tables. `writes`: table -> privileges. `functions`: that it
    may call."""

    name: str
    purpose: str
    reads: tuple[str, ...]
    writes: Mapping[str, tuple[str, ...]]
    functions: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return PREFIX + self.name


ROLES: tuple[DatabaseRole, ...] = (
    DatabaseRole("reader", "reads history and state, without tokens and access records", _READ, {}),
    DatabaseRole(
        "auditor",
        "reads everything that verify covers: audit verify, audit checkpoint, audit access",
        # of tokens the hashes of their secrets, of subscriptions sealed secrets
        (*_READ, "access", "access_head", "token", "subscription"),
        {},
    ),
    DatabaseRole(
        "stage",
        "schedulers, estimator, descheduler, annotator, collector and actuator; apply and delete",
        _READ,
        {
            **_ROUNDS,
            "snapshot": (INSERT, _update("replayed")),
            "snapshot_section": (INSERT, DELETE),
            "incarnation": _INCARNATION,
            "fact_writer": (INSERT, _update("epoch")),
        },
    ),
    DatabaseRole(
        "publisher",
        "the publisher: cursors, positions of the feed, partitions of days to come",
        (*_READ, "access_head"),  # signed by checkpoints
        {
            **_ROUNDS,
            "feed": (INSERT,),
            "feed_head": (_update("position", "epoch"),),
            "cursor": (INSERT, _update("seq"), DELETE),
            "cursor_position": (INSERT, _update("end_offset")),
            "incarnation": _INCARNATION,
        },
        ("ledger_lock_history()", "ledger_make_span(int, int, text)"),
    ),
    DatabaseRole(
        "api",
        "the HTTP API; token create and revoke",
        TABLES,
        {
            **_ROUNDS,
            "access": (INSERT,),
            "access_head": (_update("seq", "hash", "at_us"),),
            "token": (INSERT, _update("revoked_at_us")),
            "idempotency": (
                INSERT,
                _update("request", "holder", "at_us", "status", "media_type", "body"),
                DELETE,
            ),
            "operation": (
                INSERT,
                _update(
                    "changed_at_us",
                    "state",
                    "step",
                    "done",
                    "total",
                    "lease_until_us",
                    "plan",
                    "result",
                ),
                DELETE,
            ),
            "subscription": (
                INSERT,
                _update(
                    "name",
                    "url",
                    "filter",
                    "ordering",
                    "secret",
                    "old_secret",
                    "old_until_us",
                    "version",
                    "state",
                    "why",
                    "position",
                    "sequence",
                    "failures",
                    "probe_at_us",
                    "maker",
                    "seen_at_us",
                    "owner",
                    "lease_until_us",
                ),
                DELETE,
            ),
            "delivery": (
                INSERT,
                _update(
                    "state",
                    "tries",
                    "next_at_us",
                    "changed_at_us",
                    "status",
                    "error",
                    "answer",
                    "latency_us",
                ),
                DELETE,
            ),
        },
    ),
)


def statements() -> Iterator[str]:
    """SQL that makes the roles that are missing and gives all of them exactly these rights, however
    often it runs. For the owner of the tables, who must be allowed to create roles where one is
    missing."""
    for role in ROLES:
        name = role.full_name
        # asked first: an owner who may not create roles can still give them their rights
        yield (
            "do $$ begin "
            f"if not exists (select from pg_roles where rolname = '{name}') then "
            f"create role {name} nologin; end if; "
            "exception when duplicate_object or unique_violation then null; end $$"
        )
        yield (
            "do $$ begin "
            f"execute format('revoke all on all tables in schema %I from {name}', "
            "current_schema()); "
            f"execute format('revoke all on all functions in schema %I from {name}', "
            "current_schema()); "
            f"execute format('grant usage on schema %I to {name}', current_schema()); end $$"
        )
        yield f"grant usage on schema ledger_at to {name}"
        yield f"grant select on all tables in schema ledger_at to {name}"
        yield f"grant {SELECT} on {', '.join((*role.reads, 'alembic_version'))} to {name}"
        for table, privileges in role.writes.items():
            yield f"grant {', '.join(privileges)} on {table} to {name}"
        for function in role.functions:
            yield f"grant execute on function {function} to {name}"


@dataclass(frozen=True, slots=True)
class DatabaseLogin:
    """`roles`: without `PREFIX`. `verifier`: of its password, as the server keeps it
    (`scram_verifier`); empty: it has none, and an old one is left as it is."""

    name: str
    roles: tuple[str, ...]
    verifier: str = field(default="", repr=False)


async def make_logins(database: Database, logins: Sequence[DatabaseLogin]) -> None:
    """In one transaction, after `make_roles`. A login that is there already keeps what else it may.
    LedgerError: the user may not make it or give a role away, or a login is a superuser."""
    async with database.transaction() as transaction:
        raw = transaction.raw
        for login in logins:
            found = await raw.fetchrow(
                "select rolsuper from pg_roles where rolname = $1", login.name
            )
            if found is not None and found[0]:
                raise LedgerError(f"login {login.name}: a superuser could change history")
            what = "create" if found is None else "alter"
            if found is None or login.verifier:
                await _run(raw, f"{what} role %I login", login.name, login.verifier)
            for role in (PREFIX + name for name in login.roles):
                member = await raw.fetchrow(
                    "select 1 from pg_auth_members where roleid = $1::text::regrole "
                    "and member = quote_ident($2)::regrole",
                    role,
                    login.name,
                )
                if member is None:
                    await _run(raw, f"grant {role} to %I", login.name)


async def _run(raw: Raw, statement: str, name: str, verifier: str = "") -> None:
    """`statement` with `%I` for the name. The server quotes it: statements of roles take no
    parameters."""
    password = " password %L" if verifier else ""
    row = await raw.fetchrow(
        f"select format('{statement}{password}', $1::text, $2::text)", name, verifier
    )
    assert row is not None, "a select without from has one row"
    await raw.execute(str(row[0]))


def scram_verifier(password: str, salt: bytes) -> str:
    """What PostgreSQL keeps of a password (RFC 5802, RFC 7677). So the password is in no statement,
    and in no log of statements. ValueError: it has characters that would need SASLprep."""
    if not password.isascii() or not password.isprintable():
        raise ValueError("password: expected printable ASCII characters")
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, SCRAM_ROUNDS)
    client = hmac.digest(salted, b"Client Key", "sha256")
    stored = hashlib.sha256(client).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    salt64, stored64, server64 = (b64encode(one).decode() for one in (salt, stored, server))
    return f"SCRAM-SHA-256${SCRAM_ROUNDS}:{salt64}${stored64}:{server64}"


async def make_roles(database: Database) -> None:
    """In one transaction. LedgerError: the user may not create a role that is missing, or is not
    the owner."""
    async with database.transaction() as transaction:
        for statement in statements():
            await transaction.raw.execute(statement)
