"""Who wrote over the HTTP API, was refused, or read what belongs to others: what is recorded, that
it cannot fill the disk, and that nothing of it can be changed unnoticed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.api import Client, in_a_thread, serving
from tests.backends import in_a_loop
from tests.counter import withdrawn
from tests.integration.test_audit_cli import Cli

from wharfinger.events.streams import BINDINGS
from wharfinger.history.checkpoint import new_key, read, signed
from wharfinger.history.verification import take_checkpoint, verify
from wharfinger.runtime.ledger import Ledger, LedgerError, Submission, audit_verify
from wharfinger.runtime.ledger.access import Access, AccessQuery, access_records, record_access
from wharfinger.runtime.ledger.database import Database
from wharfinger_api.recording import REFUSALS_MAX, AccessRecorder
from wharfinger_client import Client as SdkClient
from wharfinger_client import api as calls

pytestmark = pytest.mark.integration

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: tug, namespace: shop, annotations: {wharfinger.io/placement: any}}
spec: {containers: [{name: tug, image: tug, resources: {requests: {cpu: 10m}}}]}
"""
APPLY = {"manifests": [{"name": "tug.yaml", "text": POD}]}


async def told(auditor: Client, query: str = "") -> list[dict[str, Any]]:
    answer = await auditor.get(f"/v1/access?limit=1000{query}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


async def test_what_writes_is_refused_or_reads_of_others_is_recorded(
    database_url: str, ledger: Ledger
) -> None:
    async with serving(database_url) as api:
        operator = await api.as_("operator", namespaces=["shop"], name="ops")
        viewer = await api.as_("viewer", namespaces=["shop"], name="eve")
        auditor = await api.as_("auditor", name="ann")
        applied = await operator.send("POST", "/v1/apply", APPLY)
        assert applied.status_code == 200, applied.text
        assert (await viewer.get("/v1/bindings")).status_code == 200
        refused = await viewer.send("POST", "/v1/apply", APPLY)
        elsewhere = {"manifests": [{"name": "a", "text": POD.replace("shop", "bank")}]}
        outside = await operator.send("POST", "/v1/apply", elsewhere)
        hidden = await viewer.get("/v1/bindings/bank/ledger")
        unknown = await api.anonymous().get("/v1/bindings")
        await viewer.get("/v1/access")
        answers = [refused, outside, hidden, unknown]
        assert [a.status_code for a in answers] == [403, 403, 404, 401]
        await api.api.recorder.stop()
        found = await told(auditor)
        shown = {(r["actor"], r["action"], r["outcome"]) for r in found}
        assert shown == {
            ("token:ops", "POST /v1/apply", "allowed"),
            ("token:ops", "POST /v1/apply", "refused"),
            ("token:eve", "POST /v1/apply", "refused"),
            ("token:eve", "GET /v1/bindings/{namespace}/{name}", "refused"),
            ("token:eve", "GET /v1/access", "refused"),
            ("unauthenticated", "GET /v1/bindings", "refused"),
            ("token:ann", "GET /v1/access", "allowed"),
        }
        by_request = {(r["request"], r["outcome"]): r for r in found}
        assert by_request[applied.headers["x-request-id"], "allowed"]["target"] == "/v1/apply"
        for answer in answers:
            record = by_request[answer.headers["x-request-id"], "refused"]
            assert record["reason"]
            assert record["target"] == answer.request.url.path
        assert [r["seq"] for r in found] == list(range(len(found), 0, -1))
        one = await told(auditor, "&actor=token:eve&outcome=refused")
        assert {r["actor"] for r in one} == {"token:eve"}
        assert len(one) == 3


async def test_records_are_paged_and_for_auditors_and_admins(database_url: str) -> None:
    async with serving(database_url) as api:
        records = [Access(f"token:{n}", "GET /", "/", "refused") for n in range(7)]
        await record_access(api.past.present, records)
        for role, status in (("auditor", 200), ("admin", 200), ("viewer", 403), ("operator", 403)):
            assert (await (await api.as_(role)).get("/v1/access")).status_code == status
        admin = await api.as_("admin", namespaces=["shop"])
        assert (await admin.get("/v1/access")).status_code == 403
        auditor = await api.as_("auditor")
        seen: list[int] = []
        after = ""
        while True:
            page = (await auditor.get(f"/v1/access?limit=3&after={after}&until=1s")).json()
            seen += [r["seq"] for r in page["items"]]
            if page["next"] is None:
                break
            after = page["next"]
        assert seen == sorted(seen, reverse=True)
        assert len(set(seen)) == len(seen)


async def test_a_secret_stands_in_no_record(database_url: str) -> None:
    async with serving(database_url) as api:
        admin = await api.as_("admin", name="root")
        made = (await admin.send("POST", "/v1/tokens", {"name": "x", "roles": ["viewer"]})).json()
        secret = made["secret"]
        await admin.send("DELETE", f"/v1/tokens/{secret}")
        await api.anonymous().send("POST", "/v1/login", {"code": secret})
        await Client(api.http, secret).get(f"/v1/bindings/{secret}/{secret}")
        await Client(api.http, secret).send("DELETE", f"/v1/tokens/{made['id']}")
        await api.api.recorder.stop()
        auditor = await api.as_("auditor")
        found = await told(auditor)
        assert secret not in json.dumps(found)
        assert secret.removeprefix("whf_") not in json.dumps(found)
        targets = {r["target"] for r in found}
        assert {"/v1/tokens/whf_...", f"/v1/tokens/{made['id']}"} <= targets
        assert f"/v1/tokens/{made['id']} x: viewer" in targets  # who has given which right


async def test_refusals_are_counted_and_cannot_fill_the_disk(database_url: str) -> None:
    async with serving(database_url) as api:
        viewer = await api.as_("viewer", name="loop")
        for n in range(40):
            assert (await viewer.get(f"/v1/access?limit={n + 1}")).status_code == 403
            assert (await api.anonymous().get("/v1/whoami")).status_code == 401
        await api.api.recorder.stop()
        found = await access_records(api.past.present, AccessQuery(limit=1000))
        for actor in ("token:loop", "unauthenticated"):
            mine = [r.access for r in found if r.access.actor == actor]
            assert len(mine) == REFUSALS_MAX + 1
            assert sum(one.count for one in mine) == 40


async def test_nothing_is_carried_out_that_cannot_be_recorded(
    database_url: str, ledger: Ledger
) -> None:
    async with serving(database_url) as api:
        operator = await api.as_("operator")
        await operator.get("/v1/whoami")
        async with api.past.present.reading() as raw:
            await raw.execute("alter table access_head rename to elsewhere")
        answer = await operator.send("POST", "/v1/apply", APPLY)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "access could not be recorded" in answer.json()["detail"]
        async with api.past.present.reading() as raw:
            await raw.execute("alter table elsewhere rename to access_head")
            rows = await raw.fetchrow("select count(*) from decision")
        assert rows is not None
        assert rows[0] == 0
        assert (await operator.send("POST", "/v1/apply", APPLY)).status_code == 200


async def test_several_processes_extend_one_chain(database_url: str) -> None:
    databases = [Database(database_url, f"tests-{n}") for n in range(3)]
    try:
        recorders = [AccessRecorder(database) for database in databases]
        await asyncio.gather(
            *(
                recorder.allowed(Access(f"token:{n}", "POST /v1/apply", str(k), "allowed"))
                for n, recorder in enumerate(recorders)
                for k in range(40)
            )
        )
        found = await access_records(databases[0], AccessQuery(limit=1000))
        assert [r.seq for r in found] == list(range(120, 0, -1))
        for n in range(3):
            mine = [r.access.target for r in reversed(found) if r.access.actor == f"token:{n}"]
            assert mine == [str(k) for k in range(40)]
        ledger = Ledger(databases[0])
        result = await audit_verify(ledger, "access")
        assert result.ok
        assert (result.streams, result.rounds, result.rows) == (1, 0, 120)
    finally:
        for database in databases:
            await database.close()


# --- that it was not changed


async def _recorded(ledger: Ledger) -> None:
    event = withdrawn(1)
    await ledger.accept([Submission(event, BINDINGS.name, event.subject, event.subject)])
    for n in range(4):
        await record_access(
            ledger.database, [Access("token:a", "POST /v1/apply", str(n), "allowed")]
        )


TAMPERINGS = {
    "the reason of one": ("update access set reason = 'x' where seq = 2", 2, "access: hash"),
    "who it was": ("update access set actor = 'token:b' where seq = 3", 3, "access: hash"),
    "one taken away": ("delete from access where seq = 2", 2, "access: seq"),
    "the first taken away": ("delete from access where seq = 1", 1, "access: seq"),
    "the last taken away": ("delete from access where seq = 4", 3, "access: head: seq"),
    "the last and its head": (
        "with gone as (delete from access where seq = 4) update access_head set seq = 3",
        3,
        "access: head: hash",
    ),
    "one added": (
        "insert into access select 5, at_us, actor, action, target, outcome, reason, request, "
        "count, hash from access where seq = 4",
        5,
        "access: hash",
    ),
    "one before the first": (
        "insert into access select 0, at_us, actor, action, target, outcome, reason, request, "
        "count, hash from access where seq = 4",
        1,
        "access: seq",
    ),
    "an earlier time": ("update access set at_us = 1 where seq = 4", 4, "access: time"),
    "no head": ("delete from access_head", 4, "access: head"),
}


async def test_what_was_changed_is_named(ledger: Ledger) -> None:
    await _recorded(ledger)
    assert (await audit_verify(ledger)).ok
    for name, (statement, seq, what) in TAMPERINGS.items():
        async with ledger.database.reading() as raw:
            await raw.execute("create table kept as table access")
            await raw.execute("create table kept_head as table access_head")
            await raw.execute(statement)
        bad = (await audit_verify(ledger)).first_bad
        assert bad is not None, name
        assert (bad.stream, bad.round, bad.what) == ("access", seq, what), name
        assert (await audit_verify(ledger, "intake")).ok
        async with ledger.database.reading() as raw:
            await raw.execute("truncate access, access_head")
            await raw.execute("insert into access table kept")
            await raw.execute("insert into access_head table kept_head")
            await raw.execute("drop table kept, kept_head")
    assert (await audit_verify(ledger)).ok


async def test_a_checkpoint_shows_a_chain_that_was_written_again(ledger: Ledger) -> None:
    await _recorded(ledger)
    key = new_key()
    found, checkpoint = await take_checkpoint(ledger, 1)
    assert checkpoint is not None
    assert found.ledger.streams == 2
    kept = read("kept", signed(checkpoint, key), key.public_key())
    await record_access(ledger.database, [Access("token:a", "POST /v1/apply", "later", "allowed")])
    assert (await verify(ledger, checkpoints=[kept])).ok
    async with ledger.database.reading() as raw:
        await raw.execute("delete from access")
        await raw.execute("update access_head set seq = 0, hash = '', at_us = 0")
    assert (await audit_verify(ledger)).ok
    bad = (await verify(ledger, checkpoints=[kept])).ledger.first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.what) == ("access", 4, "checkpoint: hash")
    await _again(ledger, 6)
    bad = (await verify(ledger, checkpoints=[kept])).ledger.first_bad
    assert bad is not None
    assert (bad.stream, bad.round, bad.what) == ("access", 4, "checkpoint: hash")
    assert "kept" in bad.expected


async def _again(ledger: Ledger, count: int) -> None:
    for n in range(count):
        await record_access(ledger.database, [Access("token:z", "POST /", str(n), "allowed")])


# --- commands and client


def test_a_command_shows_them_over_the_database_and_a_server(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    database_url: str,
    tmp_path: Path,
) -> None:
    cli = Cli(monkeypatch, capsys, database_url, tmp_path)
    token = tmp_path / "token"
    cli("token", "create", "ann", "--role", "auditor", "--out", token)
    with in_a_thread(database_url, "viewer") as (server, secret):
        with SdkClient(server, token.read_text().strip()) as ann:
            page = ann(calls.access(outcome=["allowed"], limit=5))
        assert [r["action"] for r in page["items"]] == ["GET /v1/access", "token create"]
        assert page["items"][1]["actor"].startswith("unix:")
        assert secret not in json.dumps(page)
        over = ("--server", server, "--token-file", token)
        there = cli.json(*over, "audit", "access", "--actor", "token:ann", "--limit", 1)
        assert [r["actor"] for r in there] == ["token:ann"]
        here = cli.json("audit", "access")
        assert [r["action"] for r in here[:2]] == ["GET /v1/access", "GET /v1/access"]
        assert "token:ann" in cli("audit", "access", "--outcome", "allowed")
        assert "expected one of" in cli("audit", "access", "--outcome", "maybe", code=2)
    walked = cli.json("audit", "verify", "--stream", "access")
    assert walked["ok"]
    assert walked["rows"] == len(here)


async def _refused_without_a_database(url: str) -> None:
    database = Database(url, "tests")
    recorder = AccessRecorder(database)
    recorder.refused(Access("token:a", "GET /", "/", "refused"), "forbidden")
    with pytest.raises(LedgerError):
        await recorder.allowed(Access("token:a", "POST /", "/", "allowed"))
    await recorder.stop(0.1)
    await database.close()


def test_without_a_database_a_write_is_not_allowed() -> None:
    in_a_loop(lambda: _refused_without_a_database("postgresql://postgres@127.0.0.1:1/nowhere"))
