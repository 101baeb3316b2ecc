"""`docs/checklists/add-rule.md`, followed on a copy: with one file and one line, all that tells why
knows the new filter."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import wharfinger

LIBRARY = Path(wharfinger.__file__).parent
ROOT = Path(__file__).parents[2]

RULE = '''
"""A cluster that reports that it is not ready gets nothing new."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.rules.changes import Change
from wharfinger.rules.clusters.rule import ClusterQuery, Condition, PropertyCondition, Undone


class NotReadyFilter:
    reason = FleetReason("ClusterNotReady")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        return existing or cluster.conditions.get("Ready") != "False"

    def conditions(self, query: ClusterQuery) -> tuple[Condition, ...] | None:
        return (
            PropertyCondition(
                ("condition", "Ready"),
                lambda cluster: cluster.conditions.get("Ready"),
                lambda status: status != "False",
            ),
        )

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        return "cluster(s) reported not to be ready"

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        conditions = {**cluster.conditions, "Ready": "True"}
        ready = msgspec.structs.replace(cluster, conditions=conditions)
        yield Change("state", cluster.name, "being ready"), query, ready
'''

STORY = """
from tests.scenarios.fleet_plane import FleetPlane, a_binding, room
from wharfinger.domain.cluster import Cluster
from wharfinger.events.clusters import ClusterObserved
from wharfinger.history.renaming import WORDS
from wharfinger.rules.changes import said
from wharfinger.stages.fleet.solve import question_of
from wharfinger.stages.fleet.trace import trace

plane = FleetPlane()
oslo = Cluster("oslo", conditions={"Ready": "False"})
plane.given(ClusterObserved(oslo), ClusterObserved(Cluster("bergen")))
plane.given(room("oslo", 9), room("bergen", 2))
plane.when(a_binding("web", 2))
plane.then_scheduled("web", bergen=2)
plane.when(a_binding("more", 5))
plane.then_refused("more", "Unschedulable")
record = plane.state.bindings["more"]
traced = trace(plane.state, record, question_of(plane.state, record, {}))
oslo = next(c for c in traced.term.clusters if c.name == "oslo")
plane.check()
print(oslo.refused, [said(way) for way in oslo.ways], "ClusterNotReady" in WORDS)
"""


def test_a_filter_is_one_file_and_one_line(tmp_path: Path) -> None:
    copy = tmp_path / "wharfinger"
    shutil.copytree(LIBRARY, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "rules/clusters/not_ready.py").write_text(RULE.lstrip())
    filters = copy / "rules/clusters/filters.py"
    text = filters.read_text()
    text = re.sub(
        r"\n(FILTERS:)",
        "\nfrom wharfinger.rules.clusters.not_ready import NotReadyFilter\n\n\\1",
        text,
        count=1,
    )
    text = text.replace(
        "    AffinityFilter(),",
        "    NotReadyFilter(),  # it says itself that it takes nothing\n    AffinityFilter(),",
    )
    filters.write_text(text)
    paths = os.pathsep.join((str(tmp_path), str(ROOT)))
    told = subprocess.run(
        [sys.executable, "-c", STORY],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip() == "('ClusterNotReady',) ['being ready'] True"
