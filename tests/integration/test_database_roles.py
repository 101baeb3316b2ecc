"""Roles of the database: each does its work, and none can change history."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from tests.api import serving
from tests.backends import fresh_database, in_a_loop
from tests.counter import Counter, Writer, withdrawn
from tests.feeds import numbered
from tests.integration.test_access import APPLY

from wharfinger.events.streams import BINDINGS
from wharfinger.history.verification import take_checkpoint
from wharfinger.runtime.ledger import (
    DecisionQuery,
    Ledger,
    LedgerError,
    SnapshotFollower,
    Submission,
    audit_verify,
    locks,
    plans,
)
from wharfinger.runtime.ledger.access import AccessQuery, access_records
from wharfinger.runtime.ledger.at_position import PastDatabase
from wharfinger.runtime.ledger.database import Database, Raw
from wharfinger.runtime.ledger.days import DAY_US
from wharfinger.runtime.ledger.partitions import ensure_partitions
from wharfinger.runtime.ledger.roles import (
    HISTORY,
    ROLES,
    SECRET,
    TABLES,
    DatabaseLogin,
    make_logins,
    make_roles,
    scram_verifier,
    statements,
)
from wharfinger_cli.failures import CommandError
from wharfinger_cli.lifecycle import _make_roles, print_roles
from wharfinger_cli.login_files import read_logins

pytestmark = pytest.mark.integration

LIFE = 1
BY_NAME = {role.name: role for role in ROLES}
OPERATIONS = ("select", "insert", "update", "delete", "truncate")


def as_role(url: str, name: str) -> str:
    """The URL of a session that has the rights of the role, and no others."""
    return f"{url}{'&' if '?' in url else '?'}role={BY_NAME[name].full_name}"


async def _made(url: str) -> None:
    for _ in range(2):  # again: the same
        assert await _make_roles(url) == [role.full_name for role in ROLES]
    ledger = await Ledger.open(url, "tests")  # the first one makes the intake
    await ledger.close()


@pytest.fixture(scope="module")
def url(database_server: str, migrated_database: str) -> Iterator[str]:
    with fresh_database(database_server, template=migrated_database) as found:
        in_a_loop(lambda: _made(found))
        yield found


@asynccontextmanager
async def opened(url: str, name: str) -> AsyncIterator[Ledger]:
    ledger = await Ledger.open(as_role(url, name), f"tests-{name}")
    try:
        yield ledger
    finally:
        await ledger.close()


async def test_each_role_has_the_rights_of_the_table_and_no_other(url: str) -> None:
    """Of every table, by what the server says of whole tables and of columns."""
    database = Database(url, "tests")
    try:
        async with database.reading() as raw:
            rows = await raw.fetch(
                "select r, t, has_table_privilege(r, t, 'select'), "
                "has_table_privilege(r, t, 'insert'), has_any_column_privilege(r, t, 'update'), "
                "has_table_privilege(r, t, 'delete'), has_table_privilege(r, t, 'truncate') "
                "from unnest($1::text[]) r, unnest($2::text[]) t",
                [role.full_name for role in ROLES],
                list(TABLES),
            )
            strangers = await raw.fetch(
                "select c.relname, a.grantee::regrole::text "
                "from pg_class c, aclexplode(c.relacl) a where c.relkind in ('r', 'p') "
                "and a.grantee::regrole::text like 'wharfinger_%' "
                "and c.relname <> all($1::text[]) and c.relname <> 'alembic_version'",
                list(TABLES),
            )
    finally:
        await database.close()
    assert strangers == []  # not of a partition either: they are reached through their table
    found = {(name, table): dict(zip(OPERATIONS, may, strict=True)) for name, table, *may in rows}
    assert len(found) == len(ROLES) * len(TABLES)
    for role in ROLES:
        for table in TABLES:
            may = found[role.full_name, table]
            writes = role.writes.get(table, ())
            assert may == {
                "select": table in role.reads,
                "insert": "insert" in writes,
                "update": any(one.startswith("update") for one in writes),
                "delete": "delete" in writes,
                "truncate": False,
            }, (role.name, table)
            assert table not in HISTORY or not (may["update"] or may["delete"])
    for name in ("reader", "stage"):
        assert not set(SECRET) & set(BY_NAME[name].reads)
    # where the access records stand, which checkpoints sign, and none of them
    assert set(SECRET) & set(BY_NAME["publisher"].reads) == {"access_head"}
    assert not BY_NAME["reader"].writes
    assert not BY_NAME["auditor"].writes


async def test_history_is_refused_by_the_server(url: str) -> None:
    """Tried, and not only looked up."""
    for role in ROLES:
        database = Database(as_role(url, role.name), "tests")
        try:
            for statement in (
                *(f"delete from {table}" for table in HISTORY),
                "update decision set outcome = 'x'",
                "update event set body = ''",
                "update round set hash = ''",
                "update access set actor = 'x'",
                "update stream set name = 'x'",
                "truncate round",
                "drop table decision",
                "create table mine (id int)",
                "alter table round detach partition round_default",
                "delete from round_default",
                "create role wharfinger_other",
            ):
                with pytest.raises(LedgerError, match=r"denied|must be owner|must have"):
                    async with database.reading() as raw:
                        await raw.execute(statement)
        finally:
            await database.close()


async def test_a_plane_lives_with_each_part_under_its_own_role(
    database_server: str, migrated_database: str
) -> None:
    with fresh_database(database_server, template=migrated_database) as url:
        await _made(url)
        await _stage(url)
        await _publisher(url)
        await _api(url)
        async with opened(url, "auditor") as ledger:
            found = await audit_verify(ledger)
            assert found.ok, found.first_bad
            assert found.streams >= 3
            _, checkpoint = await take_checkpoint(ledger, 1)
            assert checkpoint is not None
            assert {"access", "fleet/0", "intake", "rows"} <= {
                mark.stream for mark in checkpoint.streams
            }
            assert await access_records(ledger.database, AccessQuery())
        await _reader(url)


async def _stage(url: str) -> None:
    async with opened(url, "stage") as ledger:
        await ledger.ensure_streams(["fleet/0"])
        writer = Writer((await ledger.raise_epoch(["fleet/0"]))["fleet/0"])
        for number in range(4):
            rounds = [writer.step([withdrawn(number)])]
            await ledger.commit(rounds, writer.events)
            await SnapshotFollower(ledger, Counter.of_profile, "fleet/0", every_rounds=1).catch_up()
        event = withdrawn(100)
        for _ in range(2):
            await ledger.accept([Submission(event, BINDINGS.name, event.subject, event.subject)])
        await plans.save(ledger.database, uuid4(), 1, b"{}")  # recorded, without a right to it
        lock = await ledger.partition_lock("tests")
        await lock.release()
        assert not await locks.end_frozen(ledger.database, "tests")
        assert (await ledger.freshness()) is not None

        # what every service does with topics at its start
        topics = {BINDINGS.name: "1"}
        await ledger.incarnation([BINDINGS.name], set(), "boot", topics)


async def _publisher(url: str) -> None:
    async with opened(url, "publisher") as ledger:
        await numbered(ledger)
        assert (await ledger.feed_head()).position >= 5
        topics = {BINDINGS.name: "1"}
        await ledger.incarnation([BINDINGS.name], {BINDINGS.name}, "boot", topics)
        rows = await ledger.rows_after({}, 100)
        last = {row.stream: row.seq for row in rows}
        await ledger.advance("publisher", LIFE, last, {f"{BINDINGS.name}/0": 3})
        await ledger.advance("publisher", LIFE, last, {f"{BINDINGS.name}/0": 4})
        assert (await ledger.cursors("publisher", LIFE)).seqs == last
        # the partitions of days that are still far
        later = 30_000 * DAY_US
        made = await ensure_partitions(ledger.database, later, 30)
        assert made
        assert await ensure_partitions(ledger.database, later, 30) == []
        async with ledger.database.reading() as raw:
            owners = await raw.fetch(
                "select distinct relowner::regrole::text from pg_class "
                "where relname like 'round_%' and relkind = 'r'"
            )
        assert len(owners) == 1
        assert not owners[0][0].startswith("wharfinger_")
    for name in ("reader", "stage", "api", "auditor"):
        async with opened(url, name) as ledger:
            with pytest.raises(LedgerError, match="permission denied for function"):
                async with ledger.database.reading() as raw:
                    await raw.execute("select ledger_make_span(1, 2, '00000001')")


async def _api(url: str) -> None:
    async with serving(as_role(url, "api")) as api:
        operator = await api.as_("operator", "viewer", name="ops")
        key = {"Idempotency-Key": uuid4().hex}
        first = await operator.send("POST", "/v1/apply", APPLY, **key)
        assert first.status_code == 200, first.text
        assert (await operator.send("POST", "/v1/apply", APPLY, **key)).content == first.content
        for path in ("/v1/bindings", "/v1/decisions", "/v1/streams", "/v1/events?after=earliest"):
            assert (await operator.get(path)).status_code == 200, path
        then = await operator.get("/v1/bindings?at=position:1")
        assert then.status_code == 200, then.text
        admin = await api.as_("admin")
        made = (await admin.send("POST", "/v1/tokens", {"name": "x", "roles": ["viewer"]})).json()
        assert (await admin.send("DELETE", f"/v1/tokens/{made['id']}")).status_code == 204
        assert (await admin.get("/v1/access")).json()["items"]


async def _reader(url: str) -> None:
    async with opened(url, "reader") as ledger:
        assert [row async for row in ledger.decisions(DecisionQuery())]
        with pytest.raises(LedgerError, match="permission denied for table access"):
            await access_records(ledger.database, AccessQuery())
        with pytest.raises(LedgerError, match="permission denied for table token"):
            async with ledger.database.reading() as raw:
                await raw.fetch("select * from token")
    past = PastDatabase(as_role(url, "reader"), "tests")
    try:
        cut = await past.cut_by_position(2)
        assert await past.at(cut).heads()
    finally:
        await past.close()


def test_the_sql_is_printed_without_a_database(capsys: pytest.CaptureFixture[str]) -> None:
    print_roles()
    assert capsys.readouterr().out.splitlines() == [f"{one};" for one in statements()]


def test_the_document_names_every_role() -> None:
    text = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    assert [role.full_name for role in ROLES] == re.findall(
        r"^\| `(wharfinger_\w+)` \|", text, re.M
    )


async def test_rights_that_were_given_by_hand_are_taken_back(url: str) -> None:
    database = Database(url, "tests")
    try:
        async with database.reading() as raw:
            await raw.execute("grant delete, update on decision to wharfinger_stage")
        await make_roles(database)
        async with database.reading() as raw:
            row = await raw.fetchrow(
                "select has_table_privilege('wharfinger_stage', 'decision', 'delete'), "
                "has_any_column_privilege('wharfinger_stage', 'decision', 'update')"
            )
        assert row is not None
        assert tuple(row) == (False, False)
    finally:
        await database.close()


# --- logins


async def _login(raw: Raw, name: str) -> tuple[set[str], str]:
    """The roles that it is a member of, and what the server keeps of its password."""
    roles = await raw.fetch(
        "select roleid::regrole::text from pg_auth_members m join pg_roles r on r.oid = m.member "
        "where r.rolname = $1",
        name,
    )
    row = await raw.fetchrow(
        "select rolcanlogin and not rolsuper and not rolcreaterole, rolpassword "
        "from pg_authid where rolname = $1",
        name,
    )
    assert row is not None
    assert row[0]
    return {role for (role,) in roles}, row[1] or ""


@pytest.fixture
async def name(url: str) -> AsyncIterator[str]:
    """Of a login that is not there yet. It needs quotes."""
    name = f'web "{uuid4()}\'s"'
    yield name
    quoted = name.replace('"', '""')
    database = Database(url, "tests")
    try:
        async with database.reading() as raw:
            await raw.execute(f'drop role if exists "{quoted}"')
    finally:
        await database.close()


async def test_a_login_is_made_once_and_its_password_is_changed(url: str, name: str) -> None:
    database = Database(url, "tests")
    try:
        for verifier in (scram_verifier("one", b"salt"), scram_verifier("two", b"salt")):
            login = DatabaseLogin(name, ("stage", "api"), verifier)
            await make_logins(database, [login])
            async with database.reading() as raw:
                roles, kept = await _login(raw, name)
            assert roles == {"wharfinger_stage", "wharfinger_api"}
            assert kept == verifier
            assert verifier not in repr(login)
        await make_logins(database, [DatabaseLogin(name, ("stage",))])  # without: it keeps it
        async with database.reading() as raw:
            assert (await _login(raw, name))[1] == verifier
    finally:
        await database.close()


async def test_a_superuser_is_no_login_of_a_service(url: str) -> None:
    database = Database(url, "tests")
    try:
        async with database.reading() as raw:
            row = await raw.fetchrow("select current_user::text")
        assert row is not None
        with pytest.raises(LedgerError, match="a superuser could change history"):
            await make_logins(database, [DatabaseLogin(row[0], ("stage",))])
    finally:
        await database.close()


async def test_what_is_kept_of_a_password_is_what_the_server_would_keep(
    url: str, name: str
) -> None:
    password = 'correct horse, battery\'s "staple"'
    database = Database(url, "tests")
    try:
        await make_logins(database, [DatabaseLogin(name, ())])
        async with database.reading() as raw:
            row = await raw.fetchrow(
                "select format('alter role %I password %L', $1::text, $2::text)", name, password
            )
            assert row is not None
            await raw.execute("set scram_iterations = 4096")
            await raw.execute(row[0])
            _, kept = await _login(raw, name)
    finally:
        await database.close()
    salt = kept.split("$")[1].partition(":")[2]
    assert scram_verifier(password, b64decode(salt)) == kept


async def test_an_owner_who_may_not_make_roles_gives_them_their_rights(
    database_server: str, migrated_database: str, name: str
) -> None:
    """Once others have made them: an upgrade needs no more than the owner."""
    with fresh_database(database_server, template=migrated_database) as own:
        database = Database(own, "tests")
        try:
            async with database.reading() as raw:
                quoted = name.replace('"', '""')
                await raw.execute(f'create role "{quoted}" nologin')
                await raw.execute(f'grant create on schema public to "{quoted}"')
                for table in (*TABLES, "alembic_version"):
                    await raw.execute(f'alter table {table} owner to "{quoted}"')
                await raw.execute(f'alter schema ledger_at owner to "{quoted}"')
                await raw.execute(f'alter schema public owner to "{quoted}"')
                for kind, what in await raw.fetch(
                    "select case prokind when 'p' then 'procedure' else 'function' end, "
                    "oid::regprocedure::text from pg_proc "
                    "where pronamespace = 'public'::regnamespace"
                ):
                    await raw.execute(f'alter {kind} {what} owner to "{quoted}"')
                for (view,) in await raw.fetch(
                    "select oid::regclass::text from pg_class "
                    "where relnamespace = 'ledger_at'::regnamespace and relkind = 'v'"
                ):
                    await raw.execute(f'alter view {view} owner to "{quoted}"')
                for (part,) in await raw.fetch(
                    "select inhrelid::regclass::text from pg_inherits "
                    "join pg_class c on c.oid = inhrelid where c.relkind in ('r', 'p')"
                ):
                    await raw.execute(f'alter table {part} owner to "{quoted}"')
                await raw.execute("revoke select on round from wharfinger_reader")
                await raw.execute(f'create role "{quoted} there" login in role wharfinger_api')
            limited = Database(f"{own}{'&' if '?' in own else '?'}{urlencode({'role': name})}", "x")
            try:
                with pytest.raises(LedgerError, match=r"permission denied"):
                    await make_logins(limited, [DatabaseLogin(f"{name} other", ())])
                await make_roles(limited)
                # one that others have made: nothing is left to do, so no right to it is needed
                await make_logins(limited, [DatabaseLogin(f"{name} there", ("api",))])
            finally:
                await limited.close()
                async with database.reading() as raw:
                    await raw.execute(f'drop role "{quoted} there"')
            async with database.reading() as raw:
                row = await raw.fetchrow(
                    "select has_table_privilege('wharfinger_reader', 'round', 'select')"
                )
                assert row is not None
                assert row[0]
        finally:
            await database.close()


OWNER = "postgresql+asyncpg://owner:x@db.example/w"


def test_logins_are_read_from_files_that_roles_name(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "stage").write_text(
        "postgresql://stages:p%40ss@db.example:5432/w?sslmode=require\n"
    )
    (tmp_path / "api").write_text("postgres://web:secret@db.example/w")
    found = read_logins(tmp_path, OWNER)
    assert [(login.name, login.roles) for login in found] == [
        ("web", ("api",)),
        ("stages", ("stage",)),
    ]
    salt = b64decode(found[1].verifier.split("$")[1].partition(":")[2])
    assert found[1].verifier == scram_verifier("p@ss", salt)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("scheduler", "postgresql://a:b@c/d", "expected the name of a role: reader, auditor"),
        ("stage", "mysql://a:hidden@c/d", "expected postgresql://"),
        ("stage", "postgresql://a@c/d", "expected postgresql://user:password@"),
        ("stage", "postgresql://owner:hidden@c/d", "expected another user than the owner"),
        ("stage", "postgresql://a:hidden%C3%A9@c/d", "expected printable ASCII"),
        ("stage", "postgresql://a:hidden\u00e9@c/d", "in ASCII"),
        ("", "", "expected files named by role"),
    ],
)
def test_a_wrong_file_is_one_line_without_the_password(
    tmp_path: Path, name: str, text: str, expected: str
) -> None:
    if name:
        (tmp_path / name).write_text(text)
    with pytest.raises(CommandError, match=expected) as caught:
        read_logins(tmp_path, OWNER)
    assert len(caught.value.lines) == 1
    assert "hidden" not in str(caught.value)


def test_a_directory_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        read_logins(tmp_path / "none", OWNER)
