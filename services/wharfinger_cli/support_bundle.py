"""`support-bundle`: one file with what support needs, without anything secret.

Every part is collected by itself: of a plane that is broken the other parts are still there, and
the part that could not be collected says why. Two things keep secrets out. Parts are made of fields
that are chosen here, never of whole objects. And all text then loses every password, token and key
that this plane knows, and what looks like one.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from rich.console import RenderableType
from rich.text import Text

from wharfinger import __version__
from wharfinger.answers.plane_status import status_plain, without_password
from wharfinger.domain.text import count
from wharfinger.runtime.backends import shown_database_url
from wharfinger.runtime.database_location import reach_of
from wharfinger.runtime.kube.joined import read_joined
from wharfinger.runtime.kube.kubeconfig import Access
from wharfinger.runtime.plane import PlaneError, read_plane
from wharfinger.runtime.settings import ENV_PREFIX, Settings, SettingsError, load_settings
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.dead_letters import letters_of
from wharfinger_cli.doctor import examine
from wharfinger_cli.failures import CommandError, expected_failure
from wharfinger_cli.output import as_time, show
from wharfinger_cli.request import Request
from wharfinger_cli.status import look

HIDDEN = "[hidden]"
SECRET_MIN = 4
"""Hiding shorter values would hide parts of every word."""

PLUGIN_SECRET_MIN = 16
LETTERS_MAX = 1000
PLAIN_SUFFIX = ".json"

_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL)
_IN_ADDRESS = re.compile(r"(?<=://)(?P<user>[^/\s:@'\"]*):[^/\s@'\"]+@")
_PASSWORD = re.compile(r"://[^/:@]*:(?P<password>.+)@")
_NAMED = re.compile(
    r"""(?ix) (?P<name> \b [\w-]* (?: passw(?:or)?d | token | secret | bearer | api[_-]?key )
    ["']? \s* [=:] \s* ["']? ) (?P<value> [^\s"',;&}]+ )"""
)
_HEADER = re.compile(r"(?i)\b(?P<scheme>bearer|basic)\s+[\w.~+/=-]{8,}")
_OURS = re.compile(r"\bwhf_[\w-]{8,}")

Part = Callable[[], Coroutine[Any, Any, object]]


class Redactor:
    """Takes what is secret out of text. `secrets`: what this plane knows; shorter ones than
    `SECRET_MIN` are left alone."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {secret for secret in secrets if len(secret) >= SECRET_MIN}
        longest_first = sorted(known, key=lambda secret: (-len(secret), secret))
        self._known = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def text(self, text: str) -> str:
        text = _PEM.sub(HIDDEN, self._known.sub(HIDDEN, text))
        text = _IN_ADDRESS.sub(lambda found: f"{found['user']}:{HIDDEN}@", text)
        text = _HEADER.sub(lambda found: f"{found['scheme']} {HIDDEN}", text)
        text = _NAMED.sub(lambda found: found["name"] + HIDDEN, text)
        return _OURS.sub(HIDDEN, text)

    def plain(self, value: object) -> object:
        """A JSON value, its texts and names cleaned one by one: in JSON a secret could be spelled
        with escapes."""
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {self.text(str(key)): self.plain(inner) for key, inner in value.items()}
            case list() | tuple():
                return [self.plain(inner) for inner in value]
            case _:
                return value


def support_bundle(request: Request, out: Path | None, lines: int) -> None:
    """`out`: a file that is not there yet. `lines`: the last ones of each log. CommandError: it
    cannot be written."""
    if request.server:
        raise CommandError(
            "support-bundle: expected no --server: it reads the machine of the plane"
        )
    path = out or Path(
        f"wharfinger-support-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar.gz"
    )
    redactor = Redactor(_secrets(request))
    collected = run(_collected(request))
    parts = {
        name: json.dumps(redactor.plain(value), indent=2, sort_keys=True, default=str) + "\n"
        for name, value in collected.items()
    }
    parts |= {name: redactor.text(text) for name, text in _logs(request, lines)}
    _write(path, parts)
    failed = {
        name: redactor.text(value["failed"])
        for name, value in collected.items()
        if isinstance(value, dict) and value.keys() == {"failed"}
    }
    show(
        request.format,
        {"file": str(path), "parts": sorted(parts), "failed": list(failed)},
        [str(path)],
        lambda: _page(path, len(parts), failed),
    )


def _page(path: Path, parts: int, failed: Mapping[str, str]) -> Iterator[RenderableType]:
    yield Text(f"{path}: {count(parts, 'part')}, passwords, tokens and keys hidden")
    for name, why in failed.items():
        yield Text(f"{name}: not collected: {why}")
    yield Text(
        "Names of clusters, nodes and workloads are in it. Look through it before you send it."
    )


async def _collected(request: Request) -> dict[str, object]:
    """Name of a part -> its JSON value, or why there is none."""

    async def about() -> object:
        return _about()

    async def settings() -> object:
        return _settings(load_settings(request.flags))

    async def clusters() -> object:
        return list(_clusters(request))

    async def doctor() -> object:
        return [{"check": f.what, "ok": f.ok, "detail": f.said} for f in await examine(request)]

    async def status() -> object:
        return status_plain(without_password(await look(request)))

    async def streams() -> object:
        async with opened_ledger(reached(request)) as ledger:
            return {
                head.stream: {"round": head.round, "seq": head.seq, "hash": head.hash.hex()}
                for head in await ledger.heads()
            }

    async def letters() -> object:
        async with opened_ledger(reached(request)) as ledger:
            found = (await letters_of(ledger))[-LETTERS_MAX:]
        return [
            {
                "id": str(letter.id),
                "at": as_time(letter.at),
                "service": letter.data.service,
                "topic": letter.data.topic,
                "producer": letter.data.producer,
                "reason": letter.data.reason,
            }
            for letter in found
        ]

    parts: dict[str, Part] = {
        "about": about,
        "settings": settings,
        "clusters": clusters,
        "doctor": doctor,
        "status": status,
        "streams": streams,
        "dead-letters": letters,
    }
    return {name + PLAIN_SUFFIX: await _tried(part) for name, part in parts.items()}


async def _tried(part: Part) -> object:
    try:
        return await part()
    except Exception as error:  # the bundle of a broken plane has the parts that work
        known = expected_failure(error)
        return {"failed": "; ".join(known.lines) if known else f"{type(error).__name__}: {error}"}


def _about() -> object:
    return {
        "wharfinger": __version__,
        "python": sys.version,
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "environment": sorted(name for name in os.environ if name.startswith(ENV_PREFIX)),
        "packages": {d.metadata["Name"]: d.version for d in distributions()},
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _settings(settings: Settings) -> object:
    """Every field; a secret one by its name alone."""
    found = settings.model_dump(mode="json")
    if settings.database:
        found["database"] = shown_database_url(settings.database)
    return found


def _clusters(request: Request) -> Iterator[object]:
    """How each is joined, and nothing of how it is reached."""
    for file in _joined_files(request):
        try:
            cluster = read_joined(file)
        except Exception as error:
            known = expected_failure(error)
            yield {"file": file.name, "failed": "; ".join(known.lines) if known else repr(error)}
            continue
        yield {
            "name": cluster.name,
            "mode": cluster.mode,
            "verbs": list(cluster.verbs_in_force),
            "hub": cluster.hub,
            "version": cluster.version,
            "lease_s": cluster.lease_s,
            "in_cluster": cluster.in_cluster,
            "writes_with_other_credentials": cluster.write_access is not None,
        }


def _joined_files(request: Request) -> list[Path]:
    try:
        settings = load_settings(request.flags)
    except SettingsError:
        return []
    return sorted(settings.clusters_dir().glob("*.yaml"))


def _logs(request: Request, lines: int) -> Iterator[tuple[str, str]]:
    for path in sorted((reach_of(request.data_dir).data_dir / "log").glob("*.log*")):
        with path.open(encoding="utf-8", errors="replace") as file:
            yield f"log/{path.name}", "".join(deque(file, maxlen=lines))


def _write(path: Path, parts: Mapping[str, str]) -> None:
    """Readable by its owner only. What is there already stays."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}") from error
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name, text in sorted(parts.items()):
            data = text.encode(errors="replace")
            entry = tarfile.TarInfo(f"{path.name.removesuffix('.tar.gz')}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            tar.addfile(entry, io.BytesIO(data))


# --- what is secret


def _secrets(request: Request) -> Iterator[str]:
    """Every password, token and key that this plane and this command know."""
    for name, value in os.environ.items():
        if name.startswith(ENV_PREFIX) and re.search("PASSWORD|TOKEN|SECRET|BEARER|KEY", name):
            yield value
            yield from _of_file(Path(value))
        yield from _of_address(value)
    try:
        settings = load_settings(request.flags)
    except SettingsError:
        pass
    else:
        for field in type(settings).model_fields:
            value = getattr(settings, field)
            if hasattr(value, "get_secret_value"):
                yield value.get_secret_value()
            elif isinstance(value, str):
                yield from _of_address(value)
    try:
        plane = read_plane(reach_of(request.data_dir).data_dir)
    except PlaneError:
        plane = None
    if plane is not None:
        yield from _of_address(plane.database_url)
    if request.token_file is not None:
        yield from _of_file(request.token_file)
    for file in _joined_files(request):
        try:
            cluster = read_joined(file)
        except Exception:  # what cannot be read hides by its patterns alone
            continue
        yield from _of_access(cluster.access)
        if cluster.write_access is not None:
            yield from _of_access(cluster.write_access)


def _of_file(path: Path) -> Iterator[str]:
    try:
        text = path.read_text().strip() if path.is_file() else ""
    except (OSError, ValueError):
        return
    yield text


def _of_address(text: str) -> Iterator[str]:
    if found := _PASSWORD.search(text):  # also of an address that is spelled wrongly
        yield found["password"]
    try:
        parts = urlsplit(text)
        password = parts.password
    except ValueError:
        return
    if password:
        yield from (password, unquote(password))
    yield from (value for name, value in parse_qsl(parts.query) if "pass" in name.lower())


def _of_access(access: Access) -> Iterator[str]:
    yield access.token
    yield from _of_address(access.proxy)
    if access.token_file is not None:
        yield from _of_file(access.token_file)
    if access.key is not None:
        text = access.key.decode(errors="replace")
        yield from (line for line in text.splitlines() if not line.startswith("-----"))
    if access.plugin is not None:  # short ones are names of clusters, regions and verbs
        values = [*access.plugin.args, *(value for _, value in access.plugin.env)]
        yield from (value for value in values if len(value) >= PLUGIN_SECRET_MIN)
