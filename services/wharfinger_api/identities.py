"""Who a credential is."""

from __future__ import annotations

import time
from collections import OrderedDict

from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.tokens import PREFIX, Token, exchanged, make_token, valid_token
from wharfinger_api.access import Principal, Role

KNOWN_S = 2.0
"""A token that was valid counts as valid for so long without asking again: a revoked one is refused
after that at the latest, by every process."""

KNOWN_MAX = 1000
LOGIN_S = 30 * 86_400
"""How long a token lives that was exchanged for a code."""

SECRET_MAX = 16_384
"""Bytes of an Authorization header that are looked at."""


class Identities:
    """Bearer tokens, looked up in the database; the last ones are kept for `KNOWN_S`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[str, tuple[float, Principal]] = OrderedDict()

    async def of(self, authorization: str) -> Principal | None:
        """None: no credential, or none that is valid."""
        scheme, _, secret = authorization.partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret or len(secret) > SECRET_MAX:
            return None
        now = time.monotonic()
        known = self._known.get(secret)
        if known is not None and now - known[0] < KNOWN_S:
            return known[1]
        principal = await self._bearer(secret)
        if principal is None:
            self._known.pop(secret, None)
            return None
        self._known[secret] = (now, principal)
        self._known.move_to_end(secret)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return principal

    async def _bearer(self, secret: str) -> Principal | None:
        if not secret.startswith(PREFIX):
            return None
        token = await valid_token(self._database, secret)
        return None if token is None else principal_of(token)

    async def exchange(self, code: str) -> tuple[str, Token] | None:
        """The secret and the token for a code that is good once. None: it is not."""
        once = await exchanged(self._database, code)
        if once is None:
            return None
        return await make_token(
            self._database,
            once.name,
            once.roles,
            once.made_by,
            lifetime_s=LOGIN_S,
            namespaces=once.namespaces,
            sources=once.sources,
        )

    def forget(self) -> None:
        """Ask again for every token."""
        self._known.clear()


def principal_of(token: Token) -> Principal:
    return Principal(
        "token",
        token.name,
        frozenset(Role(role) for role in token.roles if role in set(Role)),
        frozenset(token.namespaces),
        frozenset(token.sources),
    )
