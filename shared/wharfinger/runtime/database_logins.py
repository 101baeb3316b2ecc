"""By which login of the embedded database each process of a plane works.

The logins have no password: the server listens on a Unix socket in a directory that only the user
of the plane may enter, and that user could read a password as well (ADR 0106). What they are for is
what `ledger.roles` refuses them: no fault of a service can change history. The commands of that
user go on as the owner of the tables.
"""

from __future__ import annotations

from collections.abc import Mapping

LOGINS: Mapping[str, tuple[str, ...]] = {
    "wharfinger_up_stage": ("stage",),
    "wharfinger_up_publisher": ("publisher",),
    "wharfinger_up_api": ("api",),
    "wharfinger_up_one": ("stage", "publisher"),
}
"""Login -> roles (`ledger.roles`, without prefix) that it is a member of."""

_OF_PROCESS: Mapping[str, str] = {
    "one": "wharfinger_up_one",
    "controllers": "wharfinger_up_one",
    "publisher": "wharfinger_up_publisher",
    "api": "wharfinger_up_api",
}


def login_of(process: str) -> str:
    """`process`: as `children` names them."""
    return _OF_PROCESS.get(process, "wharfinger_up_stage")
