"""What is changed over HTTP: it goes the way of the command, with who asks in the hashed frame,
once under a key, and within the namespaces of the token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.api import ApiUnderTest, Client, in_a_thread, serving
from tests.backends import fresh_database, in_a_loop
from tests.integration.test_api import WEB, printed
from tests.told_plane import ToldPlane, a_cluster, nodes

from wharfinger.events.origin import origin_plain
from wharfinger.events.streams import INTAKE
from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger, audit_verify
from wharfinger.runtime.ledger.feed_writer import FeedAppender

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.integration

POLICY = """\
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {{name: all, namespace: {namespace}}}
spec:
  resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment}}]
  placement: {{replicaScheduling: {{replicaSchedulingType: Divided}}}}
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: main, image: main, resources: {{requests: {{cpu: 100m}}}}}}]}}
"""


def manifests(namespace: str = "shop", name: str = "web", replicas: int = 2) -> str:
    return (
        POLICY.format(namespace=namespace)
        + "---\n"
        + DEPLOYMENT.format(name=name, namespace=namespace, replicas=replicas)
    )


def body(text: str, **more: object) -> dict[str, object]:
    return {"manifests": [{"name": "web.yaml", "text": text}], **more}


async def _filled(url: str) -> None:
    plane = await ToldPlane.opened(url)
    await plane.tell(a_cluster("oslo"), *nodes("oslo", "o1"))
    await plane.ledger.close()


@pytest.fixture
def url(backend: Backend, migrated_database: str) -> Iterator[str]:
    with fresh_database(backend.database_url, template=migrated_database) as found:
        in_a_loop(lambda: _filled(found))
        yield found


@pytest_asyncio.fixture
async def api(url: str) -> AsyncIterator[ApiUnderTest]:
    async with serving(url) as found:
        yield found


async def accepted(api: ApiUnderTest) -> int:
    return (await api.past.heads()).places[INTAKE].seq


def results(answer: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {one["subject"]: one["result"] for one in answer["objects"]}


async def test_what_is_applied_is_recorded_with_who_asked(api: ApiUnderTest) -> None:
    operator = await api.as_("operator", name="ada")
    tried = await operator.send("POST", "/v1/apply", body(manifests(), dry_run=True))
    before = await accepted(api)
    first = await operator.send(
        "POST", "/v1/apply", body(manifests(), reason="a sale", revision="abc123")
    )
    assert first.status_code == 200, first.text
    assert results(first.json()) == {
        "PropagationPolicy/shop/all": "created",
        "shop/web-deployment": "created",
    }
    assert tried.json() == {**first.json(), "dry_run": True}
    assert await accepted(api) == before + 2
    again = (await operator.send("POST", "/v1/apply", body(manifests()))).json()
    assert set(results(again).values()) == {"unchanged"}
    changed = (await operator.send("POST", "/v1/apply", body(manifests(replicas=3)))).json()
    assert results(changed)["shop/web-deployment"] == "changed"
    gone = (await operator.send("POST", "/v1/delete", body(manifests()))).json()
    assert set(results(gone).values()) == {"deleted"}
    async with api.past.present.reading() as raw:
        found = await raw.fetch(
            "select e.encoding, e.body from event e where e.subject = 'shop/web-deployment' "
            "and e.source = '/wharfinger/api' order by e.day"
        )
    from wharfinger.runtime.ledger.bodies import unpack

    origins = [origin_plain(unpack(encoding, stored)) for encoding, stored in found]
    assert {
        "authtype": "api_key",
        "authid": "token:ada",
        "changereason": "a sale",
        "changerevision": "abc123",
    } in origins
    assert len(origins) == 3
    assert (await audit_verify(Ledger(api.past.present))).ok


async def test_nothing_is_accepted_where_anything_is_wrong(api: ApiUnderTest) -> None:
    operator = await api.as_("operator")
    before = await accepted(api)
    wrong = manifests() + "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: 7}\n"
    answer = await operator.send("POST", "/v1/apply", body(wrong))
    assert answer.status_code == 400
    found = answer.json()
    assert found["errors"][0]["file"] == "web.yaml"
    assert found["errors"][0]["line"] > 1
    assert found["lines"][0] == found["detail"]
    assert await accepted(api) == before
    nothing: tuple[dict[str, object], ...] = ({}, {"manifests": []}, {"manifests": [], "colour": 1})
    for other in nothing:
        assert (await operator.send("POST", "/v1/apply", other)).status_code == 400
    large = await operator.send("POST", "/v1/apply", {"manifests": ["x" * 17_000_000]})
    assert large.status_code == 413
    assert large.json()["type"] == "/problems/too-large"


@pytest.mark.parametrize("role", ["viewer", "auditor", "service", "admin"])
async def test_who_may_only_look_changes_nothing(api: ApiUnderTest, role: str) -> None:
    before = await accepted(api)
    client = await api.as_(role)
    for path in ("/v1/apply", "/v1/delete"):
        answer = await client.send("POST", path, body(manifests()))
        assert answer.status_code == 403
    assert await accepted(api) == before


async def test_an_operator_changes_its_own_namespaces_only(api: ApiUnderTest) -> None:
    whole = await api.as_("operator")
    assert (await whole.send("POST", "/v1/apply", body(manifests("bank")))).status_code == 200
    before = await accepted(api)
    shop = await api.as_("operator", namespaces=["shop"])
    cluster = (
        "apiVersion: cluster.karmada.io/v1alpha1\nkind: Cluster\nmetadata: {name: new}\nspec: {}\n"
    )
    everywhere = POLICY.replace("PropagationPolicy", "ClusterPropagationPolicy").replace(
        ", namespace: {namespace}", ""
    )
    for text in (manifests("bank", replicas=9), cluster, everywhere.format()):
        answer = await shop.send("POST", "/v1/apply", body(text))
        assert answer.status_code == 403, answer.text
    assert (await shop.send("POST", "/v1/delete", body(manifests("bank")))).status_code == 403
    assert await accepted(api) == before
    assert (await shop.send("POST", "/v1/apply", body(manifests("shop")))).status_code == 200


async def test_a_request_under_a_key_is_carried_out_once(api: ApiUnderTest) -> None:
    operator = await api.as_("operator", name="ada")
    key = {"Idempotency-Key": "5b0f"}
    before = await accepted(api)
    answers = await asyncio.gather(
        *(operator.send("POST", "/v1/apply", body(manifests()), **key) for _ in range(10))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.content for answer in answers} == {answers[0].content}
    assert set(results(answers[0].json()).values()) == {"created"}
    assert await accepted(api) == before + 2
    other = await operator.send("POST", "/v1/apply", body(manifests(replicas=5)), **key)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/key-reused")
    stranger = await api.as_("operator", name="bob")
    theirs = await stranger.send("POST", "/v1/apply", body(manifests()), **key)
    assert set(results(theirs.json()).values()) == {"unchanged"}
    refused = await operator.send("POST", "/v1/apply", {}, **{"Idempotency-Key": "2"})
    assert refused.status_code == 400
    used = await operator.send("POST", "/v1/apply", body(manifests()), **{"Idempotency-Key": "2"})
    assert used.status_code == 200  # nothing was changed under it


async def test_a_service_tells_facts_of_its_sources_once(api: ApiUnderTest) -> None:
    from wharfinger.runtime.ledger.tokens import make_token

    secret, _ = await make_token(
        api.past.present, "agent", ["service"], "tests", lifetime_s=3600, sources=["/agents/1"]
    )
    service = Client(api.http, secret)
    event = {
        "specversion": "1.0",
        "id": "a1",
        "source": "/agents/1",
        "type": "io.wharfinger.cluster.observed.v1",
        "subject": "bergen",
        "time": "2026-01-01T00:00:00Z",
        "datacontenttype": "application/json",
        "data": {"cluster": {"name": "bergen"}},
    }
    first = await service.send("POST", "/v1/facts", {"events": [event]})
    assert first.status_code == 200, first.text
    assert len(first.json()["accepted"]) == 1
    again = (await service.send("POST", "/v1/facts", {"events": [event]})).json()
    assert (again["accepted"], again["known"]) == ([], first.json()["accepted"])
    stranger = {**event, "id": "a2", "source": "/agents/2"}
    before = await accepted(api)
    refused = await service.send("POST", "/v1/facts", {"events": [{**event, "id": "a3"}, stranger]})
    assert refused.status_code == 403
    decision = {**event, "id": "a4", "type": "io.wharfinger.schedule.decided.v1"}
    assert (await service.send("POST", "/v1/facts", {"events": [decision]})).status_code == 400
    assert await accepted(api) == before
    viewer = await api.as_("viewer")
    names = [c["name"] for c in (await viewer.get("/v1/clusters")).json()["items"]]
    assert "bergen" in names


async def test_a_reader_sees_its_own_writes(api: ApiUnderTest) -> None:
    operator = await api.as_("operator")
    head = (await operator.get("/v1/bindings")).headers["Wharfinger-Position"]
    ahead = int(head) + 1_000
    behind = await operator.get(f"/v1/bindings?min_position={ahead}")
    assert (behind.status_code, behind.json()["type"]) == (503, "/problems/behind")
    assert behind.headers["Retry-After"]
    writing = asyncio.create_task(operator.send("POST", "/v1/apply", body(manifests())))
    appender = FeedAppender(api.past.present)
    await appender.begin()
    while not writing.done():
        await appender.append()
        await asyncio.sleep(0.01)
    answer = (await writing).json()
    assert answer["position"] > int(head)
    seen = await operator.get(f"/v1/bindings?min_position={answer['position']}")
    assert "shop/web-deployment" in seen.text


# --- the commands over it


def test_apply_and_delete_print_the_same_over_a_server(
    backend: Backend, migrated_database: str, url: str, tmp_path: Path, capsys: Capture
) -> None:
    files = {
        "good.yaml": manifests(),
        "more.yaml": manifests(replicas=4),
        "skipped.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop}\n",
        "wrong.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: 7}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    steps = [
        ["apply", "-f", "good.yaml"],
        ["apply", "-f", "good.yaml", "-o", "json"],
        ["apply", "-f", "more.yaml", "-o", "name"],
        ["apply", "-f", "skipped.yaml"],
        ["apply", "--strict", "-f", "skipped.yaml"],
        ["apply", "-f", "wrong.yaml"],
        ["apply", "-f", "absent.yaml"],
        ["scale", WEB, "5", "--reason", "sale"],
        ["scale", WEB, "5", "-o", "json"],
        ["scale", "shop/nothing", "5"],
        ["drain", "oslo"],
        ["drain", "oslo/o1", "-o", "json"],
        ["drain", "nothing"],
        ["undrain", "oslo", "-o", "name"],
        ["delete", "-f", "good.yaml", "-o", "json"],
        ["delete", "-f", "good.yaml"],
    ]
    token = tmp_path / "token"
    token.touch(0o600)
    with fresh_database(backend.database_url, template=migrated_database) as other:
        in_a_loop(lambda: _filled(other))
        with in_a_thread(url, "operator") as (server, secret), pytest.MonkeyPatch.context() as at:
            at.chdir(tmp_path)
            token.write_text(secret)
            for step in steps:
                here = printed(capsys, step, {"WHARFINGER_DATABASE": other})
                there = printed(capsys, ["--server", server, "--token-file", str(token), *step], {})
                assert there == here, step
                assert json.dumps(here[1:]) != '["", ""]'
