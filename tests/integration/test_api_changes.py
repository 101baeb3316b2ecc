"""What is changed over HTTP: it goes the way of the command, with who asks in the hashed frame,
once under a key, and within the namespaces of the token."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from tests.api import ApiUnderTest, Client, in_a_thread, serving
from tests.backends import fresh_database, in_a_loop
from tests.integration.test_api import WEB, printed
from tests.told_plane import ToldPlane, a_cluster, nodes

from wharfinger.answers.facts import LatestFacts
from wharfinger.answers.upkeep import scaled, tell
from wharfinger.events.accepted import Accepted
from wharfinger.events.origin import origin_plain
from wharfinger.events.streams import INTAKE
from wharfinger.runtime.believed_sources import ALL_BELIEVED, BelievedSources
from wharfinger.runtime.ledger import Ledger, audit_verify
from wharfinger.runtime.ledger.feed_writer import FeedAppender
from wharfinger_cli import instance_types, remote_facts

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
def url(database_server: str, migrated_database: str) -> Iterator[str]:
    with fresh_database(database_server, template=migrated_database) as found:
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


@pytest.mark.parametrize("path", ["/v1/bindings/shop/w%00b", "/v1/policies/P%1bK/shop/web"])
async def test_a_path_with_control_characters_names_nothing(api: ApiUnderTest, path: str) -> None:
    operator = await api.as_("operator")
    answer = await operator.send("PUT", path, {"text": manifests()}, **{"If-Match": "*"})
    assert answer.status_code == 400, answer.text
    assert answer.json()["errors"][0]["pointer"].startswith("path/")


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


async def test_one_binding_is_put_and_deleted_as_it_was_seen(api: ApiUnderTest) -> None:
    client = await api.as_("operator", namespaces=["shop"], name="ops")
    await client.send("POST", "/v1/apply", body(POLICY.format(namespace="shop")))
    path = f"/v1/bindings/{WEB}"

    async def put(replicas: int = 2, name: str = "web", **headers: str) -> httpx.Response:
        text = DEPLOYMENT.format(name=name, namespace="shop", replicas=replicas)
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return await client.send("PUT", path, {"text": text}, **named)

    async def etag() -> str:
        return str((await client.get(path)).headers["etag"])

    unsaid = await put()
    assert (unsaid.status_code, unsaid.json()["type"]) == (428, "/problems/precondition-required")
    assert unsaid.headers["content-type"] == "application/problem+json"
    assert (await put(If_Match='"x"')).status_code == 412, "it is not there yet"
    wrong = await put(name="other", If_None_Match="*")
    assert (wrong.status_code, wrong.json()["detail"]) == (
        400,
        f"text: expected what becomes {WEB}, got shop/other-deployment",
    )
    made = await put(If_None_Match="*")
    assert (made.status_code, results(made.json())) == (200, {WEB: "created"})
    assert (await put(If_None_Match="*")).status_code == 412

    seen = await etag()
    both = await asyncio.gather(put(5, If_Match=seen), put(6, If_Match=seen))
    assert sorted(answer.status_code for answer in both) == [200, 412]
    stale = await put(7, If_Match=seen)
    assert (stale.status_code, stale.json()["expected"]) == (412, seen)
    assert stale.json()["found"] == await etag()

    assert (await client.send("DELETE", path)).status_code == 428
    refused = await client.send("DELETE", path, **{"If-Match": seen})
    assert refused.status_code == 412
    other = await api.as_("operator", namespaces=["bank"], name="bank")
    assert (await other.send("DELETE", path, **{"If-Match": "*"})).status_code == 404
    hidden = await other.send("PUT", path, {"text": "a: b"}, **{"If-Match": "*"})
    assert hidden.status_code == 403
    gone = await client.send("DELETE", path, **{"If-Match": await etag()})
    assert (gone.status_code, gone.json()["subject"], gone.json()["result"]) == (
        200,
        WEB,
        "changed",
    )
    assert (await client.send("DELETE", path, **{"If-Match": "*"})).status_code == 404


async def test_between_look_and_change_nothing_of_others_is_lost(api: ApiUnderTest) -> None:
    """Beside requests with `If-Match` others apply and scale. What a request has changed directly
    follows what it saw."""
    client = await api.as_("operator", namespaces=["shop"], name="ops")
    await client.send("POST", "/v1/apply", body(POLICY.format(namespace="shop")))
    path, writers, turns = f"/v1/bindings/{WEB}", 4, 6

    def manifest(replicas: int) -> str:
        return DEPLOYMENT.format(name="web", namespace="shop", replicas=replicas)

    await client.send("POST", "/v1/apply", body(manifest(1)))
    told: dict[int, int] = {}
    refused = 0

    async def as_seen(writer: int) -> None:
        nonlocal refused
        for turn in range(turns):
            found = await client.get(path)
            wanted = 100 * (writer + 1) + turn
            headers = {"If-Match": str(found.headers["etag"])}
            answer = await client.send("PUT", path, {"text": manifest(wanted)}, **headers)
            assert answer.status_code in (200, 412), answer.text
            if answer.status_code == 200:
                told[wanted] = found.json()["replicas"]
            refused += answer.status_code == 412

    async def without() -> None:
        for turn in range(turns):
            await client.send("POST", "/v1/apply", body(manifest(1000 + turn)))

    await asyncio.gather(*(as_seen(writer) for writer in range(writers)), without())
    known = [
        binding.replicas
        async for recorded in Ledger(api.past.present).recorded_rounds(INTAKE)
        for event in recorded.events
        if (binding := getattr(event.data, "binding", None)) is not None and binding.name == WEB
    ]
    assert len(known) == 1 + turns + len(told)
    before = {now: previous for previous, now in pairwise(known)}
    assert {wanted: before[wanted] for wanted in told} == told
    assert refused == writers * turns - len(told)


async def test_what_is_made_of_what_is_known_is_made_again_where_others_were_first(
    api: ApiUnderTest,
) -> None:
    client = await api.as_("operator", namespaces=["shop"], name="ops")
    manifests = (
        POLICY.format(namespace="shop"),
        DEPLOYMENT.format(name="web", namespace="shop", replicas=1),
    )
    for text in manifests:
        await client.send("POST", "/v1/apply", body(text))
    ledger, many = Ledger(api.past.present), 6

    def one_more(known: LatestFacts) -> Accepted:
        (spec,) = known.bindings
        return scaled(known, WEB, spec.replicas + 1)

    found = await asyncio.gather(*(tell(ledger, one_more) for _ in range(many)))
    assert {one.result for one in found} == {"changed"}
    assert (await client.get(f"/v1/bindings/{WEB}")).json()["replicas"] == 1 + many


async def test_one_policy_is_put_and_deleted_as_it_was_seen(api: ApiUnderTest) -> None:
    client = await api.as_("operator", namespaces=["shop"], name="ops")
    path = "/v1/policies/PropagationPolicy/shop/all"
    text = POLICY.format(namespace="shop")
    duplicated = text.replace("replicaSchedulingType: Divided", "replicaSchedulingType: Duplicated")

    async def put(text: str = text, path: str = path, **headers: str) -> httpx.Response:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return await client.send("PUT", path, {"text": text}, **named)

    async def etag() -> str:
        return str((await client.get(path)).headers["etag"])

    assert (await client.get(path)).status_code == 404
    assert (await put()).status_code == 428
    assert (await put(If_Match='"x"')).status_code == 412, "it is not there yet"
    before = await accepted(api)
    for other in (
        DEPLOYMENT.format(name="web", namespace="shop", replicas=1),
        text.replace("name: all", "name: other"),
        manifests(),
    ):
        wrong = await put(other, If_None_Match="*")
        assert wrong.status_code == 400, wrong.text
    assert await accepted(api) == before
    made = await put(If_None_Match="*")
    assert results(made.json()) == {"PropagationPolicy/shop/all": "created"}, made.text
    seen = await etag()
    await client.send("POST", "/v1/apply", body(manifests()))
    assert await etag() == seen, "a binding of it changes nothing"

    both = await asyncio.gather(put(duplicated, If_Match=seen), put(duplicated, If_Match=seen))
    assert sorted(answer.status_code for answer in both) == [200, 412]
    done = next(answer for answer in both if answer.status_code == 200)
    assert results(done.json()) == {"PropagationPolicy/shop/all": "changed", WEB: "changed"}
    stale = await put(If_Match=seen)
    assert (stale.status_code, stale.json()["found"]) == (412, await etag())

    assert (await client.send("DELETE", path)).status_code == 428
    assert (await client.send("DELETE", path, **{"If-Match": seen})).status_code == 412
    bank = await api.as_("operator", namespaces=["bank"], name="bank")
    assert (await bank.get(path)).status_code == 404
    assert (await bank.send("DELETE", path, **{"If-Match": "*"})).status_code == 404
    assert (await bank.send("PUT", path, {"text": text}, **{"If-Match": "*"})).status_code == 403
    gone = await client.send("DELETE", path, **{"If-Match": await etag()})
    assert results(gone.json()) == {"PropagationPolicy/shop/all": "deleted"}
    assert (await client.send("DELETE", path, **{"If-Match": "*"})).status_code == 404


async def test_a_policy_that_is_deleted_leaves_its_bindings_to_the_next(api: ApiUnderTest) -> None:
    client = await api.as_("operator")
    cluster_wide = POLICY.format(namespace="x").replace(
        "PropagationPolicy", "ClusterPropagationPolicy"
    )
    cluster_wide = cluster_wide.replace("name: all, namespace: x", "name: everywhere")
    await client.send("POST", "/v1/apply", body(cluster_wide + "---\n" + manifests()))
    path = "/v1/policies/ClusterPropagationPolicy/-/everywhere"
    assert (await client.get(path)).json()["key"] == "ClusterPropagationPolicy//everywhere"
    tenant = await api.as_("operator", namespaces=["shop"], name="tenant")
    assert (await tenant.get(path)).status_code == 200, "it holds for its bindings, too"
    assert (await tenant.send("DELETE", path, **{"If-Match": "*"})).status_code == 404
    own = "/v1/policies/PropagationPolicy/shop/all"
    tried = await tenant.send("DELETE", own, **{"If-Match": "*"})
    assert results(tried.json()) == {"PropagationPolicy/shop/all": "deleted", WEB: "changed"}
    found = (await client.get("/v1/policies?policy=everywhere")).json()["items"]
    assert found[0]["bindings"] == 1


async def test_a_policy_of_the_fleet_in_a_namespace_is_not_the_namespaces(
    api: ApiUnderTest,
) -> None:
    """A fact may say a namespace that its kind does not have."""
    tenant = await api.as_("operator", namespaces=["shop"])
    before = await accepted(api)
    for kind in ("ClusterPropagationPolicy", "InstanceTypes", "NodePool", "RebalancePolicy"):
        for type_, data in (
            ("applied", {"policy": {"kind": kind, "name": "all", "namespace": "shop"}}),
            ("removed", {"kind": kind, "name": "all", "namespace": "shop"}),
        ):
            event = {
                "specversion": "1.0",
                "id": "1",
                "source": "/x",
                "type": f"io.wharfinger.policy.{type_}.v1",
                "subject": "x",
                "time": "2026-01-01T00:00:00Z",
                "datacontenttype": "application/json",
                "data": data,
            }
            answer = await tenant.send("POST", "/v1/apply", {"events": [event]})
            assert (answer.status_code, "all namespaces" in answer.text) == (403, True), answer.text
    assert await accepted(api) == before


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
    api.api.believed = BelievedSources.parse("/agents/=wharfinger.bindings")
    unlisted = await service.send("POST", "/v1/facts", {"events": [{**event, "id": "a5"}]})
    assert (unlisted.status_code, "/agents/1; expected one of" in unlisted.text) == (403, True)
    api.api.believed = ALL_BELIEVED
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
    database_server: str, migrated_database: str, url: str, tmp_path: Path, capsys: Capture
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
        # without services nothing is read, and the feed gives no positions
        ["apply", "-f", "good.yaml", "--wait", "--timeout", "1s"],
        ["scale", WEB, "4", "--wait=placed", "--timeout", "0s", "-o", "json"],
        ["undrain", "oslo", "--wait=accepted", "--timeout=0s"],
        ["drain", "nothing", "--wait"],
        ["apply", "-f", "good.yaml", "--wait=arrived"],
        ["apply", "-f", "good.yaml", "--wait", "--timeout", "soon"],
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
    with fresh_database(database_server, template=migrated_database) as other:
        in_a_loop(lambda: _filled(other))
        with in_a_thread(url, "operator") as (server, secret), pytest.MonkeyPatch.context() as at:
            at.chdir(tmp_path)
            token.write_text(secret)
            for step in steps:
                here = printed(capsys, step, {"WHARFINGER_DATABASE": other})
                there = printed(capsys, ["--server", server, "--token-file", str(token), *step], {})
                assert there == here, step
                assert json.dumps(here[1:]) != '["", ""]'
                if "--wait" in " ".join(step) and "nothing" not in step:
                    assert here[0] == 2, "the time is over, or it is no wait"


TYPES = """\
instance_type,arch,cpu,memory,pods,zone,capacity_type,price_per_hour
small-{n},amd64,2,4Gi,30,a,on-demand,0.1
large-{n},amd64,8,16Gi,110,a,on-demand,0.4
"""


@pytest.mark.long
def test_imports_and_generated_fleets_print_the_same_over_a_server(
    database_server: str,
    migrated_database: str,
    url: str,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_facts, "REQUEST_FACTS", 7)
    monkeypatch.setattr(instance_types, "PART_BYTES", 300)
    monkeypatch.setattr(remote_facts, "REQUEST_BYTES", 400)
    (tmp_path / "nodes.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn-0,32000,262144,2,T4\n"
    )
    (tmp_path / "pods.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time\n"
        + "".join(f"p-{i},100,128,1,100,T4,{i}\n" for i in range(10))
    )
    (tmp_path / "types.csv").write_text(TYPES.format(n=1) + TYPES.format(n=2).partition("\n")[2])
    (tmp_path / "fewer.csv").write_text(TYPES.format(n=1))
    fleet = ["generate", "fleet", "--clusters=2", "--nodes=9", "--bindings=20", "--seed=3"]
    openb = ["import", "openb", "--nodes=nodes.csv", "--pods=pods.csv", "--clusters=1"]
    types = ["import", "instance-types"]
    steps = [
        [*fleet, "--apply", "-o", "json"],
        [*fleet, "--apply"],
        [*openb, "--rate=1000", "-o", "json"],
        [*openb],
        ["import", "openb", "--nodes=absent.csv", "--pods=pods.csv"],
        [*types, "types.csv", "--name=aws", "-o", "json"],
        [*types, "types.csv", "--name=aws", "-o", "name"],
        [*types, "fewer.csv", "--name=aws"],
        [*types, "--remove=aws", "-o", "json"],
        [*types, "--remove=azure"],
        [*types, "absent.csv"],
        ["get", "bindings", "-o", "name"],
        # without services nothing is read
        [*fleet, "--apply", "--wait", "--timeout=0s", "-o", "json"],
        [*types, "fewer.csv", "--name=aws", "--wait=accepted", "--timeout=0s"],
    ]
    token = tmp_path / "token"
    token.touch(0o600)
    with fresh_database(database_server, template=migrated_database) as other:
        in_a_loop(lambda: _filled(other))
        with in_a_thread(url, "operator") as (server, secret):
            monkeypatch.chdir(tmp_path)
            token.write_text(secret)
            over = ["--server", server, "--token-file", str(token)]
            for step in steps:
                here = printed(capsys, step, {"WHARFINGER_DATABASE": other})
                there = printed(capsys, [*over, *step], {})
                assert without_seconds(there) == without_seconds(here), step
                assert here[0] == codes(step), here
        with in_a_thread(url, "viewer") as (server, secret):
            token.write_text(secret)
            over = ["--server", server, "--token-file", str(token)]
            for step in steps[0], steps[2], steps[5]:
                code, _, said = printed(capsys, [*over, *step], {})
                assert code == 2
                assert "POST /v1/apply is for operator" in said


def without_seconds(printed: tuple[int, str, str]) -> tuple[int, str, str]:
    code, out, err = printed
    return code, re.sub(r"in \d+\.\d s|\"seconds\": [\d.]+", "", out), err


def codes(step: list[str]) -> int:
    if "--remove=azure" in step:
        return 1
    return 2 if "absent" in " ".join(step) or "--timeout=0s" in step else 0
