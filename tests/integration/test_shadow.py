"""What another scheduler did, held against ours, out of a real ledger: the command, its page, and
its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.backends import fresh_database, in_a_loop
from tests.told_plane import ToldPlane, a_cluster

from wharfinger.domain.node import Node, Pod
from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.pod_upkeep import Owner, PodUpkeep
from wharfinger.domain.taints import Taint
from wharfinger.domain.workload import Requirements
from wharfinger.events.cluster_state import PodsObserved, into_buckets
from wharfinger.history.points import HistoryPoint
from wharfinger.history.shadow import release_of, shadow
from wharfinger.history.shadow_page import shadow_html
from wharfinger.runtime.ledger import Ledger
from wharfinger.stages.shadow import ShadowDecision

pytestmark = pytest.mark.integration

GIB = 2**30
SECOND = 1_000_000
LATE = "a point in the middle"


def node(name: str, *taints: Taint) -> Node:
    room = {"cpu": 4000, "memory": 8 * GIB, "pods": 110}
    return Node(name, room, labels={"kubernetes.io/hostname": name}, taints=taints)


def pod(
    name: str, created_us: int, *, cpu: int = 1000, scheduler: str = "", owner: str = "ReplicaSet"
) -> Pod:
    traits = PodTraits("shop", {"app": "web"}, owner, scheduler=scheduler)
    upkeep = PodUpkeep(owners=(Owner(owner, "web"),), created_us=created_us)
    requirements = Requirements({"cpu": cpu, "memory": GIB}, pod=traits)
    return Pod(f"uid-{name}", name, requirements, upkeep=upkeep)


class OtherScheduler:
    """Facts about a cluster whose pods another scheduler places, as a collector tells them."""

    def __init__(self, plane: ToldPlane) -> None:
        self.plane = plane
        self.on: dict[str, list[Pod]] = {}

    async def begin(self, *nodes: Node, running: dict[str, list[Pod]]) -> None:
        self.on = running
        pods = [PodsObserved("oslo", n, tuple(there)) for n, there in running.items()]
        await self.plane.tell(a_cluster("oslo"), *into_buckets("oslo", nodes, 2), *pods)

    def created(self) -> int:
        return self.plane.time.at

    async def waits(self, *pods: Pod) -> None:
        await self.plane.tell(PodsObserved("oslo", "", pods))

    async def binds(self, *bound: tuple[Pod, str], waiting: tuple[Pod, ...] = ()) -> None:
        nodes = dict.fromkeys(name for _, name in bound)
        for one, name in bound:
            self.on.setdefault(name, []).append(one)
        facts = [PodsObserved("oslo", name, tuple(self.on[name])) for name in nodes]
        await self.plane.tell(*facts, PodsObserved("oslo", "", waiting), after_s=2.0)


async def lived(url: str) -> dict[str, int]:
    """Two nodes that are alike and one that is closed; a third of the pods goes where it should."""
    plane = await ToldPlane.opened(url)
    try:
        other = OtherScheduler(plane)
        old = pod("old", other.created() - 3600 * SECOND, cpu=3000)
        closed = node("closed", Taint("dedicated", "NoSchedule"))
        await other.begin(node("a"), node("b"), closed, running={"a": [old]})
        # b is empty, so both of us take b
        first = pod("first", other.created())
        await other.waits(first)
        await other.binds((first, "b"))
        middle = plane.time.at
        # a has 1 of 4 cores left, b 3: theirs scores lower
        await other.binds((pod("astray", other.created()), "a"))
        # nothing of the taint is tolerated
        await other.binds((pod("forced", other.created()), "closed"))
        # not theirs, of a daemon, and older than the facts: none of them is compared
        await other.binds(
            (pod("ours", other.created(), scheduler="wharfinger"), "b"),
            (pod("agent", other.created(), owner="DaemonSet"), "closed"),
            (pod("older", other.created() - 3600 * SECOND), "b"),
        )
        stuck = pod("stuck", other.created())
        await other.waits(stuck, pod("too-large", other.created(), cpu=64_000))
        await plane.tell(a_cluster("oslo", region="north"), after_s=60.0)
        return {LATE: middle}
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


def by_name(decisions: tuple[ShadowDecision, ...]) -> dict[str, ShadowDecision]:
    return {one.name: one for one in decisions}


async def test_each_pod_is_called_what_it_is(ledger: Ledger) -> None:
    report = await shadow(ledger, "oslo")
    found = by_name(report.decisions)
    assert {name: one.verdict for name, one in found.items()} == {
        "first": "agreed",
        "astray": "better",
        "forced": "refused",
        "stuck": "unplaced",
    }
    astray, forced, stuck = found["astray"], found["forced"], found["stuck"]
    assert (astray.theirs, astray.ours) == ("a", "b")
    assert {p.plugin for p in astray.plugins} == {
        "NodeResourcesFit",
        "NodeResourcesBalancedAllocation",
    }
    assert sum(p.ours - p.theirs for p in astray.plugins) == astray.our_score - astray.their_score
    assert [r.plugin for r in forced.refusals] == ["TaintToleration"]
    assert stuck.ours == "b"
    assert stuck.waited_us >= 60 * SECOND
    assert found["first"].waited_us > 0
    assert report.placed == 3


async def test_it_begins_where_it_is_asked_to(
    ledger: Ledger, past: tuple[str, dict[str, int]]
) -> None:
    report = await shadow(ledger, "oslo", HistoryPoint("", at=past[1][LATE]))
    assert "first" not in by_name(report.decisions)
    assert by_name(report.decisions)["forced"].verdict == "refused"


async def test_the_same_history_gives_the_same_comparison(ledger: Ledger) -> None:
    once, again = await shadow(ledger, "oslo"), await shadow(ledger, "oslo")
    assert once.decisions == again.decisions


async def test_the_balance_is_scored_as_the_other_release_does(ledger: Ledger) -> None:
    """1.36 scores by how much a pod changes the balance; before it was how balanced the node is."""
    before = by_name((await shadow(ledger, "oslo", release=(1, 35))).decisions)
    since = by_name((await shadow(ledger, "oslo", release=(1, 36))).decisions)
    assert before["astray"].our_score != since["astray"].our_score


@pytest.mark.parametrize(
    ("text", "release"),
    [("v1.36.3", (1, 36)), ("1.9", (1, 9)), ("v1.x", None), ("", None), ("v0.0.0-master", None)],
)
def test_a_release_is_read_of_a_version(text: str, release: tuple[int, int] | None) -> None:
    assert release_of(text) == release


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.links: list[str] = []
        self._in = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag == "td"
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        if self._in and data.strip():
            self.cells.append(data.strip())


async def test_the_page_says_the_same_and_links_to_nothing(ledger: Ledger) -> None:
    report = await shadow(ledger, "oslo")
    page = Cells()
    page.feed(shadow_html(report, "wharfinger shadow <oslo>"))
    assert {"shop/astray", "shop/forced", "shop/stuck", "NodeResourcesFit"} <= set(page.cells)
    assert any("untolerated taint" in cell for cell in page.cells)
    assert page.links == []
    assert "&lt;oslo&gt;" in shadow_html(report, "wharfinger shadow <oslo>")


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
def test_the_command_ends_with_1_where_a_node_is_refused(
    past: tuple[str, dict[str, int]], tmp_path: Path
) -> None:
    done = wharfinger(tmp_path, past[0], "shadow", "oslo", "-o", "json")
    assert done.returncode == 1
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["counts"] == {
        "agreed": 1,
        "equal": 0,
        "better": 1,
        "worse": 0,
        "refused": 1,
        "unplaced": 1,
    }
    table = wharfinger(tmp_path, past[0], "shadow", "oslo", "--report", "shadow.html")
    assert table.returncode == 1
    assert "TaintToleration" in table.stdout
    assert "shop/forced" in (tmp_path / "shadow.html").read_text()


@pytest.mark.long
def test_the_command_ends_with_0_where_none_is_and_with_1_where_there_is_no_such_cluster(
    past: tuple[str, dict[str, int]], tmp_path: Path
) -> None:
    clean = wharfinger(tmp_path, past[0], "shadow", "oslo", "--scheduler", "wharfinger")
    assert clean.returncode == 0, clean.stderr
    absent = wharfinger(tmp_path, past[0], "shadow", "nowhere")
    assert (absent.returncode, len(absent.stderr.splitlines())) == (1, 1)
    wrong = wharfinger(tmp_path, past[0], "shadow", "oslo", "--release", "newest")
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)
