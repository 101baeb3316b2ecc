"""The same inputs give the same bytes under any PYTHONHASHSEED: one long random history, decided in
two interpreters."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

from tests.scenarios.fleet_plane import (
    AGGREGATED,
    DUPLICATED,
    DYNAMIC,
    NO_EXECUTE,
    SMALL,
    FleetPlane,
    a_binding,
    a_cluster,
    eviction,
    failover,
    room,
    static,
)

from wharfinger.domain.workload import Requirements

ROOT = Path(__file__).parents[2]
CLUSTERS = ("bergen", "narvik", "oslo", "tromso")


def lived() -> str:
    """The hash of the last round of a history of a few hundred rounds."""
    chance = random.Random(5)
    plane = FleetPlane()
    plane.given(*(a_cluster(name, lease_s=600) for name in CLUSTERS))
    strategies = (AGGREGATED, DUPLICATED, DYNAMIC, static(oslo=2, bergen=1))
    classes = (SMALL, Requirements({"cpu": 500, "memory": 1 << 30}), Requirements())
    for _ in range(300):
        name, cluster = f"b{chance.randrange(40)}", chance.choice(CLUSTERS)
        match chance.randrange(12):
            case 0 | 1 | 2 | 3:
                how, kind = chance.choice(strategies), chance.choice(classes)
                plane.when(
                    a_binding(
                        name,
                        chance.randrange(6),
                        how,
                        requirements=kind,
                        priority=chance.randrange(3),
                    )
                )
            case 4 | 5 | 6:
                plane.when(
                    room(
                        cluster,
                        chance.randrange(20),
                        chance.choice(classes[:2]),
                        fleet=plane.head.seq,
                    )
                )
            case 7:
                taints = [NO_EXECUTE] if chance.random() < 0.3 else []
                plane.when(a_cluster(cluster, *taints, lease_s=chance.choice((1, 600))))
            case 8:
                plane.when(failover(name, cluster))
            case 9:
                plane.when(eviction(name, cluster))
            case 10:
                plane.wait(chance.random() * 3)
            case _:
                held = [
                    (b, c)
                    for b, r in sorted(plane.state.bindings.items())
                    for c in r.assigned_by
                    if r.targets.get(c)
                ]
                if held:
                    binding, where = chance.choice(held)
                    plane.when(
                        plane.refused(
                            where, binding, 1, plane.state.bindings[binding].spec.requirements
                        )
                    )
    plane.check()
    return f"{plane.head.seq} {plane.head.hash.hex()}"


def test_the_hash_seed_reaches_no_decision() -> None:
    told = []
    for seed in ("1", "77"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(["shared", "services", "."]),
        }
        code = "from tests.unit.test_fleet_hash_seed import lived; print(lived())"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stdout)
    assert told[0] == told[1]
    assert int(told[0].split()[0]) > 200
