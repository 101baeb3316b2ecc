"""CEL over a device that a driver offers: `device.driver`, `device.attributes["domain"].name`, `device.capacity["domain"].name`.

A name without a domain is of the driver's. A domain that the device knows nothing of is an empty one, so that `has` can be asked
there. An expression that fails on a device does not match it: one that asks for what a device lacks is no reason to place nothing.

This module is imported only where there is an expression: the library takes its time to load.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import cel_expr_python.cel as cel
import msgspec

from wharfinger.domain.device_claims import OfferedDevice
from wharfinger.domain.value import canonical
from wharfinger.engine.placement.cel_functions import quantity_value, version_value
from wharfinger.engine.placement.expressions import KEPT, ExpressionError, is_true, program

VARIABLE = "device"

_INDEX = re.compile(r"""\[\s*(?:"([^"\\]*)"|'([^'\\]*)')\s*\]""")
"""What is asked of a map by a name that is written out: the domains among other things."""


ANSWERS_KEPT = 2**16


def holds(text: str, driver: str, device: OfferedDevice) -> bool:
    """Raises ExpressionError where the expression makes no sense at all."""
    return _holds(text, driver, canonical(msgspec.structs.replace(device, name="")))


@lru_cache(maxsize=ANSWERS_KEPT)
def _holds(text: str, driver: str, device: bytes) -> bool:
    """`device`: without its name, by which no expression can ask. An answer costs ten times what finding it again does, and the
    same devices are looked at for every pod."""
    asked, names = _compiled(text)
    seen = msgspec.json.decode(device, type=OfferedDevice)
    return asked is not None and is_true(asked, {VARIABLE: _seen(names, driver, seen)})


def check(text: str) -> None:
    """Raises ExpressionError, with what the compiler says."""
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


def _by_domain(names: tuple[str, ...], driver: str, values: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """`names`: those that an expression asks for, which may be domains."""
    domains: dict[str, dict[str, object]] = {name: {} for name in names}
    for name, value in values.items():
        domain, slash, short = name.partition("/")
        domains.setdefault(domain if slash else driver, {})[short if slash else name] = value
    return domains


__all__ = ["ExpressionError", "check", "holds"]
