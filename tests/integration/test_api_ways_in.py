"""Who comes to the API by an OpenID provider or a client certificate is on record like the holder
of a token, and a process of the API asks for the certificates that its settings name."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from tests.api import Client, serving
from tests.integration.test_api_changes import body, manifests
from tests.patience import until
from tests.providers import AUDIENCE, Authority, openid_provider

from wharfinger.events.origin import origin_of
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.bodies import unpack
from wharfinger_api.grants import Grants
from wharfinger_api.identities import Providers
from wharfinger_api.openid import OpenId

pytestmark = pytest.mark.integration

GRANTS = """\
grants:
- groups: ["oidc:platform"]
  roles: [operator]
  namespaces: [shop]
- users: ["certificate:spiffe://example.org/reader"]
  roles: [viewer]
"""


def grants(tmp_path: Path) -> Path:
    file = tmp_path / "grants.yaml"
    file.write_text(GRANTS)
    return file


async def test_who_comes_by_a_provider_is_bound_and_on_record(
    database_url: str, ledger: Ledger, tmp_path: Path
) -> None:
    with openid_provider() as provider:
        openid = OpenId(provider.issuer, AUDIENCE, ["ES256"])
        certified = Authority(tmp_path / "ca").certificate(
            "reader", (x509.UniformResourceIdentifier("spiffe://example.org/reader"),)
        )
        ways = Providers(Grants(grants(tmp_path)), openid, None, (ip_network("127.0.0.1"),))
        async with serving(database_url, ways) as api:
            ada = Client(api.http, provider.token(groups=["platform"]))
            who = (await ada.get("/v1/whoami")).json()
            assert who == {
                "type": "oidc",
                "id": "ada",
                "roles": ["operator"],
                "namespaces": ["shop"],
            }
            applied = await ada.send("POST", "/v1/apply", body(manifests()))
            assert applied.status_code == 200, applied.text
            elsewhere = await ada.send("POST", "/v1/apply", body(manifests("bank")))
            assert elsewhere.status_code == 403
            async with ledger.database.reading() as raw:
                found = await raw.fetch("select encoding, body from event")
            told = [origin_of(unpack(encoding, stored)) for encoding, stored in found]
            assert {(origin.authtype, origin.authid) for origin in told} == {("user", "oidc:ada")}

            stranger = await Client(api.http, provider.token(sub="eve")).get("/v1/bindings")
            assert stranger.status_code == 403
            assert "no grant names oidc:eve" in stranger.json()["detail"]
            late = await Client(api.http, provider.token(exp=1)).get("/v1/bindings")
            assert (late.status_code, late.json()["detail"]) == (401, "the token has expired")
            # what needs no credential is answered with a wrong one too
            assert (await Client(api.http, provider.token(exp=1)).get("/healthz")).is_success
            other = await Client(api.http, provider.token(iss="https://x")).get("/v1/bindings")
            assert other.status_code == 401

            passed = {"Client-Cert": httpx.QueryParams(a=certified[0].read_text())}
            header = str(passed["Client-Cert"]).removeprefix("a=").replace("+", "%20")
            reader = await api.anonymous().get("/v1/whoami", **{"Client-Cert": header})
            assert reader.json()["id"] == "spiffe://example.org/reader"
            # a wrong token is not mended by a certificate
            both = await Client(api.http, "whf_wrong").get("/v1/whoami", **{"Client-Cert": header})
            assert both.status_code == 401

            await api.api.recorder.stop()
            auditor = await api.as_("auditor")
            records = (await auditor.get("/v1/access?limit=100")).json()["items"]
            assert ("oidc:ada", "POST /v1/apply", "allowed") in {
                (r["actor"], r["action"], r["outcome"]) for r in records
            }
            assert ("oidc:eve", "refused") in {(r["actor"], r["outcome"]) for r in records}
            assert not [r for r in records if "eyJ" in json.dumps(r)]


@contextmanager
def api_process(database_url: str, tmp_path: Path, **settings: object) -> Iterator[int]:
    """Its port."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WHARFINGER_")}
    named = {f"WHARFINGER_{name.upper()}": str(value) for name, value in settings.items()}
    data = tmp_path / "data"
    data.mkdir()
    own = {"WHARFINGER_DATABASE": database_url, "WHARFINGER_DATA_DIR": str(data)}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "wharfinger_api"],
            env={**clean, **own, **named},
            stdout=log,
            stderr=log,
        )
        try:
            card = data / "run" / "api.json"

            def up() -> bool:
                assert process.poll() is None, (tmp_path / "log").read_text()
                return card.exists()

            until(up)
            yield int(json.loads(card.read_text())["http_port"])
        finally:
            process.terminate()
            process.wait()
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_process_takes_client_certificates_over_tls(database_url: str, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    here = (x509.IPAddress(ip_address("127.0.0.1")),)
    cert, key = authority.certificate("server", here)
    spiffe = (x509.UniformResourceIdentifier("spiffe://example.org/reader"),)
    files = {"api_tls_cert_file": cert, "api_tls_key_file": key}
    with api_process(
        database_url,
        tmp_path,
        api_grants=grants(tmp_path),
        api_tls_client_ca_file=authority.file,
        **files,
    ) as port:

        def asked(
            certificate: tuple[Path, Path] | None, path: str = "/v1/whoami"
        ) -> httpx.Response:
            tls = ssl.create_default_context(cafile=authority.file)
            if certificate is not None:
                tls.load_cert_chain(*certificate)
            return httpx.get(f"https://127.0.0.1:{port}{path}", verify=tls)

        reader = asked(authority.certificate("reader", spiffe))
        assert reader.status_code == 200, reader.text
        assert (reader.json()["type"], reader.json()["id"]) == (
            "certificate",
            "spiffe://example.org/reader",
        )
        assert asked(authority.certificate("stranger")).status_code == 403
        assert asked(None).status_code == 401
        assert asked(None, "/readyz").json()["ready"] is True
        for wrong in (other.certificate("reader", spiffe), authority.certificate("old", days=-1)):
            with pytest.raises(httpx.HTTPError):
                asked(wrong)
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/readyz")

        # a certificate that is renewed is shown to new connections
        renewed, renewed_key = authority.certificate("renewed", here)
        key.write_bytes(renewed_key.read_bytes())
        cert.write_bytes(renewed.read_bytes())

        def shown() -> bool:
            pem = ssl.get_server_certificate(("127.0.0.1", port))
            return x509.load_pem_x509_certificate(pem.encode()) == x509.load_pem_x509_certificate(
                renewed.read_bytes()
            )

        until(shown)
