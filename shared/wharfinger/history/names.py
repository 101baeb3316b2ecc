"""Which binding is meant: its full name, or as much of it as only one binding has.

Bindings are named as their workloads are, with the namespace before and the kind hung on: `web` is
`shop/web-deployment` where no other binding is called so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from wharfinger.events.streams import BINDINGS, FLEET
from wharfinger.runtime.ledger import Ledger, LedgerError, causality

NEAR_MAX = 5
_ENOUGH = NEAR_MAX + 1


class UnknownNameError(LedgerError):
    """The ledger was asked and has nothing of that name."""


async def full_name(ledger: Ledger, binding: str) -> str:
    """The name of the binding that is meant. UnknownNameError: none; LedgerError: several.

    A full name costs one index lookup. A short name is searched for among the requests in the
    intake, and then among all names that decisions were ever made about, because collectors may
    publish requests without the intake.
    """
    database = ledger.database
    if await causality.decided_about(database, binding, FLEET):
        return binding
    fitting = await _like(ledger, _pattern(binding))
    match fitting:
        case [only]:
            return only
        case []:
            raise UnknownNameError(
                "no decision was ever taken about a binding "
                f"{binding}{await _hint(ledger, binding)}"
            )
        case _:
            raise _ambiguous(binding, fitting)


async def requested_name(ledger: Ledger, binding: str) -> str:
    """The name of the binding that is meant among those that were requested through the intake,
    decided or not; `binding` itself where none of them fits, since collectors may publish requests
    without the intake. LedgerError: several fit."""
    fitting = await causality.told_like(ledger.database, _pattern(binding), BINDINGS.name, _ENOUGH)
    if len(fitting) > 1 and binding not in fitting:
        raise _ambiguous(binding, fitting)
    return fitting[0] if len(fitting) == 1 else binding


def meant(binding: str, names: Collection[str]) -> str:
    """The one of `names` that is meant, as `full_name` understands it. UnknownNameError: none;
    LedgerError: several."""
    if binding in names:
        return binding
    match sorted(name for name in names if re.search(_pattern(binding), name)):
        case [only]:
            return only
        case []:
            raise UnknownNameError(f"no binding is named {binding}")
        case fitting:
            raise _ambiguous(binding, fitting)


def _ambiguous(binding: str, fitting: Sequence[str]) -> LedgerError:
    return LedgerError(f"{binding}: expected one binding, got {', '.join(fitting[:NEAR_MAX])}")


def _pattern(binding: str) -> str:
    """The name itself in any namespace unless one is given, with or without a kind behind it."""
    start = "^" if "/" in binding else "(^|/)"
    return f"{start}{re.escape(binding)}(-[a-z]+)?$"


async def _hint(ledger: Ledger, binding: str) -> str:
    part = binding.rpartition("/")[2]
    near = (await _like(ledger, re.escape(part)))[:NEAR_MAX] if part else []
    return f"; did you mean {' or '.join(near)}?" if near else ""


async def _like(ledger: Ledger, pattern: str) -> list[str]:
    """Bindings that match and were decided about."""
    told = await causality.told_like(ledger.database, pattern, BINDINGS.name, _ENOUGH)
    decided = [name for name in told if await causality.decided_about(ledger.database, name, FLEET)]
    return decided or await causality.subjects_like(ledger.database, pattern, FLEET, _ENOUGH)
