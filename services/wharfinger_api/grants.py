"""What those may do who come in without a token of the plane: one file, in which users and groups
get roles.

```yaml
grants:
- groups: ["oidc:platform"]
  roles: [operator]
  namespaces: [shop, lab]
- users: ["kubernetes:system:serviceaccount:ci:metrics"]
  roles: [service]
  sources: [/ci]
```

A name begins with the way in, so that a group of one system is not taken for that of another. Only
the first grant that names a caller counts: grants are not added up, because roles of one would hold
in the namespaces of the other. A caller whom no grant names is known and may do nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from wharfinger.domain.text import one_line
from wharfinger.domain.value import converted
from wharfinger.runtime.logs import get_logger
from wharfinger_api.access import Principal, Role

READ_S = 1.0
"""How often the file is looked at: a Kubernetes volume or an editor replaces it."""

WAYS = ("oidc", "certificate", "kubernetes")
"""How a caller comes in."""

NAME_MAX = 400

log = get_logger(__name__)


class GrantsError(Exception):
    """One line: file, line, field, what was expected."""


@dataclass(frozen=True, slots=True)
class ProvenIdentity:
    """Who a caller is, as proven. `way`: of `WAYS`; `name` and `groups` as the way has them."""

    way: str
    name: str
    groups: tuple[str, ...] = ()


def identity(way: str, name: object, groups: object = ()) -> ProvenIdentity | None:
    """None: a name that cannot be recorded. A group that cannot be one is left out."""
    if not isinstance(name, str) or not _printable(name):
        return None
    several = [groups] if isinstance(groups, str) else groups
    found = several if isinstance(several, list | tuple) else ()
    return ProvenIdentity(
        way, name, tuple(g for g in found if isinstance(g, str) and _printable(g))
    )


def _printable(text: str) -> bool:
    return 0 < len(text) <= NAME_MAX and text.isprintable() and text == text.strip()


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`namespaces` empty: all. `sources`: of the facts that a service may post."""

    roles: tuple[Role, ...]
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def names(self, who: ProvenIdentity) -> bool:
        return f"{who.way}:{who.name}" in self.users or any(
            f"{who.way}:{group}" in self.groups for group in who.groups
        )


class Grants:
    """Of one file; None: there is none, and no role is given. GrantsError: it cannot be read. A
    file that cannot be read later is logged, and the grants of before hold."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._seen: tuple[int, int, int] | None = None
        self._looked = time.monotonic()
        self._grants: tuple[Grant, ...] = ()
        if file is not None:
            self._seen = _mark(file)
            self._grants = read_grants(file)

    def principal(self, who: ProvenIdentity) -> Principal:
        grant = next((grant for grant in self._current() if grant.names(who)), None)
        if grant is None:
            return Principal(who.way, who.name, frozenset(), groups=who.groups)
        return Principal(
            who.way,
            who.name,
            frozenset(grant.roles),
            frozenset(grant.namespaces),
            frozenset(grant.sources),
            who.groups,
        )

    def _current(self) -> tuple[Grant, ...]:
        now = time.monotonic()
        if self._file is None or now - self._looked < READ_S:
            return self._grants
        self._looked = now
        seen = _mark(self._file)
        if seen != self._seen:
            self._seen = seen
            try:
                self._grants = read_grants(self._file)
                log.info("grants.read", grants=len(self._grants))
            except GrantsError as error:
                log.error("grants.not_read", reason=str(error))
        return self._grants


def _mark(file: Path) -> tuple[int, int, int] | None:
    """Another one after the file was replaced or written; None: it is away."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_grants(file: Path) -> tuple[Grant, ...]:
    """GrantsError: the first line that is wrong."""
    try:
        raw = YAML(typ="rt", pure=True).load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise GrantsError(f"{file}: {getattr(error, 'strerror', None) or 'not text'}") from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f":{mark.line + 1}" if mark is not None else ""
        why = " ".join(str(getattr(error, "problem", None) or "").split())
        raise GrantsError(f"{file}{at}: not YAML{f': {why}' if why else ''}") from None
    grants = raw.get("grants") if isinstance(raw, dict) and set(raw) == {"grants"} else None
    if not isinstance(grants, list):
        raise GrantsError(f"{file}: expected a list under `grants`, and nothing else")
    return tuple(_grant(file, grants, place) for place in range(len(grants)))


def _grant(file: Path, grants: Any, place: int) -> Grant:
    where = f"{file}:{grants.lc.item(place)[0] + 1}: grants/{place}"
    try:
        grant = converted(_plain(grants[place]), Grant)
    except msgspec.ValidationError as error:
        raise GrantsError(f"{where}: {one_line(error)}") from None
    if not grant.roles:
        raise GrantsError(f"{where}: roles: expected at least one of {', '.join(Role)}")
    if not grant.users and not grant.groups:
        raise GrantsError(f"{where}: expected users or groups")
    for name in (*grant.users, *grant.groups):
        way, _, rest = name.partition(":")
        if way not in WAYS or not rest:
            expected = ", ".join(f"{one}:" for one in WAYS)
            raise GrantsError(f"{where}: expected a name that begins with {expected} got {name!r}")
    return grant


def _plain(value: Any) -> Any:
    """Without the places that YAML's values carry."""
    match value:
        case dict():
            return {str(key): _plain(one) for key, one in value.items()}
        case list():
            return [_plain(one) for one in value]
        case str():
            return str(value)
        case _:
            return value
