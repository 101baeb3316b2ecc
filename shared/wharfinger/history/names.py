"""Which binding is meant: its full name, or as much of it as only one binding has.

Bindings are named as their workloads are, with the namespace before and the kind hung on: `web` is `shop/web-deployment`
where no other binding is called so.
"""

from __future__ import annotations

import re

from wharfinger.events.streams import FLEET
from wharfinger.runtime.ledger import Ledger, LedgerError, trails

NEAR_MAX = 5
_ENOUGH = NEAR_MAX + 1


class UnknownNameError(LedgerError):
    """The ledger was asked and has nothing of that name."""


async def full_name(ledger: Ledger, binding: str) -> str:
    """The name of the binding that is meant. UnknownNameError: none; LedgerError: several.

    A full name costs two probes of an index; a short one a walk over the names there are.
    """
    database = ledger.database
    if await trails.decided_about(database, binding, FLEET):
        return binding
    fitting = await trails.subjects_like(database, _pattern(binding), FLEET, _ENOUGH)
    match fitting:
        case [only]:
            return only
        case []:
            raise UnknownNameError(
                f"no decision was ever taken about a binding {binding}{await _hint(ledger, binding)}"
            )
        case _:
            raise LedgerError(f"{binding}: expected one binding, got {', '.join(fitting[:NEAR_MAX])}")


def _pattern(binding: str) -> str:
    """The name itself in any namespace unless one is given, with or without a kind behind it."""
    start = "^" if "/" in binding else "(^|/)"
    return f"{start}{re.escape(binding)}(-[a-z]+)?$"


async def _hint(ledger: Ledger, binding: str) -> str:
    part = binding.rpartition("/")[2]
    near = await trails.subjects_like(ledger.database, re.escape(part), FLEET, NEAR_MAX) if part else []
    return f"; did you mean {' or '.join(near)}?" if near else ""
