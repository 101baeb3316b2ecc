"""Who a certificate names. A module of its own, because what reads certificates takes 1.3 MB of the
process: it is loaded with the first one that is shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from wharfinger_api.grants import ProvenIdentity, identity


def der_of(pem: bytes) -> bytes:
    """ValueError: it is no certificate."""
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)


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
