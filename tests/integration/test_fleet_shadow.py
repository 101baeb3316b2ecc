"""What Karmada's and OCM's schedulers chose in a hub, held against ours, out of a real ledger: the
command, its page, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.backends import fresh_database, in_a_loop
from tests.told_plane import ToldPlane

from wharfinger.answers.submit import submission
from wharfinger.domain.binding import Binding, TargetCluster
from wharfinger.domain.cluster import Cluster, ManagedClusterFacts, ManagedTaint, ResourceSummary
from wharfinger.domain.placement import ClusterAffinity, Placement, ReplicaScheduling
from wharfinger.domain.policy import Policy
from wharfinger.domain.selection import (
    ChosenClusters,
    ClusterSet,
    Priority,
    Selection,
    Selector,
    SetBinding,
)
from wharfinger.domain.taints import Taint
from wharfinger.domain.workload import ObjectRef, Requirements
from wharfinger.events.accepted import Fact, accepted
from wharfinger.events.bindings import BindingRequested
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.hub_facts import HUB_SOURCE
from wharfinger.events.policies import PolicyApplied
from wharfinger.history.fleet_shadow import fleet_shadow
from wharfinger.history.points import HistoryPoint
from wharfinger.history.shadow import ShadowReport
from wharfinger.runtime.ledger import Ledger, Submission
from wharfinger.stages.shadow import ShadowDecision
from wharfinger_cli.facts import Told

pytestmark = pytest.mark.integration

SECOND = 1_000_000
CORE, GIB = 1000, 2**30
DYNAMIC = ReplicaScheduling("Divided", "Weighted", dynamic=True)
HALVES = ReplicaScheduling("Divided", "Weighted")
PACKED = ReplicaScheduling("Divided", "Aggregated")
MIDDLE = "after the first choice"


class HubPlane(ToldPlane):
    """Facts come as the collector of the hub `hub` sends them."""

    def _submission(self, fact: Fact) -> Submission:
        keyed = accepted(fact)
        place = (keyed.topic.name, keyed.key)
        found = submission(keyed, self.told.get(place), f"{HUB_SOURCE}/hub")
        self.told[place] = Told(found.event.id, fact, self.time.at)
        return found


def cluster(name: str, cores: int, *taints: Taint) -> ClusterObserved:
    room = {"cpu": cores * CORE, "memory": 400 * GIB, "pods": 1000}
    kinds = ("apps/v1/Deployment",)
    return ClusterObserved(
        Cluster(
            name,
            api_kinds=kinds,
            taints=taints,
            summary=ResourceSummary(room),
            conditions={"Ready": "True"},
            managed=ManagedClusterFacts(
                taints=tuple(ManagedTaint(t.key, "NoSelect") for t in taints),
                allocatable={"cpu": str(cores)},
                capacity={"cpu": "100"},
            ),
        )
    )


def binding(
    plane: ToldPlane,
    name: str,
    replicas: int,
    how: ReplicaScheduling,
    clusters: dict[str, int] | None = None,
    *,
    names: tuple[str, ...] = ("north", "south"),
    age_s: int = 0,
    scheduler: str = "default-scheduler",
) -> BindingRequested:
    return BindingRequested(
        Binding(
            f"shop/{name}-deployment",
            f"uid-of-{name}",
            ObjectRef("apps/v1", "Deployment", name, "shop"),
            replicas,
            Requirements({"cpu": CORE}),
            Placement((ClusterAffinity(cluster_names=names),), replicas=how),
            scheduler=scheduler,
            clusters=tuple(TargetCluster(c, n) for c, n in (clusters or {}).items()),
            created_us=(BORN.get(name) or plane.time.at) - age_s * SECOND,
        )
    )


BORN: dict[str, int] = {}


class Hub:
    """A hub in which other schedulers choose the clusters."""

    def __init__(self, plane: HubPlane) -> None:
        self.plane = plane

    async def asked(self, name: str, *arguments: Any, **options: Any) -> None:
        BORN.setdefault(name, self.plane.time.at + SECOND)
        await self.plane.tell(binding(self.plane, name, *arguments, **options))

    async def chosen(self, placement: str, *clusters: str, slice_: int = 1) -> None:
        key = (placement, slice_)
        created = CREATED.setdefault(key, self.plane.time.at + SECOND)
        await self.plane.tell(
            PolicyApplied(
                Policy(
                    "PlacementDecision",
                    f"{placement}-decision-{slice_}",
                    "shop",
                    chosen=ChosenClusters(placement, clusters, created),
                )
            )
        )


CREATED: dict[tuple[str, int], int] = {}


def placement(name: str, **selection: Any) -> PolicyApplied:
    text = json.dumps({"metadata": {"name": name}})
    return PolicyApplied(
        Policy("Placement", name, "shop", selection=Selection(**selection), manifest=text)
    )


async def lived(url: str) -> dict[str, int]:
    plane = await HubPlane.opened(url)
    assert isinstance(plane, HubPlane)
    hub = Hub(plane)
    try:
        closed = Taint("dedicated", "NoSchedule")
        await plane.tell(
            cluster("north", 20),
            cluster("south", 20),
            cluster("small", 2),
            cluster("closed", 50, closed),
            PolicyApplied(
                Policy(
                    "ManagedClusterSet",
                    "all",
                    cluster_set=ClusterSet("LabelSelector", selector=Selector()),
                )
            ),
            PolicyApplied(
                Policy("ManagedClusterSetBinding", "all", "shop", set_binding=SetBinding("all"))
            ),
            # Placed before the hub was joined: not compared.
            binding(plane, "old", 2, HALVES, {"closed": 2}, names=("closed",), age_s=3600),
        )
        # First without clusters, then with them.
        await hub.asked("even", 4, HALVES)
        await hub.asked("even", 4, HALVES, {"north": 2, "south": 2})
        middle = plane.time.at
        # Known with its clusters at once, as where the scheduler was quick.
        await hub.asked("quick", 4, HALVES, {"north": 2, "south": 2})
        # One more here than there is as good as one more there.
        await hub.asked("odd", 3, HALVES, {"north": 2, "south": 1})
        await hub.asked("odd-too", 3, HALVES, {"north": 1, "south": 2})
        # The policy says halves.
        await hub.asked("astray", 4, HALVES, {"north": 4})
        # Packing takes one cluster.
        await hub.asked("wide", 4, PACKED)
        await hub.asked("wide", 4, PACKED, {"north": 2, "south": 2})
        # A taint is not tolerated, and a cluster has not the room.
        await hub.asked("forced", 2, HALVES, {"closed": 2}, names=("closed", "north"))
        await hub.asked("stuffed", 8, DYNAMIC, {"small": 8}, names=("small",))
        # Ours and another's are not theirs.
        await hub.asked("ours", 2, HALVES, {"north": 2}, scheduler="wharfinger")
        # They have none for it.
        await hub.asked("stuck", 2, HALVES)
        # More replicas: those that are held stay.
        await hub.asked("even", 6, HALVES, {"north": 2, "south": 2})
        await hub.asked("even", 6, HALVES, {"north": 3, "south": 3})
        # One cluster is taken away: that is no choice of the scheduler.
        await hub.asked("even", 6, HALVES, {"north": 3})
        # Placements: by allocatable CPU the two with most.
        most = (Priority(builtin="ResourceAllocatableCPU", weight=1),)
        await plane.tell(placement("two", wanted=2, mode="Exact", priorities=most))
        await hub.chosen("two", "south", "north")
        await plane.tell(placement("poor", wanted=1, mode="Exact", priorities=most))
        await hub.chosen("poor", "small")
        await plane.tell(placement("bad", wanted=1))
        await hub.chosen("bad", "closed")
        await plane.tell(placement("none", wanted=1))
        # A choice in two objects.
        await plane.tell(placement("all"))
        await hub.chosen("all", "north", "small")
        await hub.chosen("all", "south", slice_=2)
        await plane.tell(cluster("south", 21), after_s=60.0)
        return {MIDDLE: middle}
    finally:
        await plane.ledger.close()


@pytest.fixture(scope="module")
def past(database_server: str, migrated_database: str) -> Iterator[tuple[str, dict[str, int]]]:
    with fresh_database(database_server, template=migrated_database) as url:
        yield url, in_a_loop(lambda: lived(url))


@pytest_asyncio.fixture
async def ledger(past: tuple[str, dict[str, int]]) -> AsyncIterator[Ledger]:
    found = await Ledger.open(past[0], "tests")
    try:
        yield found
    finally:
        await found.close()


def verdicts(report: ShadowReport) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in report.decisions:
        found.setdefault(one.name.removesuffix("-deployment"), []).append(one.verdict)
    return found


def of(report: ShadowReport, name: str) -> ShadowDecision:
    return next(one for one in report.decisions if one.name.removesuffix("-deployment") == name)


async def test_each_choice_is_called_what_it_is(ledger: Ledger) -> None:
    report = await fleet_shadow(ledger, "hub")
    assert verdicts(report) == {
        "odd": ["equal"],
        "odd-too": ["equal"],
        "even": ["agreed", "agreed"],
        "quick": ["agreed"],
        "astray": ["better"],
        "wide": ["better"],
        "forced": ["refused"],
        "stuffed": ["refused"],
        "stuck": ["unplaced"],
        "two": ["agreed"],
        "poor": ["better"],
        "bad": ["refused"],
        "none": ["unplaced"],
        "all": ["agreed"],
    }


async def test_it_says_why(ledger: Ledger) -> None:
    report = await fleet_shadow(ledger, "hub")
    astray, wide = of(report, "astray"), of(report, "wide")
    assert (astray.theirs, astray.ours) == ("north 4", "north 2, south 2")
    assert [p.plugin for p in astray.plugins] == [p.plugin for p in wide.plugins] == ["Division"]
    assert sum(p.ours - p.theirs for p in wide.plugins) == wide.our_score - wide.their_score
    assert [r.plugin for r in of(report, "forced").refusals] == ["closed"]
    assert of(report, "forced").refusals[0].reasons == ("TaintToleration",)
    assert of(report, "stuffed").refusals[0].plugin == "Unschedulable"
    assert [p.plugin for p in of(report, "poor").plugins] == ["ResourceAllocatableCPU"]
    assert of(report, "bad").refusals[0].reasons == ("TaintToleration",)
    assert of(report, "even").waited_us == SECOND
    assert of(report, "stuck").waited_us >= 60 * SECOND


async def test_it_begins_where_it_is_asked_to(
    ledger: Ledger, past: tuple[str, dict[str, int]]
) -> None:
    """What was placed before is compared only when it is placed again, on what they placed."""
    report = await fleet_shadow(ledger, "hub", HistoryPoint("", at=past[1][MIDDLE]))
    whole = await fleet_shadow(ledger, "hub")
    assert verdicts(report)["even"] == ["agreed"]
    assert report.decisions == whole.decisions[1:]


async def test_the_same_history_gives_the_same_comparison(ledger: Ledger) -> None:
    once, again = await fleet_shadow(ledger, "hub"), await fleet_shadow(ledger, "hub")
    assert once.decisions == again.decisions


def wharfinger(tmp_path: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("WHARFINGER_")}
    return subprocess.run(
        [sys.executable, "-m", "wharfinger_cli", *arguments],
        cwd=tmp_path,
        env=clean | {"WHARFINGER_DATABASE": url},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_the_command_ends_with_1_where_we_refuse_what_they_chose(
    past: tuple[str, dict[str, int]], tmp_path: Path
) -> None:
    done = wharfinger(tmp_path, past[0], "shadow", "hub", "--hub", "-o", "json")
    assert done.returncode == 1
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["counts"] == {
        "agreed": 5,
        "equal": 2,
        "better": 3,
        "worse": 0,
        "refused": 3,
        "unplaced": 2,
    }
    assert {d["choice"] for d in said["decisions"]} >= {"shop/forced-deployment", "shop/two"}
    page = tmp_path / "shadow.html"
    table = wharfinger(tmp_path, past[0], "shadow", "hub", "--hub", "--report", str(page))
    assert table.returncode == 1
    assert "they placed, we refuse" in table.stdout
    text = page.read_text()
    assert "shop/forced-deployment" in text
    assert "wharfinger shadow hub --hub" in text
    assert "node" not in text.partition("<h1>")[2]


@pytest.mark.long
def test_the_command_ends_with_0_where_there_is_nothing_to_refuse_and_with_2_without_a_hub(
    past: tuple[str, dict[str, int]], tmp_path: Path
) -> None:
    other = wharfinger(tmp_path, past[0], "shadow", "elsewhere", "--hub")
    assert (other.returncode, len(other.stderr.splitlines())) == (2, 1)
    release = wharfinger(tmp_path, past[0], "shadow", "hub", "--hub", "--release", "1.36")
    assert (release.returncode, len(release.stderr.splitlines())) == (2, 1)
    to = ("--to", "2025-06-15T15:06:44Z")
    early = wharfinger(tmp_path, past[0], "shadow", "hub", "--hub", *to)
    assert early.returncode == 0, early.stdout + early.stderr
