"""The descheduler looks at clusters as a whole: what it proposes, when it waits, what it leaves
alone, told as stories.

What a look finds is told here (`Findings`), so that each story is about what is made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID, uuid4

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.instance_types import Catalogue, InstanceType, Offering
from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import NodePoolPolicy
from wharfinger.domain.policy import Policy
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.engine.disruption.cluster_snapshot import (
    ClusterSnapshot,
    Command,
    ConsolidationResult,
    DisruptionVerdict,
    Method,
)
from wharfinger.events.assignments import (
    Assigned,
    AssignmentItem,
    AssignmentsDecided,
    ClaimEnded,
    Disrupted,
    Disrupting,
    NodeClosed,
    Placed,
    Recovered,
    Released,
    Silenced,
)
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved, FleetHeard
from wharfinger.events.codec import made
from wharfinger.events.decisions import NodeShare
from wharfinger.events.policies import PolicyApplied, PolicyRemoved
from wharfinger.events.proposals import DisruptionProposed, NodeRemovalProposed
from wharfinger.kernel.observer import Publication
from wharfinger.stages.descheduler import DeschedulerObserver
from wharfinger.stages.descheduler.disruption import Looking, due_looks, seen

S = 1_000_000
START = 1_700_000_000 * S
POOL = NodePoolPolicy("spot", 30)
PRICED = Catalogue(
    "default", (InstanceType("m5", {"cpu": 4000}, offerings=(Offering("a", "on-demand", 10),)),)
)


@dataclass
class Findings:
    """What looks find from now on. `scenes`: what was looked at."""

    commands: tuple[Command, ...] = ()
    verdicts: tuple[DisruptionVerdict, ...] = ()
    scenes: list[ClusterSnapshot] = field(default_factory=list)

    def survey(self, scene: ClusterSnapshot) -> ConsolidationResult:
        self.scenes.append(scene)
        return ConsolidationResult(self.commands, self.verdicts)


def drop(*nodes: str, method: Method = "multi-node") -> Command:
    return Command(method, nodes, (), (), 5, 1000, "cheaper")


@dataclass
class Plane:
    """A descheduler with a clock that only `wait` moves; the plane's cluster is oslo, its nodes are
    of pool spot."""

    findings: Findings = field(default_factory=Findings)
    now: int = START
    seq: int = 0
    elsewhere: bool = False

    def __post_init__(self) -> None:
        looking = Looking(survey=self.findings.survey, elsewhere=self.elsewhere)
        self.observer = DeschedulerObserver(lambda _: 0, looking=looking)
        self.state = self.observer.initial()

    def given(self, *facts: Value | AssignmentItem) -> Plane:
        for fact in facts:
            data = (
                AssignmentsDecided("oslo", "cluster/oslo", self.seq, (fact,))
                if isinstance(fact, AssignmentItem)
                else fact
            )
            self.observer.fold(
                self.state, made(data, id=uuid4(), source="/test", subject="x"), self.now
            )
        return self

    def wait(self, seconds: float) -> Plane:
        self.now += round(seconds * S)
        return self

    def publications(self) -> list[Publication]:
        return self.observer.publish(self.state, self.now)

    def proposed(self) -> list[tuple[str, ...]]:
        """The nodes of each command."""
        found = [p.data for p in self.publications()]
        return [d.nodes for d in found if isinstance(d, DisruptionProposed)]

    def proposed_within(self, seconds: int) -> list[tuple[int, tuple[str, ...]]]:
        """(second, nodes), looking whenever something is due."""
        end, began, found = self.now + seconds * S, self.now, list[tuple[int, tuple[str, ...]]]()
        while (due := self.observer.next_due(self.state)) is not None and due <= end:
            self.now = max(self.now, due)
            found += [((self.now - began) // S, nodes) for nodes in self.proposed()]
        self.now = end
        return found

    def _n(self) -> int:
        self.seq += 1
        return self.seq

    def assigned(self, binding: str, n: int) -> AssignmentItem:
        return Assigned(self._n(), str(uuid4()), binding, "u", n, Requirements({"cpu": 100}))

    def placed(self, binding: str, node: str, *ordinals: int) -> AssignmentItem:
        return Placed(
            self._n(),
            str(uuid4()),
            binding,
            (NodeShare(node, ordinals),),
            Requirements({"cpu": 100}),
        )

    def released(self, binding: str, node: str, *ordinals: int) -> AssignmentItem:
        return Released(self._n(), str(uuid4()), binding, (NodeShare(node, ordinals),))

    def begun(self, command: str, *nodes: str) -> AssignmentItem:
        return Disrupting(self._n(), str(uuid4()), command, "multi-node", nodes)

    def ended(self, command: str, outcome: str, *reopened: str) -> AssignmentItem:
        return Disrupted(self._n(), str(uuid4()), command, "multi-node", outcome, reopened, "")


def nodes(*names: str, pool: str = "spot", bucket: int = 0, buckets: int = 1) -> NodesObserved:
    labels = {"karpenter.sh/nodepool": pool}
    return NodesObserved(
        "oslo", bucket, buckets, tuple(Node(n, {"cpu": 4000}, labels=labels) for n in names)
    )


def pool(policy: NodePoolPolicy = POOL, namespace: str = "") -> PolicyApplied:
    return PolicyApplied(Policy("NodePool", policy.name, namespace, node_pool=policy))


def catalogue(*parts: Catalogue) -> list[PolicyApplied]:
    return [
        PolicyApplied(Policy("InstanceTypes", str(p.part), p.name, catalogue=p))
        for p in parts or (PRICED,)
    ]


def a_plane(*commands: Command) -> Plane:
    plane = Plane(Findings(commands))
    return plane.given(pool(), *catalogue(), nodes("n1", "n2", "n3"))


# Found twice, proposed once.


def test_a_command_is_proposed_when_a_look_fifteen_seconds_later_still_finds_it() -> None:
    plane = a_plane(drop("n1", "n2"))
    assert plane.proposed() == []
    assert plane.wait(14.9).proposed() == []
    (proposal,) = plane.wait(0.1).publications()
    assert isinstance(proposal.data, DisruptionProposed)
    assert (proposal.data.method, proposal.data.nodes, proposal.data.saving) == (
        "multi-node",
        ("n1", "n2"),
        5,
    )
    assert set(proposal.data.contents) == {"n1", "n2"}
    assert proposal.partition_key == proposal.data.stream == "cluster/oslo"


def test_what_is_found_only_once_is_forgotten() -> None:
    plane = a_plane(drop("n1"))
    plane.proposed()
    plane.findings.commands = ()
    plane.wait(15).proposed()
    plane.findings.commands = (drop("n1"),)
    plane.given(nodes("n1", "n2"))
    assert plane.proposed_within(24) == []
    assert plane.proposed_within(1) == [(1, ("n1",))]


def test_a_node_that_got_something_else_to_hold_begins_anew() -> None:
    plane = a_plane(drop("n1")).given()
    plane.proposed()
    plane.wait(12).given(plane.placed("web", "n1", 0))
    assert plane.proposed_within(14) == []
    assert [nodes for _, nodes in plane.proposed_within(20)] == [("n1",)]


def test_a_cluster_that_does_not_change_is_not_looked_at_again() -> None:
    plane = a_plane()
    assert plane.proposed_within(3600) == []
    assert len(plane.findings.scenes) == 1
    plane.given(nodes("n1", "n2", "n3"))  # the same again
    assert plane.proposed_within(3600) == []
    assert len(plane.findings.scenes) == 1


def test_a_cluster_that_changes_all_the_time_is_looked_at_every_ten_seconds() -> None:
    plane = a_plane()
    for second in range(60):
        plane.given(plane.placed("web", "n1", second)).proposed()
        plane.wait(1)
    assert len(plane.findings.scenes) == 6


def test_a_node_that_may_be_judged_otherwise_later_is_looked_at_then() -> None:
    plane = a_plane()
    plane.findings.verdicts = (
        DisruptionVerdict("n1", "budget", "blocked", START + 900 * S),
        DisruptionVerdict("n2", "price", "dear"),
    )
    plane.proposed()
    assert plane.observer.next_due(plane.state) == START + 900 * S


def test_a_node_that_is_kept_for_somebody_is_looked_at_when_it_no_longer_is() -> None:
    plane = a_plane()
    plane.given(ClaimEnded(plane._n(), str(uuid4()), "c1", "spot", "registered", "n1"))
    plane.proposed()
    assert plane.observer.next_due(plane.state) == START + 20 * S
    plane.given(ClaimEnded(plane._n(), str(uuid4()), "c2", "spot", "failed", "", "m5", "a", "spot"))
    plane.wait(20).proposed()
    assert plane.observer.next_due(plane.state) == START + 60 * S, (
        "and when m5 can be asked for again"
    )


# Again, and again less often.


def test_what_is_found_though_it_was_proposed_is_proposed_again_ever_more_seldom() -> None:
    plane = a_plane(drop("n1"))
    times = [second for second, _ in plane.proposed_within(15 + 60 + 120 + 240 + 300)]
    assert times == [15, 75, 195, 435]


def test_every_repetition_has_an_id_of_its_own_and_the_first_is_named_by_what_it_is() -> None:
    def ids(plane: Plane, turns: int) -> list[UUID | None]:
        found: list[UUID | None] = []
        while len(found) < turns:
            due = plane.observer.next_due(plane.state)
            assert due is not None
            plane.now = max(plane.now, due)
            found += [p.id for p in plane.publications()]
        return found

    before = ids(a_plane(drop("n1")), 3)
    assert len(set(before)) == 3
    restarted = (
        Plane(Findings((drop("n1"),)))
        .wait(5000)
        .given(pool(), *catalogue(), nodes("n1", "n2", "n3"))
    )
    assert ids(restarted, 1) == before[:1]
    assert not set(ids(restarted, 3)) & set(before)


def test_while_a_command_runs_nothing_is_proposed_about_its_nodes() -> None:
    plane = a_plane(drop("n1", "n2"), drop("n3"))
    plane.given(plane.begun("c1", "n1"))
    assert [nodes for _, nodes in plane.proposed_within(100)] == [("n3",), ("n3",)]
    assert plane.findings.scenes[-1].disrupting == {"n1": "Underutilized"}
    assert "n1" in plane.findings.scenes[-1].closed
    plane.given(plane.ended("c1", "done"))
    assert ("n1", "n2") in [nodes for _, nodes in plane.proposed_within(100)]


# Memory against churn.


def test_a_workload_that_was_moved_is_left_alone_for_a_while() -> None:
    plane = a_plane()
    plane.given(plane.assigned("web", 2), plane.placed("web", "n1", 0, 1))
    plane.wait(60).given(plane.released("web", "n1", 1), plane.placed("web", "n2", 1))
    plane.proposed()
    resting = plane.findings.scenes[-1].resting
    assert sorted(resting) == ["n1", "n2"]
    assert {until for _, until in resting.values()} == {plane.now + 300 * S}
    assert "web on it was moved" in resting["n1"][0]
    assert plane.observer.next_due(plane.state) == plane.now + 300 * S, (
        "and is looked at again when that is over"
    )
    plane.wait(300).proposed()
    assert plane.findings.scenes[-1].resting == {}


def test_a_workload_that_is_moved_again_and_again_is_left_alone_twice_as_long_each_time() -> None:
    plane = a_plane()
    plane.given(plane.assigned("web", 1), plane.placed("web", "n1", 0))
    pauses = []
    for number in range(3):
        here, there = ("n1", "n2") if number % 2 == 0 else ("n2", "n1")
        plane.given(plane.released("web", here, 0), plane.placed("web", there, 0))
        plane.proposed()
        (_, until), *_ = plane.findings.scenes[-1].resting.values()
        pauses.append((until - plane.now) // S)
        plane.wait(pauses[-1])
    assert pauses == [300, 600, 1200]
    plane.wait(1200).given(plane.released("web", "n2", 0), plane.placed("web", "n1", 0))
    plane.proposed()
    (_, until), *_ = plane.findings.scenes[-1].resting.values()
    assert until - plane.now == 300 * S, (
        "when it stayed where it was for long enough it begins anew"
    )


def test_a_replica_that_comes_back_after_a_while_is_a_new_one() -> None:
    plane = a_plane()
    plane.given(
        plane.assigned("web", 2), plane.placed("web", "n1", 0, 1), plane.released("web", "n1", 1)
    )
    plane.wait(60).given(plane.placed("web", "n2", 1))
    plane.proposed()
    assert plane.findings.scenes[-1].resting == {}


def test_what_is_new_or_comes_back_to_its_node_was_not_moved() -> None:
    plane = a_plane()
    plane.given(
        plane.assigned("web", 2), plane.placed("web", "n1", 0), plane.placed("web", "n2", 1)
    )
    plane.given(plane.released("web", "n1", 0), plane.placed("web", "n1", 0))
    plane.proposed()
    assert plane.findings.scenes[-1].resting == {}


def test_a_replica_told_on_its_new_node_before_its_release_was_moved_too() -> None:
    plane = a_plane()
    plane.given(
        plane.assigned("web", 1), plane.placed("web", "n1", 0), plane.placed("web", "n2", 0)
    )
    plane.proposed()
    assert sorted(plane.findings.scenes[-1].resting) == ["n2"]


def test_a_pool_whose_commands_are_given_up_is_left_alone_longer_each_time() -> None:
    plane = a_plane(drop("n1"))
    pauses = []
    for number in range(3):
        plane.given(plane.begun(f"c{number}", "n1"), plane.ended(f"c{number}", "rolled-back", "n1"))
        plane.proposed()
        resting = plane.findings.scenes[-1].resting
        assert sorted(resting) == ["n1", "n2", "n3"]
        pauses.append((resting["n1"][1] - plane.now) // S)
        plane.wait(400)
    assert pauses == [60, 120, 240]
    plane.given(plane.begun("c9", "n1"), plane.ended("c9", "done"))
    plane.wait(10).proposed()
    assert plane.findings.scenes[-1].resting == {}


# Held.


def test_nothing_is_proposed_for_a_silent_cluster() -> None:
    plane = a_plane(drop("n1"))
    plane.given(Silenced(plane._n(), str(uuid4())))
    assert plane.proposed_within(600) == []
    assert {v.rule for v in plane.state.watches["oslo"].verdicts} == {"Held"}
    plane.given(Recovered(plane._n(), str(uuid4())))
    assert [nodes for _, nodes in plane.proposed_within(30)] == [("n1",)]


def test_a_cluster_that_promised_to_speak_and_does_not_is_held_before_its_lease_ends() -> None:
    plane = a_plane(drop("n1")).given(ClusterObserved(Cluster("oslo", lease_s=3600)))
    assert len(plane.proposed_within(299)) == 3
    assert plane.proposed_within(3000) == []
    assert plane.state.watches["oslo"].held == "cluster oslo has said nothing for 435 s"
    plane.given(ClusterObserved(Cluster("oslo", lease_s=3600)))
    assert [nodes for _, nodes in plane.proposed_within(30)] == [("n1",)]


def test_a_heartbeat_of_its_collector_keeps_a_cluster_current() -> None:
    plane = a_plane(drop("n1")).given(ClusterObserved(Cluster("oslo", lease_s=3600)))
    for _ in range(12):
        plane.given(FleetHeard("collector-0", 10, ("bergen", "oslo")))
        plane.proposed_within(290)
        assert plane.state.watches["oslo"].held == ""
    assert "bergen" not in plane.state.clusters


def test_nothing_is_proposed_while_the_facts_of_a_cluster_are_not_fresh() -> None:
    """It answers, and a watch of its collector is broken."""
    plane = a_plane(drop("n1"))
    stale = Cluster("oslo", lease_s=3600, conditions={"FactsFresh": "False"})
    plane.given(ClusterObserved(stale))
    for _ in range(5):
        assert plane.given(FleetHeard("collector-0", 10, ("oslo",))).proposed_within(200) == []
    assert plane.state.watches["oslo"].held == "the facts of cluster oslo are not fresh: Node, Pod"
    plane.given(ClusterObserved(Cluster("oslo", lease_s=3600)))
    assert [nodes for _, nodes in plane.proposed_within(30)] == [("n1",)]


def test_a_cluster_that_promised_nothing_is_as_it_was_told() -> None:
    plane = a_plane(drop("n1")).given(ClusterObserved(Cluster("oslo")))
    assert len(plane.proposed_within(7200)) > 5


# Surveyed beside the loop that folds.


def looked_at(plane: Plane, *meanwhile: AssignmentItem) -> list[tuple[str, ...]]:
    """A look that takes its time, in which something happens."""
    (look,) = due_looks(plane.state, plane.observer.looking, plane.now)
    assert plane.proposed() == []
    plane.given(*meanwhile)
    seen(plane.state, look, plane.findings.survey(look.scene))
    return plane.proposed()


def test_what_is_found_elsewhere_is_proposed_when_it_was_found_twice() -> None:
    plane = Plane(Findings((drop("n1"), drop("n2"))), elsewhere=True).given(
        pool(), *catalogue(), nodes("n1", "n2")
    )
    assert looked_at(plane) == []
    plane.wait(15)
    assert looked_at(plane) == [("n1",), ("n2",)]


def test_a_node_that_changed_while_it_was_looked_at_is_left_for_the_next_look() -> None:
    plane = Plane(Findings((drop("n1"), drop("n2"))), elsewhere=True).given(
        pool(), *catalogue(), nodes("n1", "n2")
    )
    looked_at(plane)
    plane.wait(15)
    assert looked_at(plane, plane.placed("web", "n1", 0)) == [("n2",)]


def test_a_cluster_that_fell_silent_while_it_was_looked_at_is_held() -> None:
    plane = Plane(Findings((drop("n1"),)), elsewhere=True).given(pool(), *catalogue(), nodes("n1"))
    looked_at(plane)
    plane.wait(15)
    assert looked_at(plane, Silenced(plane._n(), str(uuid4()))) == []


def test_a_cluster_is_not_looked_at_again_while_it_is_looked_at() -> None:
    plane = Plane(elsewhere=True).given(pool(), *catalogue(), nodes("n1"))
    (look,) = due_looks(plane.state, plane.observer.looking, plane.now)
    plane.wait(10).given(nodes("n1", "n2"))
    assert due_looks(plane.state, plane.observer.looking, plane.now) == []
    seen(plane.state, look, plane.findings.survey(look.scene))
    plane.wait(10)
    (again,) = due_looks(plane.state, plane.observer.looking, plane.now)
    assert [node.name for node in again.scene.nodes] == ["n1", "n2"]


# One rule for a node, not two.


def test_nodes_of_unpriced_pools_have_the_old_rule_and_those_of_priced_ones_the_new() -> None:
    plane = Plane().given(pool(), nodes("n1"))
    plane.wait(30)
    assert [type(p.data) for p in plane.publications()] == [NodeRemovalProposed]
    plane.given(*catalogue())
    plane.findings.commands = (drop("n1", method="emptiness"),)
    assert [nodes for _, nodes in plane.proposed_within(600)] != []
    assert plane.state.causes.active == {}
    plane.findings.commands = ()
    plane.given(PolicyRemoved("InstanceTypes", "0", "default"))
    assert [type(p.data) for p in plane.publications()] == [NodeRemovalProposed]


def test_a_catalogue_in_parts_counts_when_it_is_whole() -> None:
    types = PRICED.types
    parts = [Catalogue("default", types, 0, 2), Catalogue("default", (), 1, 2)]
    plane = Plane(Findings((drop("n1"),))).given(pool(), nodes("n1"), *catalogue(parts[0]))
    assert plane.proposed_within(20) == []
    assert plane.findings.scenes == []
    plane.given(*catalogue(parts[1]))
    assert [nodes for _, nodes in plane.proposed_within(20)] == [("n1",)]


def test_a_pool_of_another_cluster_is_no_business_of_this_one() -> None:
    far = NodePoolPolicy("spot", 30, clusters=("bergen",))
    plane = Plane(Findings((drop("n1"),))).given(pool(far, "bergen"), *catalogue(), nodes("n1"))
    assert plane.proposed_within(600) == []
    assert plane.findings.scenes == []


def test_an_observer_that_began_anew_proposes_nothing_about_running_commands() -> None:
    plane = Plane(Findings((drop("n1"), drop("n2"), drop("n3"))))
    plane.given(NodeClosed(plane._n(), str(uuid4()), "n2"), plane.begun("c1", "n1"))
    plane.given(pool(), *catalogue(), nodes("n1", "n2", "n3"))
    assert [nodes for _, nodes in plane.proposed_within(20)] == [("n3",)]
