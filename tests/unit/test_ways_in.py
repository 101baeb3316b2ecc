"""Who a client certificate names, from whom a passed-on one counts, and which roles grants give."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from tests.providers import Authority

from wharfinger.runtime.settings import SettingsError, load_settings
from wharfinger_api import grants as grants_module
from wharfinger_api.access import Principal, Role
from wharfinger_api.certificate_identity import identity_of
from wharfinger_api.certificates import SCOPE_KEY, certificate_in
from wharfinger_api.grants import Grants, GrantsError, ProvenIdentity, read_grants

DNS = x509.DNSName("metrics.example.org")
URI = x509.UniformResourceIdentifier("spiffe://example.org/metrics")
MAIL = x509.RFC822Name("ada@example.org")


def der(pair: tuple[Path, Path]) -> bytes:
    found = x509.load_pem_x509_certificate(pair[0].read_bytes())
    return found.public_bytes(Encoding.DER)


def test_a_certificate_is_named_by_its_alternative_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    expected = {
        (): "web",
        (MAIL,): "ada@example.org",
        (MAIL, DNS): "metrics.example.org",
        (DNS, x509.DNSName("other.example.org"), URI): "spiffe://example.org/metrics",
        (x509.IPAddress(ip_address("10.0.0.1")),): "web",
    }
    for names, name in expected.items():
        found = identity_of(der(authority.certificate("web", names, ("ops", "dev"))))
        assert found == ProvenIdentity("certificate", name, ("ops", "dev"))
    assert identity_of(der(authority.certificate("old", days=-1))) is None
    assert identity_of(der(authority.certificate("a\u202eb"))) is None
    for junk in (b"", b"junk", der(authority.certificate("web"))[:-1]):
        assert identity_of(junk) is None


def test_a_passed_on_certificate_counts_from_listed_addresses_only(tmp_path: Path) -> None:
    certificate = der(Authority(tmp_path).certificate("web"))
    pem = x509.load_der_x509_certificate(certificate).public_bytes(Encoding.PEM)
    header = b":" + base64.b64encode(certificate) + b":"
    proxies = (ip_network("10.1.0.0/16"), ip_network("fd00::/8"))

    def found(client: str | None, *headers: bytes, own: bytes | None = None) -> bytes | None:
        scope = {
            "headers": [(b"client-cert", value) for value in headers],
            "client": (client, 1) if client is not None else None,
            SCOPE_KEY: own,
        }
        return certificate_in(scope, proxies)

    for proxy in ("10.1.2.3", "fd00::1", "::ffff:10.1.2.3"):
        assert found(proxy, header) == certificate
        assert found(proxy, quote(pem).encode()) == certificate
        assert found(proxy) is None
        assert found(proxy, own=certificate) is None  # of the proxy itself
        for wrong in (b"", b":!:", b"junk", header * 2, header + b" " * 40_000):
            assert not found(proxy, wrong) or identity_of(found(proxy, wrong) or b"") is None
        assert found(proxy, header, header) == b""
    for other in ("10.2.0.1", "127.0.0.1", "::1", "unix", None):
        assert found(other, header) is None
        assert found(other, header, own=b"own") == b"own"
    assert certificate_in({"headers": [(b"client-cert", header)], "client": ("a", 1)}, ()) is None


GRANTS = """\
grants:
- users: ["oidc:root"]
  roles: [admin]
- groups: ["oidc:platform"]
  roles: [operator, viewer]
  namespaces: [shop]
- groups: ["oidc:everyone", "certificate:everyone"]
  roles: [viewer]
- users: ["kubernetes:system:serviceaccount:ci:metrics"]
  roles: [service]
  sources: [/ci]
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "grants.yaml"
    draft = tmp_path / "draft"
    draft.write_text(text)
    os.replace(draft, file)
    return file


def test_the_first_grant_that_names_a_caller_is_all_that_it_gets(tmp_path: Path) -> None:
    grants = Grants(written(tmp_path, GRANTS))
    ada = grants.principal(ProvenIdentity("oidc", "ada", ("everyone", "platform")))
    roles = frozenset({Role.OPERATOR, Role.VIEWER})
    groups = ("everyone", "platform")
    assert ada == Principal("oidc", "ada", roles, frozenset({"shop"}), groups=groups)
    bob = grants.principal(ProvenIdentity("oidc", "bob", ("everyone",)))
    assert bob == Principal("oidc", "bob", frozenset({Role.VIEWER}), groups=("everyone",))
    robot = grants.principal(ProvenIdentity("kubernetes", "system:serviceaccount:ci:metrics"))
    assert robot.roles == {Role.SERVICE}
    assert robot.sources == {"/ci"}
    assert (robot.authtype, ada.authtype) == ("service_account", "user")
    # names of one way in are not those of another
    for who in (
        ProvenIdentity("kubernetes", "root"),
        ProvenIdentity("certificate", "root"),
        ProvenIdentity("kubernetes", "eve", ("platform", "everyone", "oidc:platform")),
        ProvenIdentity("oidc", "system:serviceaccount:ci:metrics"),
        ProvenIdentity("oidc", "eve", ("Platform", "platform ", "")),
    ):
        assert grants.principal(who).roles == frozenset()
    assert Grants(None).principal(ProvenIdentity("oidc", "root")).roles == frozenset()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "expected a list under `grants`"),
        ("grants: {}", "expected a list"),
        ("grants: []\nmore: 1", "expected a list"),
        ("grants:\n- [", "grants.yaml:2: not YAML"),
        ("grants:\n- 7", "grants.yaml:2: grants/0: Expected `object`"),
        (GRANTS + "- users: [oidc:a]\n  roles: [root]\n", "grants.yaml:12: grants/4: Invalid enum"),
        (GRANTS + "- users: [oidc:a]\n  role: [viewer]\n", "unknown field `role`"),
        (GRANTS + "- users: [oidc:a]\n  roles: []\n", "expected at least one of viewer"),
        (GRANTS + "- roles: [viewer]\n", "expected users or groups"),
        (GRANTS + "- users: [ada]\n  roles: [viewer]\n", "expected a name that begins with oidc:"),
        (GRANTS + "- users: ['token:up']\n  roles: [viewer]\n", "got 'token:up'"),
    ],
)
def test_a_wrong_grant_is_named_by_line(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(GrantsError) as caught:
        read_grants(written(tmp_path, text))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_changed_grants_hold_at_once_and_broken_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grants_module, "READ_S", 0.0)
    file = written(tmp_path, GRANTS)
    grants = Grants(file)
    root = ProvenIdentity("oidc", "root")
    assert grants.principal(root).roles == {Role.ADMIN}
    written(tmp_path, GRANTS.replace("[admin]", "[auditor]"))
    assert grants.principal(root).roles == {Role.AUDITOR}
    written(tmp_path, "grants: what")
    assert grants.principal(root).roles == {Role.AUDITOR}
    file.unlink()
    assert grants.principal(root).roles == {Role.AUDITOR}
    written(tmp_path, GRANTS)
    assert grants.principal(root).roles == {Role.ADMIN}
    with pytest.raises(GrantsError, match="No such file"):
        Grants(tmp_path / "absent")


def wrong_settings(**flags: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags)
    return str(caught.value)


def test_settings_that_open_a_door_by_mistake_are_refused(
    tmp_path: Path, clean: Callable[[], None]
) -> None:
    clean()
    grants = {"api_grants": str(tmp_path)}
    oidc = {"api_oidc_issuer": "https://id.example.org", "api_oidc_audience": "w", **grants}
    assert load_settings(oidc).api_oidc_algorithms == "RS256,ES256"
    assert load_settings({**oidc, "api_oidc_issuer": "https://x/"}).api_oidc_issuer == "https://x/"
    assert "expected api_grants too" in wrong_settings(**{**oidc, "api_grants": None})
    assert "expected both" in wrong_settings(**{**oidc, "api_oidc_audience": None})
    for url in ("http://id.example.org", "id.example.org", "https://", "https://a/?b"):
        assert "expected https://" in wrong_settings(**{**oidc, "api_oidc_issuer": url})
    for names in ("none", "HS256", "RS256,none", "RS256,", ""):
        assert "expected some of" in wrong_settings(**{**oidc, "api_oidc_algorithms": names})
    for proxies in ("10.0.0.1/8", "proxy", "0.0.0.0/0", "::/0"):
        assert "expected addresses" in wrong_settings(api_proxies=proxies, **grants)
    assert load_settings({"api_proxies": "10.0.0.0/8, ::1", **grants}).api_proxies == (
        "10.0.0.0/8,::1"
    )
    for name in ("api_tls_cert_file", "api_tls_key_file"):
        assert "expected both" in wrong_settings(**{name: "file"})
    assert "api_tls_cert_file too" in wrong_settings(api_tls_client_ca_file="file", **grants)
    for name in ("api_kubernetes", "api_tls_client_ca_file"):
        assert "expected api_" in wrong_settings(**{name: "file"})


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """Settings of this test alone."""

    def done() -> None:
        for name in [name for name in os.environ if name.startswith("WHARFINGER_")]:
            monkeypatch.delenv(name)
        monkeypatch.chdir(tmp_path)

    return done
