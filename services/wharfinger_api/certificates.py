"""Client certificates: who is meant by one that was proven to us, or to a proxy that we trust.

`connections.Connection` puts the certificate that a connection has proven into the scope of each
request. A proxy that ends TLS itself passes it on in `Client-Cert` (RFC 9440); that header counts
from the addresses that the settings list, and from no other.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import unquote

from starlette.types import Scope

SCOPE_KEY = "wharfinger.client_certificate"
HEADER = b"client-cert"
HEADER_MAX = 32_768

Network = IPv4Network | IPv6Network


def certificate_in(scope: Scope, proxies: Sequence[Network]) -> bytes | None:
    """DER of what the client has proven. Of a proxy only what it passes on: its own certificate
    says nothing about who asks. Empty: something was passed on that is no certificate."""
    if not _listed(scope.get("client"), proxies):
        found: bytes | None = scope.get(SCOPE_KEY)
        return found
    passed = [value for name, value in scope["headers"] if name == HEADER]
    if not passed:
        return None
    return _der(passed[0]) if len(passed) == 1 and len(passed[0]) <= HEADER_MAX else b""


def _listed(client: Iterable[object] | None, proxies: Sequence[Network]) -> bool:
    if not proxies or client is None:
        return False
    try:
        address = ip_address(str(next(iter(client))))
    except (ValueError, StopIteration):
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in proxies)


def _der(value: bytes) -> bytes:
    """Of the header's value: `:base64:` as in RFC 9440, or PEM with escapes as in a URL, as nginx
    has it. Empty: neither."""
    text = value.decode("latin-1").strip()
    try:
        if text.startswith(":") and text.endswith(":"):
            return base64.b64decode(text[1:-1], validate=True)
        pem = unquote(text).encode("ascii")
        from wharfinger_api.certificate_identity import der_of

        return der_of(pem)
    except (binascii.Error, ValueError):
        return b""
