"""Providers of identities for tests: one that signs tokens and answers over HTTP as an OpenID
provider does, and one that signs certificates."""

from __future__ import annotations

import datetime
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUDIENCE = "wharfinger"
DISCOVERY = "/.well-known/openid-configuration"


class OpenIdProvider:
    """`keys`: by id, those that it publishes. `asked`: the paths of all requests."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.asked: list[str] = []
        self.up = True
        self.discovery: dict[str, Any] = {"issuer": issuer, "jwks_uri": f"{issuer}/keys"}
        self.more: list[dict[str, Any]] = []
        self.rotate("first")

    def rotate(self, kid: str) -> None:
        """From now on this key alone."""
        self.keys = {kid: ec.generate_private_key(ec.SECP256R1())}

    def jwks(self) -> dict[str, Any]:
        keys = [
            {**jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid}
            for kid, key in self.keys.items()
        ]
        return {"keys": [*keys, *self.more]}

    def claims(self, **claims: Any) -> dict[str, Any]:
        now = int(time.time())
        base = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300}
        return {**base, **claims}

    def token(self, kid: str = "", headers: dict[str, Any] | None = None, **claims: Any) -> str:
        name = kid or next(iter(self.keys))
        key = self.keys.get(name) or next(iter(self.keys.values()))
        named = {"kid": name, **(headers or {})}
        return jwt.encode(self.claims(**claims), key, "ES256", headers=named)


@contextmanager
def openid_provider() -> Iterator[OpenIdProvider]:
    found: list[OpenIdProvider] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider = found[0]
            provider.asked.append(self.path)
            bodies = {DISCOVERY: provider.discovery, "/keys": provider.jwks()}
            status = 200 if provider.up and self.path in bodies else 503
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(bodies.get(self.path, {})).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.append(OpenIdProvider(f"http://127.0.0.1:{server.server_port}"))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield found[0]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Authority:
    """Signs certificates; `directory` has its own one (`ca.pem`) and theirs with their keys."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key(), days=1).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file = directory / "ca.pem"
        signed = builder.sign(self._key, hashes.SHA256())
        self.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def certificate(
        self,
        common_name: str,
        names: tuple[x509.GeneralName, ...] = (),
        organizations: tuple[str, ...] = (),
        days: int = 1,
    ) -> tuple[Path, Path]:
        """The files of a certificate and its key. `days` negative: it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
        builder = self._builder(subject, key.public_key(), days)
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        stem = self.directory / f"{common_name}-{x509.random_serial_number():x}"
        cert, key_file = stem.with_suffix(".pem"), stem.with_suffix(".key")
        signed = builder.sign(self._key, hashes.SHA256())
        cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return cert, key_file

    def _builder(self, subject: x509.Name, key: Any, days: int) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=3))
            .not_valid_after(now + datetime.timedelta(days=days))
        )
