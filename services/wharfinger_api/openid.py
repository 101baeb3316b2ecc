"""Tokens of an OpenID provider: who is meant by a JWT that it has signed.

The provider's document names its keys (OpenID Connect Discovery); both are fetched when they are
first needed, and again every `KEYS_S`. A token with a key that is not known has them fetched at
once, though not more often than every `AGAIN_S`: this is how a provider rotates its keys. The keys
are the only ones that count: a key, a URL or a file that a token's header names is not looked at.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import jwt
import msgspec

from wharfinger.domain.text import one_line
from wharfinger.domain.value import json_decoder
from wharfinger.runtime.http_bodies import ACCEPT_ENCODING, BodyTooLargeError, body_within
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.settings import SettingsError, clear_text_is_safe
from wharfinger_api.grants import ProvenIdentity, identity
from wharfinger_api.problems import Problem

KEYS_S = 300.0
AGAIN_S = 10.0
KEYS_S_MAX = 3600.0
"""How long keys are used while the provider does not answer: a key that it has withdrawn must not
count for long."""

SKEW_S = 60
"""Between its clock and ours."""

REQUEST_S_MAX = 5.0
ANSWER_BYTES_MAX = 1_000_000
WRONG: Mapping[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "the token has expired",
    jwt.ImmatureSignatureError: "the token is not valid yet",
    jwt.InvalidAudienceError: "the token is for another audience",
    jwt.InvalidIssuerError: "the token is of another issuer",
    jwt.InvalidAlgorithmError: "the token is signed by an algorithm that is not allowed",
    jwt.InvalidSignatureError: "the signature of the token is wrong",
    jwt.MissingRequiredClaimError: "the token lacks a claim: exp, iat, iss, aud or the name",
}

log = get_logger(__name__)


class ProviderUnavailableError(Exception):
    """The provider does not answer as one, in one line."""


class _Discovered(msgspec.Struct):
    issuer: str
    jwks_uri: str


def claimed(token: str) -> Mapping[str, Any] | None:
    """What a JWT says of itself, which proves nothing. None: it is none."""
    try:
        found = jwt.decode(token, options={"verify_signature": False, "verify_exp": False})
    except (jwt.PyJWTError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class OpenId:
    """One provider. `algorithms`: of `settings.SIGNATURES`. `name_claim`, `groups_claim`: where a
    token says who it is about."""

    def __init__(
        self,
        issuer: str,
        audience: str,
        algorithms: Sequence[str],
        name_claim: str = "sub",
        groups_claim: str = "groups",
        ca_file: Path | None = None,
    ) -> None:
        self.issuer = issuer
        self._audience = audience
        self._algorithms = list(algorithms)
        self._name_claim = name_claim
        self._groups_claim = groups_claim
        self._tls = _tls(ca_file)
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = -KEYS_S_MAX
        self._tried = -AGAIN_S
        self._fetching = asyncio.Lock()

    async def of(self, token: str) -> ProvenIdentity:
        """Problem: the token proves nothing, or the provider cannot be asked for its keys."""
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise _refused("the token is no JWT") from None
        if header.get("alg") not in self._algorithms:
            raise _refused(WRONG[jwt.InvalidAlgorithmError])
        key = await self._key(header.get("kid"))
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                audience=self._audience,
                issuer=self.issuer,
                leeway=SKEW_S,
                options={
                    "require": ["exp", "iat", "iss", "aud", self._name_claim],
                    "enforce_minimum_key_length": True,
                },
            )
        except jwt.PyJWTError as error:
            raise _refused(WRONG.get(type(error), "the token is not valid")) from None
        if self._name_claim == "email" and claims.get("email_verified", True) is not True:
            raise _refused("the provider has not verified the address")
        found = identity("oidc", claims[self._name_claim], claims.get(self._groups_claim, ()))
        if found is None:
            raise _refused(f"{self._name_claim}: expected one line of text")
        return found

    async def _key(self, kid: object) -> jwt.PyJWK:
        if not isinstance(kid, str):
            raise _refused("the token names no key")
        now = time.monotonic()
        if now - self._fetched >= KEYS_S or kid not in self._keys:
            async with self._fetching:
                await self._fetch(kid)
        if time.monotonic() - self._fetched >= KEYS_S_MAX:
            raise Problem(
                "provider-away",
                "the keys of the OpenID provider cannot be fetched",
                headers={"Retry-After": str(int(AGAIN_S))},
            )
        if kid not in self._keys:
            raise _refused("the token is signed by a key that its provider does not have")
        return self._keys[kid]

    async def _fetch(self, kid: str) -> None:
        """Where nothing has fetched them meanwhile. What was known stays where it fails."""
        now = time.monotonic()
        known = kid in self._keys and now - self._fetched < KEYS_S
        if known or now - self._tried < AGAIN_S:
            return
        self._tried = now
        try:
            self._keys = await self._fetched_keys()
            self._fetched = time.monotonic()
        except ProviderUnavailableError as error:
            log.warning("oidc.keys_not_fetched", issuer=self.issuer, reason=str(error))

    async def _fetched_keys(self) -> dict[str, jwt.PyJWK]:
        async with httpx.AsyncClient(
            verify=self._tls, timeout=REQUEST_S_MAX, follow_redirects=False, trust_env=True
        ) as http:
            place = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
            try:
                found = json_decoder(_Discovered).decode(await _get(http, place))
            except msgspec.MsgspecError as error:
                raise ProviderUnavailableError(f"{place}: {one_line(error)}") from None
            if found.issuer != self.issuer:
                raise ProviderUnavailableError(
                    f"{place}: it is of the issuer {found.issuer[:200]!r}"
                )
            if not clear_text_is_safe(found.jwks_uri):
                raise ProviderUnavailableError(f"{place}: jwks_uri: expected https://")
            return self._usable(found.jwks_uri, await _get(http, found.jwks_uri))

    def _usable(self, place: str, body: bytes) -> dict[str, jwt.PyJWK]:
        """By id: those that sign by an algorithm which is allowed."""
        try:
            keys = json_decoder(dict[str, Any]).decode(body)["keys"]
        except (msgspec.MsgspecError, KeyError) as error:
            raise ProviderUnavailableError(f"{place}: {one_line(error)}") from None
        found: dict[str, jwt.PyJWK] = {}
        for raw in keys if isinstance(keys, list) else ():
            if not isinstance(raw, dict) or not isinstance(raw.get("kid"), str):
                continue
            if raw.get("use", "sig") != "sig" or raw.get("kty") not in ("RSA", "EC", "OKP"):
                continue
            try:
                key = jwt.PyJWK(raw)
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                continue  # of a kind that we do not know
            if key.algorithm_name in self._algorithms:
                found[raw["kid"]] = key
        return found


def _refused(why: str) -> Problem:
    return Problem(
        "unauthenticated",
        why,
        headers={"WWW-Authenticate": 'Bearer realm="wharfinger", error="invalid_token"'},
    )


async def _get(http: httpx.AsyncClient, place: str) -> bytes:
    """ProviderUnavailableError: there is no answer, or not the one that is expected."""
    headers = {"Accept": "application/json", **ACCEPT_ENCODING}
    try:
        async with (
            asyncio.timeout(2 * REQUEST_S_MAX),
            http.stream("GET", place, headers=headers) as answer,
        ):
            if answer.status_code != 200:
                raise ProviderUnavailableError(f"{place}: answered {answer.status_code}")
            return await body_within(answer, ANSWER_BYTES_MAX)
    except BodyTooLargeError:
        raise ProviderUnavailableError(f"{place}: more than {ANSWER_BYTES_MAX:,} bytes") from None
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError) as error:
        raise ProviderUnavailableError(
            f"{place}: {one_line(error) or type(error).__name__}"
        ) from None


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise SettingsError(f"api_oidc_ca_file: {ca_file}: {one_line(error)}") from None
