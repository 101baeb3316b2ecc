"""Work of fixed size, in processor time: what `benchmarks.compare` runs of each version.

Nothing here waits for a clock, a disk or another process, so that a busy machine changes the
figures little. `live` is the exception: the openb trace through a plane, of which the processor
time of each part is taken.

`python -m benchmarks.work [--live]` prints one JSON object: name -> microseconds a unit.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable
from functools import partial

import msgspec

from benchmarks import fleet
from benchmarks.openb import data_directory, openb
from benchmarks.plane import a_plane
from benchmarks.processor import processor_seconds
from wharfinger.domain.node import Node
from wharfinger.domain.placement import Placement
from wharfinger.domain.pod_traits import PodTraits, TopologySpread
from wharfinger.domain.selectors import LabelSelector
from wharfinger.domain.taints import Toleration
from wharfinger.domain.value import Value
from wharfinger.domain.workload import Requirements
from wharfinger.events.assignments import Assigned, AssignmentsDecided
from wharfinger.events.cluster_state import NodesObserved
from wharfinger.events.clusters import ClusterObserved
from wharfinger.events.codec import made
from wharfinger.events.envelope import derived_id
from wharfinger.events.streams import cluster_stream, fleet_stream
from wharfinger.kernel.step import empty_head, step
from wharfinger.stages.cluster import ClusterDecider

AT_ONCE = 50
STANDING = 60
ZONE = "topology.kubernetes.io/zone"


def processor_us(work: Callable[[], object], units: int) -> float:
    """Processor time of this process for `work`, in microseconds a unit."""
    gc.collect()
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / 1000 / units


Meter = Callable[[Callable[[], object], int], float]
"""What some work costs a unit: the work, and its units."""


def few_clusters(requests: int = 1500, *, meter: Meter = processor_us) -> float:
    """Fleet decisions over eight clusters, in rounds of fifty, of one class: a decision."""
    here = fleet.Fleet(8, [fleet.CLASS.class_key])
    dynamic = fleet.strategies()["dynamic"]
    return meter(lambda: _in_rounds(here, requests, lambda i: (dynamic, fleet.CLASS)), requests)


def many_classes(requests: int = 1500, classes: int = 60, *, meter: Meter = processor_us) -> float:
    """As `few_clusters` with sixty classes, and a new count of one cluster every round: a
    decision."""
    kinds = [Requirements({"cpu": 100 + i, "memory": 2**20}) for i in range(classes)]
    here = fleet.Fleet(8, [kind.class_key for kind in kinds])
    dynamic = fleet.strategies()["dynamic"]

    def recount(round_: int) -> None:
        here.take([fleet.a_count(round_ % 8, here.classes, max(0, here.seq - 200), more=round_)])

    return meter(
        lambda: _in_rounds(here, requests, lambda i: (dynamic, kinds[i % classes]), recount),
        requests,
    )


def many_clusters(
    requests: int = 60, clusters: int = 1000, *, meter: Meter = processor_us
) -> float:
    """Fleet decisions over many clusters by dynamic weights: a decision."""
    here = fleet.Fleet(clusters, [fleet.CLASS.class_key])
    dynamic = fleet.strategies()["dynamic"]
    return meter(lambda: _in_rounds(here, requests, lambda i: (dynamic, fleet.CLASS)), requests)


def new_policies(clusters: int = 5000, requests: int = 20, *, meter: Meter = processor_us) -> float:
    """Fleet decisions, each the first one by its policy: a decision."""
    here = fleet.Fleet(clusters, [fleet.CLASS.class_key])
    dynamic = fleet.strategies()["dynamic"]
    here.take([fleet.a_request("policies/first", dynamic)])

    def policy(i: int) -> Placement:
        more = (*dynamic.tolerations, Toleration(f"own-{i}", "Exists"))
        return msgspec.structs.replace(dynamic, tolerations=more)

    return meter(
        lambda: [
            here.take([fleet.a_request(f"policies/b{i}", policy(i))]) for i in range(requests)
        ],
        requests,
    )


def a_label_of_one_cluster(
    clusters: int = 5000, changes: int = 6, *, meter: Meter = processor_us
) -> float:
    """A cluster's new label while sixty Duplicated bindings are in 5,000 clusters each: a label."""
    small = Requirements({"cpu": 1, "memory": 2**10})
    here = fleet.Fleet(clusters, [])
    duplicated = fleet.strategies()["Duplicated"]
    _in_rounds(here, STANDING, lambda i: (duplicated, small), replicas=1)
    return meter(
        lambda: [
            here.take([ClusterObserved(fleet.a_cluster(37 * i, f"-{i}"))]) for i in range(changes)
        ],
        changes,
    )


def duplicated_everywhere(
    clusters: int = 5000, requests: int = 12, *, meter: Meter = processor_us
) -> float:
    """A Duplicated binding over 5,000 clusters: a whole decision."""
    small = Requirements({"cpu": 1, "memory": 2**10})
    here = fleet.Fleet(clusters, [])
    duplicated = fleet.strategies()["Duplicated"]
    _in_rounds(here, 1, lambda i: (duplicated, small), replicas=1, name="first")
    return meter(
        lambda: [
            here.take([fleet.a_request(f"every/b{i}", duplicated, 1, small)])
            for i in range(requests)
        ],
        requests,
    )


def nodes_of_a_cluster(
    requests: int = 1500,
    nodes: int = 300,
    *,
    at_once: int = AT_ONCE,
    replicas: int = 2,
    meter: Meter = processor_us,
) -> float:
    """Node decisions of one cluster, in rounds of `at_once` assignments of eight classes, one of
    which spreads over zones: a decision."""
    decider, stream = ClusterDecider(), cluster_stream("member")
    state, head = decider.initial(stream), empty_head(stream)
    kinds = [_pod(i) for i in range(8)]
    at = 1_700_000_000_000_000
    told = 0

    def take(fact: Value) -> None:
        nonlocal head, at, told
        at, told = at + 1_000, told + 1
        id = derived_id("benchmarks/nodes", told)
        event = made(fact, id=id, source="/benchmarks/nodes", subject="member")
        head = step(decider, state, head, [event], at, {}).head()

    def assign() -> None:
        for start in range(0, requests, at_once):
            items = tuple(
                Assigned(
                    i + 1,
                    f"fleet/0:{i + 1}",
                    f"work/b{i:05d}",
                    f"uid-{i}",
                    replicas,
                    kinds[i % len(kinds)],
                )
                for i in range(start, min(requests, start + at_once))
            )
            take(AssignmentsDecided("member", fleet_stream(0), items[-1].seq, items))

    take(NodesObserved("member", 0, 1, tuple(_node(i) for i in range(nodes))))
    return meter(assign, requests)


def _node(i: int) -> Node:
    labels = {"kubernetes.io/hostname": f"n{i:04d}", ZONE: f"zone-{i % 3}"}
    return Node(f"n{i:04d}", {"cpu": 64_000, "memory": 2**38, "pods": 250}, labels=labels)


def _pod(i: int) -> Requirements:
    labels = {"app": f"work-{i}"}
    spread = (TopologySpread(ZONE, 1, selector=LabelSelector(labels)),) if i == 0 else ()
    pod = PodTraits(labels=labels, spread=spread)
    return Requirements({"cpu": 100 + i, "memory": 2**26}, pod=pod)


def live() -> dict[str, float]:
    """The openb trace through a plane: processor time of each part, a decision."""
    data = data_directory()
    if data is None:
        raise SystemExit("the openb trace is not here: set WHARFINGER_DATA")
    with a_plane() as plane:
        plane.up("--processes", "one")
        before = processor_seconds(plane)
        run = asyncio.run(openb(plane, data, timeout_s=900.0))
        used: dict[str, float] = {}
        for (part, pid), seconds in processor_seconds(plane).items():
            used[part] = used.get(part, 0.0) + seconds - before.get((part, pid), 0.0)
    return {f"openb, {part}": 1e6 * s / run.decisions for part, s in sorted(used.items())}


def _in_rounds(
    here: fleet.Fleet,
    requests: int,
    of: Callable[[int], tuple[Placement, Requirements]],
    between: Callable[[int], object] = lambda round_: None,
    *,
    replicas: int = 3,
    name: str = "work",
) -> None:
    for start in range(0, requests, AT_ONCE):
        batch = []
        for i in range(start, min(requests, start + AT_ONCE)):
            placement, asks = of(i)
            batch.append(fleet.a_request(f"{name}/b{i:05d}", placement, replicas, asks))
        here.take(batch)
        between(start // AT_ONCE)


WORK: dict[str, Callable[[], float]] = {
    "fleet decision, 8 clusters": few_clusters,
    "fleet decision, 8 clusters, 60 classes": many_classes,
    "fleet decision, 1,000 clusters": many_clusters,
    "a label, 5,000 clusters, 60 Duplicated bindings": a_label_of_one_cluster,
    "Duplicated over 5,000 clusters": duplicated_everywhere,
    "first decision by a policy, 5,000 clusters": new_policies,
    "node decision, 300 nodes, 8 classes": nodes_of_a_cluster,
    "node decision by itself, 300 nodes, 8 classes": partial(
        nodes_of_a_cluster, at_once=1, replicas=1
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.work", description=__doc__)
    parser.add_argument("--live", action="store_true", help="the openb trace through a plane too")
    options = parser.parse_args()
    found = {name: work() for name, work in WORK.items()}
    if options.live:
        found |= live()
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
