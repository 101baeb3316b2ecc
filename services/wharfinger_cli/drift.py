"""`drift`: where a joined cluster is not as it was decided because somebody else has changed it.

Nothing of it is undone: a pod that others have bound stays where it is, and a node that others have
uncordoned is not cordoned a second time. A node that a plane with another ledger has cordoned under
the same name of the cluster is shown, and left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table

from wharfinger.domain.actuation import CLOSED_BY
from wharfinger.runtime.actuation import known_work
from wharfinger.runtime.kube.joined import joined_clusters
from wharfinger.runtime.ledger import wall_clock
from wharfinger.runtime.settings import load_settings
from wharfinger.stages.actuator.plan import closed_by_another_ledger, misplaced, reopened_by_hand
from wharfinger.stages.actuator.state import ClusterWork
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import DIFFERENCE, NotFoundError
from wharfinger_cli.output import Plain, new_table, show_list
from wharfinger_cli.request import Request


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
    names = [name for name, one in joined.items() if cluster in (None, name) and not one.hub]
    found = run(_found(request, names))

    def table() -> Table:
        out = new_table("cluster", "object", "decided", "observed", "decision")
        for one in found:
            out.add_row(one.cluster, one.object, one.decided, one.observed, one.decision)
        return out

    plain = [one.plain for one in found]
    show_list(request.format, plain, [one.object for one in found], table, "no drift")
    if found:
        raise SystemExit(DIFFERENCE)


async def _found(request: Request, clusters: list[str]) -> list[_Drift]:
    async with opened_ledger(reached(request)) as ledger:
        state = await known_work(ledger, clusters, wall_clock())
    return [one for name in clusters for one in _of(state[name])]


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
