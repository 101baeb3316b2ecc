"""The HTTP API over a ledger in which a small fleet has lived: what is answered, to whom, and that
it is answered the same later."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute
from tests.api import ApiUnderTest, Client, in_a_thread, serving
from tests.backends import fresh_database, in_a_loop
from tests.openapi import FROZEN
from tests.patience import PATIENCE_S
from tests.scenarios.fleet_plane import DYNAMIC
from tests.told_plane import ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.placement import Placement
from wharfinger.runtime.plane import Plane, write_plane
from wharfinger_api.access import RULES, Role
from wharfinger_api.app import create
from wharfinger_api.limits import RequestLimits
from wharfinger_cli.__main__ import main

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.integration

SHOP = a_policy("by-room", Placement(replicas=DYNAMIC))
BANK = a_policy("by-room", Placement(replicas=DYNAMIC), "bank")
WEB = "shop/web-deployment"
LEDGER = "bank/ledger-deployment"
ABSENT = "bank/absent-deployment"
READS = (
    "/v1/bindings",
    "/v1/bindings?group_by=outcome&group_by=cluster",
    "/v1/clusters",
    "/v1/decisions?limit=1000",
    "/v1/streams",
    "/v1/nodes?cluster=oslo",
    "/v1/policies",
    f"/v1/bindings/{WEB}",
    f"/v1/bindings/{WEB}/history",
    f"/v1/bindings/{WEB}/lineage",
    f"/v1/bindings/{WEB}/explain",
    f"/v1/bindings/{WEB}/explain?every=true",
    "/v1/bindings?limit=1",
)


async def lived(url: str) -> ToldPlane:
    plane = await ToldPlane.opened(url)
    await plane.tell(a_cluster("oslo"), a_cluster("bergen"))
    await plane.tell(*nodes("oslo", "o1", "o2"), *nodes("bergen", "b1", "b2"))
    await plane.tell(SHOP, BANK, a_binding("web", 4, SHOP), a_binding("ledger", 2, BANK))
    await plane.tell(a_binding("web", 6, SHOP), a_binding("big", 400, SHOP))
    return plane


async def _filled(url: str) -> None:
    await (await lived(url)).ledger.close()


@pytest.fixture(scope="module")
def database(database_server: str, migrated_database: str) -> Iterator[str]:
    with fresh_database(database_server, template=migrated_database) as url:
        in_a_loop(lambda: _filled(url))
        yield url


@pytest_asyncio.fixture
async def api(database: str) -> AsyncIterator[ApiUnderTest]:
    async with serving(database) as found:
        yield found


async def test_what_was_answered_is_answered_the_same_for_that_time(
    database_server: str, migrated_database: str
) -> None:
    with fresh_database(database_server, template=migrated_database) as url:
        plane = await lived(url)
        async with serving(url) as api:
            viewer = await api.as_("viewer")
            then = {path: (await viewer.get(path)) for path in READS}
            assert {path: r.status_code for path, r in then.items()} == dict.fromkeys(READS, 200)
            heads = {s["stream"]: s for s in then["/v1/streams"].json()["items"]}
            fleet = heads["fleet/0"]
            await plane.tell(a_binding("web", 1, SHOP), *nodes("oslo", "o1"))
            for path in READS[:5]:
                assert (await viewer.get(path)).content != then[path].content, path
            for path, answer in then.items():
                joined = "&" if "?" in path else "?"
                at = f"{path}{joined}at=fleet/0@{fleet['round']}"
                again = await viewer.get(at)
                assert again.content == answer.content, path
                assert again.headers["etag"] == answer.headers["etag"]
        await plane.ledger.close()


async def test_bindings_are_filtered_counted_and_paged_from_one_cut(api: ApiUnderTest) -> None:
    viewer = await api.as_("viewer")
    everything = (await viewer.get("/v1/bindings")).json()
    names = [b["name"] for b in everything["items"]]
    assert names == sorted(names)
    assert {WEB, LEDGER, "shop/big-deployment"} == set(names)
    assert everything["total"] == 3
    first = (await viewer.get("/v1/bindings?limit=2")).json()
    second = (await viewer.get(f"/v1/bindings?limit=2&after={first['next']}")).json()
    assert [b["name"] for b in first["items"] + second["items"]] == names
    assert second["next"] is None
    shop = (await viewer.get("/v1/bindings?namespace=shop&fields=name")).json()["items"]
    assert shop == [{"name": "shop/big-deployment"}, {"name": WEB}]
    groups = (await viewer.get("/v1/bindings?group_by=namespace")).json()["groups"]
    assert groups == [{"namespace": "bank", "count": 1}, {"namespace": "shop", "count": 2}]


async def test_decisions_are_paged_without_a_gap(api: ApiUnderTest) -> None:
    viewer = await api.as_("viewer")
    whole = (await viewer.get("/v1/decisions?limit=1000")).json()
    assert whole["next"] is None
    paged: list[str] = []
    after = ""
    while True:
        page = (await viewer.get(f"/v1/decisions?limit=2&after={after}")).json()
        paged += [d["id"] for d in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert paged == [d["id"] for d in whole["items"]]
    assert len(set(paged)) == len(paged) > 4
    of_web = (await viewer.get(f"/v1/decisions?binding={WEB}")).json()["items"]
    assert {d["subject"] for d in of_web} == {WEB}
    one = (await viewer.get(f"/v1/decisions/{of_web[0]['id']}")).json()
    assert one == of_web[0]


async def test_a_client_that_has_it_gets_304(api: ApiUnderTest) -> None:
    viewer = await api.as_("viewer")
    first = await viewer.get("/v1/bindings")
    again = await viewer.get("/v1/bindings", **{"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = await viewer.get("/v1/clusters", **{"If-None-Match": first.headers["etag"]})
    assert other.status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/v1/bindings?nmespace=shop", 400, "did you mean namespace?"),
        ("/v1/bindings?at=yesterday", 400, "at: expected a time"),
        ("/v1/bindings?at=fleet/0@99999", 400, "there is no round 99999"),
        ("/v1/bindings?at=9999-01-01", 400, "still to come"),
        ("/v1/bindings?limit=0", 400, "limit"),
        ("/v1/bindings?%0A=1", 400, "unknown parameter"),
        ("/v1/bindings?after=x", 400, "after: expected"),
        ("/v1/bindings?limit=1&limit=2", 400, "expected once"),
        ("/v1/bindings?group_by=colour", 400, "group_by: expected"),
        ("/v1/decisions?since=soon", 400, "since: expected"),
        ("/v1/decisions/1", 400, "decision"),
        ("/v1/nothing", 404, "no such path"),
        (f"/v1/bindings/{ABSENT}", 404, "no binding is named"),
    ],
)
async def test_a_wrong_request_is_one_line(
    api: ApiUnderTest, path: str, status: int, said: str
) -> None:
    answer = await (await api.as_("viewer")).get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert said in body["detail"]
    assert "\n" not in body["detail"]
    assert body["request_id"] == answer.headers["x-request-id"]


# --- who may what


POLICIES = {WEB: "by-room", LEDGER: "by-room", ABSENT: "absent"}
"""Binding -> a policy of its namespace. Bank's policy is there, the absent one is not."""


def concrete(path: str, binding: str = WEB) -> str:
    """With names: those of a binding, or of the policy beside it."""
    namespace, name = binding.split("/")
    if "{kind}" in path:
        path, name = path.replace("{kind}", "PropagationPolicy"), POLICIES[binding]
    found = path.replace("{namespace}", namespace).replace("{name}", name)
    return re.sub(r"\{\w+\}", lambda _: str(uuid4()), found)


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: tug, namespace: shop, annotations: {wharfinger.io/placement: any}}
spec: {containers: [{name: tug, image: tug, resources: {requests: {cpu: 10m}}}]}
"""
SHOPS = {"manifests": [{"name": "tug.yaml", "text": POD}], "dry_run": True}
BODIES: dict[tuple[str, str], object] = {
    ("POST", "/v1/tokens"): {"name": "x", "roles": ["viewer"], "namespaces": ["none"]},
    ("POST", "/v1/login"): {"code": "x"},
    ("POST", "/v1/apply"): SHOPS,
    ("POST", "/v1/delete"): SHOPS,
    ("POST", "/v1/bindings/{namespace}/{name}/scale"): {"replicas": 6},  # as it is
    ("PUT", "/v1/bindings/{namespace}/{name}"): {"text": POD},
    ("PUT", "/v1/policies/{kind}/{namespace}/{name}"): {"text": POD},
    ("POST", "/v1/drain"): {"what": "nothing"},
    ("POST", "/v1/undrain"): {"what": "nothing"},
    ("POST", "/v1/barrier"): {"facts": [{"topic": "wharfinger.bindings", "key": "nothing"}]},
    ("POST", "/v1/facts"): {"events": [{"type": "nothing"}]},
    ("POST", "/v1/plans"): {"kind": "manifests"},
    ("POST", "/v1/plans/{plan}/apply"): {},
    ("POST", "/v1/webhooks"): {"name": "x", "url": "https://10.0.0.1/"},
    ("PUT", "/v1/webhooks/{webhook}"): {"name": "x", "url": "https://10.0.0.1/"},
    ("POST", "/v1/webhooks/{webhook}/redeliver"): {"dead": True},
}
"""A body for each operation that takes one, about namespace `shop`."""

OPERATIONS: dict[tuple[str, str], dict[str, Any]] = {
    (method.upper(), path): operation
    for path, methods in json.loads(FROZEN.read_text())["paths"].items()
    for method, operation in methods.items()
}
SCOPES: dict[str, tuple[str, ...]] = {"all": (), "own": ("shop",), "other": ("bank",)}


def expected(method: str, operation: dict[str, Any], role: Role, scope: str) -> bool:
    """Whether the door is open; what lies behind it is looked at by other tests."""
    if role not in operation["x-roles"]:
        return False
    reads_all = method == "GET" and role is Role.AUDITOR
    return operation["x-namespaced"] or scope == "all" or reads_all


def test_the_roles_are_those_of_the_specification() -> None:
    """By what they are for. A new route has to be decided about here, too."""
    of_role = {
        role: {place for place, found in OPERATIONS.items() if role in found["x-roles"]}
        for role in Role
    }
    own = {place for place in OPERATIONS if place[1].startswith(("/v1/tokens", "/v1/whoami"))}
    access = {("GET", "/v1/access")}
    reads = {
        place
        for place, found in OPERATIONS.items()
        if place[0] == "GET" and found["x-roles"] and place not in own | access
    }
    plans = {
        ("POST", "/v1/plans"),
        ("POST", "/v1/operations/{operation}/cancel"),
        ("POST", "/v1/barrier"),
    }
    hooks = {place for place in OPERATIONS if place[1].startswith("/v1/webhooks")}
    assert of_role[Role.VIEWER] == own | reads | plans | hooks
    changes = {
        ("POST", "/v1/apply"),
        ("POST", "/v1/delete"),
        ("POST", "/v1/bindings/{namespace}/{name}/scale"),
        ("PUT", "/v1/bindings/{namespace}/{name}"),
        ("DELETE", "/v1/bindings/{namespace}/{name}"),
        ("PUT", "/v1/policies/{kind}/{namespace}/{name}"),
        ("DELETE", "/v1/policies/{kind}/{namespace}/{name}"),
        ("POST", "/v1/drain"),
        ("POST", "/v1/undrain"),
        ("POST", "/v1/plans/{plan}/apply"),
    }
    assert of_role[Role.OPERATOR] == own | reads | plans | hooks | changes
    assert of_role[Role.AUDITOR] == own | reads | plans | hooks | access
    assert of_role[Role.SERVICE] == own | {("POST", "/v1/facts")}
    seen = {place for place in hooks if place[0] in ("GET", "DELETE")}
    assert of_role[Role.ADMIN] == own | access | seen
    open_to_all = {place for place, found in OPERATIONS.items() if not found["x-roles"]}
    assert {place for place in open_to_all if place[0] != "GET"} == {("POST", "/v1/login")}
    assert {place[1] for place in open_to_all if place[0] == "GET"} == {
        "/healthz",
        "/readyz",
        "/metrics",
        "/v1/openapi.json",
    }
    assert {place for place, found in OPERATIONS.items() if found.get("security") == []} == (
        open_to_all
    )


async def test_every_operation_is_open_to_its_roles_and_scopes_and_closed_to_others(
    api: ApiUnderTest,
) -> None:
    clients = {
        (role, scope): await api.as_(role, namespaces=names, name=f"{role}-{scope}")
        for role in Role
        for scope, names in SCOPES.items()
    }
    for (method, path), operation in OPERATIONS.items():
        body = BODIES.get((method, path))
        assert ("requestBody" in operation) == (body is not None), (method, path)
        anonymous = await api.anonymous().send(method, concrete(path), body)
        if not operation["x-roles"]:
            assert anonymous.status_code != 403
            continue
        assert anonymous.status_code == 401, (method, path)
        assert anonymous.headers["www-authenticate"].startswith("Bearer")
        for (role, scope), client in clients.items():
            answer = await client.send(method, concrete(path), body)
            case = (method, path, role, scope, answer.text)
            behind = answer.status_code == 403 and (
                "of yours" in answer.text or "for that namespace" in answer.text
            )
            is_open = answer.status_code != 403 or behind
            assert is_open == expected(method, operation, role, scope), case
            assert answer.status_code not in (401, 429), case
            assert answer.status_code < 500, case


async def test_anothers_binding_is_scaled_as_one_that_is_not_there(api: ApiUnderTest) -> None:
    tenant = await api.as_("operator", "auditor", namespaces=["shop"])

    async def asked(binding: str) -> httpx.Response:
        return await tenant.send("POST", f"/v1/bindings/{binding}/scale", {"replicas": 6})

    own, other, absent = await asked(WEB), await asked(LEDGER), await asked(ABSENT)
    facts = [{"topic": "wharfinger.bindings", "key": WEB}]
    unchanged = {"subject": WEB, "result": "unchanged", "position": None}
    assert own.json() == {**unchanged, "facts": facts, "leaving": []}
    assert other.status_code == absent.status_code == 404
    assert without_name(other, LEDGER) == without_name(absent, ABSENT)
    drained = await tenant.send("POST", "/v1/drain", {"what": "oslo"})
    assert (drained.status_code, (await tenant.get("/v1/nodes")).status_code) == (403, 200)


async def test_anothers_change_is_waited_for_as_one_that_is_not_there(api: ApiUnderTest) -> None:
    tenant = await api.as_("viewer", namespaces=["shop"])

    async def asked(key: str, topic: str = "wharfinger.bindings") -> httpx.Response:
        return await tenant.send("POST", "/v1/barrier", {"facts": [{"topic": topic, "key": key}]})

    own, other, absent = await asked(WEB), await asked(LEDGER), await asked(ABSENT)
    assert (own.status_code, own.json()["bindings"]) == (200, 1)
    assert other.status_code == absent.status_code == 404
    assert without_name(other, LEDGER) == without_name(absent, ABSENT)
    assert (await asked("oslo", "wharfinger.clusters")).status_code == 404
    named = {"facts": [{"topic": "wharfinger.bindings", "key": WEB}], "bindings": [LEDGER]}
    assert (await tenant.send("POST", "/v1/barrier", named)).json()["bindings"] == 1


async def test_changes_are_held_to_the_namespaces_of_the_token(api: ApiUnderTest) -> None:
    for path in ("/v1/apply", "/v1/delete"):
        statuses = {}
        for scope, names in SCOPES.items():
            client = await api.as_("operator", namespaces=names)
            statuses[scope] = (await client.send("POST", path, SHOPS)).status_code
        assert statuses["own"] == statuses["all"] != 403
        assert path == "/v1/delete" or statuses == {"all": 200, "own": 200, "other": 403}


async def test_reads_of_every_operation_tell_nothing_of_others(api: ApiUnderTest) -> None:
    """Lists without what is another's, and of one object the same answer as for one that is not
    there."""
    tenant = await api.as_("viewer", namespaces=["shop"])
    auditor = await api.as_("auditor", namespaces=["shop"])
    for (method, path), operation in OPERATIONS.items():
        if method != "GET" or Role.VIEWER not in operation["x-roles"]:
            continue
        if not operation["x-namespaced"] or path == "/v1/tokens":
            continue
        query = "?after=earliest&facts=true&limit=1000" if path == "/v1/events" else ""
        own = await tenant.get(concrete(path) + query)
        assert "bank" not in own.text, path
        assert "ledger-deployment" not in own.text, path
        if "{namespace}" not in path:
            continue
        assert own.status_code == 200, path
        other = await tenant.get(concrete(path, LEDGER))
        absent = await tenant.get(concrete(path, ABSENT))
        assert (await auditor.get(concrete(path, LEDGER))).status_code == 200, path
        assert other.status_code == absent.status_code == 404, path
        assert without_name(other, named(path, LEDGER)) == (
            without_name(absent, named(path, ABSENT))
        ), path
        assert set(other.headers) == set(absent.headers), path


def named(path: str, binding: str) -> str:
    """The name that an answer says."""
    if "{kind}" not in path:
        return binding
    return f"PropagationPolicy/{binding.split('/')[0]}/{POLICIES[binding]}"


def without_name(answer: httpx.Response, name: str) -> str:
    body = {k: v for k, v in answer.json().items() if k != "request_id"}
    return json.dumps(body).replace(name, "?")


async def test_anothers_token_is_revoked_as_one_that_is_not_there(api: ApiUnderTest) -> None:
    admin = await api.as_("admin", name="root")
    made = (await admin.send("POST", "/v1/tokens", {"name": "hers", "roles": ["viewer"]})).json()
    for role in set(Role) - {Role.ADMIN}:
        client = await api.as_(role, name=f"not-root-{role}")
        theirs = await client.send("DELETE", f"/v1/tokens/{made['id']}")
        absent_id = str(uuid4())
        absent = await client.send("DELETE", f"/v1/tokens/{absent_id}")
        assert theirs.status_code == absent.status_code == 404
        assert without_name(theirs, made["id"]) == without_name(absent, absent_id)
    assert (await Client(api.http, made["secret"]).get("/v1/whoami")).status_code == 200


async def test_a_token_that_asks_too_often_waits_and_others_do_not(api: ApiUnderTest) -> None:
    now = 0.0
    api.api.limits = RequestLimits(0.5, 3, lambda: now)
    eager, other = await api.as_("viewer", name="eager"), await api.as_("viewer", name="other")
    for _ in range(3):
        assert (await eager.get("/v1/whoami")).status_code == 200
    refused = await eager.get("/v1/bindings")
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "2"
    assert refused.json()["type"] == "/problems/too-many"
    assert (await other.get("/v1/whoami")).status_code == 200
    assert (await eager.get("/healthz")).status_code == 200
    now += 1.0
    again = await eager.get("/v1/whoami")
    assert (again.status_code, again.headers["retry-after"]) == (429, "1")
    now += 1.0
    assert (await eager.get("/v1/whoami")).status_code == 200
    assert (await eager.get("/v1/whoami")).status_code == 429
    now += 3600.0
    statuses = [(await eager.get("/v1/whoami")).status_code for _ in range(4)]
    assert statuses == [200, 200, 200, 429]


def test_every_route_has_a_rule(api: ApiUnderTest) -> None:
    routes = {
        (m, r.path)
        for r in create(api.api).routes
        if isinstance(r, APIRoute)
        for m in r.methods or ()
    }
    assert routes == set(RULES)


async def test_lists_counts_and_decisions_tell_nothing_of_others(api: ApiUnderTest) -> None:
    tenant = await api.as_("viewer", namespaces=["shop"])
    for path in (
        "/v1/bindings",
        "/v1/bindings?group_by=namespace",
        "/v1/policies",
        "/v1/decisions?limit=1000",
        "/v1/decisions?stream=intake&limit=1000",
        f"/v1/bindings/{WEB}/lineage",
        f"/v1/bindings/{WEB}/explain?every=true",
    ):
        answer = await tenant.get(path)
        assert answer.status_code == 200
        assert "bank" not in answer.text, path
        assert "ledger-deployment" not in answer.text
    assert (await tenant.get("/v1/bindings")).json()["total"] == 2
    assert (await tenant.get("/v1/decisions?namespace=bank")).json()["items"] == []
    whole = await (await api.as_("viewer")).get("/v1/decisions?namespace=bank")
    theirs = whole.json()["items"][0]["id"]
    assert (await tenant.get(f"/v1/decisions/{theirs}")).status_code == 404


async def test_nobody_gives_what_they_do_not_have(api: ApiUnderTest) -> None:
    tenant = await api.as_("viewer", namespaces=["shop"], name="tenant")

    async def asked(**body: object) -> int:
        wanted = {"name": "mine", "roles": ["viewer"], "namespaces": ["shop"], **body}
        return (await tenant.send("POST", "/v1/tokens", wanted)).status_code

    assert await asked() == 201
    assert await asked(roles=["operator"]) == 403
    assert await asked(namespaces=["bank"]) == 403
    assert await asked(namespaces=["shop", "bank"]) == 403
    assert await asked(namespaces=[]) == 403
    assert await asked(sources=["/x"]) == 403
    admin = await api.as_("admin")
    made = await admin.send(
        "POST", "/v1/tokens", {"name": "ops", "roles": ["operator"], "lifetime_s": 600}
    )
    assert made.status_code == 201
    operator = Client(api.http, made.json()["secret"])
    assert (await operator.get("/v1/bindings")).status_code == 200
    assert (await admin.get("/v1/bindings")).status_code == 403


async def test_two_valid_tokens_never_have_one_name(
    api: ApiUnderTest, database: str, capsys: Capture
) -> None:
    admin = await api.as_("admin")

    async def asked() -> httpx.Response:
        return await admin.send("POST", "/v1/tokens", {"name": "twin", "roles": ["viewer"]})

    at_once = await asyncio.gather(*[asked() for _ in range(5)])
    (made,) = [answer for answer in at_once if answer.status_code == 201]
    for refused in at_once:
        assert refused is made or refused.status_code == 409
    taken = "a token named twin is valid already: revoke it, or choose another name"
    assert (await asked()).json()["detail"] == f"name: {taken}"

    command = ["token", "create", "twin", "--role", "viewer"]
    there = {"WHARFINGER_DATABASE": database}
    code, out, said = await asyncio.to_thread(printed, capsys, command, there)
    assert (code, out, said) == (2, "", f"wharfinger: {taken}\n")
    assert (await admin.send("DELETE", f"/v1/tokens/{made.json()['id']}")).status_code == 204
    assert (await asyncio.to_thread(printed, capsys, command, there))[0] == 0
    assert (await asked()).status_code == 409


async def test_a_revoked_token_is_refused(api: ApiUnderTest) -> None:
    admin = await api.as_("admin")
    made = (await admin.send("POST", "/v1/tokens", {"name": "short", "roles": ["viewer"]})).json()
    short = Client(api.http, made["secret"])
    assert (await short.get("/v1/whoami")).json()["id"] == "short"
    assert (await admin.send("DELETE", f"/v1/tokens/{made['id']}")).status_code == 204
    assert (await short.get("/v1/whoami")).status_code == 401
    listed = (await admin.get("/v1/tokens")).text
    assert made["id"] in listed
    assert made["secret"] not in listed
    assert UUID(made["id"])


@pytest.mark.parametrize(
    "header",
    ["Basic eDp5", "Bearer", "Bearer whf_", "Bearer whf_'; drop table token; --", "Bearer \x7f"],
)
async def test_no_other_credential_opens_anything(api: ApiUnderTest, header: str) -> None:
    answer = await api.anonymous().get("/v1/whoami", Authorization=header)
    assert answer.status_code == 401


# --- the commands over it


COMMANDS = (
    ("get", "bindings"),
    ("get", "bindings", WEB),
    ("get", "clusters"),
    ("get", "nodes"),
    ("get", "policies"),
    ("get", "b", "-n", "shop"),
    ("get", "bindings", "--state", "scheduled", "--label", "!unknown"),
    ("get", "pol", "--policy", "by-room"),
    ("get", "no", "--cluster", "oslo", "--state", "ready"),
    ("decisions",),
    ("decisions", "--limit", "3"),
    ("decisions", "--stream", "fleet"),
    ("history", WEB),
    ("history", "web"),
    ("lineage", "web"),
    ("explain", WEB),
    ("explain", "big", "--all"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_prints_the_same_over_a_server(
    served: tuple[str, Path], database: str, command: tuple[str, ...], capsys: Capture
) -> None:
    server, token_file = served
    for output in ("table", "wide", "json", "name"):
        here = printed(capsys, [*command, "-o", output], {"WHARFINGER_DATABASE": database})
        there = printed(
            capsys,
            ["--server", server, "--token-file", str(token_file), *command, "-o", output],
            {},
        )
        assert here[0] == there[0] == 0, there
        assert here[1]
        assert there[1] == here[1]


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (("history", "nothing"), 1, "no binding is named nothing"),
        (("get", "bindings", "nothing"), 1, "no binding is named nothing"),
        (("status",), 1, "not on the machine of a plane"),
        (("decisions", "--follow"), 2, "needs the database"),
    ],
)
def test_what_a_server_has_not_is_one_line(
    served: tuple[str, Path], command: tuple[str, ...], code: int, said: str, capsys: Capture
) -> None:
    server, token_file = served
    found = printed(capsys, ["--server", server, "--token-file", str(token_file), *command], {})
    assert found[0] == code
    assert said in found[2]
    assert len(found[2].splitlines()) == 1


def test_status_is_the_same_over_a_server_and_has_no_password(
    database: str, tmp_path: Path, capsys: Capture
) -> None:
    """All but what goes on meanwhile: the ages and the clock."""
    data_dir, token = tmp_path / "plane", tmp_path / "token"
    write_plane(data_dir, Plane("127.0.0.1:1", database, "memory", "b-1", os.getpid()))
    token.touch(0o600)

    def said(arguments: list[str]) -> dict[str, Any]:
        code, out, err = printed(capsys, [*arguments, "status", "-o", "json"], {})
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        found.pop("clock_skew_s")
        found["relay"].pop("oldest_waiting_s")
        found["processes"]["supervisor"].pop("rss_bytes")
        for stream in found["streams"].values():
            stream.pop("snapshot_age_s", None)
        return found

    with in_a_thread(database, data_dir=data_dir) as (server, secret):
        token.write_text(secret)
        here = said(["--data-dir", str(data_dir)])
        there = said(["--server", server, "--token-file", str(token)])
        assert there == here
        assert "fleet/0" in there["streams"]
        secured = database.replace("postgres@", "postgres:secret@", 1)
        assert secured != database
        write_plane(data_dir, Plane("127.0.0.1:1", secured, "memory", "b-1", os.getpid()))
        sent = httpx.get(f"{server}/v1/status", headers={"Authorization": f"Bearer {secret}"})
        assert sent.status_code == 200
        assert "secret@" not in sent.text


def test_a_token_is_not_sent_where_it_could_be_seen(tmp_path: Path, capsys: Capture) -> None:
    token = tmp_path / "token"
    token.write_text("whf_x")
    token.chmod(0o644)
    get = ("get", "bindings")
    open_to_all = printed(
        capsys, ["--server", "http://127.0.0.1:1", "--token-file", str(token), *get], {}
    )
    assert "mode 0600" in open_to_all[2]
    token.chmod(0o600)
    in_clear = printed(
        capsys, ["--server", "http://example.com", "--token-file", str(token), *get], {}
    )
    assert "in clear" in in_clear[2]
    away = printed(capsys, ["--server", "http://127.0.0.1:1", "--token-file", str(token), *get], {})
    assert away[0] == 2
    assert len(away[2].splitlines()) == 1


def printed(
    capsys: Capture, arguments: list[str], environment: dict[str, str]
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["wharfinger", *arguments])
        for name, value in environment.items():
            patch.setenv(name, value)
        code = main()
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def served(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The API on a port, in a thread with a loop of its own; and a viewer's token."""
    token_file = tmp_path_factory.mktemp("tokens") / "token"
    with in_a_thread(database) as (server, secret):
        token_file.touch(0o600)
        token_file.write_text(secret + "\n")
        yield server, token_file


PROGRAM = f"""
from wharfinger_cli import completion
from wharfinger_cli.__main__ import program
completion.WITHIN_S = {PATIENCE_S}
program()
"""
"""A person gets no names where they take long; here they are waited for."""


def completed(typed: str, **environment: str) -> tuple[list[str], str]:
    """What a shell is given for the last word of the line; and what would be in its way."""
    words = f"wharfinger {typed}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **{k: v for k, v in os.environ.items() if not k.startswith("WHARFINGER_")},
            "PYTHONPATH": os.pathsep.join(sys.path),
            "_WHARFINGER_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
            **environment,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split(), done.stderr


@pytest.mark.long
def test_names_are_completed_from_the_database_and_over_a_server(
    database: str, served: tuple[str, Path]
) -> None:
    server, token_file = served
    there = {"WHARFINGER_SERVER": server, "WHARFINGER_TOKEN_FILE": str(token_file)}
    for way in ({"WHARFINGER_DATABASE": database}, there):
        assert completed("explain shop/w", **way) == ([WEB], "")
        assert completed("get bindings bank/", **way) == ([LEDGER], "")
        (cluster,) = completed("drain osl", **way)[0]
        assert cluster == "oslo"
        assert completed("get cl osl", **way)[0] == completed("plan drain osl", **way)[0]
        assert completed("drain oslo/", **way)[0] == ["oslo/o1", "oslo/o2"]
        assert completed("get no b", **way)[0] == ["b1", "b2"]
        assert completed("undrain b", **way)[0] == ["b1", "b2", "bergen"]
        assert completed("get b --cluster osl", **way)[0] == ["oslo"]
        assert completed("history nothing-begins-so", **way) == ([], "")
    assert completed("get clu") == (["clusters"], "")


def test_where_the_plane_is_away_nothing_is_completed_and_nothing_said(
    tmp_path: Path, served: tuple[str, Path]
) -> None:
    wrong = tmp_path / "token"
    wrong.touch(0o600)
    wrong.write_text("whf_of_no_one")
    for way in (
        {"WHARFINGER_DATA_DIR": str(tmp_path)},
        {"WHARFINGER_DATABASE": "postgresql://postgres@127.0.0.1:1/nowhere"},
        {"WHARFINGER_DATABASE": "nonsense"},
        {"WHARFINGER_SERVER": "http://127.0.0.1:1", "WHARFINGER_TOKEN_FILE": str(wrong)},
        {"WHARFINGER_SERVER": served[0], "WHARFINGER_TOKEN_FILE": str(wrong)},
        {"WHARFINGER_SERVER": served[0]},
    ):
        assert completed("explain shop/w", **way) == ([], ""), way


def test_a_command_that_asks_too_often_waits_for_its_answer(
    database: str, tmp_path: Path, capsys: Capture
) -> None:
    """Several requests, of which the server takes one at once."""
    token_file = tmp_path / "token"
    with in_a_thread(database, limits=RequestLimits(10.0, 1)) as (server, secret):
        token_file.touch(0o600)
        token_file.write_text(secret + "\n")
        over = ["--server", server, "--token-file", str(token_file)]
        there = printed(capsys, [*over, "history", "web"], {})
    here = printed(capsys, ["history", "web"], {"WHARFINGER_DATABASE": database})
    assert there == here
    assert here[0] == 0
