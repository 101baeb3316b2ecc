"""Logins of services from a directory: one file a role, named by it, with the database URL of its
service.

So a Secret that a service gets its URL from is mounted, and `wharfinger migrate --logins` makes the
login that it names. The password is read from the file and leaves as what PostgreSQL keeps of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from wharfinger.runtime.backends import async_database_url
from wharfinger.runtime.ledger.roles import ROLES, DatabaseLogin, scram_verifier
from wharfinger_cli.failures import CommandError

SALT_BYTES = 16


def read_logins(directory: Path, owner: str) -> list[DatabaseLogin]:
    """`owner`: URL of who migrates. CommandError: the first file that is wrong. No password is in
    its line."""
    known = [role.name for role in ROLES]
    try:
        # a mounted Secret has hidden links beside its files
        files = sorted(one for one in directory.iterdir() if not one.name.startswith("."))
        texts = {file: file.read_text(encoding="ascii").strip() for file in files}
    except OSError as error:
        raise CommandError(f"{error.filename or directory}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{directory}: expected files with one database URL in ASCII") from None
    if not files:
        raise CommandError(f"{directory}: expected files named by role: {', '.join(known)}")
    for file in files:
        if file.name not in known:
            raise CommandError(f"{file}: expected the name of a role: {', '.join(known)}")
    return [_login(file, text, _user(owner)) for file, text in texts.items()]


def _login(file: Path, text: str, owner: str) -> DatabaseLogin:
    try:
        parts = urlsplit(async_database_url(text))
        name, password = unquote(parts.username or ""), unquote(parts.password or "")
        if not name or not password:
            raise ValueError("expected postgresql://user:password@host:port/database")
        if name == owner:
            raise ValueError(f"expected another user than the owner of the tables, {owner}")
        return DatabaseLogin(name, (file.name,), scram_verifier(password, os.urandom(SALT_BYTES)))
    except ValueError as error:
        raise CommandError(f"{file}: {error}") from None


def _user(url: str) -> str:
    return unquote(urlsplit(url).username or "")
