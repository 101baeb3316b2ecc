"""`drift`: where a joined cluster is not as it was decided because somebody else has changed it.

Nothing of it is undone: a pod that others have bound stays where it is, and a node that others have
uncordoned is not cordoned a second time. A node that a plane with another ledger has cordoned under
the same name of the cluster is shown, and left. Copies are compared on the servers of hub and
member, where the cluster has the verb `copy`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from wharfinger.domain.actuation import CLOSED_BY
from wharfinger.runtime.actuation import known_work
from wharfinger.runtime.kube.joined import JoinedCluster, joined_clusters
from wharfinger.runtime.ledger import wall_clock
from wharfinger.runtime.settings import load_settings
from wharfinger.stages.actuator.plan import closed_by_another_ledger, misplaced, reopened_by_hand
from wharfinger.stages.actuator.state import ClusterWork
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import DIFFERENCE, NotFoundError
from wharfinger_cli.output import Plain, new_table, show_list
from wharfinger_cli.request import Request

if TYPE_CHECKING:
    from wharfinger_cli.copies_read import CopiesRead


@dataclass(frozen=True, slots=True)
class _Drift:
    cluster: str
    object: str
    decided: str
    observed: str
    decision: str

    @property
    def plain(self) -> Plain:
        return {
            "cluster": self.cluster,
            "object": self.object,
            "decided": self.decided,
            "observed": self.observed,
            "decision": self.decision,
        }


def show_drift(request: Request, cluster: str | None) -> None:
    """Ends with 1 where there is any."""
    joined = joined_clusters(load_settings(request.flags).clusters_dir()).clusters
    if cluster is not None and cluster not in joined:
        raise NotFoundError(
            f"{cluster}: no such cluster is joined; joined: {', '.join(joined) or 'none'}"
        )
    members = [one for name, one in joined.items() if cluster in (None, name) and not one.hub]
    found = run(_found(request, joined, members))

    def table() -> Table:
        out = new_table("cluster", "object", "decided", "observed", "decision")
        for one in found:
            out.add_row(one.cluster, one.object, one.decided, one.observed, one.decision)
        return out

    plain = [one.plain for one in found]
    show_list(request.format, plain, [one.object for one in found], table, "no drift")
    if found:
        raise SystemExit(DIFFERENCE)


async def _found(
    request: Request, joined: Mapping[str, JoinedCluster], members: list[JoinedCluster]
) -> list[_Drift]:
    async with opened_ledger(reached(request)) as ledger:
        state = await known_work(ledger, [one.name for one in members], wall_clock())
        found = [drift for one in members for drift in _of(state[one.name])]
        if any("copy" in one.verbs_in_force for one in members):
            from wharfinger_cli.copies_read import read_copies

            for copies in await read_copies(ledger, joined, members):
                found += _of_copies(copies)
    return found


def _of_copies(copies: CopiesRead) -> Iterator[_Drift]:
    # Few clusters have copies.
    from wharfinger.stages.actuator.copy_drift import copy_drift

    if copies.decided is None:
        yield _Drift(copies.member, "copies", "", f"not known: {copies.why}", "")
        return
    for one in copy_drift(copies.decided, copies.there, copies.hub):
        named = str(one.object)
        if not one.field:
            yield _Drift(copies.member, named, f"a copy from {copies.hub}", "of others", "")
            continue
        by = f" by {', '.join(one.managers)}" if one.managers else ""
        decided = f"{one.field} {one.decided}".strip()
        yield _Drift(copies.member, named, decided, (one.observed or "changed") + by, "")


def _of(work: ClusterWork) -> Iterator[_Drift]:
    for node in reopened_by_hand(work):
        cause = str(work.closed[node])
        yield _Drift(work.name, f"Node {node}", "cordoned", "schedulable", cause)
    for other in closed_by_another_ledger(work):
        said = other.annotations.get(CLOSED_BY, "")
        observed = "cordoned" if other.unschedulable else "annotated"
        yield _Drift(work.name, f"Node {other.name}", "nothing by this ledger", observed, said)
    for pod, placed in misplaced(work):
        named = f"Pod {pod.requirements.traits.namespace}/{pod.name}"
        yield _Drift(work.name, named, placed.node, pod.node, str(placed.cause))
