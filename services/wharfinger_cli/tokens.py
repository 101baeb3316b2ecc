"""`token create`, `list` and `revoke`: who may use the HTTP API."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wharfinger.history.points import span_s
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.access import Access, record_access
from wharfinger.runtime.ledger.tokens import ROLES, Token, make_token, revoke_token, tokens
from wharfinger_cli.connection import opened_ledger, reached, run, system_user
from wharfinger_cli.failures import CommandError, NotFoundError
from wharfinger_cli.output import DARK, WARN, Plain, as_clock, as_time, new_table, show, show_list
from wharfinger_cli.request import Request


def create(
    request: Request,
    name: str,
    roles: Sequence[str],
    namespaces: Sequence[str],
    sources: Sequence[str],
    lifetime: str,
    out: Path | None,
) -> None:
    if unknown := sorted(set(roles) - set(ROLES)):
        raise CommandError(f"--role: expected one of {', '.join(ROLES)}, got {unknown[0]!r}")
    seconds = span_s(lifetime)
    if not seconds:
        raise CommandError(f"--lifetime: expected a span such as 12h or 30d, got {lifetime!r}")
    secret, token = run(_create(request, name, roles, namespaces, sources, seconds))
    if out is not None:
        write_secret(out, secret)

    def page() -> Iterator[RenderableType]:
        expires = f"expires {as_clock(token.expires_at)}"
        yield Text(token.name, "bold").append(f"  {', '.join(token.roles)}; {expires}", DARK)
        yield secret if out is None else f"the secret is in {out}"

    shown = {} if out is not None else {"secret": secret}
    show(request.format, {**_plain(token), **shown}, [str(token.id)], page)


async def _create(
    request: Request,
    name: str,
    roles: Sequence[str],
    namespaces: Sequence[str],
    sources: Sequence[str],
    seconds: int,
) -> tuple[str, Token]:
    async with opened_ledger(reached(request)) as ledger:
        await _record(ledger, "token create", name)
        return await make_token(
            ledger.database,
            name,
            sorted(set(roles)),
            "local:command-line",
            lifetime_s=seconds,
            namespaces=namespaces,
            sources=sources,
            unique=True,
        )


def write_secret(out: Path, secret: str) -> None:
    """For its owner only."""
    try:
        out.unlink(missing_ok=True)
        handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CommandError(f"{out}: {error.strerror or error}") from error
    with os.fdopen(handle, "w") as file:
        file.write(secret + "\n")


def list_tokens(request: Request) -> None:
    found = run(_list(request))
    items = [_plain(token) for token in found]
    show_list(request.format, items, [str(t.id) for t in found], lambda: _table(found), "no tokens")


async def _list(request: Request) -> list[Token]:
    async with opened_ledger(reached(request)) as ledger:
        return await tokens(ledger.database)


def _table(found: Sequence[Token]) -> Table:
    table = new_table("token", "id", "roles", "namespaces", "made by", "expires")
    for token in found:
        table.add_row(
            token.name,
            str(token.id),
            ", ".join(token.roles),
            ", ".join(token.namespaces) or "all",
            Text(token.made_by, DARK),
            Text("revoked", WARN) if token.revoked_at else as_clock(token.expires_at),
        )
    return table


def _plain(token: Token) -> Plain:
    return {
        "id": str(token.id),
        "name": token.name,
        "roles": list(token.roles),
        "namespaces": list(token.namespaces),
        "sources": list(token.sources),
        "made_by": token.made_by,
        "expires": as_time(token.expires_at),
        "revoked": as_time(token.revoked_at) if token.revoked_at else None,
    }


def revoke(request: Request, token: str) -> None:
    try:
        id_ = UUID(token)
    except ValueError:
        raise CommandError(
            f"token revoke: expected an id as `token list` shows it, got {token!r}"
        ) from None
    if not run(_revoke(request, id_)):
        raise NotFoundError(f"no token that holds has the id {id_}")


async def _revoke(request: Request, id_: UUID) -> bool:
    async with opened_ledger(reached(request)) as ledger:
        await _record(ledger, "token revoke", str(id_))
        return await revoke_token(ledger.database, id_)


async def _record(ledger: Ledger, action: str, target: str) -> None:
    """Before it is done, as the API does it."""
    actor = system_user().authid
    await record_access(ledger.database, [Access(actor, action, target, "allowed")])
