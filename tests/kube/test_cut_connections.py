"""Connections of the collector are cut at random times beside changes in the cluster, for
`WHARFINGER_TEST_CUTS_S` seconds. It is never waited for in between: the next cut comes while the
collector still lists or resumes. At the end the facts are what `kubectl get` says, and no fact was
smaller than what was there all the time."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.kube.altering import Altering
from tests.kube.breaking import Breaking
from tests.kube.collecting import Known, assert_never_fewer, collecting, nodes_of, pod
from tests.kube.member import Member, namespace
from tests.kube.test_broken_watches import ROLE, rights
from tests.kube.test_collector import NODES, agrees, changed, filled, objects, objects_agree
from tests.patience import eventually

from wharfinger.runtime.backends import Backend
from wharfinger.runtime.ledger import Ledger

CUTS_S = float(os.environ.get("WHARFINGER_TEST_CUTS_S", "15"))
SEED = int(os.environ.get("WHARFINGER_TEST_SEED", "53"))
PAUSE_S_MAX = 3.0
"""Between two cuts; half of them come within a quarter of it."""
AWAY_S_MAX = 2.0
HOME, BESIDE = "cuts", "beside-cuts"
STAYS = tuple(f"stays-{i}" for i in range(20))


async def cut_at_random(door: Breaking, chance: Random, end: float) -> Counter[str]:
    done: Counter[str] = Counter()
    while time.monotonic() < end:
        await asyncio.sleep(PAUSE_S_MAX * chance.random() ** 2)
        match how := chance.choice(("cut", "cut", "away", "silent")):
            case "cut":
                door.cut()
            case "away":
                door.close()
                await asyncio.sleep(chance.uniform(0.0, AWAY_S_MAX))
                door.open()
            case _:  # what is under way arrives late, then the connections end
                door.hold()
                await asyncio.sleep(chance.uniform(0.0, AWAY_S_MAX))
                door.pass_on()
                door.cut()
        done[how] += 1
    return done


async def changes_until(member: Member, chance: Random, end: float) -> int:
    done = 0
    while time.monotonic() < end:
        await asyncio.to_thread(changed, member, HOME, chance, 1)
        done += 1
    return done


@pytest.fixture
def allowed(member: Member) -> Iterator[None]:
    """The user `collector` may read everything, and nothing any more afterwards: tests of rights
    use the same cluster."""
    member.apply(*rights())
    yield
    member.kubectl("delete", "clusterrole,clusterrolebinding", ROLE)


@pytest.mark.usefixtures("allowed")
async def test_facts_are_right_after_connections_were_cut_at_random(
    member: Member, backend: Backend, ledger: Ledger, topic_prefix: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(filled, member, HOME)
    stay = (pod(HOME, name, f"{HOME}-n{i}") for i, name in enumerate(STAYS))
    # Not in the same namespace: the quota would refuse the new pods.
    await asyncio.to_thread(member.apply, namespace(BESIDE), *objects(BESIDE))
    await asyncio.to_thread(member.apply, *stay)
    nodes = set(nodes_of(member))
    async with (
        Altering(member, "collector") as proxy,
        Breaking(member, access=proxy.access) as door,
        collecting(
            backend, ledger, topic_prefix, tmp_path, member, access=door.access, lease_s=2
        ) as collector,
    ):
        known = Known(ledger, member.name)
        await eventually(lambda: agrees(known, member))
        await eventually(lambda: objects_agree(collector, member))
        before, began = Counter(proxy.lists), time.monotonic()
        end = began + CUTS_S
        cuts, changes = await asyncio.gather(
            cut_at_random(door, Random(f"{SEED}/cuts"), end),
            changes_until(member, Random(f"{SEED}/changes"), end),
        )
        ended = time.monotonic()
        await eventually(lambda: agrees(known, member))
        await eventually(lambda: objects_agree(collector, member))
        settled_s = time.monotonic() - ended
        assert sorted(await known.pods_in_facts()) == sorted((await known.pods()).keys())
        lists = {path: count - before[path] for path, count in proxy.lists.items()}
        # A watch that was cut goes on from its version: nothing was compacted.
        assert not any(lists.values()), lists
    await assert_never_fewer(ledger, nodes, set(STAYS))
    print(
        f"{cuts.total()} cuts in {ended - began:.0f} s by seed {SEED}: {dict(cuts)}; {changes:,} "
        f"changes of {NODES} nodes and their pods; right {settled_s:.1f} s after the last cut"
    )
    member.kubectl("delete", "namespace", HOME, BESIDE, "--wait=false")
