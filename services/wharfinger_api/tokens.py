"""Making, listing and revoking tokens. A principal can only give what it has."""

from __future__ import annotations

from uuid import UUID

from wharfinger.domain.text import as_time
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.tokens import Token, TokenNameError, make_token, revoke_token, tokens
from wharfinger_api.access import Principal, Role
from wharfinger_api.models import NewToken
from wharfinger_api.problems import Problem


async def made_token(
    database: Database, principal: Principal, wanted: NewToken
) -> tuple[str, Token]:
    """Problem: the token would have a right that its maker has not, who is no admin; or another
    valid token has its name."""
    roles = {Role(role) for role in wanted.roles}
    if Role.ADMIN not in principal.roles:
        if excess := roles - principal.roles:
            raise Problem("forbidden", f"roles: expected roles of yours, got {min(excess)}")
        if principal.namespaces and not set(wanted.namespaces) & principal.namespaces:
            raise Problem("forbidden", "namespaces: expected some of yours")
        if principal.namespaces and (more := set(wanted.namespaces) - principal.namespaces):
            raise Problem("forbidden", f"namespaces: expected some of yours, got {min(more)}")
        if more := set(wanted.sources) - principal.sources:
            raise Problem("forbidden", f"sources: expected some of yours, got {min(more)}")
    try:
        return await make_token(
            database,
            wanted.name,
            sorted(roles),
            principal.name,
            lifetime_s=wanted.lifetime_s,
            namespaces=wanted.namespaces,
            sources=wanted.sources,
            unique=True,
        )
    except TokenNameError as error:
        raise Problem("conflict", f"name: {error}") from None


async def token_list(database: Database, principal: Principal) -> list[dict[str, object]]:
    return [_shown(token) for token in await tokens(database, _made_by(principal))]


async def revoked(database: Database, principal: Principal, id_: UUID) -> None:
    """Problem: there is no such token, or it is not theirs, which is not told apart."""
    if not await revoke_token(database, id_, _made_by(principal)):
        raise Problem("not-found", f"no token has the id {id_}")


def _made_by(principal: Principal) -> str:
    return "" if Role.ADMIN in principal.roles else principal.name


def _shown(token: Token) -> dict[str, object]:
    return {
        "id": str(token.id),
        "name": token.name,
        "roles": list(token.roles),
        "namespaces": list(token.namespaces),
        "made_by": token.made_by,
        "made": as_time(token.made_at),
        "expires": as_time(token.expires_at) if token.expires_at else None,
        "revoked": as_time(token.revoked_at) if token.revoked_at else None,
    }
