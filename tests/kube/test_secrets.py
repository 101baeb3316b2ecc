"""Tokens, keys and what else is secret in the kubeconfigs of joined clusters: in no event, row,
record, log, metric or answer of a plane, also while the clusters cannot be read any more."""

from __future__ import annotations

import asyncio
import base64
import secrets
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.kube.collecting import node
from tests.kube.member import Member
from tests.kube.test_joining import kubeconfig
from tests.patience import in_patience, until

from wharfinger.events.streams import TOPICS
from wharfinger.runtime.broadcast import BroadcastConsumer
from wharfinger.runtime.kube.joined import read_joined, store_joined
from wharfinger.runtime.kube.kubeconfig import Access, ExecPlugin, read_kubeconfig
from wharfinger.runtime.kube.rights import ACCOUNT, NAMESPACE, collector_rights
from wharfinger.runtime.ledger import Ledger
from wharfinger.runtime.ledger.bodies import PLAIN, ZSTD, unpack
from wharfinger.runtime.settings import load_settings

V1 = "client.authentication.k8s.io/v1"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

PATHS = ("/metrics", "/healthz", "/readyz", "/v1/clusters", "/no-such-page")
COMMANDS = (
    ("get", "clusters", "-o", "yaml"),
    ("status",),
    ("doctor",),
    ("effects", "--open"),
    ("drift",),
)


class Secrets:
    """`found`: what it is -> its text."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def add(self, what: str, text: str) -> str:
        self.found[what] = text
        return text

    def new(self, what: str) -> str:
        return self.add(what, secrets.token_hex(24))

    def within(self, data: bytes) -> list[str]:
        """Those that are in it as they are, in base64, or in hexadecimal digits."""
        return [
            what
            for what, text in self.found.items()
            if any(
                form in data
                for form in (
                    text.encode(),
                    base64.b64encode(text.encode()),
                    text.encode().hex().encode(),
                )
            )
        ]


@pytest.fixture
def accounts(members: list[Member]) -> Iterator[list[str]]:
    """A token for each of the clusters, which may read it."""
    tokens: list[str] = []
    for member in members:
        member.apply(*collector_rights(), node(f"{member.name}-n"))
        tokens.append(member.kubectl("create", "token", "-n", NAMESPACE, ACCOUNT).strip())
    yield tokens
    for member in members:
        member.kubectl("delete", "clusterrolebinding,clusterrole", ACCOUNT)


def a_plugin(directory: Path, known: Secrets, token: str) -> ExecPlugin:
    """Prints the token, as those of clouds do. Its arguments and environment are secret, too."""
    script = directory / "login"
    script.write_text(
        f'#!/bin/sh\necho \'{{"apiVersion": "{V1}", "status": {{"token": "{token}"}}}}\'\n'
    )
    script.chmod(stat.S_IRWXU)
    argument, variable = known.new("argument of the plugin"), known.new("variable of the plugin")
    return ExecPlugin(V1, str(script), (argument,), (("LOGIN_SECRET", variable),))


def ways(
    members: list[Member], tokens: list[str], known: Secrets, directory: Path
) -> dict[str, Access]:
    """Each cluster with credentials of another kind."""
    by_token, by_certificate, by_plugin = (read_kubeconfig(m.kubeconfig()) for m in members)
    assert by_certificate.key is not None
    known.add("line of the key", by_certificate.key.decode().splitlines()[2])
    known.add("key in base64", base64.b64encode(by_certificate.key).decode())
    plain = [Access(access.server, access.authority) for access in (by_token, by_plugin)]
    plugin = a_plugin(directory, known, known.add("token of the plugin", tokens[2]))
    return {
        members[0].name: replace(plain[0], token=known.add("token", tokens[0])),
        members[1].name: by_certificate,
        members[2].name: replace(plain[1], plugin=plugin),
    }


def broken(ways: dict[str, Access], known: Secrets, directory: Path) -> dict[str, Access]:
    """A token that is refused, another authority, and a plugin that fails and says its secrets."""
    (first, by_token), (second, by_certificate), (third, by_plugin) = ways.items()
    assert by_plugin.plugin is not None
    script = directory / "broken-login"
    script.write_text(f"#!/bin/sh\necho {known.new('what the plugin said')} $1 >&2\nexit 7\n")
    script.chmod(stat.S_IRWXU)
    return {
        first: replace(by_token, token=known.new("refused token")),
        second: replace(by_certificate, authority=by_plugin.authority),
        third: replace(by_plugin, plugin=replace(by_plugin.plugin, command=str(script))),
    }


def said(plane: PlaneUnderTest, *arguments: str) -> bytes:
    """All that a command prints."""
    done = subprocess.run(
        [sys.executable, "-m", "wharfinger_cli", "--data-dir", str(plane.data_dir), *arguments],
        capture_output=True,
        check=False,
    )
    return done.stdout + done.stderr


def answers(plane: PlaneUnderTest) -> Iterator[bytes]:
    """Pages of all processes, with headers."""
    for port in plane.plane()["http_ports"].values():
        for path in PATHS:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as page:
                    yield str(page.headers).encode() + page.read()
            except urllib.error.HTTPError as error:
                yield str(error.headers).encode() + error.read()


async def rows(plane: PlaneUnderTest) -> list[bytes]:
    """All values of all tables, bodies as they were before they were compressed."""
    ledger = await Ledger.open(plane.plane()["database_url"], "tests-secrets")
    try:
        async with ledger.database.reading() as raw:
            tables = await raw.fetch(
                "select c.oid::regclass::text from pg_class c join pg_namespace n"
                " on n.oid = c.relnamespace where c.relkind in ('r', 'p')"
                " and not c.relispartition and n.nspname = 'public'"
            )
            found: list[bytes] = []
            for (table,) in tables:
                for row in await raw.fetch(f"select * from {table}"):
                    found += [_plain(value) for value in row]
            return found
    finally:
        await ledger.close()


def _plain(value: object) -> bytes:
    if not isinstance(value, bytes):
        return str(value).encode()
    return unpack(ZSTD if value.startswith(ZSTD_MAGIC) else PLAIN, value)


async def records(plane: PlaneUnderTest) -> list[bytes]:
    """Keys and values of all topics."""
    backend = load_settings({"data_dir": str(plane.data_dir)}).backend()
    found: list[bytes] = []
    names = [topic.name for topic in TOPICS]
    async with BroadcastConsumer(backend, names, client_id="tests-secrets") as consumer:

        async def read() -> None:
            async for batch in consumer.batches():
                for record in batch:
                    found.extend([record.key or b"", record.value or b""])

        reading = asyncio.create_task(read())
        await in_patience(consumer.caught_up.wait())
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return found


def logs(plane: PlaneUnderTest) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(plane.data_dir.rglob("*.log*")))


def files(plane: PlaneUnderTest) -> Iterator[Path]:
    """All that the plane keeps, without the joined clusters themselves."""
    for file in plane.data_dir.rglob("*"):
        if file.is_file() and file.parent.name != "clusters":
            yield file


def test_secrets_of_kubeconfigs_are_nowhere_but_in_the_files_of_the_joined_clusters(
    members: list[Member], accounts: list[str], tmp_path: Path
) -> None:
    known = Secrets()
    printed: list[bytes] = []
    with a_plane() as plane:
        plane.up()
        for name, access in (whole := ways(members, accounts, known, tmp_path)).items():
            config = kubeconfig(tmp_path, access, f"{name}.config")
            printed.append(said(plane, "join", name, "--kubeconfig", str(config)))
            assert b"joined in mode observe" in printed[-1], printed[-1]
        for name in whole:
            until(partial(_is_read, plane, name))
        for name, access in broken(whole, known, tmp_path).items():
            file = plane.data_dir / "clusters" / f"{name}.yaml"
            store_joined(file.parent, replace(read_joined(file), access=access))
        for name in whole:
            until(partial(_is_not_read, plane, name), lambda: logs(plane)[-2000:])
        printed += [said(plane, *command) for command in COMMANDS]
        kept = b"".join(file.read_bytes() for file in plane.data_dir.glob("clusters/*.yaml"))
        assert "refused token" in known.within(kept), "the search finds what is there"
        places: dict[str, list[bytes]] = {
            "rows": asyncio.run(rows(plane)),
            "records": asyncio.run(records(plane)),
            "logs": [logs(plane)],
            "pages": list(answers(plane)),
            "commands": printed,
        }
        for place, found in places.items():
            whole_place = b"\n".join(found)
            assert known.within(whole_place) == [], place
            if place != "pages":
                assert all(name.encode() in whole_place for name in whole), place
        assert any(b"wharfinger_" in page for page in places["pages"])
        plane.down()
        for file in files(plane):
            assert known.within(file.read_bytes()) == [], file


def _is_read(plane: PlaneUnderTest, name: str) -> bool:
    return f"{name}-n".encode() in said(plane, "get", "nodes", name)


def _is_not_read(plane: PlaneUnderTest, name: str) -> bool:
    lines = logs(plane).splitlines()
    return any(b"cluster.not_read" in line and name.encode() in line for line in lines)
