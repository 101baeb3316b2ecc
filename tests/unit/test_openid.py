"""Which JWT proves who asks: those that the provider has signed for us, and none that pretends."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.providers import AUDIENCE, DISCOVERY, OpenIdProvider, openid_provider

from wharfinger_api import openid
from wharfinger_api.grants import ProvenIdentity
from wharfinger_api.openid import OpenId, claimed
from wharfinger_api.problems import Problem


@pytest.fixture
def provider() -> Iterator[OpenIdProvider]:
    with openid_provider() as found:
        yield found


def relying(provider: OpenIdProvider, **more: Any) -> OpenId:
    return OpenId(provider.issuer, AUDIENCE, ["RS256", "ES256"], **more)


async def refusal(openid_: OpenId, token: str) -> str:
    with pytest.raises(Problem) as caught:
        await openid_.of(token)
    assert caught.value.kind == "unauthenticated", caught.value.detail
    assert caught.value.headers["WWW-Authenticate"].startswith("Bearer ")
    return caught.value.detail


def segment(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


async def test_a_signed_token_says_who_it_is_about(provider: OpenIdProvider) -> None:
    found = await relying(provider).of(provider.token(groups=["platform", 7, "line\nbreak"]))
    assert found == ProvenIdentity("oidc", "ada", ("platform",))
    by_name = relying(provider, name_claim="email", groups_claim="roles")
    token = provider.token(email="ada@example.org", roles="ops")
    assert await by_name.of(token) == ProvenIdentity("oidc", "ada@example.org", ("ops",))
    unverified = provider.token(email="ada@example.org", email_verified=False)
    assert "not verified" in await refusal(by_name, unverified)
    assert "lacks a claim" in await refusal(by_name, provider.token())
    several = provider.token(aud=["other", AUDIENCE])
    assert (await relying(provider).of(several)).name == "ada"


async def test_keys_are_fetched_once_and_again_when_they_rotate(
    provider: OpenIdProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = relying(provider)
    for _ in range(3):
        await ours.of(provider.token())
    assert provider.asked == [DISCOVERY, "/keys"]
    old = provider.token()
    provider.rotate("second")
    # not at once again: else each token with an unknown key would be a request to the provider
    assert "key" in await refusal(ours, provider.token())
    assert len(provider.asked) == 2
    monkeypatch.setattr(openid, "AGAIN_S", 0.0)
    assert (await ours.of(provider.token())).name == "ada"
    assert "key" in await refusal(ours, old)


async def test_a_provider_that_is_away_is_no_wrong_token(
    provider: OpenIdProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openid, "AGAIN_S", 0.0)
    ours = relying(provider)
    provider.up = False
    with pytest.raises(Problem) as caught:
        await ours.of(provider.token())
    assert (caught.value.kind, caught.value.status) == ("provider-away", 503)
    provider.up = True
    await ours.of(provider.token())
    provider.up = False
    monkeypatch.setattr(openid, "KEYS_S", 0.0)
    assert (await ours.of(provider.token())).name == "ada"  # by the keys of before
    monkeypatch.setattr(openid, "KEYS_S_MAX", 0.0)
    with pytest.raises(Problem) as caught:
        await ours.of(provider.token())
    assert caught.value.kind == "provider-away"


async def test_a_document_of_another_issuer_is_not_used(provider: OpenIdProvider) -> None:
    documents: tuple[dict[str, Any], ...] = (
        {"issuer": "https://evil.example"},
        {"jwks_uri": "http://evil.example/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": 7},
    )
    for wrong in documents:
        provider.discovery = {
            "issuer": provider.issuer,
            "jwks_uri": f"{provider.issuer}/keys",
            **wrong,
        }
        with pytest.raises(Problem) as caught:
            await relying(provider).of(provider.token())
        assert caught.value.kind == "provider-away"


async def test_claims_that_do_not_fit_are_refused(provider: OpenIdProvider) -> None:
    ours = relying(provider)
    now = int(time.time())
    expected: dict[str, dict[str, Any]] = {
        "the token has expired": {"exp": now - 61},
        "the token is not valid yet": {"nbf": now + 90},
        "the token is for another audience": {"aud": "another"},
        "the token is of another issuer": {"iss": provider.issuer + "/"},
    }
    for why, claims in expected.items():
        assert await refusal(ours, provider.token(**claims)) == why
    await ours.of(provider.token(exp=now - 30))  # clocks differ
    for name in ("exp", "iat", "iss", "aud", "sub"):
        claims = provider.claims()
        del claims[name]
        key = provider.keys["first"]
        token = jwt.encode(claims, key, "ES256", headers={"kid": "first"})
        assert await refusal(ours, token)
    for subject in ("", " ada", "a\nb", "x" * 500):
        assert "sub" in await refusal(ours, provider.token(sub=subject))


async def test_who_has_no_key_of_the_provider_cannot_make_a_token(provider: OpenIdProvider) -> None:
    ours = relying(provider)
    genuine = provider.token()
    head, body, signature = genuine.split(".")
    claims = provider.claims(sub="root", groups=["admins"])
    public = (
        provider.keys["first"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    mine = ec.generate_private_key(ec.SECP256R1())
    my_jwk = jwt.algorithms.ECAlgorithm.to_jwk(mine.public_key(), as_dict=True)

    def forged(algorithm: str, key: Any, **headers: Any) -> str:
        return jwt.encode(claims, key, algorithm, headers={"kid": "first", **headers})

    def hmac_of(secret: bytes, alg: str = "HS256") -> str:
        """As a library signs that does not notice that the secret is a public key."""
        import hashlib
        import hmac

        signed = f"{segment({'alg': alg, 'kid': 'first'})}.{segment(claims)}"
        digest = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
        return f"{signed}.{segment(digest)}"

    unsigned = [
        f"{segment({'alg': alg, 'typ': 'JWT', 'kid': 'first'})}.{segment(claims)}."
        for alg in ("none", "None", "NONE", "nOnE", "", None, 0)
    ]
    attacks = [
        *unsigned,
        f"{segment({'kid': 'first'})}.{segment(claims)}.{signature}",
        # the public key taken for a secret
        hmac_of(public),
        hmac_of(public, "ES256"),
        hmac_of(public.strip()),
        hmac_of(json.dumps(provider.jwks()["keys"][0]).encode()),
        hmac_of(b""),
        # another key, and one that the token brings along
        forged("ES256", mine),
        forged("ES256", mine, jwk=my_jwk),
        forged("ES256", mine, jku=f"{provider.issuer}/mine", x5u="https://evil.example"),
        forged("RS256", rsa.generate_private_key(65537, 2048)),
        # an id of a key that is a path, a query, or another thing than a text
        *(
            forged("ES256", mine, kid=kid)
            for kid in (
                "../../../../dev/null",
                "/dev/null",
                "first' or '1'='1",
                "first\x00",
                "http://evil.example/keys",
                "",
            )
        ),
        *(
            f"{segment({'alg': 'ES256', 'kid': kid})}.{segment(claims)}.{signature}"
            for kid in (7, None, ["first"], {"first": 1}, True)
        ),
        # genuine parts of something else
        f"{head}.{segment(claims)}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}.{segment(bytes(64))}",  # (0, 0) is no signature
        f"{segment({'alg': 'ES256', 'kid': 'first', 'crit': ['x'], 'x': 1})}.{body}.{signature}",
        f"{segment({'alg': 'ES256', 'kid': 'first', 'b64': False, 'crit': ['b64']})}..{signature}",
        f"{head}.{body}.{signature}.{signature}",
        "a.b.c",
        "..",
        "",
        segment({"alg": "ES256"}) * 100,
        "[" * 10_000 + ".a.b",
    ]
    for attack in attacks:
        await refusal(ours, attack)
    assert (await ours.of(genuine)).name == "ada"


async def test_keys_that_cannot_sign_for_us_are_left_out(provider: OpenIdProvider) -> None:
    secret = b"s" * 32
    provider.more = [
        {"kty": "oct", "kid": "shared", "k": segment(secret), "alg": "HS256"},
        {"kty": "EC", "kid": "enc", "use": "enc", **_curve("P-256")},
        {"kty": "EC", "kid": "broken", "crv": "P-256", "x": "!", "y": 1},
        {"kty": "what", "kid": "unknown"},
        {"kty": "EC", "kid": 7},
        "no key",  # type: ignore[list-item]
    ]
    ours = relying(provider)
    await ours.of(provider.token())
    token = jwt.encode(provider.claims(), secret, "HS256", headers={"kid": "shared"})
    assert "algorithm" in await refusal(ours, token)
    for kid in ("shared", "enc", "broken", "unknown"):
        assert "key" in await refusal(ours, provider.token(headers={"kid": kid}))


def _curve(name: str) -> dict[str, Any]:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    found = jwt.algorithms.ECAlgorithm.to_jwk(key, as_dict=True)
    return {"crv": name, "x": found["x"], "y": found["y"]}


def test_what_is_no_jwt_claims_nothing() -> None:
    for text in ("whf", "a.b", "a.b.c", f"{segment({'alg': 'none'})}.{segment([1])}.", "é.é.é"):
        assert claimed(text) is None
