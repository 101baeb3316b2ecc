"""On its own database `up` gives each process the login of its role, and a plane works so."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.planes import assert_whole, settled, until

from wharfinger.runtime.database_logins import LOGINS, login_of
from wharfinger.runtime.embedded_postgres import EmbeddedPostgres
from wharfinger.runtime.ledger import LedgerError
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.roles import HISTORY, ROLES

pytestmark = [pytest.mark.integration, pytest.mark.long]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def plane() -> Iterator[PlaneUnderTest]:
    with a_plane() as plane:
        yield plane


def asked(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Rows of the last one."""

    async def ask() -> list[tuple[object, ...]]:
        database = Database(url, "tests")
        try:
            async with database.reading() as raw:
                for statement in statements[:-1]:
                    await raw.execute(statement)
                return [tuple(row) for row in await raw.fetch(statements[-1])]
        finally:
            await database.close()

    return asyncio.run(ask())


def of_owner(plane: PlaneUnderTest) -> str:
    found: str = plane.plane()["database_url"]
    return found


def of_login(plane: PlaneUnderTest, name: str) -> str:
    return of_owner(plane).replace("//postgres@", f"//{name}@")


def names_in_use(plane: PlaneUnderTest) -> set[tuple[object, ...]]:
    """(program, login) of all connections of services."""
    statement = (
        "select distinct application_name, usename::text from pg_stat_activity "
        "where application_name like 'wharfinger-%'"
    )
    return set(asked(of_owner(plane), statement))


def processes(plane: PlaneUnderTest) -> dict[str, int]:
    pids: dict[str, int] = plane.plane()["pids"]
    return {name: pid for name, pid in pids.items() if name not in ("broker", "database")}


def no_right_was_missing(plane: PlaneUnderTest) -> None:
    for log in [*(plane.data_dir / "log").iterdir(), plane.data_dir / "postgres.log"]:
        assert "permission denied" not in log.read_text(errors="replace"), log.name


def work(plane: PlaneUnderTest) -> None:
    """Decisions, then a broker that is lost, and all that follows from it."""
    plane.command("apply", *(f"-f{EXAMPLES / part}" for part in ("fleet", "policies", "workloads")))
    settled(plane)
    before = plane.plane()
    os.kill(before["pids"]["broker"], signal.SIGKILL)
    until(lambda: plane.plane()["boot_id"] != before["boot_id"])
    settled(plane)


@pytest.mark.parametrize("layout", ["two", "each"])
def test_each_process_works_by_its_own_login(plane: PlaneUnderTest, layout: str) -> None:
    plane.up("--processes", layout)
    work(plane)
    used = names_in_use(plane)
    for name, pid in processes(plane).items():
        url = psutil.Process(pid).environ()["WHARFINGER_DATABASE"]
        assert f"//{login_of(name)}@/" in url
        assert ":" not in url.partition("@")[0].partition("//")[2]  # no password that could leak
        assert (f"wharfinger-{name}", login_of(name)) in used
    assert {login for _, login in used} <= LOGINS.keys()
    assert_whole(plane)
    no_right_was_missing(plane)
    for login in LOGINS:
        for table in HISTORY:
            with pytest.raises(LedgerError, match="permission denied"):
                asked(of_login(plane, login), f"delete from {table}")
        with pytest.raises(LedgerError, match="permission denied"):
            asked(of_login(plane, login), "set role postgres", "select 1")


def test_a_plane_of_an_earlier_version_gets_its_logins(plane: PlaneUnderTest) -> None:
    """It has none, and goes on with all that it knew."""
    plane.up("--processes", "one")
    assert {login for _, login in names_in_use(plane)} == {"wharfinger_up_one", "wharfinger_up_api"}
    plane.command("apply", f"-f{EXAMPLES / 'fleet'}")
    plane.down()
    server = EmbeddedPostgres(plane.data_dir)
    server.start()
    try:
        made = [*LOGINS, *(role.full_name for role in ROLES)]
        drops = [f"drop owned by {name}" for name in made] + [f"drop role {name}" for name in made]
        rows = asked(
            server.url, *drops, "select rolname from pg_roles where rolname like 'wharfinger%'"
        )
        assert rows == []
    finally:
        server.stop()
    plane.up("--processes", "one")
    work(plane)
    assert ("wharfinger-one", "wharfinger_up_one") in names_in_use(plane)
    no_right_was_missing(plane)
    assert_whole(plane)


def test_logins_are_made_from_files_and_their_passwords_are_in_no_log(
    plane: PlaneUnderTest, tmp_path: Path
) -> None:
    """On a server that logs statements of roles and asks this login for its password."""
    plane.up()
    hba = plane.data_dir / "postgres" / "pg_hba.conf"
    hba.write_text(f"local all web scram-sha-256\n{hba.read_text()}")
    for statement in ("alter system set log_statement = 'ddl'", "select pg_reload_conf()"):
        asked(of_owner(plane), statement)

    def of_web(password: str) -> str:
        return of_owner(plane).replace("//postgres@", f"//web:{password}@")

    for password in ("first-secret", "second-secret"):
        (tmp_path / "api").write_text(of_web(password))
        plane.command("migrate", "--logins", str(tmp_path))
        assert asked(of_web(password), "select current_user::text") == [("web",)]
    with pytest.raises(LedgerError, match="password authentication failed"):
        asked(of_web("first-secret"), "select 1")
    with pytest.raises(LedgerError, match="permission denied"):
        asked(of_web("second-secret"), "delete from round")
    log = (plane.data_dir / "postgres.log").read_text()
    assert "alter role web login password" in log
    assert "-secret" not in log
