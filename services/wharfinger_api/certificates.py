"""Client certificates: who is meant by one that was proven to us, or to a proxy that we trust.

`connections.Connection` puts the certificate that a connection has proven into the scope of each
request. A proxy that ends TLS itself passes it on in `Client-Cert` (RFC 9440); that header counts
from the addresses that the settings list, and from no other.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import unquote

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from starlette.types import Scope

from wharfinger_api.grants import ProvenIdentity, identity

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
        return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    except (binascii.Error, ValueError):
        return b""


def identity_of(certificate: bytes) -> ProvenIdentity | None:
    """By its first alternative name: a URI, else a DNS name, else a mail address; without any, by
    the common name of its subject. Groups: the organizations of the subject, as for Kubernetes.
    None: no certificate, or one that is not valid at this time."""
    try:
        found = x509.load_der_x509_certificate(certificate)
        now = datetime.now(UTC)
        if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
            return None
        subject = found.subject
        groups = [str(one.value) for one in _of(subject, NameOID.ORGANIZATION_NAME)]
        return identity("certificate", _name(found), groups)
    except ValueError:
        return None


def _name(certificate: x509.Certificate) -> str:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = None
    if names is not None:
        for kind in (x509.UniformResourceIdentifier, x509.DNSName, x509.RFC822Name):
            for value in names.get_values_for_type(kind):
                return str(value)
    common = _of(certificate.subject, NameOID.COMMON_NAME)
    return str(common[0].value) if len(common) == 1 else ""


def _of(name: x509.Name, oid: x509.ObjectIdentifier) -> list[x509.NameAttribute[Any]]:
    return list(name.get_attributes_for_oid(oid))
