"""Evaluates CEL selectors on DRA devices. An expression reads `device.driver`,
`device.attributes["domain"].name` and `device.capacity["domain"].name`.

A name without a domain belongs to the driver's domain. A domain without entries is empty, so that
`has` works on it. An expression that fails on a device does not match it; the other devices are
still considered.

This module is imported only where there is an expression, because loading the library is slow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import cel_expr_python.cel as cel
import msgspec

from wharfinger.domain.device_claims import OfferedDevice
from wharfinger.domain.value import canonical, json_decoder
from wharfinger.engine.cluster_sets.cel_functions import quantity_value, version_value
from wharfinger.engine.cluster_sets.expressions import KEPT, ExpressionError, is_true, program

VARIABLE = "device"

_INDEX = re.compile(r"""\[\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*\]""")
"""Finds the string keys that an expression uses as an index of a map, such as the domain in
`device.attributes["domain"]`."""


ANSWERS_KEPT = 2**16


def holds(text: str, driver: str, device: OfferedDevice) -> bool:
    """Return whether the CEL expression `text` is true for the device. Raise ExpressionError where
    it does not compile."""
    return _holds(text, driver, canonical(msgspec.structs.replace(device, name="")))


@lru_cache(maxsize=ANSWERS_KEPT)
def _holds(text: str, driver: str, device: bytes) -> bool:
    """Compute `holds`, with a cache. `device`: the device as JSON without its name. No expression
    can read the name, so equal devices share a cache entry. An evaluation costs ten times a cache
    look-up, and each pod evaluates the same devices."""
    asked, names = _compiled(text)
    seen = json_decoder(OfferedDevice).decode(device)
    return asked is not None and is_true(asked, {VARIABLE: _seen(names, driver, seen)})


def check(text: str) -> None:
    """Compile the expression. Raise ExpressionError with the compiler's message where it is
    invalid."""
    _compiled(text)


@lru_cache(maxsize=KEPT)
def _compiled(text: str) -> tuple[cel.Expression | None, tuple[str, ...]]:
    names = (double or single for double, single in _INDEX.findall(text))
    return program(text, VARIABLE), tuple(dict.fromkeys(names))


def _seen(names: tuple[str, ...], driver: str, device: OfferedDevice) -> dict[str, object]:
    versions = {name: version_value(version) for name, version in device.versions.items()}
    capacity = {name: quantity_value(amount) for name, amount in device.capacity.items()}
    return {
        "driver": driver,
        "attributes": _by_domain(names, driver, {**device.attributes, **versions}),
        "capacity": _by_domain(names, driver, capacity),
        "allowMultipleAllocations": False,
    }


def _by_domain(
    names: tuple[str, ...], driver: str, values: Mapping[str, object]
) -> dict[str, dict[str, object]]:
    """Group attribute or capacity values by domain: domain -> short name -> value. `values`: full
    or short name -> value; a name without a domain belongs to the domain `driver`. `names`: the
    strings that the expression uses as an index. Each of them gets an entry, which is empty where
    the device has no such domain."""
    domains: dict[str, dict[str, object]] = {name: {} for name in names}
    for name, value in values.items():
        domain, slash, short = name.partition("/")
        domains.setdefault(domain if slash else driver, {})[short if slash else name] = value
    return domains


__all__ = ["ExpressionError", "check", "holds"]
