"""Webhooks to a real receiver: everything arrives signed and in order by key, through failures of
the receiver and kills of the sender; and nothing is sent where it may not go."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from ipaddress import ip_address, ip_network
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx
import pytest
import pytest_asyncio
from cryptography.fernet import Fernet
from tests.api import ApiUnderTest, Client, api_process, serving
from tests.backends import fresh_database, in_a_loop
from tests.feeds import numbered
from tests.integration.test_api import SHOP, WEB, lived, printed
from tests.patience import PATIENCE_S, eventually, until
from tests.providers import AUDIENCE, Authority, OpenIdProvider, openid_provider
from tests.told_plane import a_binding
from tests.webhook_receiver import Answering, Got, Receiver, receiving

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger, webhooks
from wharfinger.runtime.ledger.database import Database
from wharfinger.runtime.ledger.tokens import make_token, revoke_token
from wharfinger.runtime.ledger.webhooks import DeliveryAttempt
from wharfinger_api import webhook_delivery
from wharfinger_api.grants import Grants
from wharfinger_api.identities import Providers
from wharfinger_api.openid import OpenId
from wharfinger_api.webhook_delivery import RETRY_S, WebhookDelivery
from wharfinger_api.webhook_receivers import (
    ReceiverAddressError,
    SealedSecrets,
    SealError,
    WebhookSender,
    checked_url,
    reachable,
)

pytestmark = pytest.mark.integration

Capture = pytest.CaptureFixture[str]

LOOPBACK = [ip_network("127.0.0.0/8")]


@pytest.fixture(scope="module")
def database(backend: Backend, migrated_database: str) -> Iterator[str]:
    async def filled(url: str) -> None:
        plane = await lived(url)
        await plane.tell(*(a_binding(f"job-{n}", 1, SHOP) for n in range(20)))
        await plane.tell(*(a_binding(f"job-{n}", 2, SHOP) for n in range(20)))
        await numbered(plane.ledger)
        await plane.ledger.close()

    with fresh_database(backend.database_url, template=migrated_database) as url:
        in_a_loop(lambda: filled(url))
        yield url


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest_asyncio.fixture
async def api(database: str) -> AsyncIterator[ApiUnderTest]:
    async with serving(database) as found:
        sender = WebhookSender(LOOPBACK, timeout_s=PATIENCE_S)
        seals = SealedSecrets([Fernet.generate_key().decode()])
        delivery = WebhookDelivery(found.api.hub, sender, seals, retry_scale=1e-5)
        found.api.webhooks = delivery
        delivery.start()
        yield found
        async with found.past.present.transaction() as transaction:
            await transaction.raw.execute("delete from subscription")


async def made(client: Client, url: str, **more: object) -> dict[str, Any]:
    body = {"name": "hook", "url": url, "after": "earliest", **more}
    answer = await client.send("POST", "/v1/webhooks", body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def feed_of(client: Client, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get(f"/v1/events?after=0&limit=5000{query}")).json()
    assert found
    return found


async def shown(client: Client, hook: dict[str, Any]) -> dict[str, Any]:
    answer = await client.get(f"/v1/webhooks/{hook['id']}")
    found: dict[str, Any] = answer.json()
    assert answer.headers["etag"] == found["etag"]
    return found


async def delivered(client: Client, hook: dict[str, Any], count: int) -> None:
    async def all_there() -> bool:
        return bool((await shown(client, hook))["deliveries"]["delivered"] == count)

    await eventually(all_there)


def in_order_by_key(got: Sequence[Got]) -> bool:
    """Of the first time that each was taken."""
    last: dict[str, int] = {}
    seen: set[str] = set()
    for one in got:
        if one.headers["webhook-id"] in seen:
            continue
        seen.add(one.headers["webhook-id"])
        position = int(one.event["position"])
        if position <= last.get(one.event["subject"], 0):
            return False
        last[one.event["subject"]] = position
    return True


async def test_every_event_arrives_once_signed_and_in_order(
    api: ApiUnderTest, receiver: Receiver
) -> None:
    viewer = await api.as_("viewer", name="ada")
    hook = await made(viewer, receiver.url)
    feed = await feed_of(viewer)
    await delivered(viewer, hook, len(feed))
    got = receiver.taken()
    by_position = sorted(got, key=lambda one: int(one.event["position"]))
    for place, (one, event) in enumerate(zip(by_position, feed, strict=True), 1):
        one.verify(hook["secret"])
        assert one.event == {**event, "deliverysequence": str(place)}
        assert one.headers["webhook-id"] == event["id"]
        assert one.headers["content-type"] == "application/cloudevents+json"
    assert in_order_by_key(got)
    kept = (await viewer.get(f"/v1/webhooks/{hook['id']}/deliveries?limit=3")).json()
    assert [one["sequence"] for one in kept["items"]] == [len(feed), len(feed) - 1, len(feed) - 2]
    assert {(one["status"], one["answer"], one["tries"]) for one in kept["items"]} == {
        (200, "ok", 1)
    }
    # the secret is in the database as it was sealed, and is shown never again
    async with api.past.present.reading() as raw:
        row = await raw.fetchrow("select secret from subscription")
    assert row is not None
    assert hook["secret"].encode() not in bytes(row[0])
    assert "secret" not in await shown(viewer, hook)
    # a changed secret: for a day both sign
    rotate = f"/v1/webhooks/{hook['id']}/rotate"
    answer = await viewer.send("POST", rotate, **{"If-Match": hook["etag"]})
    assert answer.status_code == 200, answer.text
    rotated = answer.json()
    assert rotated["secret"] != hook["secret"]
    before = len(got)
    again = f"/v1/webhooks/{hook['id']}/redeliver"
    assert (await viewer.send("POST", again, {"after": "earliest"})).status_code == 200
    await delivered(viewer, hook, 2 * len(feed))
    repeated = receiver.taken()[before:]
    assert sorted(o.headers["webhook-id"] for o in repeated) == sorted(e["id"] for e in feed)
    assert sorted(int(o.event["deliverysequence"]) for o in repeated) == list(
        range(len(feed) + 1, 2 * len(feed) + 1)
    )
    repeated[0].verify(hook["secret"])
    repeated[0].verify(rotated["secret"])


async def test_what_comes_while_an_attempt_is_recorded_is_recorded_together(
    api: ApiUnderTest, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, record = webhook_delivery.AT_ONCE, webhooks.record
    to_record = WebhookDelivery._recorded
    answered: list[DeliveryAttempt] = []
    written: list[int] = []

    async def counted(
        self: WebhookDelivery, worker: webhook_delivery._Worker, attempt: DeliveryAttempt
    ) -> bool:
        answered.append(attempt)
        return await to_record(self, worker, attempt)

    async def recorded(
        database: Database, owner: UUID, id_: UUID, attempts: Sequence[Any], failures: int
    ) -> bool:
        if not written:  # all that may be under way have been answered by then
            await eventually(lambda: len(answered) >= at_once, lambda: written)
        written.append(len(attempts))
        return await record(database, owner, id_, attempts, failures)

    monkeypatch.setattr(WebhookDelivery, "_recorded", counted)
    monkeypatch.setattr(webhooks, "record", recorded)
    viewer = await api.as_("viewer", name="eve")
    hook = await made(viewer, receiver.url)
    feed = await feed_of(viewer)
    await delivered(viewer, hook, len(feed))
    # the first ones may all have been answered before one of them was recorded
    assert at_once in (written[0], written[0] + written[1])
    assert sum(written) == len(feed) == len(receiver.taken())
    assert in_order_by_key(receiver.taken())


async def test_what_fails_holds_its_key_only_and_becomes_a_dead_letter(
    api: ApiUnderTest, receiver: Receiver
) -> None:
    viewer = await api.as_("viewer", name="ada")
    feed = await feed_of(viewer, "&namespace=shop")
    of_web = [e["id"] for e in feed if e["subject"] == WEB]
    assert len(of_web) > 1
    failing = of_web[0]
    receiver.answering = Answering(lambda event: 500 if event["id"] == failing else 200)
    hook = await made(viewer, receiver.url, filter={"namespace": ["shop"]})
    await delivered(viewer, hook, len(feed) - 1)
    found = await shown(viewer, hook)
    assert found["deliveries"] == {"waiting": 0, "delivered": len(feed) - 1, "dead": 1}
    assert found["state"] == "active"
    tries = [one for one in receiver.got if one.headers["webhook-id"] == failing]
    assert len(tries) == len(RETRY_S) + 1
    got = receiver.taken()
    assert {one.event["deliverysequence"] for one in tries} == {tries[0].event["deliverysequence"]}
    assert min(o.at for o in got if o.event["subject"] == WEB) >= tries[-1].at
    others = [one.at for one in got if one.event["subject"] != WEB]
    assert min(others) < tries[-1].at, "other keys do not wait"
    dead = (await viewer.get(f"/v1/webhooks/{hook['id']}/deliveries?state=dead")).json()["items"]
    assert [(d["event"], d["status"], d["error"]) for d in dead] == [(failing, 500, "answered 500")]
    receiver.answering = Answering()
    again = f"/v1/webhooks/{hook['id']}/redeliver"
    assert (await viewer.send("POST", again, {"dead": True})).json()["count"] == 1
    await delivered(viewer, hook, len(feed))
    assert receiver.taken()[-1].headers["webhook-id"] == failing


async def test_a_receiver_that_is_away_is_asked_seldom_and_gets_everything_later(
    api: ApiUnderTest, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_delivery, "PROBE_S", 3e9)  # some hours by the scale
    viewer = await api.as_("viewer", name="ada")
    feed = await feed_of(viewer)
    delivery = api.api.webhooks
    assert delivery is not None
    receiver.answering = Answering(lambda event: 0)  # the connection is cut
    hook = await made(viewer, receiver.url, order="all")

    async def state(wanted: str) -> None:
        async def there() -> bool:
            return bool((await shown(viewer, hook))["state"] == wanted)

        await eventually(there)

    await state("broken")
    found = await shown(viewer, hook)
    assert found["why"].startswith("20 failures in a row: ")
    asked = len(receiver.got)
    assert asked == 20
    monkeypatch.setattr(webhook_delivery, "PROBE_S", 30_000.0)  # 0.3 s
    async with api.past.present.transaction() as transaction:
        await transaction.raw.execute("update subscription set probe_at_us = 0")
    patient = delivery.sender
    delivery.sender = WebhookSender(LOOPBACK, timeout_s=0.2)
    receiver.answering = Answering(wait_s=0.4)  # answers, and too late
    await eventually(lambda: len(receiver.got) > asked + 2)
    assert (await shown(viewer, hook))["deliveries"]["delivered"] == 0
    hurried, delivery.sender = delivery.sender, patient
    receiver.answering = Answering()
    await delivered(viewer, hook, len(feed) - found["deliveries"]["dead"])
    # eleven tries end one event; while the receiver as a whole is away none is given up
    await hurried.close()
    assert found["deliveries"]["dead"] == 1
    assert (await shown(viewer, hook))["deliveries"]["dead"] == 1
    assert (await shown(viewer, hook))["state"] == "active"
    firsts = list(dict.fromkeys(int(one.event["position"]) for one in receiver.taken()))
    assert firsts == sorted(firsts)
    receiver.answering = Answering(lambda event: 410)
    await viewer.send("POST", f"/v1/webhooks/{hook['id']}/redeliver", {"after": "earliest"})
    await state("ended")
    assert (await shown(viewer, hook))["why"] == "the receiver answered 410"


async def test_subscriptions_are_their_makers_and_change_by_what_was_seen(
    api: ApiUnderTest, receiver: Receiver
) -> None:
    receiver.answering = Answering()
    mine = await api.as_("viewer", name="ada", namespaces=["shop"])
    other = await api.as_("operator", name="bob")
    narrow = await api.as_("viewer", name="ada", namespaces=["bank"])
    admin, auditor = await api.as_("admin", name="root"), await api.as_("auditor", name="ann")
    hook = await made(mine, receiver.url, filter={"namespace": ["shop", "bank"]})
    assert hook["filter"]["namespace"] == ["shop"]
    path = f"/v1/webhooks/{hook['id']}"
    body = {"name": "other", "url": receiver.url, "filter": {"outcome": ["placed"]}}
    for stranger in (other, narrow):
        assert (await stranger.get(path)).status_code == 404
        assert (await stranger.get(f"{path}/deliveries")).status_code == 404
        assert (await stranger.get("/v1/webhooks")).json() == {"items": []}
        for method, at in (("PUT", path), ("DELETE", path), ("POST", f"{path}/rotate")):
            answer = await stranger.send(method, at, body, **{"If-Match": hook["etag"]})
            assert answer.status_code == 404, (method, at)
        refused = await stranger.send("POST", f"{path}/redeliver", {"dead": True})
        assert refused.status_code == 404
    for reader in (mine, admin, auditor):
        assert [h["id"] for h in (await reader.get("/v1/webhooks")).json()["items"]] == [hook["id"]]
    assert (await auditor.send("DELETE", path, **{"If-Match": hook["etag"]})).status_code == 404
    assert (await admin.send("PUT", path, body)).status_code == 403
    assert (await mine.send("PUT", path, body)).status_code == 428
    changed = await mine.send("PUT", path, {**body, "paused": True}, **{"If-Match": hook["etag"]})
    assert changed.status_code == 200, changed.text
    assert changed.json()["state"] == "paused"
    assert changed.json()["filter"]["namespace"] == ["shop"], "no wider than its maker"
    assert (await mine.send("PUT", path, body, **{"If-Match": hook["etag"]})).status_code == 412
    assert (await admin.send("DELETE", path, **{"If-Match": hook["etag"]})).status_code == 412
    etag = changed.headers["etag"]
    assert (await admin.send("DELETE", path, **{"If-Match": etag})).status_code == 204
    assert (await mine.get(path)).status_code == 404
    for url in ("ftp://a/", "http://10.0.0.1/", "https://169.254.169.254/", "https://[::1]/x"):
        answer = await mine.send("POST", "/v1/webhooks", {"name": "x", "url": url})
        assert answer.status_code == 400, url


async def test_a_subscription_ends_with_the_token_it_was_made_with(
    api: ApiUnderTest, receiver: Receiver
) -> None:
    database = api.past.present
    secret, token = await make_token(database, "short", ["viewer"], "tests", lifetime_s=3600)
    hook = await made(Client(api.http, secret), receiver.url, after="latest")
    assert await revoke_token(database, token.id)
    auditor = await api.as_("auditor")

    async def ended() -> bool:
        return bool((await shown(auditor, hook))["state"] == "ended")

    await eventually(ended)
    assert (await shown(auditor, hook))["why"].startswith("the token it was made with")


# --- of callers without a token of the plane


GRANTED = """\
- groups: ["oidc:platform"]
  roles: [viewer]
- groups: ["oidc:everyone"]
  roles: [viewer]
  namespaces: [shop]
- users: ["certificate:robot"]
  roles: [viewer]
  namespaces: [shop]
"""


class Granting:
    """An API that takes tokens of a provider and passed on certificates; `write` changes the
    grants."""

    def __init__(self, directory: Path, provider: OpenIdProvider, api: ApiUnderTest) -> None:
        self._directory = directory
        self.provider = provider
        self.api = api

    def write(self, grants: str) -> None:
        draft = self._directory / "draft"
        draft.write_text(f"grants:\n{grants}" if grants else "grants: []\n")
        os.replace(draft, self._directory / "grants.yaml")

    def ada(self, *groups: str) -> Client:
        return Client(self.api.http, self.provider.token(groups=list(groups)))

    async def ended(self, hook: dict[str, Any], why: str) -> None:
        auditor = await self.api.as_("auditor", name="ann")

        async def state() -> bool:
            return bool((await shown(auditor, hook))["state"] == "ended")

        await eventually(state)
        assert (await shown(auditor, hook))["why"] == why


@pytest_asyncio.fixture
async def granting(database: str, tmp_path: Path) -> AsyncIterator[Granting]:
    with openid_provider() as provider:
        openid = OpenId(provider.issuer, AUDIENCE, ["ES256"])
        file = tmp_path / "grants.yaml"
        file.write_text(f"grants:\n{GRANTED}")
        ways = Providers(Grants(file), openid, None, (ip_network("127.0.0.1"),))
        async with serving(database, ways) as found:
            sender = WebhookSender(LOOPBACK, timeout_s=PATIENCE_S)
            seals = SealedSecrets([Fernet.generate_key().decode()])
            delivery = WebhookDelivery(found.api.hub, sender, seals, ways.grants, retry_scale=1e-5)
            found.api.webhooks = delivery
            delivery.start()
            yield Granting(tmp_path, provider, found)
            async with found.past.present.transaction() as transaction:
                await transaction.raw.execute("delete from subscription")


async def test_a_webhook_without_a_token_gets_what_the_grant_of_its_maker_lets_through(
    granting: Granting, receiver: Receiver, tmp_path: Path
) -> None:
    ada = granting.ada("everyone")
    auditor = await granting.api.as_("auditor", name="ann")
    feed = await feed_of(auditor, "&namespace=shop")
    assert len(feed) < len(await feed_of(auditor))
    hook = await made(ada, receiver.url)
    assert hook["made_by"] == "oidc:ada"
    assert hook["filter"]["namespace"] == ["shop"]
    assert hook["holds_until"] > hook["made"]
    await delivered(ada, hook, len(feed))
    for one in receiver.taken():
        one.verify(hook["secret"])
    assert {one.event["id"] for one in receiver.taken()} == {event["id"] for event in feed}
    # another name of the provider is not its maker, and neither is a token of that name
    eve = Client(granting.api.http, granting.provider.token(sub="eve", groups=["everyone"]))
    named = await granting.api.as_("viewer", name="ada")
    for stranger in (eve, named):
        assert (await stranger.get(f"/v1/webhooks/{hook['id']}")).status_code == 404
    # a certificate that a proxy has passed on
    pem = Authority(tmp_path / "ca").certificate("robot")[0].read_text()
    by_certificate = {"Client-Cert": quote(pem)}
    robot = granting.api.anonymous()
    answer = await robot.send(
        "POST",
        "/v1/webhooks",
        {"name": "hook", "url": receiver.url, "after": "earliest"},
        **by_certificate,
    )
    assert answer.status_code == 201, answer.text
    assert answer.json()["made_by"] == "certificate:robot"
    await delivered(auditor, answer.json(), len(feed))


@pytest.mark.parametrize(
    ("grants", "why"),
    [
        ("", "no grant names oidc:ada or a group of it any more"),
        (
            "- groups: ['oidc:platform']\n  roles: [viewer]\n  namespaces: [shop]\n",
            "the grant of oidc:ada is no longer for all namespaces",
        ),
        (
            "- groups: ['oidc:platform']\n  roles: [admin]\n",
            "the grant of oidc:ada has none of the roles auditor, operator, viewer",
        ),
    ],
    ids=["removed", "narrowed", "other roles"],
)
async def test_a_grant_that_is_taken_away_stops_what_still_waits(
    granting: Granting, receiver: Receiver, grants: str, why: str
) -> None:
    """And the maker may have it go on, with nothing lost, once it is granted again."""
    ada = granting.ada("platform")
    granted = (await ada.get("/v1/whoami")).json()
    feed = await feed_of(ada)
    receiver.answering = Answering(lambda event: 503)
    hook = await made(ada, receiver.url, order="all")
    await eventually(lambda: len(receiver.got) > 2)
    granting.write(grants)
    await granting.ended(hook, why)
    receiver.answering = Answering()
    delivery = granting.api.api.webhooks
    assert delivery is not None
    await eventually(lambda: not delivery._workers)
    assert receiver.taken() == []
    granting.write(GRANTED)

    async def known_again() -> bool:
        # A grant of other roles, or of one namespace, lets its maker see the webhook as well.
        return bool((await ada.get("/v1/whoami")).json() == granted)

    await eventually(known_again)
    assert (await shown(ada, hook))["state"] == "ended", "not by itself"
    again = await ada.send(
        "PUT",
        f"/v1/webhooks/{hook['id']}",
        {"name": "hook", "url": receiver.url, "order": "all"},
        **{"If-Match": hook["etag"]},
    )
    assert again.status_code == 200, again.text
    await delivered(ada, hook, len(feed))
    assert [one.event["id"] for one in receiver.taken()] == [event["id"] for event in feed]


async def test_a_namespace_that_is_no_longer_granted_ends_it(
    granting: Granting, receiver: Receiver
) -> None:
    ada = granting.ada("everyone")
    hook = await made(ada, receiver.url, after="latest")
    granting.write(GRANTED.replace("[shop]", "[bank, lab]"))
    await granting.ended(hook, "the grant of oidc:ada is not for shop")


async def test_a_maker_that_comes_with_fewer_groups_keeps_what_these_are_granted(
    granting: Granting, receiver: Receiver
) -> None:
    wide = await made(granting.ada("platform", "everyone"), receiver.url, after="latest")
    narrow = await made(
        granting.ada("platform"), receiver.url, after="latest", filter={"namespace": ["shop"]}
    )
    now = granting.ada("everyone")
    listed = (await now.get("/v1/webhooks")).json()["items"]
    assert sorted(one["id"] for one in listed) == sorted([wide["id"], narrow["id"]])
    await granting.ended(wide, "the grant of oidc:ada is no longer for all namespaces")
    assert (await shown(now, narrow))["state"] == "active"
    # it may be removed, and nothing else
    path, seen = f"/v1/webhooks/{wide['id']}", await shown(now, wide)
    wanted = {"name": "hook", "url": receiver.url}
    for method, at, body in (
        ("PUT", path, wanted),
        ("POST", f"{path}/rotate", {}),
        ("POST", f"{path}/redeliver", {"after": "earliest"}),
    ):
        answer = await now.send(method, at, body, **{"If-Match": seen["etag"]})
        assert answer.status_code == 403, (method, at, answer.text)
        assert "needs a grant for all namespaces" in answer.json()["detail"]
    assert (await now.get(f"{path}/deliveries")).status_code == 403
    removed = await now.send("DELETE", path, **{"If-Match": seen["etag"]})
    assert removed.status_code == 204, removed.text
    assert (await now.get(path)).status_code == 404


async def test_a_webhook_whose_maker_does_not_come_again_ends(
    granting: Granting, receiver: Receiver
) -> None:
    ada = granting.ada("platform")
    hook = await made(ada, receiver.url, after="latest")
    database = granting.api.past.present

    async def set_back(seconds: int) -> None:
        async with database.reading() as raw:
            await raw.execute(
                "update subscription set seen_at_us = seen_at_us - $1::bigint * 1000000", seconds
            )

    auditor = await granting.api.as_("auditor", name="ann")
    await set_back(2 * 86_400)
    assert (await shown(auditor, hook))["holds_until"] < hook["holds_until"], "not its maker"
    seen = await shown(ada, hook)
    assert seen["holds_until"] >= hook["holds_until"]
    assert seen["etag"] == hook["etag"]
    await set_back(60)
    assert (await shown(ada, hook))["holds_until"] < seen["holds_until"], "once a day is enough"
    await set_back(webhooks.SEEN_S)
    await granting.ended(hook, "its maker has not come for 30 days")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1",
        "fd00::1",
        "::ffff:127.0.0.1",
        "64:ff9b::a00:1",
        "2002:7f00:1::",
        "ff0e::1",
    ],
)
def test_private_addresses_are_not_reached(address: str) -> None:
    assert not reachable(ip_address(address), "https", [])
    assert reachable(ip_address("93.184.216.34"), "https", [])
    assert not reachable(ip_address("93.184.216.34"), "http", [])
    assert reachable(ip_address("10.1.2.3"), "http", [ip_network("10.0.0.0/8")])


@pytest.mark.parametrize(
    "url", ["https://u:p@h/", "https://h/#x", "https://h/\r\nX: y", "h", "https://", "file:///x"]
)
def test_urls_that_are_not_sent_to(url: str) -> None:
    with pytest.raises(ReceiverAddressError):
        checked_url(url)


async def test_a_name_is_checked_when_it_is_connected_to_and_a_redirect_is_not_followed(
    receiver: Receiver,
) -> None:
    secrets = ["whsec_" + "A" * 43 + "="]
    for host in ("localhost", "2130706433", "127.1"):
        url = f"http://{host}:{receiver.port}/hook"
        strict = WebhookSender()
        answer = await strict.send(url, "id", b"{}", secrets, "t")
        assert (answer.status, receiver.got) == (0, []), answer
        assert "may be reached" in answer.error or "not a canonical" in answer.error
        await strict.close()
    sender = WebhookSender(LOOPBACK)
    receiver.answering = Answering(lambda event: 307, headers={"Location": receiver.url})
    answer = await sender.send(receiver.url, "id", b"{}", secrets, "t")
    assert (answer.status, answer.delivered, len(receiver.got)) == (307, False, 1)
    await sender.close()


def test_a_secret_is_read_with_an_old_key_and_not_with_another() -> None:
    old, new, other = (Fernet.generate_key().decode() for _ in range(3))
    sealed = SealedSecrets([old]).sealed("whsec_x")
    assert SealedSecrets([new, old]).opened(sealed) == "whsec_x"
    with pytest.raises(SealError):
        SealedSecrets([other]).opened(sealed)
    with pytest.raises(SealError):
        SealedSecrets(["short"])


@pytest.mark.chaos
@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.long)])
def test_a_killed_sender_loses_nothing_and_repeats_only_what_was_under_way(
    database: str, receiver: Receiver, tmp_path: Path, capsys: Capture, kills: int
) -> None:
    feed, secret = in_a_loop(lambda: _subscribed(database))
    receiver.answering = Answering(wait_s=0.02)
    ends: list[float] = []
    process = api_process(database, tmp_path)
    try:
        _subscribe(tmp_path, secret, capsys, receiver.url)
        for n in range(kills):
            enough = (n + 1) * len(feed) // (kills + 2)
            until(partial(_taken, receiver, enough))
            process.kill()
            process.wait()
            ends.append(time.time())
            process = api_process(database, tmp_path)
        listed = _cli(tmp_path, secret, capsys, "list", "-o", "json")
        assert [(one["name"], one["state"]) for one in json.loads(listed)] == [("hook", "active")]
        ids = {event["id"] for event in feed}
        until(lambda: {o.headers["webhook-id"] for o in receiver.taken()} == ids)
    finally:
        process.terminate()
        process.wait()
        in_a_loop(lambda: _unsubscribed(database))
    assert process.returncode == 0
    got = receiver.taken()
    assert in_order_by_key(got)
    counts = Counter(one.headers["webhook-id"] for one in got)
    for id_, count in counts.items():
        times = sorted(one.at for one in got if one.headers["webhook-id"] == id_)
        between = sum(any(a < end < b for end in ends) for a, b in pairwise(times))
        assert count == 1 + between, "repeated without a kill"
    assert sum(counts.values()) - len(counts) <= webhook_delivery.AT_ONCE * kills


def _taken(receiver: Receiver, count: int) -> bool:
    return len(receiver.got) > count


async def _subscribed(database: str) -> tuple[list[dict[str, Any]], str]:
    ledger = await Ledger.open(database, "tests")
    secret, _ = await make_token(ledger.database, "hooks", ["viewer"], "tests", lifetime_s=3600)
    await ledger.close()
    async with serving(database) as api:
        return await feed_of(Client(api.http, secret)), secret


async def _unsubscribed(database: str) -> None:
    """Other tests share the database."""
    ledger = await Ledger.open(database, "tests")
    async with ledger.database.transaction() as transaction:
        await transaction.raw.execute("delete from subscription")
    await ledger.close()


def _cli(data_dir: Path, secret: str, capsys: Capture, *words: str, code: int = 0) -> str:
    port = json.loads((data_dir / "run" / "api.json").read_text())["http_port"]
    token = data_dir / "token"
    if not token.exists():
        token.touch(0o600)
        token.write_text(secret)
    server = ["--server", f"http://127.0.0.1:{port}", "--token-file", str(token)]
    found, out, err = printed(capsys, [*server, "webhooks", *words], {})
    assert found == code, err
    return err if code else out


def _subscribe(data_dir: Path, secret: str, capsys: Capture, url: str) -> None:
    """By commands; each of them once."""
    port = json.loads((data_dir / "run" / "api.json").read_text())["http_port"]

    def answers() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        except httpx.ConnectError:
            return False

    until(answers)
    cli = partial(_cli, data_dir, secret, capsys)
    out = data_dir / "hook.secret"
    cli("create", "hook", url, "--after", "earliest", "--out", str(out))
    assert out.read_text().startswith("whsec_")
    assert out.stat().st_mode & 0o077 == 0
    cli("create", "other", url, "-n", "nowhere")
    assert "whsec_" in cli("rotate", "other")
    assert "paused" in cli("pause", "other")
    assert "active" in cli("resume", "other")
    assert cli("deliveries", "other") == ""
    assert "0 dead letters" in cli("redeliver", "other", "--dead")
    assert "gone" in cli("delete", "other")
    assert "no webhook has the name" in cli("delete", "other", code=1)
    assert "may not be reached" in cli("create", "inside", "https://10.0.0.1/", code=2)
