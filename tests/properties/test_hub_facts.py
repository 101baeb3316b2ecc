"""Laws of what the collector sends of a hub: after any history of observations, with facts that
were not accepted and restarts in between, what holds is what the objects state."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hunting import examples

from wharfinger.domain.binding import Binding
from wharfinger.domain.cluster import Cluster
from wharfinger.domain.value import Value
from wharfinger.domain.workload import ObjectRef
from wharfinger.events.accepted import Fact, accepted
from wharfinger.events.bindings import BindingRequested, BindingWithdrawn
from wharfinger.events.clusters import ClusterForgotten, ClusterObserved
from wharfinger.events.hub_facts import HubObject
from wharfinger.stages.collector import Sighted
from wharfinger.stages.collector.hub import WAIT_US, ObservedHub

KINDS = ("Cluster", "ResourceBinding")
NAMES = ("a", "b", "c")


def stated(kind: str, name: str, number: int) -> HubObject:
    fact: Fact
    if kind == "Cluster":
        fact = ClusterObserved(Cluster(name, region=f"r{number}"))
    else:
        ref = ObjectRef("apps/v1", "Deployment", name, "default")
        fact = BindingRequested(Binding(f"default/{name}", name, ref, number))
    return HubObject(name, (fact,))


class Ledger:
    """Keeps the latest fact of each key, or refuses."""

    def __init__(self) -> None:
        self.latest: dict[str, Value] = {}

    def take(self, facts: list[Sighted]) -> None:
        for sighted in facts:
            self.latest[sighted.fact.key] = sighted.fact.data

    def holding(self) -> dict[str, Fact]:
        return {
            key: data
            for key, data in self.latest.items()
            if isinstance(data, ClusterObserved | BindingRequested)
        }


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("see"), st.sampled_from(KINDS), st.sampled_from(NAMES), st.integers(0, 2)
        ),
        st.tuples(st.just("lose"), st.sampled_from(KINDS), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("unread"), st.sampled_from(KINDS), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.sampled_from(("list", "restart")), st.just(""), st.just(""), st.just(0)),
        st.tuples(st.sampled_from(("send", "refuse")), st.just(""), st.just(""), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=examples(100), deadline=None)
@given(steps)
def test_what_holds_is_what_the_objects_state(history: list[tuple[str, str, str, int]]) -> None:
    ledger, hub, at, restarted = Ledger(), ObservedHub(), 1_000_000, False
    there: dict[tuple[str, str], HubObject] = {}
    unread: set[tuple[str, str]] = set()

    def listed() -> None:
        for kind in KINDS:
            found = {n: o for (k, n), o in there.items() if k == kind and (k, n) not in unread}
            hub.list_objects(kind, found, {n: "no" for k, n in unread if k == kind}, at)
            hub.listed(KINDS, at)

    listed()
    for what, kind, name, number in history:
        at += WAIT_US // 2
        match what:
            case "see":
                there[kind, name] = stated(kind, name, number)
                unread.discard((kind, name))
                hub.see(kind, name, there[kind, name], at)
            case "lose":
                there.pop((kind, name), None)
                unread.discard((kind, name))
                hub.lose(kind, name, at)
            case "unread" if (kind, name) in there:
                unread.add((kind, name))
                hub.see_unreadable(kind, name, "no")
            case "list":
                listed()
            case "send":
                ledger.take(hub.due(at))
            case "refuse":
                hub.unsent(hub.due(at), at)
            case "restart":  # what was on its way is lost
                hub, restarted = ObservedHub(ledger.holding().values()), True
                listed()
            case _:
                pass
    for restarted_and_unread in (restarted and bool(unread), False):
        at += 2 * WAIT_US
        ledger.take(hub.due(at))
        ledger.take(hub.due(at))
        readable = {
            accepted(f).key: f for k, o in there.items() if k not in unread for f in o.facts
        }
        holding = ledger.holding()
        assert {key: holding.get(key) for key in readable} == readable
        # An unreadable object may have stated any fact of an earlier collector: all of them stay.
        if not restarted_and_unread:
            kept = {accepted(f).key for k in unread for f in there[k].facts}
            assert holding.keys() - readable.keys() <= kept, "only unreadable ones keep old facts"
            assert hub.due(at) == []
        unread.clear()
        listed()


def test_a_cluster_that_is_joined_itself_is_left_to_its_own_collector() -> None:
    hub = ObservedHub(joined=("a",))
    hub.list_objects("Cluster", {n: stated("Cluster", n, 1) for n in NAMES}, {}, 0)
    sent = [s.fact.data for s in hub.due(WAIT_US)]
    assert [s.cluster.name for s in sent if isinstance(s, ClusterObserved)] == ["b", "c"]
    hub.lose("Cluster", "a", WAIT_US)
    assert hub.due(3 * WAIT_US) == []


def test_an_object_that_went_while_no_collector_looked_is_withdrawn_after_complete_lists() -> None:
    known: list[Fact] = [f for k in KINDS for f in stated(k, "a", 1).facts]
    hub = ObservedHub(known)
    hub.list_objects("Cluster", {}, {}, 0)
    hub.listed(KINDS, 0)
    assert hub.due(WAIT_US) == []
    hub.list_objects("ResourceBinding", {}, {}, 0)
    hub.listed(KINDS, 0)
    sent = [s.fact.data for s in hub.due(WAIT_US)]
    assert sent == [ClusterForgotten("a"), BindingWithdrawn("default/a")]
