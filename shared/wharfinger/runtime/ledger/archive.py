"""Retired tables as files: one a table, CSV behind zstd, and a manifest that says what they are.

A file is written under a temporary name and renamed when it is complete, so a reader never sees a
part of a file. A file that exists already is not written again. The columns are those of the
history's tables. Bytes are written as hex, so `psql` reads the files back with
`\\copy ... csv header`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import zstandard

from wharfinger.domain.value import json_decoder
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.errors import LedgerError

MANIFEST = "MANIFEST.json"
_LEVEL = 9
_RETIRED = "retired\\_%"


@dataclass(frozen=True, slots=True)
class Archived:
    """`rows`: in the table; `sha256`: of the file."""

    table: str
    file: str
    rows: int
    sha256: str


async def retired_tables(database: Database) -> list[str]:
    """What was detached and not dropped."""
    async with database.reading(patient=True) as raw:
        found = await raw.fetch(
            "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where c.relkind = 'r' and c.relname like $1 and n.nspname = current_schema() "
            "order by 1",
            _RETIRED,
        )
    return [record[0] for record in found]


async def archive(database: Database, tables: Sequence[str], directory: Path) -> list[Archived]:
    """Those of `tables` that are not there yet. LedgerError: the directory cannot be written."""
    try:
        known = _manifest(directory)
        for table in tables:
            if table not in known or not (directory / known[table].file).is_file():
                known[table] = await _archived(database, table, directory)
                _write_manifest(directory, known)
        return [known[table] for table in tables]
    except OSError as error:
        raise LedgerError(f"{directory}: {error.strerror}") from None


async def drop(database: Database, tables: Sequence[str]) -> None:
    async with database.reading(patient=True) as raw:
        for table in tables:
            await raw.execute(f'drop table if exists "{table}"')


async def _archived(database: Database, table: str, directory: Path) -> Archived:
    path = directory / f"{table}.csv.zst"
    growing = path.with_name(path.name + ".part")
    digest = hashlib.sha256()
    packer = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    with growing.open("wb") as out:

        def put(packed: bytes) -> None:
            digest.update(packed)
            out.write(packed)

        async def take(chunk: bytes) -> None:
            put(packer.compress(chunk))

        async with database.reading(patient=True) as raw:
            said = await raw.copy_from_table(table, output=take, format="csv", header=True)
        put(packer.flush())
    growing.replace(path)
    return Archived(table, path.name, int(said.rpartition(" ")[2]), digest.hexdigest())


def _manifest(directory: Path) -> dict[str, Archived]:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / MANIFEST
    if not path.exists():
        return {}
    try:
        return {one.table: one for one in json_decoder(list[Archived]).decode(path.read_bytes())}
    except msgspec.MsgspecError as error:
        raise LedgerError(f"{path}: expected the manifest of an archive: {error}") from None


def _write_manifest(directory: Path, known: dict[str, Archived]) -> None:
    growing = directory / f"{MANIFEST}.part"
    growing.write_bytes(
        msgspec.json.format(msgspec.json.encode([known[table] for table in sorted(known)])) + b"\n"
    )
    growing.replace(directory / MANIFEST)
