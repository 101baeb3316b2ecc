"""The ledger as of a cut: every question has the answer that it had then."""

from __future__ import annotations

import pytest
from tests.backends import fresh_database, in_a_loop
from tests.scenarios.fleet_plane import DYNAMIC
from tests.told_plane import ToldPlane, a_binding, a_cluster, a_policy, nodes

from wharfinger.answers import facts
from wharfinger.answers.explanation import account_plain
from wharfinger.answers.lineage import lineage_plain
from wharfinger.answers.timeline import history_plain
from wharfinger.domain.placement import Placement
from wharfinger.events.bindings import BindingWithdrawn
from wharfinger.history.explain import account
from wharfinger.history.lineage import lineage_of_binding
from wharfinger.history.timeline import timeline
from wharfinger.runtime.ledger import DecisionQuery, Ledger
from wharfinger.runtime.ledger.at_position import LedgerCut, PastDatabase

pytestmark = pytest.mark.integration

BY_ROOM = a_policy("by-room", Placement(replicas=DYNAMIC))


async def seen(ledger: Ledger) -> dict[str, object]:
    """All that a reader may ask, by question."""
    found: dict[str, object] = {
        "bindings": [facts.binding_plain(b) for b in await facts.bindings_now(ledger, None)],
        "clusters": [facts.cluster_plain(c) for c in await facts.clusters_now(ledger)],
        "nodes": [facts.node_plain(n) for n in await facts.nodes_now(ledger)],
        "policies": await facts.policies_now(ledger),
        "decisions": [row async for row in ledger.decisions(DecisionQuery())],
        "heads": [(h.stream, h.round, h.seq, h.hash, h.at) for h in await ledger.heads()],
    }
    for binding in await facts.bindings_now(ledger, None):
        name = binding.binding.name
        found[f"history {name}"] = history_plain(await timeline(ledger, name))
        found[f"lineage {name}"] = lineage_plain(await lineage_of_binding(ledger, name))
        found[f"explain {name}"] = account_plain(await account(ledger, name, None, None, True))
    return found


def test_a_question_asked_of_the_past_has_the_answer_that_it_had(
    database_server: str, migrated_database: str
) -> None:
    with fresh_database(database_server, template=migrated_database) as url:
        in_a_loop(lambda: _compared(url))


async def _compared(url: str) -> None:
    plane = await ToldPlane.opened(url)
    past = PastDatabase(url, "tests")
    kept: list[tuple[LedgerCut, dict[str, object]]] = []

    async def keep() -> None:
        kept.append((await past.heads(), await seen(plane.ledger)))

    try:
        await plane.tell(
            a_cluster("oslo", 60),
            a_cluster("bergen", 60),
            *nodes("oslo", "o1", "o2"),
            *nodes("bergen", "b1", "b2"),
        )
        await keep()
        await plane.tell(BY_ROOM, a_binding("web", 4, BY_ROOM), a_binding("api", 2, BY_ROOM))
        await keep()
        await plane.tell(a_binding("web", 6, BY_ROOM), a_cluster("oslo", 90))
        await keep()
        await plane.wait(100)
        await keep()
        await plane.tell(*nodes("oslo", "o1"), BindingWithdrawn("shop/api-deployment"))
        await keep()
        different = {str(then) for _, then in kept}
        assert len(different) == len(kept), "each step shows in the answers"
        for cut, then in kept:
            now = await seen(past.at(cut))
            assert now.keys() == then.keys()
            for question, answer in then.items():
                assert now[question] == answer, question
            by_seq = await past.cut_by_seq(cut.seqs)
            assert by_seq.seqs == cut.seqs
    finally:
        await past.close()
        await plane.ledger.close()
