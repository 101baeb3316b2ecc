"""What was decided, what led to what, and how it was then: asked of a real ledger in which a small
fleet has lived for an hour."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from tests.backends import fresh_database, in_a_loop
from tests.scenarios.fleet_plane import DYNAMIC
from tests.told_plane import SECOND, ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.domain.placement import ClusterAffinity, Placement
from wharfinger.events.assignments import AssignmentsDecided
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.clusters import ClusterForgotten
from wharfinger.events.decisions import ClusterSilenced, ReplicasRefused
from wharfinger.events.outcomes import OutcomesDecided
from wharfinger.events.policies import PolicyApplied
from wharfinger.events.proposals import FailoverProposed
from wharfinger.history.diff import diff
from wharfinger.history.lineage import (
    Lineage,
    Link,
    lineage_of_binding,
    lineage_of_decision,
    lineage_of_event,
)
from wharfinger.history.names import UnknownNameError, full_name
from wharfinger.history.plane_at import plane_at, policies_at
from wharfinger.history.points import HistoryPoint, PointError, point_of
from wharfinger.history.timeline import timeline
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.ledger import DecisionQuery, Ledger, LedgerError, LedgerRow
from wharfinger.runtime.ledger.database import Database

pytestmark = pytest.mark.integration

BY_ROOM = a_policy("by-room", Placement(replicas=DYNAMIC))
NOT_TROMSO = a_policy(
    "by-room", Placement((ClusterAffinity(exclude=("tromso",)),), replicas=DYNAMIC)
)
WEB, API, LOG = "shop/web-deployment", "shop/api-deployment", "shop/log-deployment"
ALIVE = (a_cluster("oslo", 60), a_cluster("tromso", 60))
NOW = HistoryPoint("now")

Targets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Moment:
    """How the plane that made the history saw itself then."""

    at: Micros
    targets: Targets
    rounds: dict[str, int]

    @property
    def point(self) -> HistoryPoint:
        return HistoryPoint("then", at=self.at)


@dataclass(frozen=True, slots=True)
class Past:
    database_url: str
    moments: dict[str, Moment]


@pytest.fixture(scope="module")
def past(database_server: str, migrated_database: str) -> Iterator[Past]:
    with fresh_database(database_server, template=migrated_database) as url:
        yield in_a_loop(lambda: lived(url))


@pytest_asyncio.fixture
async def ledger(past: Past) -> AsyncIterator[Ledger]:
    opened = await Ledger.open(past.database_url, "tests")
    yield opened
    await opened.close()


async def lived(url: str) -> Past:
    """Scheduled, scaled, a cluster silent and heard again, a node lost, a policy changed, one
    withdrawn."""
    plane = await ToldPlane.opened(url)
    moments: dict[str, Moment] = {}

    def remember(name: str) -> None:
        (fleet,) = plane.world.fleet_states()
        targets = {n: dict(r.targets) for n, r in fleet.bindings.items()}
        moments[name] = Moment(
            plane.time.at, targets, {n: r.head.round for n, r in plane.world.streams.items()}
        )

    try:
        await plane.tell(
            *ALIVE,
            a_cluster("bergen", 60),
            *nodes("oslo", "o1", "o2"),
            *nodes("bergen", "b1", "b2"),
            *nodes("tromso", "t1"),
        )
        await plane.tell(BY_ROOM, a_binding("web", 4, BY_ROOM), a_binding("api", 2, BY_ROOM))
        remember("scheduled")
        await plane.tell(a_binding("web", 6, BY_ROOM), *ALIVE, after_s=30)
        remember("scaled")
        for _ in range(3):
            await plane.tell(*ALIVE, after_s=20)
        remember("silent")
        await plane.tell(a_cluster("bergen", 60), after_s=5)
        await plane.tell(*nodes("oslo", "o2", cpu=1000), after_s=10)
        remember("node lost")
        await plane.tell(
            *ALIVE,
            a_cluster("bergen", 60),
            NOT_TROMSO,
            a_binding("web", 6, NOT_TROMSO),
            a_binding("log", 9, NOT_TROMSO),
        )
        remember("moved")
        await plane.tell(
            BindingWithdrawn(API), *nodes("tromso"), ClusterForgotten("tromso"), after_s=20
        )
        remember("withdrawn")
    finally:
        await plane.ledger.close()
    return Past(url, moments)


# --- names


async def test_a_binding_is_found_by_as_much_of_its_name_as_only_it_has(ledger: Ledger) -> None:
    for said in (WEB, "web", "shop/web", "web-deployment"):
        assert await full_name(ledger, said) == WEB
    with pytest.raises(
        UnknownNameError,
        match="no decision was ever taken about a binding we; did you mean shop/web",
    ):
        await full_name(ledger, "we")
    with pytest.raises(UnknownNameError, match=r"a binding oslo$"):  # decided about, but no binding
        await full_name(ledger, "oslo")
    with pytest.raises(UnknownNameError):
        await full_name(ledger, ".*")


# --- history


async def test_history_has_every_decision_once_oldest_first_each_after_its_cause(
    ledger: Ledger,
) -> None:
    found = await timeline(ledger, "web")
    every = [
        row async for row in ledger.decisions(DecisionQuery(subject=WEB)) if row.stream != "intake"
    ]
    rows = [entry.row for entry in found.entries]
    assert {row.id for row in rows} == {row.id for row in every}
    assert found.total == len(rows) == len(every)
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    seen: set[UUID] = set()
    for row in rows:
        assert row.cause not in {r.id for r in rows} - seen
        seen.add(row.id)
    assert [e.after for e in found.entries] == [
        None,
        *(b.at - a.at for a, b in itertools.pairwise(rows)),
    ]


async def test_history_says_why(ledger: Ledger) -> None:
    by_cause = {e.row.id: e.cause for e in (await timeline(ledger, "web")).entries}
    rows = [e.row for e in (await timeline(ledger, "web")).entries]
    first, scaled, failed_over = [r for r in rows if r.stream == "fleet/0"][:3]
    asked = by_cause[first.id]
    assert asked.event is not None
    assert isinstance(asked.event.data, BindingRequested)
    assert asked.before is None
    assert (by_cause[scaled.id].before or asked.event.data.binding).replicas == 4
    proposal = by_cause[failed_over.id].event
    assert proposal is not None
    assert isinstance(proposal.data, FailoverProposed)
    placed = next(r for r in rows if r.outcome == "placed")
    assert by_cause[placed.id].decision == first


@pytest.mark.parametrize("limit", [1, 3, 1000])
async def test_a_limited_history_is_the_end_of_the_whole_one(ledger: Ledger, limit: int) -> None:
    whole, part = await timeline(ledger, "web"), await timeline(ledger, "web", limit)
    assert {e.row.id for e in part.entries} <= {e.row.id for e in whole.entries}
    assert len(part.entries) == min(limit, len(whole.entries))
    assert part.entries[-1].row.at == whole.entries[-1].row.at
    assert part.total == whole.total


# --- lineage


def chains(lineage: Lineage) -> list[list[Link]]:
    """Every way from a root to an end."""

    def below(link: Link) -> list[list[Link]]:
        return [[link, *rest] for child in link.children for rest in below(child)] or [[link]]

    return [chain for root in lineage.roots for chain in below(root)]


def shape(chain: list[Link]) -> list[str]:
    return [
        link.decision.stream.partition("/")[0] + " " + link.decision.outcome
        if link.decision is not None
        else type(link.event.data).__name__
        if link.event is not None
        else "unrecorded"
        for link in chain
    ]


async def test_a_request_is_followed_from_its_policy_to_the_nodes(ledger: Ledger) -> None:
    found = await lineage_of_binding(ledger, "web")
    shapes = [shape(chain) for chain in chains(found)]
    assert [
        "PolicyApplied",
        "BindingRequested",
        "fleet scheduled",
        "AssignmentsDecided",
        "cluster placed",
    ] in shapes
    # What the first policy led to is not what the second did, though both have one key.
    policies = {
        root.id for root in found.roots if root.event and isinstance(root.event.data, PolicyApplied)
    }
    assert len(policies) == 2
    message = next(
        link
        for link in found.links()
        if link.event and isinstance(link.event.data, AssignmentsDecided)
    )
    assert message.event is not None
    assert await ledger.known(
        {
            "cluster/oslo": {message.id},
            "cluster/bergen": {message.id},
            "cluster/tromso": {message.id},
        }
    )


async def test_a_silence_is_followed_to_the_failover_and_back(ledger: Ledger) -> None:
    silenced = await decision_of(ledger, ClusterSilenced)
    down = await lineage_of_decision(ledger, silenced.id)
    expected = [
        "fleet silenced",
        "FailoverProposed",
        "fleet scheduled",
        "AssignmentsDecided",
        "cluster placed",
    ]
    assert expected in [shape(chain) for chain in chains(down)]
    # all that it held
    assert {link.decision.subject for link in down.links() if link.decision} >= {WEB, API}
    placed = next(chain for chain in chains(down) if shape(chain) == expected)[-1]
    up = await lineage_of_decision(ledger, placed.id)
    assert [root.id for root in up.roots] == [silenced.id]
    assert expected in [shape(chain) for chain in chains(up)]


async def test_a_return_is_followed_through_its_outcome_to_the_next_decision(
    ledger: Ledger,
) -> None:
    refused = await decision_of(ledger, ReplicasRefused)
    shapes = [shape(chain) for chain in chains(await lineage_of_binding(ledger, refused.subject))]
    assert any("cluster returned OutcomesDecided fleet" in " ".join(s) for s in shapes), shapes


async def test_an_event_is_followed_to_all_it_led_to(ledger: Ledger) -> None:
    whole = await lineage_of_binding(ledger, "web")
    policy = next(r for r in whole.roots if r.event and isinstance(r.event.data, PolicyApplied))
    down = await lineage_of_event(ledger, policy.id)
    assert [root.id for root in down.roots] == [policy.id]
    assert {link.decision.subject for link in down.links() if link.decision} == {WEB, API}
    message = next(
        link
        for link in down.links()
        if link.event and isinstance(link.event.data, AssignmentsDecided)
    )
    around = await lineage_of_event(ledger, message.id)
    assert message.id in {link.id for link in around.links()}
    assert {type(root.event.data) for root in around.roots if root.event} == {PolicyApplied}


async def test_every_link_is_there_once_under_its_cause(ledger: Ledger) -> None:
    for name in (WEB, API, LOG):
        found = await lineage_of_binding(ledger, name)
        assert not found.cut
        decisions = [link.id for link in found.links() if link.decision]
        assert len(decisions) == len(set(decisions))
        for chain in chains(found):
            for parent, child in itertools.pairwise(chain):
                if child.decision is not None and parent.event is not None and is_message(parent):
                    assert str(child.decision.cause) in {i.decision for i in items(parent)}
                elif child.decision is not None:
                    assert child.decision.cause == parent.id


async def test_a_lineage_costs_queries_by_its_depth_and_not_by_its_links(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    reading = Database.reading

    def counted(self: Database, *, patient: bool = False) -> Any:
        nonlocal asked
        asked += 1
        return reading(self, patient=patient)

    monkeypatch.setattr(Database, "reading", counted)
    silenced = await decision_of(ledger, ClusterSilenced)
    asked = 0
    links = len(list((await lineage_of_decision(ledger, silenced.id)).links()))
    assert links >= 8
    assert asked <= 24


@pytest.mark.parametrize("ask", [lineage_of_decision, lineage_of_event])
async def test_an_id_of_nothing_is_said(ledger: Ledger, ask: Any) -> None:
    with pytest.raises(UnknownNameError, match=r"^no (decision|event) has the id 0{8}-"):
        await ask(ledger, UUID(int=0))


def is_message(link: Link) -> bool:
    return link.event is not None and isinstance(
        link.event.data, AssignmentsDecided | OutcomesDecided
    )


def items(link: Link) -> Any:
    assert link.event is not None
    assert isinstance(link.event.data, AssignmentsDecided | OutcomesDecided)
    return link.event.data.items


async def decision_of(ledger: Ledger, kind: type) -> LedgerRow:
    return next(
        iter(
            [
                r
                async for r in ledger.decisions(DecisionQuery())
                if r.stream != "intake" and isinstance(r.data(), kind)
            ]
        )
    )


# --- as it was


async def test_the_plane_is_shown_as_it_saw_itself(ledger: Ledger, past: Past) -> None:
    for name, moment in past.moments.items():
        picture = await plane_at(ledger, moment.point)
        assert {n: dict(b.targets) for n, b in picture.bindings.items()} == moment.targets, name
        assert {n: h.round for n, h in picture.heads.items()} == moment.rounds
        for cluster in picture.clusters.values():
            assert cluster.assigned == sum(t.get(cluster.name, 0) for t in moment.targets.values())
            placed = sum(
                n
                for b in picture.bindings.values()
                for p, n in b.nodes.items()
                if p.startswith(cluster.name)
            )
            assert cluster.placed == placed
            assert cluster.use.cpu == 1000 * placed  # every replica asks for a core
    silent = await plane_at(ledger, past.moments["silent"].point)
    assert [c.name for c in silent.clusters.values() if c.silent_since is not None] == ["bergen"]
    assert silent.bindings[WEB].suspect == ("bergen",)
    lost = await plane_at(ledger, past.moments["node lost"].point)
    assert [n.node.name for n in lost.clusters["oslo"].nodes] == ["o2"]


async def test_a_round_of_one_stream_cuts_all_others_at_its_moment(
    ledger: Ledger, past: Past
) -> None:
    moment = past.moments["scaled"]
    number = moment.rounds["fleet/0"]
    picture = await plane_at(ledger, point_of(f"fleet/0:{number}", 0))
    assert {n: h.round for n, h in picture.heads.items()} == moment.rounds
    alone = await plane_at(ledger, point_of(str(number), 0), "fleet/0")
    assert set(alone.heads) == {"fleet/0"}
    assert {n: dict(b.targets) for n, b in alone.bindings.items()} == moment.targets


async def test_every_round_of_a_stream_can_be_pictured(ledger: Ledger, past: Past) -> None:
    """Also those that follow each other at one moment, where the time alone would not tell them
    apart."""
    for number in range(1, past.moments["withdrawn"].rounds["fleet/0"] + 1):
        picture = await plane_at(ledger, point_of(f"fleet/0:{number}", 0))
        assert picture.heads["fleet/0"].round == number


async def test_policies_are_those_that_had_been_told_then(ledger: Ledger, past: Past) -> None:
    key = BY_ROOM.policy.key
    assert await policies_at(ledger, past.moments["node lost"].point) == {key: BY_ROOM.policy}
    assert await policies_at(ledger, past.moments["moved"].point) == {key: NOT_TROMSO.policy}
    assert await policies_at(ledger, NOW) == {key: NOT_TROMSO.policy}
    before = HistoryPoint("before", at=past.moments["scheduled"].at - SECOND)
    assert await policies_at(ledger, before) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2000-01-01", "2000-01-01: nothing had been told to this plane by then"),
        ("2400-01-01", "2400-01-01: that is still to come"),
        ("fleet/0:9999", "fleet/0: there is no round 9999"),
        ("fleet/7:1", "unknown stream fleet/7"),
        ("3", "expected the stream of round 3 too"),
    ],
)
async def test_a_point_that_never_was_is_one_line(ledger: Ledger, text: str, said: str) -> None:
    with pytest.raises(PointError, match=said):
        await plane_at(ledger, point_of(text, 0))
    with pytest.raises(LedgerError, match=said):
        await diff(ledger, NOW, point_of(text, 0))


# --- diff


async def test_a_moment_is_not_different_from_itself(ledger: Ledger, past: Past) -> None:
    for moment in past.moments.values():
        assert (await diff(ledger, moment.point, moment.point)).same


async def test_diff_names_what_changed_and_nothing_else(ledger: Ledger, past: Past) -> None:
    a, b = past.moments["scheduled"], past.moments["scaled"]
    scaled = await diff(ledger, a.point, b.point)
    (web,) = scaled.bindings
    assert (web.name, web.kind) == (WEB, "changed")
    assert web.before is not None
    assert web.after is not None
    assert (dict(web.before.targets), dict(web.after.targets)) == (a.targets[WEB], b.targets[WEB])
    grown = {
        c for c in ("oslo", "bergen", "tromso") if a.targets[WEB].get(c) != b.targets[WEB].get(c)
    }
    assert {c.name for c in scaled.clusters} == grown
    assert scaled.policies == ()
    later = await diff(ledger, past.moments["node lost"].point, past.moments["withdrawn"].point)
    kinds = {
        c.name: c.kind for part in (later.clusters, later.bindings, later.policies) for c in part
    }
    assert (
        kinds.items()
        >= {
            API: "removed",
            LOG: "added",
            "tromso": "removed",
            BY_ROOM.policy.key: "changed",
        }.items()
    )
    back = await diff(ledger, past.moments["withdrawn"].point, past.moments["node lost"].point)
    assert [(c.name, c.after, c.before) for c in back.bindings] == [
        (c.name, c.before, c.after) for c in later.bindings
    ]


async def test_diff_of_one_stream_says_nothing_of_the_others(ledger: Ledger, past: Past) -> None:
    found = await diff(
        ledger, past.moments["silent"].point, past.moments["node lost"].point, "cluster/oslo"
    )
    assert {c.name for c in found.nodes} >= {"oslo/o1"}
    assert {c.name for c in found.clusters} == {"oslo"}
    assert found.bindings == ()


# --- the commands


@pytest.fixture
def asked(past: Past, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command in this process: what it printed, and the code it ended with."""
    from wharfinger_cli.__main__ import main

    monkeypatch.setenv("WHARFINGER_DATABASE", past.database_url)

    def ask(*arguments: str) -> tuple[str, int]:
        monkeypatch.setattr("sys.argv", ["wharfinger", *arguments])
        code = main()
        out, err = capsys.readouterr()
        return (out if code != 2 else err), code

    return ask


def test_the_commands_give_their_answers_to_people_and_programs(asked: Any, past: Past) -> None:
    page, code = asked("history", "web", "--limit", "4")
    assert code == 0
    assert "the last 4 of them" in page
    assert len(page.splitlines()) == 3 + 4
    plain = json.loads(asked("history", "web", "-o", "json")[0])
    assert [d["because"]["kind"] for d in plain["decisions"]][:2] == ["event", "decision"]
    tree, code = asked("lineage", "web")
    assert code == 0
    assert "policy PropagationPolicy/shop/by-room applied, by the command line" in tree
    root = json.loads(asked("lineage", "web", "-o", "json")[0])["roots"][0]
    assert root["children"][0]["type"] == "io.wharfinger.binding.requested.v1"
    assert asked("lineage", "--decision", "seven")[1] == 2
    assert asked("lineage", "--event", str(UUID(int=0)))[1] == 1
    assert asked("lineage")[1] == asked("lineage", "web", "--event", str(UUID(int=0)))[1] == 2
    assert asked("history", "nobody")[1] == 1


def test_diff_ends_with_whether_there_was_a_difference(asked: Any, past: Past) -> None:
    a, b = (f"fleet/0:{past.moments[name].rounds['fleet/0']}" for name in ("scheduled", "scaled"))
    page, code = asked("diff", a, b)
    assert code == 1
    assert "different: " in page
    assert WEB in page
    assert asked("diff", a, a)[1] == 0
    assert asked("diff", "2000-01-01")[1] == 2
    plain = json.loads(asked("diff", a, b, "-o", "json")[0])
    assert [c["name"] for c in plain["bindings"]] == [WEB]
    assert plain["bindings"][0]["after"]["targets"] == past.moments["scaled"].targets[WEB]


def test_get_at_shows_the_fleet_as_it_was(asked: Any, past: Past) -> None:
    def get(what: str, moment: str, *more: str) -> Any:
        return json.loads(
            asked(
                "get",
                what,
                *more,
                "--at",
                f"fleet/0:{past.moments[moment].rounds['fleet/0']}",
                "-o",
                "json",
            )[0]
        )

    assert [c["name"] for c in get("clusters", "scheduled")] == ["bergen", "oslo", "tromso"]
    assert [c["name"] for c in get("clusters", "withdrawn")] == ["bergen", "oslo"]
    assert [c["silent"] for c in get("clusters", "silent")] == [True, False, False]
    (web,) = get("bindings", "scaled", WEB)
    assert {t["cluster"]: t["replicas"] for t in web["targets"]} == past.moments["scaled"].targets[
        WEB
    ]
    assert (web["outcome"], web["placed"]) == ("scheduled", 6)
    assert [n["name"] for n in get("nodes", "node lost", "oslo")] == ["o2"]
    assert [p["bindings"] for p in get("policies", "scaled")] == [2]
    assert asked("get", "clusters", "tromso", "--at", "now")[1] == 1
    assert asked("get", "bindings", "--at", "2000-01-01")[1] == 2
    assert "WHERE" not in asked("get", "bindings", "--at", "now")[0]


def test_nodes_are_shown_with_what_cranes_scheduler_reads_on_them(asked: Any) -> None:
    whole = json.loads(asked("get", "nodeannotations", "--cluster", "oslo", "-o", "json")[0])
    names = [node["metadata"]["name"] for node in whole["items"]]
    assert names
    assert all(name.startswith("o") for name in names)
    (page, code) = asked("get", "nodeannotations")
    assert code == 0
    assert "node_hot_value" in page
    assert asked("get", "nodeannotations", "nobody")[1] == 1
    assert asked("get", "nodeannotations", "--cluster", "nowhere")[1] == 1
    assert asked("get", "nodeannotations", "--namespace", "shop")[1] == 2
    assert asked("get", "placements", "--cluster", "oslo")[1] == 2


def test_a_declined_proposal_does_not_hide_where_a_binding_is(asked: Any, past: Past) -> None:
    (log,) = json.loads(asked("get", "bindings", LOG, "-o", "json")[0])
    (then,) = json.loads(asked("get", "bindings", LOG, "--at", "now", "-o", "json")[0])
    assert log["targets"] == then["targets"]
