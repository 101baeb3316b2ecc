"""A support bundle has what helps, also of a plane that is broken, and nothing that is secret."""

from __future__ import annotations

import base64
import json
import tarfile
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest

from wharfinger.runtime.kube.joined import JoinedCluster, store_joined
from wharfinger.runtime.kube.kubeconfig import Access, ExecPlugin
from wharfinger.runtime.plane import Plane, write_plane
from wharfinger_cli.failures import CommandError
from wharfinger_cli.output import Format
from wharfinger_cli.request import Request
from wharfinger_cli.support_bundle import HIDDEN, Redactor, support_bundle

SECRETS = {
    name: f"{name}-S3cr3t+{number}/x"
    for number, name in enumerate(
        ("database", "kafka", "prometheus", "token", "other", "plugin", "proxy", "file", "env")
    )
}
PEM_LINE = base64.b64encode(b"the private part of a key, all of it").decode()
PEM = f"-----BEGIN EC PRIVATE KEY-----\n{PEM_LINE}\n-----END EC PRIVATE KEY-----\n"
OURS = "whf_Zm9vYmFyYmF6cXV4cXV1eA"


def parts_of(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        return {
            name.partition("/")[2]: file.read().decode()
            for name in tar.getnames()
            if (file := tar.extractfile(name)) is not None
        }


@pytest.fixture(params=[partial(quote, safe=""), str], ids=["as it should be", "not escaped"])
def broken(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data directory of a plane whose database and broker do not answer. Every place that may
    hold a secret holds one, and the logs repeat them all. In an address a password has to be
    escaped, and is not always."""
    data_dir = tmp_path / "plane"
    password = request.param(SECRETS["database"])
    url = f"postgresql+asyncpg://wharfinger:{password}@127.0.0.1:1/ledger"
    data_dir.mkdir()
    write_plane(data_dir, Plane("127.0.0.1:1", url, "memory", "life", 1))
    (tmp_path / "token").write_text(SECRETS["file"] + "\n")
    monkeypatch.setenv("WHARFINGER_KAFKA_USERNAME", "ada")
    monkeypatch.setenv("WHARFINGER_KAFKA_PASSWORD", SECRETS["kafka"])
    monkeypatch.setenv("WHARFINGER_PROMETHEUS_BEARER", SECRETS["prometheus"])
    monkeypatch.setenv("WHARFINGER_ANY_PASSWORD", SECRETS["env"])
    plugin = ExecPlugin("client.authentication.k8s.io/v1", "aws", (), (("KEY", SECRETS["plugin"]),))
    key = PEM.encode()
    for name, access in {
        "oslo": Access("https://oslo:6443", token=SECRETS["token"], certificate=b"c", key=key),
        "bergen": Access("https://bergen:6443", plugin=plugin),
        "moss": Access("https://moss:6443", proxy=f"http://ada:{SECRETS['proxy']}@proxy:3128"),
    }.items():
        write = Access("https://oslo:6443", token=SECRETS["other"]) if name == "oslo" else None
        store_joined(data_dir / "clusters", JoinedCluster(name, access, "act", write_access=write))
    (data_dir / "clusters" / "torn.yaml").write_text(f"token: {SECRETS['token']}\n: [")
    (data_dir / "log").mkdir()
    said = [f"could not use {secret} at once" for secret in SECRETS.values()]
    said += [PEM, f"Authorization: Bearer {OURS}", f"password={SECRETS['kafka']}x", url]
    (data_dir / "log" / "scheduler.log").write_text("\n".join([*said, "oslo is silent"]) + "\n")
    return data_dir


def test_nothing_secret_is_in_the_bundle_of_a_broken_plane(broken: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle.tar.gz"
    support_bundle(Request(broken, Format.TABLE, token_file=tmp_path / "token"), out, lines=2000)
    parts = parts_of(out)
    everything = "\n".join(parts.values())
    for secret in (*SECRETS.values(), PEM_LINE, OURS):
        assert secret not in everything
        assert json.dumps(secret)[1:-1] not in everything
    assert out.stat().st_mode & 0o777 == 0o600
    assert "oslo is silent" in parts["log/scheduler.log"]
    assert HIDDEN in parts["log/scheduler.log"]
    joined = {one.get("name", one.get("file")): one for one in json.loads(parts["clusters.json"])}
    assert set(joined) == {"oslo", "bergen", "moss", "torn.yaml"}
    assert joined["oslo"]["mode"] == "act"
    assert joined["oslo"]["writes_with_other_credentials"]
    assert json.loads(parts["settings.json"])["kafka_username"] == "ada"
    assert json.loads(parts["about.json"])["packages"]["pydantic"]
    assert {check["check"] for check in json.loads(parts["doctor.json"])} >= {"python", "settings"}
    for part in ("streams", "dead-letters"):
        assert json.loads(parts[f"{part}.json"])["failed"], "the database does not answer"


def test_what_is_there_already_is_not_overwritten(broken: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(CommandError, match="File exists"):
        support_bundle(Request(broken, Format.TABLE), tmp_path / "mine", lines=10)
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("sasl_plain_password='a b'", f"sasl_plain_password='{HIDDEN} b'"),
        ('{"client-key": 1, "apiKey": "k1"}', '{"client-key": 1, "apiKey": "' + HIDDEN + '"}'),
        ("postgresql://ada:pw@db/x", f"postgresql://ada:{HIDDEN}@db/x"),
        ("Basic dXNlcjpwYXNz", f"Basic {HIDDEN}"),
        ("password authentication failed for ada", "password authentication failed for ada"),
        ("oslo: 3 tokens are left", "oslo: 3 tokens are left"),
        ("known-secret, known", f"{HIDDEN}, known"),
    ],
)
def test_what_looks_like_a_secret_is_hidden_and_other_words_stay(text: str, cleaned: str) -> None:
    assert Redactor(["known-secret", "kno"]).text(text) == cleaned
