"""Tokens of Kubernetes: an API server is asked whose they are (TokenReview).

They have to be made for our own audience. A token that is for the API server itself would be good
for more than this API, and is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from typing import NamedTuple

import msgspec

from wharfinger.domain.value import json_decoder
from wharfinger.runtime.kube.api import ApiError, KubeApi, UnreachableError
from wharfinger.runtime.kube.credentials import CredentialsError
from wharfinger.runtime.kube.kubeconfig import Access
from wharfinger.runtime.logs import get_logger
from wharfinger_api.grants import ProvenIdentity, identity
from wharfinger_api.problems import Problem

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"

KNOWN_S = 10.0
"""How long an answer counts, also that a token is good for nothing: as long as Kubernetes' own
authenticators keep it."""

KNOWN_MAX = 10_000
AT_ONCE = 8
RETRY_AFTER_S = 1

log = get_logger(__name__)


class _ReviewedUser(msgspec.Struct):
    username: str = ""
    groups: tuple[str, ...] | None = None


class _ReviewStatus(msgspec.Struct):
    authenticated: bool = False
    user: _ReviewedUser | None = None
    audiences: tuple[str, ...] | None = None


class _ReviewAnswer(msgspec.Struct):
    status: _ReviewStatus | None = None


class _KnownToken(NamedTuple):
    since: float
    who: ProvenIdentity | None


_decode = json_decoder(_ReviewAnswer).decode


class TokenReviews:
    """Of one API server, as one that may create TokenReviews (`system:auth-delegator`)."""

    def __init__(self, access: Access, audience: str) -> None:
        self._api = KubeApi(access)
        self._entered = False
        self.audience = audience
        self._known: OrderedDict[bytes, _KnownToken] = OrderedDict()
        self._asking = asyncio.Semaphore(AT_ONCE)

    async def of(self, token: str) -> ProvenIdentity | None:
        """None: the server does not accept it, or it is for another audience. Problem: it cannot be
        asked."""
        digest = hashlib.sha256(token.encode()).digest()
        known = self._known.get(digest)
        if known is not None and time.monotonic() - known.since < KNOWN_S:
            return known.who
        async with self._asking:
            who = await self._asked(token)
        self._known[digest] = _KnownToken(time.monotonic(), who)
        self._known.move_to_end(digest)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return who

    async def _asked(self, token: str) -> ProvenIdentity | None:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self.audience]},
        }
        try:
            if not self._entered:
                await self._api.__aenter__()
                self._entered = True
            answer = await self._api.request("POST", PATH, body=msgspec.json.encode(review))
            status = _decode(answer).status or _ReviewStatus()
        except (ApiError, UnreachableError, CredentialsError, msgspec.MsgspecError) as error:
            # what a server says may repeat the token
            why = str(error).replace(token, "...")
            log.warning("token_review.failed", server=self._api.server, reason=why)
            raise Problem(
                "provider-away",
                "the Kubernetes API server cannot be asked whose token it is",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            ) from None
        # a server that does not look at audiences names none
        if not status.authenticated or self.audience not in (status.audiences or ()):
            return None
        user = status.user or _ReviewedUser()
        return identity("kubernetes", user.username, user.groups or ())

    async def stop(self) -> None:
        if self._entered:
            await self._api.__aexit__()
