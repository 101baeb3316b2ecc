"""One event sent to one receiver, signed by Standard Webhooks, to an address that was checked.

A name is resolved at each connection, and the connection goes to an address that passed: what the
name means a moment later does not matter. Private addresses are refused unless their network is
listed; so is everything without TLS. Redirects are not followed, and no proxy of the environment is
used.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from standardwebhooks.webhooks import Webhook as Signer

from wharfinger.domain.text import one_line
from wharfinger_api.certificates import Network

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_S = 10.0
ANSWER_BYTES = 1024
URL_MAX = 2000
SECRET_PREFIX = "whsec_"
CONTENT_TYPE = "application/cloudevents+json"

_NAT64 = IPv6Network("64:ff9b::/96")

Address = IPv4Address | IPv6Address


class ReceiverAddressError(Exception):
    """One line: why a URL or an address may not be used."""


class SealError(Exception):
    """A secret cannot be read with the keys there are, or the keys themselves cannot."""


@dataclass(frozen=True, slots=True)
class ReceiverAnswer:
    """`status` 0: there was no answer, and `error` says why. `retry_after_s`: the receiver asked to
    be left alone for so long."""

    status: int
    error: str = ""
    body: bytes = b""
    retry_after_s: float = 0.0
    latency_us: int = 0

    @property
    def delivered(self) -> bool:
        return 200 <= self.status < 300


class SealedSecrets:
    """Secrets as the database has them. `keys`: of Fernet; the first seals, all open."""

    def __init__(self, keys: Sequence[str]) -> None:
        try:
            self._fernet = MultiFernet([Fernet(key) for key in keys])
        except ValueError:
            raise SealError("expected keys of 32 bytes in URL-safe base64, one a line") from None

    def sealed(self, secret: str) -> bytes:
        return self._fernet.encrypt(secret.encode())

    def opened(self, sealed: bytes) -> str:
        """SealError: none of the keys has sealed it."""
        try:
            return self._fernet.decrypt(sealed).decode()
        except InvalidToken:
            raise SealError("the secret was sealed with a key that is not in the file") from None


def new_secret() -> str:
    return SECRET_PREFIX + b64encode(secrets.token_bytes(32)).decode()


def checked_url(url: str) -> str:
    """ReceiverAddressError: it is no URL that events could be sent to."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ReceiverAddressError("expected a URL such as https://host/path") from None
    if len(url) > URL_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise ReceiverAddressError(f"expected at most {URL_MAX} printable signs without spaces")
    if parts.scheme not in ("https", "http") or not host or port == 0:
        raise ReceiverAddressError("expected a URL such as https://host/path")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ReceiverAddressError("expected no user, password or fragment in it")
    return url


def reachable(address: Address, scheme: str, listed: Sequence[Network]) -> bool:
    """Whether events may be sent to an address. Listed networks may be private, and without
    TLS."""
    # an address inside of another one is where the packet ends
    found = _within(address)
    if any(found.version == network.version and found in network for network in listed):
        return True
    return scheme == "https" and found.is_global and not found.is_multicast


def _within(address: Address) -> Address:
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


class WebhookSender:
    """Connections to receivers. `listed`: networks of private addresses that may be reached."""

    def __init__(self, listed: Sequence[Network] = (), timeout_s: float = TIMEOUT_S) -> None:
        self._listed = listed
        self._timeout_s = timeout_s
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    def check(self, url: str) -> None:
        """ReceiverAddressError: it has an address in it that may not be reached. What a name means
        is looked at when it is connected to."""
        parts = urlsplit(checked_url(url))
        with contextlib.suppress(ValueError):
            address = ip_address((parts.hostname or "").partition("%")[0])
            if not reachable(address, parts.scheme, self._listed):
                raise ReceiverAddressError(f"{address} may not be reached over {parts.scheme}")

    async def send(
        self, url: str, id_: str, body: bytes, signing: Sequence[str], user_agent: str
    ) -> ReceiverAnswer:
        """`signing`: secrets, the one of now first."""
        import aiohttp  # a tenth of the API's start, and most planes have no webhook

        began = time.monotonic()
        status, error, answer, retry = 0, "", b"", 0.0
        now = datetime.now(UTC)
        text = body.decode()
        headers = {
            "Content-Type": CONTENT_TYPE,
            "User-Agent": user_agent,
            "webhook-id": id_,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(Signer(s).sign(id_, now, text) for s in signing),
        }
        try:
            self.check(url)
            session = self._session(urlsplit(url).scheme)
            async with session.post(
                url, data=body, headers=headers, allow_redirects=False
            ) as response:
                status = response.status
                retry = _seconds(response.headers.get("retry-after", ""))
                answer = await response.content.read(ANSWER_BYTES)
                # what is left is not worth reading, and the connection not worth keeping
                if not response.content.at_eof():
                    response.close()
        except TimeoutError:
            error = f"no answer in {self._timeout_s:g} s"
        except (aiohttp.ClientError, OSError, ValueError, ReceiverAddressError) as failed:
            error = one_line(failed)[:500] or type(failed).__name__
        latency = int((time.monotonic() - began) * 1_000_000)
        # an answer that broke off in its body was given all the same
        return ReceiverAnswer(status, error, answer, retry, latency)

    def _session(self, scheme: str) -> aiohttp.ClientSession:
        found = self._sessions.get(scheme)
        if found is None:
            from wharfinger_api.receiver_sessions import receiver_session

            found = self._sessions[scheme] = receiver_session(
                scheme, partial(reachable, scheme=scheme, listed=self._listed), self._timeout_s
            )
        return found

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()


def _seconds(text: str) -> float:
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0.0
