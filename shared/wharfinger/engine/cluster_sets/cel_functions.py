"""Implements the functions that Kubernetes and OCM placements add to CEL.

Values of types that CEL does not have are maps with one tag: `{"@quantity": "<nanos>"}`,
`{"@semver": "1.2.3"}`. Each value has one canonical spelling, so that equal values are equal maps.
An invalid argument raises ValueError, which ends the evaluation with an error; the expression then
matches nothing. The semantics are those of Kubernetes' documentation of its CEL libraries.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cmp_to_key
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import re2

from wharfinger.domain.quantities import NANOS, QuantityError, parse_quantity

TEXT_MAX = 2**20
"""Maximum length, in characters, of a string that a function builds."""

SCORES = "@scores"
"""Key under which a cluster's add-on scores are added to its manifest."""

TYPES = {
    "Q": "kubernetes.Quantity",
    "V": "kubernetes.Semver",
    "I": "net.IP",
    "C": "net.CIDR",
    "U": "kubernetes.URL",
    "F": "kubernetes.NamedFormat",
    "O": "optional_type",
    "P": "optional_format",
}
OWN_OPTIONALS = (".validate(", "format.named")
"""Expressions that contain one of these texts use our own optional values, because a Python
function cannot create an optional value of the library."""

Tagged = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Overload:
    """Declares one signature of a function.

    `parameters`: one letter for the type of each parameter; for a method (`member`), the receiver
    is first. s string, i integer, b boolean, d double, l list, m map, * any type, and the letters
    of `TYPES`. `result`: the letter of the result's type.
    """

    parameters: str
    result: str
    member: bool = True


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    call: Callable[..., Any]
    overloads: tuple[Overload, ...]


@cache
def functions(own_optionals: bool) -> tuple[Function, ...]:
    return (*_FUNCTIONS, *(_OPTIONALS if own_optionals else ()))


def _bounded(text: str) -> str:
    if len(text) > TEXT_MAX:
        raise ValueError("a text grows too long")
    return text


# Clusters.


def _scores(cluster: Mapping[str, Any], name: str) -> list[Any]:
    """Returns the scores in the cluster's AddOnPlacementScore of that name. Raises ValueError if
    the cluster has no such object, so that the expression fails instead of reading an empty
    list."""
    given = cluster.get(SCORES, {}).get(name)
    if given is None:
        raise ValueError(f"the cluster has no scores {name}")
    return list(given)


def _parse_json(text: str) -> dict[str, Any]:
    """Parses a text that holds a JSON object. All numbers become doubles, as in JSON. Raises
    ValueError if the text holds anything else."""
    parsed = json.loads(text, parse_int=float)
    if not isinstance(parsed, dict):
        raise ValueError("no JSON object")
    return parsed


# Quantities.


def quantity_value(text: str) -> Tagged:
    """Converts a quantity to the form that expressions use: a map tagged `@quantity` with the
    amount in nanos. Raises ValueError if `text` is not a quantity."""
    return {"@quantity": str(_nanos_of(text))}


def _nanos_of(text: str) -> int:
    return parse_quantity(text).nanos


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _nanos(value: Any) -> int:
    return int(value["@quantity"])


def _as_integer(value: Tagged) -> int:
    whole, rest = divmod(_nanos(value), NANOS)
    if rest or not -(2**63) <= whole < 2**63:
        raise ValueError("no integer")
    return whole


def _is_integer(value: Tagged) -> bool:
    whole, rest = divmod(_nanos(value), NANOS)
    return not rest and -(2**63) <= whole < 2**63


def _added(sign: int) -> Callable[[Tagged, Any], Tagged]:
    def add(value: Tagged, other: Any) -> Tagged:
        more = other * NANOS if isinstance(other, int) else _nanos(other)
        return {"@quantity": str(_nanos(value) + sign * more)}

    return add


# Semantic versions.

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)


def version_value(text: str, normalised: bool = False) -> Tagged:
    """Converts a semantic version to the form that expressions use: a map tagged `@semver`.
    `normalised`: first complete a short version (`_normalised`). Build metadata (after `+`) is
    dropped. Raises ValueError if `text` is not a semantic version."""
    version = _SEMVER.fullmatch(_normalised(text) if normalised else text)
    if version is None or any(int(version[i]) >= 2**64 for i in (1, 2, 3)):
        raise ValueError("no semantic version")
    core = f"{version[1]}.{version[2]}.{version[3]}"
    return {"@semver": f"{core}-{version[4]}" if version[4] else core}


def _normalised(text: str) -> str:
    """Returns the version without a leading v and without leading zeros in its numbers, and with 0
    for missing numbers. Example: `v1.02` becomes `1.2.0`."""
    core = text.removeprefix("v")
    cut = min([at for at in (core.find("-"), core.find("+")) if at >= 0], default=len(core))
    parts = core[:cut].split(".")
    parts = [part.lstrip("0") or "0" if part.isdigit() else part for part in parts]
    return ".".join([*parts, *["0"] * (3 - len(parts))]) + core[cut:]


def _is_semver(text: str, normalised: bool = False) -> bool:
    try:
        version_value(text, normalised)
    except ValueError:
        return False
    return True


def _version_parts(value: Tagged) -> tuple[list[int], list[str]]:
    core, _, pre = str(value["@semver"]).partition("-")
    return [int(part) for part in core.split(".")], pre.split(".") if pre else []


def _compare_versions(a: Tagged, b: Tagged) -> int:
    """Compares two semantic versions by SemVer precedence. Returns -1 if `a` is lower, 0 if they
    are equal, 1 if `a` is higher.

    Major, minor and patch are compared as numbers. A release is higher than its pre-releases. Two
    pre-releases are compared identifier by identifier, from left to right: numbers by value,
    strings by character code, and a number is lower than a string. If all shared identifiers are
    equal, the version with fewer identifiers is lower.

    Example: 1.2.0-rc.2 < 1.2.0-rc.10 < 1.2.0-rc.x < 1.2.0.
    """
    (core_a, pre_a), (core_b, pre_b) = _version_parts(a), _version_parts(b)
    if core_a != core_b:
        return -1 if core_a < core_b else 1
    if not pre_a or not pre_b:
        return bool(pre_b) - bool(pre_a)
    for x, y in zip(pre_a, pre_b, strict=False):
        if x != y:
            if x.isdigit() != y.isdigit():
                return -1 if x.isdigit() else 1
            lower = int(x) < int(y) if x.isdigit() else x < y
            return -1 if lower else 1
    return (len(pre_a) > len(pre_b)) - (len(pre_a) < len(pre_b))


# What can be compared.


def _compare(a: Tagged, b: Tagged) -> int:
    if "@semver" in a and "@semver" in b:
        return _compare_versions(a, b)
    left, right = _nanos(a), _nanos(b)
    return (left > right) - (left < right)


def _sign(value: Tagged) -> int:
    return (_nanos(value) > 0) - (_nanos(value) < 0)


# Addresses.

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _address(text: str) -> _Address:
    """Parses an IP address. Raises ValueError for an address with a zone (`fe80::1%eth0`) and for
    an IPv4 address written as IPv6 (`::ffff:10.0.0.1`)."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address.ipv4_mapped):
        raise ValueError("no plain address")
    return address


def _ip(given: Any) -> Tagged:
    if isinstance(given, str):
        return {"@ip": str(_address(given))}
    return {"@ip": str(given["@cidr"]).partition("/")[0]}


def _is_ip(text: str) -> bool:
    try:
        _address(text)
    except ValueError:
        return False
    return True


def _ip_of(value: Any) -> _Address:
    return _address(value if isinstance(value, str) else value["@ip"])


def _family(value: Tagged) -> int:
    return _ip_of(value).version


def _is_canonical(text: str) -> bool:
    return str(_address(text)) == text


def _is_link_local_multicast(value: Tagged) -> bool:
    address = _ip_of(value)
    return address in ipaddress.ip_network("224.0.0.0/24" if address.version == 4 else "ff02::/16")


def _is_global_unicast(value: Tagged) -> bool:
    """Returns whether the address is global unicast by the rule of Go's `net` package: it is not
    unspecified, loopback, multicast, link-local or the IPv4 broadcast address. Private addresses
    are global unicast."""
    address = _ip_of(value)
    special = (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )
    return not special and str(address) != "255.255.255.255"


def _cidr(text: str) -> Tagged:
    address, slash, length = text.partition("/")
    if not slash or not length.isdigit() or (len(length) > 1 and length[0] == "0"):
        raise ValueError("no CIDR")
    ip = _address(address)
    if int(length) > ip.max_prefixlen:
        raise ValueError("no CIDR")
    return {"@cidr": f"{ip}/{length}"}


def _is_cidr(text: str) -> bool:
    try:
        _cidr(text)
    except ValueError:
        return False
    return True


def _network(value: Any) -> _Network:
    text = _cidr(value)["@cidr"] if isinstance(value, str) else value["@cidr"]
    return ipaddress.ip_network(text, strict=False)


def _contains_ip(value: Tagged, ip: Any) -> bool:
    return _ip_of(ip) in _network(value)


def _contains_cidr(value: Tagged, other: Any) -> bool:
    mine, theirs = _network(value), _network(other)
    if isinstance(mine, ipaddress.IPv4Network) and isinstance(theirs, ipaddress.IPv4Network):
        return theirs.subnet_of(mine)
    if isinstance(mine, ipaddress.IPv6Network) and isinstance(theirs, ipaddress.IPv6Network):
        return theirs.subnet_of(mine)
    return False


def _masked(value: Tagged) -> Tagged:
    return {"@cidr": str(_network(value))}


def _prefix_length(value: Tagged) -> int:
    return _network(value).prefixlen


# URLs.


def _url(text: str) -> Tagged:
    """Parses an absolute URL, or a path that begins with `/`. Raises ValueError for other texts and
    for an invalid port."""
    parts = urlsplit(text)
    if any(c <= " " or c == "\x7f" for c in text) or not (parts.scheme or text.startswith("/")):
        raise ValueError("no absolute URL")
    _ = parts.port  # raises where it is none
    return {"@url": text}


def _is_url(text: str) -> bool:
    try:
        _url(text)
    except ValueError:
        return False
    return True


def _scheme(value: Tagged) -> str:
    return urlsplit(value["@url"]).scheme


def _host(value: Tagged) -> str:
    return urlsplit(value["@url"]).netloc.rpartition("@")[2]


def _hostname(value: Tagged) -> str:
    host = _host(value)
    if host.startswith("["):
        return host[1 : host.find("]")]
    return host.partition(":")[0]


def _port(value: Tagged) -> str:
    port = urlsplit(value["@url"]).port
    return "" if port is None else str(port)


def _escaped_path(value: Tagged) -> str:
    return urlsplit(value["@url"]).path


def _query(value: Tagged) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for key, one in parse_qsl(urlsplit(value["@url"]).query, keep_blank_values=True):
        out.setdefault(key, []).append(one)
    return out


# Regular expressions (RE2): every pattern is matched in linear time.


def _find(text: str, pattern: str) -> str:
    found = re2.search(pattern, text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [match[0] for match in re2.finditer(pattern, text)]
    return found if limit < 0 else found[:limit]


# Lists.


def _is_sorted(items: list[Any]) -> bool:
    return all(not _less(b, a) for a, b in pairwise(items))


def _less(a: Any, b: Any) -> bool:
    if isinstance(a, str) != isinstance(b, str):
        raise ValueError("things that cannot be compared")
    return bool(a < b)


def _sum(items: list[Any]) -> Any:
    """Adds the numbers from left to right, because the order changes a sum of doubles. Raises
    ValueError for an item that is not a number and for an integer overflow."""
    total: Any = 0
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int | float):
            raise ValueError("no number")
        total = total + item
    if isinstance(total, int) and not -(2**63) <= total < 2**63:
        raise ValueError("integer overflow")
    return total


def _least(items: list[Any]) -> Any:
    if not items:
        raise ValueError("min called on empty list")
    return sorted(items, key=_BY_VALUE)[0]


def _most(items: list[Any]) -> Any:
    if not items:
        raise ValueError("max called on empty list")
    return sorted(items, key=_BY_VALUE)[-1]


_BY_VALUE = cmp_to_key(lambda a, b: -1 if _less(a, b) else 1 if _less(b, a) else 0)


def _index_of(where: Any, what: Any, start: int = 0) -> int:
    if isinstance(where, str):
        if not 0 <= start <= len(where):
            raise ValueError("index out of range")
        return where.find(what, start)
    return next((i for i, item in enumerate(where) if item == what), -1)


def _last_index_of(where: Any, what: Any, start: int | None = None) -> int:
    if isinstance(where, str):
        if start is None:
            return where.rfind(what)
        if not 0 <= start <= len(where):
            raise ValueError("index out of range")
        return where.rfind(what, 0, start + len(what))
    return next((i for i in range(len(where) - 1, -1, -1) if where[i] == what), -1)


# Strings. Indices count characters.

_UPPER = {c: c - 32 for c in range(ord("a"), ord("z") + 1)}
_LOWER = {c: c + 32 for c in range(ord("A"), ord("Z") + 1)}


def _char_at(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise ValueError("index out of range")
    return text[at : at + 1]


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    most = text.count(old) if count < 0 else min(count, text.count(old))
    if len(text) + most * (len(new) - len(old)) > TEXT_MAX:
        raise ValueError("a text grows too long")
    return text.replace(old, new, count)


def _split(text: str, by: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not by:
        return (
            list(text)
            if limit < 0
            else [*text[: limit - 1], *([text[limit - 1 :]] if text[limit - 1 :] else [])]
        )
    return text.split(by, limit - 1 if limit > 0 else -1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= end <= len(text):
        raise ValueError("index out of range")
    return text[start:end]


def _join(items: list[Any], by: str = "") -> str:
    if not all(isinstance(item, str) for item in items):
        raise ValueError("no list of texts")
    if sum([len(item) for item in items]) + len(by) * len(items) > TEXT_MAX:
        raise ValueError("a text grows too long")
    return by.join(items)


def _quoted(text: str) -> str:
    escapes = {
        "\\": "\\\\",
        '"': '\\"',
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
    }
    return _bounded('"' + "".join(escapes.get(c, c) for c in text) + '"')


_CLAUSE = re.compile(r"%(?:\.(\d{1,3}))?([sdfebxXo%])|%")


def _formatted(pattern: str, given: list[Any]) -> str:
    """Replaces the formatting clauses in `pattern`, such as `%s` or `%.2f`, by the values in
    `given`, in order, and returns the text. `%%` gives a percent sign.

    Raises ValueError for an unknown clause, for fewer values than clauses, for a value that the
    clause cannot show, and for a result longer than `TEXT_MAX` characters. Surplus values are
    ignored.

    Example: `%s: %.2f` with the values "cpu" and 1.5 gives `cpu: 1.50`.
    """
    left = iter(given)
    out: list[str] = []
    at = 0
    for clause in _CLAUSE.finditer(pattern):
        out.append(pattern[at : clause.start()])
        at = clause.end()
        if clause[2] is None:
            raise ValueError("unknown formatting clause")
        if clause[2] == "%":
            out.append("%")
            continue
        try:
            out.append(_clause(clause[2], clause[1], next(left)))
        except StopIteration:
            raise ValueError("index out of range") from None
    return _bounded("".join(out) + pattern[at:])


def _clause(kind: str, precision: str | None, value: Any) -> str:
    """Returns the text of one value, formatted by one formatting clause such as `%.2f`.

    `kind`: the letter of the clause. s: any value; f, e: decimal or scientific notation of a
      number; d: an integer; b: an integer or bool in base 2; o: an integer in base 8; x, X: an
      integer, or the UTF-8 bytes of a string, in base 16.
    `precision`: the number of digits after the point for f and e; None: 6. Ignored for other
      letters.

    Raises ValueError if the clause cannot show the value, for example `d` for 1.5.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "s":
            return _shown(value)
        case "f" | "e" if number:
            return f"{float(value):.{precision or 6}{kind}}"
        case "d" if number and float(value).is_integer():
            return str(int(value))
        case "b" if isinstance(value, int):
            return format(int(value), "b")
        case "o" if isinstance(value, int) and number:
            return format(value, "o")
        case "x" | "X" if isinstance(value, int) and number:
            return format(value, kind)
        case "x" | "X" if isinstance(value, str):
            hexed = value.encode().hex()
            return hexed.upper() if kind == "X" else hexed
    raise ValueError("a value that this clause cannot show")


def _shown(value: Any) -> str:
    """Returns a value as text, as the formatting clause `%s` shows it. The entries of a map are
    sorted as texts, since its keys may be of different types. A double with an integer value below
    10**15 is shown without a point. Example: the list of 1.0, true and null gives
    `[1, true, null]`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        case list():
            return "[" + ", ".join(_shown(v) for v in value) + "]"
        case dict():
            return (
                "{" + ", ".join(sorted(f"{_shown(k)}: {_shown(v)}" for k, v in value.items())) + "}"
            )
        case _:
            return str(value)


# Named formats.

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = r"[a-z](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(?:\.{_LABEL})*"
_NAME = r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_FORMATS: dict[str, tuple[str, int]] = {
    "dns1123Label": (_LABEL, 63),
    "dns1123Subdomain": (_SUBDOMAIN, 253),
    "dns1035Label": (_LABEL_1035, 63),
    "dns1123LabelPrefix": (rf"{_LABEL}-?", 63),
    "dns1123SubdomainPrefix": (rf"{_SUBDOMAIN}[-.]?", 253),
    "dns1035LabelPrefix": (rf"{_LABEL_1035}-?", 63),
    "qualifiedName": (rf"(?:{_SUBDOMAIN}/)?{_NAME}", 317),
    "labelValue": (rf"(?:{_NAME})?", 63),
    "uuid": (r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", 36),
    "byte": (r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", TEXT_MAX),
    "date": (r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])", 10),
    "datetime": (
        r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
        r"[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"
        r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
        64,
    ),
}


def _format(name: str) -> Callable[[], Tagged]:
    return lambda: {"@format": name}


def _format_named(name: str) -> Tagged:
    return {"@some": {"@format": name}} if name in _FORMATS or name == "uri" else {"@none": True}


def _validated(value: Tagged, text: str) -> Tagged:
    """Checks `text` against a named format. Returns an optional value: empty if the text has the
    format, otherwise a list with one error message."""
    name = value["@format"]
    if name == "uri":
        right = _is_url(text)
    else:
        pattern, length_max = _FORMATS[name]
        right = len(text) <= length_max and re2.fullmatch(pattern, text) is not None
    return {"@none": True} if right else {"@some": [f"must have the format {name}"]}


def _has_value(value: Tagged) -> bool:
    return "@some" in value


def _value(value: Tagged) -> Any:
    if "@some" not in value:
        raise ValueError("optional.none() dereference")
    return value["@some"]


def _or_value(value: Tagged, other: Any) -> Any:
    return value.get("@some", other)


# The list.


def _static(parameters: str, result: str) -> Overload:
    return Overload(parameters, result, member=False)


_COMPARED = (Overload("QQ", "b"), Overload("VV", "b"))

_FUNCTIONS: tuple[Function, ...] = (
    # Clusters.
    Function("scores", _scores, (Overload("ms", "l"),)),
    Function("parseJSON", _parse_json, (Overload("s", "m"),)),
    # Quantities and versions.
    Function("quantity", quantity_value, (_static("s", "Q"),)),
    Function("isQuantity", _is_quantity, (_static("s", "b"),)),
    Function("sign", _sign, (Overload("Q", "i"),)),
    Function("isInteger", _is_integer, (Overload("Q", "b"),)),
    Function("asInteger", _as_integer, (Overload("Q", "i"),)),
    Function("asApproximateFloat", lambda v: _nanos(v) / NANOS, (Overload("Q", "d"),)),
    Function("add", _added(1), (Overload("QQ", "Q"), Overload("Qi", "Q"))),
    Function("sub", _added(-1), (Overload("QQ", "Q"), Overload("Qi", "Q"))),
    Function("semver", version_value, (_static("s", "V"), _static("sb", "V"))),
    Function("isSemver", _is_semver, (_static("s", "b"), _static("sb", "b"))),
    Function("major", lambda v: _version_parts(v)[0][0], (Overload("V", "i"),)),
    Function("minor", lambda v: _version_parts(v)[0][1], (Overload("V", "i"),)),
    Function("patch", lambda v: _version_parts(v)[0][2], (Overload("V", "i"),)),
    Function("isGreaterThan", lambda a, b: _compare(a, b) > 0, _COMPARED),
    Function("isLessThan", lambda a, b: _compare(a, b) < 0, _COMPARED),
    Function("compareTo", _compare, (Overload("QQ", "i"), Overload("VV", "i"))),
    # Addresses and URLs.
    Function("ip", _ip, (_static("s", "I"), Overload("C", "I"))),
    Function("isIP", _is_ip, (_static("s", "b"),)),
    Function("ip.isCanonical", _is_canonical, (_static("s", "b"),)),
    Function("family", _family, (Overload("I", "i"),)),
    Function("isUnspecified", lambda v: _ip_of(v).is_unspecified, (Overload("I", "b"),)),
    Function("isLoopback", lambda v: _ip_of(v).is_loopback, (Overload("I", "b"),)),
    Function("isLinkLocalMulticast", _is_link_local_multicast, (Overload("I", "b"),)),
    Function("isLinkLocalUnicast", lambda v: _ip_of(v).is_link_local, (Overload("I", "b"),)),
    Function("isGlobalUnicast", _is_global_unicast, (Overload("I", "b"),)),
    Function("cidr", _cidr, (_static("s", "C"),)),
    Function("isCIDR", _is_cidr, (_static("s", "b"),)),
    Function("containsIP", _contains_ip, (Overload("CI", "b"), Overload("Cs", "b"))),
    Function("containsCIDR", _contains_cidr, (Overload("CC", "b"), Overload("Cs", "b"))),
    Function("masked", _masked, (Overload("C", "C"),)),
    Function("prefixLength", _prefix_length, (Overload("C", "i"),)),
    Function("url", _url, (_static("s", "U"),)),
    Function("isURL", _is_url, (_static("s", "b"),)),
    Function("getScheme", _scheme, (Overload("U", "s"),)),
    Function("getHost", _host, (Overload("U", "s"),)),
    Function("getHostname", _hostname, (Overload("U", "s"),)),
    Function("getPort", _port, (Overload("U", "s"),)),
    Function("getEscapedPath", _escaped_path, (Overload("U", "s"),)),
    Function("getQuery", _query, (Overload("U", "m"),)),
    # Regular expressions.
    Function("find", _find, (Overload("ss", "s"),)),
    Function("findAll", _find_all, (Overload("ss", "l"), Overload("ssi", "l"))),
    # Lists and strings.
    Function("isSorted", _is_sorted, (Overload("l", "b"),)),
    Function("sum", _sum, (Overload("l", "*"),)),
    Function("min", _least, (Overload("l", "*"),)),
    Function("max", _most, (Overload("l", "*"),)),
    Function(
        "indexOf",
        _index_of,
        (
            Overload("ss", "i"),
            Overload("ssi", "i"),
            *(Overload(f"l{item}", "i") for item in "sidb"),
        ),
    ),
    Function(
        "lastIndexOf",
        _last_index_of,
        (
            Overload("ss", "i"),
            Overload("ssi", "i"),
            *(Overload(f"l{item}", "i") for item in "sidb"),
        ),
    ),
    Function("charAt", _char_at, (Overload("si", "s"),)),
    Function("lowerAscii", lambda text: text.translate(_LOWER), (Overload("s", "s"),)),
    Function("upperAscii", lambda text: text.translate(_UPPER), (Overload("s", "s"),)),
    Function("replace", _replace, (Overload("sss", "s"), Overload("sssi", "s"))),
    Function("split", _split, (Overload("ss", "l"), Overload("ssi", "l"))),
    Function("substring", _substring, (Overload("si", "s"), Overload("sii", "s"))),
    Function("trim", lambda text: text.strip(), (Overload("s", "s"),)),
    Function("join", _join, (Overload("l", "s"), Overload("ls", "s"))),
    Function("reverse", lambda text: text[::-1], (Overload("s", "s"),)),
    Function("strings.quote", _quoted, (_static("s", "s"),)),
    Function("format", _formatted, (Overload("sl", "s"),)),
    # Named formats: each function returns one.
    *(
        Function(f"format.{name}", _format(name), (_static("", "F"),))
        for name in (*_FORMATS, "uri")
    ),
)

_OPTIONALS: tuple[Function, ...] = (
    Function("format.named", _format_named, (_static("s", "P"),)),
    Function("validate", _validated, (Overload("Fs", "O"),)),
    Function("hasValue", _has_value, (Overload("O", "b"), Overload("P", "b"))),
    Function("value", _value, (Overload("O", "l"), Overload("P", "F"))),
    Function("orValue", _or_value, (Overload("Ol", "l"), Overload("PF", "F"))),
)
