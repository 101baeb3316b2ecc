"""Who a credential is."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.types import Scope

from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.tokens import PREFIX, Token, exchanged, make_token, valid_token
from wharfinger_api.access import Principal, Role
from wharfinger_api.certificates import Network, certificate_in
from wharfinger_api.grants import Grants, ProvenIdentity

if TYPE_CHECKING:  # each loads an HTTP client: only where it is configured
    from wharfinger_api.openid import OpenId
    from wharfinger_api.token_review import TokenReviews

KNOWN_S = 2.0
"""A token that was valid counts as valid for so long without asking again: a revoked one is refused
after that at the latest, by every process."""

AGAIN_S = 1.0
"""One that is used is asked for again after so long, and no request waits for it."""

KNOWN_MAX = 1000
LOGIN_S = 30 * 86_400
"""How long a token lives that was exchanged for a code."""

SECRET_MAX = 16_384
"""Bytes of an Authorization header that are looked at."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What a request brings: an Authorization header, or the client certificate (DER) of its
    connection; empty where a proxy passed on something else."""

    authorization: str = ""
    certificate: bytes | None = None


@dataclass(frozen=True, slots=True)
class Providers:
    """Ways in besides the plane's own tokens, and what who comes by them may do."""

    grants: Grants = field(default_factory=lambda: Grants(None))
    openid: OpenId | None = None
    reviews: TokenReviews | None = None
    proxies: tuple[Network, ...] = ()


class Identities:
    """The plane's own tokens are looked up in the database; the last ones are kept for `KNOWN_S`.
    What others vouch for is asked of `providers`."""

    def __init__(self, database: Database, providers: Providers | None = None) -> None:
        self._database = database
        self._known: OrderedDict[str, tuple[float, Principal]] = OrderedDict()
        self._lookups: dict[str, tuple[float, asyncio.Task[Principal | None]]] = {}
        """Those under way, with when they began."""
        self._providers = providers or Providers()

    def credential(self, scope: Scope) -> Credential:
        authorization = [value for name, value in scope["headers"] if name == b"authorization"]
        if authorization:
            return Credential(authorization[0].decode("latin-1"))
        return Credential("", certificate_in(scope, self._providers.proxies))

    async def of(self, credential: Credential) -> Principal | None:
        """None: no credential, or none that is valid. Problem: why it is not, where that helps, or
        that this cannot be checked.

        A header is all that counts where there is one: who sends a wrong token is told so, and not
        taken for the holder of the certificate."""
        if credential.authorization:
            return await self._bearer(credential.authorization)
        if credential.certificate is None:
            return None
        from wharfinger_api.certificate_identity import identity_of

        return self._granted(identity_of(credential.certificate))

    async def _bearer(self, authorization: str) -> Principal | None:
        scheme, _, secret = authorization.partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret or len(secret) > SECRET_MAX:
            return None
        if secret.startswith(PREFIX):
            return await self._token(secret)
        openid, reviews = self._providers.openid, self._providers.reviews
        if openid is None and reviews is None:
            return None
        from wharfinger_api.openid import claimed

        claims = claimed(secret)
        if claims is None:
            return None
        if openid is not None and claims.get("iss") == openid.issuer:
            return self._granted(await openid.of(secret))
        audiences = claims.get("aud")
        if reviews is not None and reviews.audience in (
            audiences if isinstance(audiences, list) else [audiences]
        ):
            return self._granted(await reviews.of(secret))
        return None

    def _granted(self, who: ProvenIdentity | None) -> Principal | None:
        return None if who is None else self._providers.grants.principal(who)

    async def _token(self, secret: str) -> Principal | None:
        now = time.monotonic()
        known = self._known.get(secret)
        if known is None or now - known[0] >= KNOWN_S:
            # one that gives up does not end what others wait for
            return await asyncio.shield(self._lookup(secret, now))
        if now - known[0] >= AGAIN_S:
            self._lookup(secret, now)
        return known[1]

    def _lookup(self, secret: str, now: float) -> asyncio.Task[Principal | None]:
        """One for all requests that come with the token meanwhile."""
        under_way = self._lookups.get(secret)
        if under_way is not None and now - under_way[0] < KNOWN_S:
            return under_way[1]
        looking = asyncio.create_task(self._looked_up(secret, now), name="token")
        looking.add_done_callback(_retrieved)
        self._lookups[secret] = now, looking
        return looking

    async def _looked_up(self, secret: str, began: float) -> Principal | None:
        mine = asyncio.current_task()
        try:
            token = await valid_token(self._database, secret)
            principal = None if token is None else principal_of(token)
            if self._is_latest(secret, mine):
                self._keep(secret, began, principal)
            return principal
        finally:
            if self._is_latest(secret, mine):
                del self._lookups[secret]

    def _is_latest(self, secret: str, lookup: object) -> bool:
        """Nothing was forgotten, and no later lookup was begun, since it began."""
        under_way = self._lookups.get(secret)
        return under_way is not None and under_way[1] is lookup

    def _keep(self, secret: str, began: float, principal: Principal | None) -> None:
        if principal is None:
            self._known.pop(secret, None)
            return
        self._known[secret] = (began, principal)
        self._known.move_to_end(secret)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

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
        """Ask again for every token, also for those that are being asked for."""
        self._known.clear()
        self._lookups.clear()


def _retrieved(lookup: asyncio.Task[Principal | None]) -> None:
    """A request that waits for it gets its failure. No request waits for one that was made ahead:
    its failure is left, and the next lookup fails then."""
    if not lookup.cancelled():
        lookup.exception()


def principal_of(token: Token) -> Principal:
    return Principal(
        "token",
        token.name,
        frozenset(Role(role) for role in token.roles if role in set(Role)),
        frozenset(token.namespaces),
        frozenset(token.sources),
    )
