"""`get placements`, `placementdecisions`, `resourcebindings`: decisions as objects of OCM and
Karmada; and `nodeannotations`: measured load, as crane's annotator writes it.

With -o yaml or json they are printed as `kubectl get` prints them: a List, or the object itself if
one is named. So they can be piped into any program that takes such objects, and into
`wharfinger apply`."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from wharfinger.domain.text import some
from wharfinger.events import rendering
from wharfinger.events.decisions import SATISFIED
from wharfinger.events.rendering import PLACEMENT_LABEL, Rendered
from wharfinger.history.object_kinds import BINDINGS, DECISIONS, KINDS, LOADS, PLACEMENTS
from wharfinger.history.objects import ObjectFilter, as_list, full_name, rendered
from wharfinger.history.outcomes import WAITING
from wharfinger.history.points import HistoryPoint, point_of
from wharfinger.manifests.cluster_fact import CLUSTER
from wharfinger.runtime.ledger import wall_clock
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.failures import CommandError, NotFoundError
from wharfinger_cli.output import DARK, GOOD, WARN, new_table, show
from wharfinger_cli.request import Request

__all__ = ["KINDS", "get"]


def get(
    request: Request,
    what: str,
    name: str | None,
    at: str,
    namespace: str = "",
    placement: str = "",
    cluster: str = "",
) -> None:
    """`name`: of an object, with or without `<namespace>/` before it. `placement`: decisions of
    this one only; `cluster`: its nodes only."""
    if placement and what != DECISIONS:
        raise CommandError(f"--placement: expected only with {DECISIONS}, got {what}")
    if cluster and what != LOADS:
        raise CommandError(f"--cluster: expected only with {LOADS}, got {what}")
    if namespace and what == LOADS:
        raise CommandError("--namespace: nodes have none")
    run(
        _get(
            request,
            what,
            point_of(at, wall_clock()) if at else None,
            ObjectFilter(name or "", namespace, placement, cluster),
        )
    )


async def _get(
    request: Request, what: str, point: HistoryPoint | None, wanted: ObjectFilter
) -> None:
    async with opened_ledger(reached(request)) as ledger:
        found = await rendered(ledger, what, wanted, point)
    if wanted.name and not found:
        raise NotFoundError(
            f"no {what.removesuffix('s')} is named "
            f"{wanted.name}{'' if point is None else f' at {point.text}'}"
        )
    names = [full_name(o) for o in found]
    whole = found[0] if wanted.name and len(found) == 1 else as_list(found)
    show(request.format, whole, names, lambda: [_TABLES[what](found)])


# --- tables


def _placements(found: list[Rendered]) -> Table:
    out = new_table(
        "placement",
        "namespace",
        "clusters",
        "groups",
        "generation",
        "satisfied",
        "why",
        right=("clusters", "groups", "generation"),
    )
    for one in found:
        status = one.get("status") or {}
        told: Rendered = next(
            (c for c in status.get("conditions", []) if c["type"] == SATISFIED), {}
        )
        said = (
            (one["metadata"].get("annotations") or {}).get(rendering.GENERATION, "")
            if status
            else ""
        )
        satisfied = told.get("status", "")
        out.add_row(
            one["metadata"]["name"],
            one["metadata"]["namespace"],
            str(status.get("numberOfSelectedClusters", "")),
            str(len(status.get("decisionGroups", [])) or ""),
            said,
            Text(satisfied, GOOD if satisfied == "True" else WARN),
            Text(told.get("message", WAITING), DARK),
        )
    return out


def _decisions(found: list[Rendered]) -> Table:
    out = new_table(
        "decision",
        "namespace",
        "placement",
        "group",
        "generation",
        "slices",
        "clusters",
        right=("generation", "slices"),
    )
    for one in found:
        labels, said = one["metadata"]["labels"], one["metadata"]["annotations"]
        group = (
            f"{labels[rendering.GROUP_INDEX_LABEL]} {labels[rendering.GROUP_NAME_LABEL]}".rstrip()
        )
        clusters = [decision["clusterName"] for decision in one["status"]["decisions"]]
        out.add_row(
            one["metadata"]["name"],
            one["metadata"]["namespace"],
            labels[PLACEMENT_LABEL],
            group,
            said[rendering.GENERATION],
            said[rendering.SLICES],
            some(clusters),
        )
    return out


def _bindings(found: list[Rendered]) -> Table:
    out = new_table(
        "binding", "namespace", "kind", "replicas", "clusters", "scheduled", right=("replicas",)
    )
    for one in found:
        spec = one["spec"]
        condition = next(
            iter((one.get("status") or {}).get("conditions", [])), {"status": WAITING, "reason": ""}
        )
        scheduled = condition["status"] == "True"
        out.add_row(
            one["metadata"]["name"],
            one["metadata"].get("namespace", ""),
            spec["resource"]["kind"],
            str(spec.get("replicas", "")),
            some(f"{c['name']} {c.get('replicas', '')}".rstrip() for c in spec.get("clusters", [])),
            Text(
                "True" if scheduled else f"{condition['status']} {condition['reason']}".rstrip(),
                GOOD if scheduled else WARN,
            ),
        )
    return out


def _loads(found: list[Rendered]) -> Table:
    out = new_table("node", "cluster", "annotation", "value")
    for one in found:
        said = dict(one["metadata"]["annotations"])
        cluster = said.pop(CLUSTER)
        for key, value in said.items():
            out.add_row(one["metadata"]["name"], cluster, key, value)
    return out


_TABLES: dict[str, Callable[[list[Rendered]], Table]] = {
    PLACEMENTS: _placements,
    DECISIONS: _decisions,
    BINDINGS: _bindings,
    LOADS: _loads,
}
