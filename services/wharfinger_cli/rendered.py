"""`get placements`, `placementdecisions`, `resourcebindings`: what was decided, as objects of the systems they are of.

With -o yaml or json they come as `kubectl get` gives them: a List, or the object itself where one is named. So they can be piped
into whatever takes such objects, and into `wharfinger apply`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from rich.table import Table
from rich.text import Text

from wharfinger.domain.policy import Policy
from wharfinger.events import rendering
from wharfinger.events.decisions import BindingReleased, ScheduleDecided, ScheduleRefused
from wharfinger.events.placements import SATISFIED
from wharfinger.events.registry import LATEST
from wharfinger.events.rendering import PLACEMENT_LABEL, Rendered, Scheduled, placement_decisions, resource_binding
from wharfinger.events.streams import FLEET
from wharfinger.history.picture import REFUSED, WAITING, BindingAt, picture_at
from wharfinger.history.points import Point, point_of
from wharfinger.history.selections import placements_at, selections_at
from wharfinger.runtime.ledger import Ledger, LedgerRow, trails, wall_clock
from wharfinger_cli.app import Request
from wharfinger_cli.connection import opened_ledger, run, settings_of
from wharfinger_cli.facts import known_facts
from wharfinger_cli.failures import CommandError, NotFoundError
from wharfinger_cli.output import DARK, GOOD, WARN, new_table, show
from wharfinger_cli.summary import some

PLACEMENTS, DECISIONS, BINDINGS = "placements", "placementdecisions", "resourcebindings"
KINDS = (PLACEMENTS, DECISIONS, BINDINGS)

_SETTLING = tuple(LATEST[t].type for t in (ScheduleDecided, ScheduleRefused, BindingReleased))


def get(request: Request, what: str, name: str | None, at: str, namespace: str = "", placement: str = "") -> None:
    """`name`: of an object, with or without `<namespace>/` before it. `placement`: decisions of this one only."""
    if placement and what != DECISIONS:
        raise CommandError(f"--placement: expected only with {DECISIONS}, got {what}")
    run(_get(request, what, name, point_of(at, wall_clock()) if at else None, namespace, placement))


async def _get(
    request: Request, what: str, name: str | None, point: Point | None, namespace: str, placement: str
) -> None:
    async with opened_ledger(settings_of(request)) as ledger:
        every = await rendered(ledger, what, point)
    found = [o for o in every if _is_asked_for(o, name, namespace, placement)]
    if name is not None and not found:
        raise NotFoundError(
            f"no {what.removesuffix('s')} is named {name}{'' if point is None else f' at {point.text}'}"
        )
    names = [_full_name(o) for o in found]
    whole = found[0] if name is not None and len(found) == 1 else as_list(found)
    show(request.format, whole, names, lambda: [_TABLES[what](found)])


async def rendered(ledger: Ledger, what: str, point: Point | None = None) -> list[Rendered]:
    """All objects of a kind, in order of name. `point` None: now."""
    if what == BINDINGS:
        return await (_bindings_now(ledger) if point is None else _bindings_then(ledger, point))
    placements = await placements_at(ledger, point)
    selections = await selections_at(ledger, placements, point)
    if what == DECISIONS:
        return [decision for selection in selections.values() for decision in placement_decisions(selection)]
    return [rendering.placement(_manifest(policy), selections.get(key)) for key, policy in placements.items()]


def _manifest(policy: Policy) -> Rendered:
    """As the user wrote it; of one that came without, what is known of its name."""
    if policy.manifest:
        found: Rendered = msgspec.json.decode(policy.manifest)
        metadata = {**found.get("metadata", {}), "namespace": policy.namespace}
        return {**found, "metadata": metadata}
    metadata = {"name": policy.name, "namespace": policy.namespace}
    return {"apiVersion": rendering.DECISION_VERSION, "kind": policy.kind, "metadata": metadata}


async def _bindings_now(ledger: Ledger) -> list[Rendered]:
    bindings = (await known_facts(ledger)).bindings
    decided = await trails.latest_of(ledger.database, [b.name for b in bindings], _SETTLING, FLEET)
    return [resource_binding(b, _scheduled(decided.get(b.name))) for b in bindings]


def _scheduled(row: LedgerRow | None) -> Scheduled | None:
    data = None if row is None else row.data()
    if row is None or not isinstance(data, ScheduleDecided | ScheduleRefused):
        return None
    refused = data.reason if isinstance(data, ScheduleRefused) else ""
    return Scheduled(data.targets, refused, data.explanation.note, data.affinity, rendering.when(row.at))


async def _bindings_then(ledger: Ledger, point: Point) -> list[Rendered]:
    """As the fleet stage held them. When that was decided is in `history`."""
    bindings = (await picture_at(ledger, point, FLEET)).bindings.values()
    return [resource_binding(b.spec, _held(b)) for b in bindings]


def _held(binding: BindingAt) -> Scheduled | None:
    if binding.outcome == WAITING:
        return None
    return Scheduled(binding.target_clusters, binding.reason if binding.outcome == REFUSED else "")


def as_list(objects: list[Rendered]) -> Rendered:
    """As `kubectl get` puts several objects together."""
    return {"apiVersion": "v1", "kind": "List", "items": objects}


def _is_asked_for(found: Rendered, name: str | None, namespace: str, placement: str) -> bool:
    metadata = found["metadata"]
    own = metadata.get("namespace", "")
    return (
        (name is None or name in (metadata["name"], _full_name(found)))
        and (not namespace or namespace == own)
        and (not placement or placement in (of := metadata["labels"][PLACEMENT_LABEL], f"{own}/{of}"))
    )


def _full_name(found: Rendered) -> str:
    metadata = found["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}".removeprefix("/")


# --- tables


def _placements(found: list[Rendered]) -> Table:
    out = new_table("placement", "namespace", "clusters", "groups", "generation", "satisfied", "why",
                    right=("clusters", "groups", "generation"))  # fmt: skip
    for one in found:
        status = one.get("status") or {}
        told: Rendered = next((c for c in status.get("conditions", []) if c["type"] == SATISFIED), {})
        said = (one["metadata"].get("annotations") or {}).get(rendering.GENERATION, "") if status else ""
        satisfied = told.get("status", "")
        out.add_row(
            one["metadata"]["name"], one["metadata"]["namespace"], str(status.get("numberOfSelectedClusters", "")),
            str(len(status.get("decisionGroups", [])) or ""), said,
            Text(satisfied, GOOD if satisfied == "True" else WARN), Text(told.get("message", WAITING), DARK),
        )  # fmt: skip
    return out


def _decisions(found: list[Rendered]) -> Table:
    out = new_table("decision", "namespace", "placement", "group", "generation", "slices", "clusters",
                    right=("generation", "slices"))  # fmt: skip
    for one in found:
        labels, said = one["metadata"]["labels"], one["metadata"]["annotations"]
        group = f"{labels[rendering.GROUP_INDEX_LABEL]} {labels[rendering.GROUP_NAME_LABEL]}".rstrip()
        clusters = [decision["clusterName"] for decision in one["status"]["decisions"]]
        out.add_row(
            one["metadata"]["name"], one["metadata"]["namespace"], labels[PLACEMENT_LABEL], group,
            said[rendering.GENERATION], said[rendering.SLICES], some(clusters),
        )  # fmt: skip
    return out


def _bindings(found: list[Rendered]) -> Table:
    out = new_table("binding", "namespace", "kind", "replicas", "clusters", "scheduled", right=("replicas",))
    for one in found:
        spec = one["spec"]
        condition = next(iter((one.get("status") or {}).get("conditions", [])), {"status": WAITING, "reason": ""})
        scheduled = condition["status"] == "True"
        out.add_row(
            one["metadata"]["name"], one["metadata"].get("namespace", ""), spec["resource"]["kind"],
            str(spec.get("replicas", "")),
            some(f"{c['name']} {c.get('replicas', '')}".rstrip() for c in spec.get("clusters", [])),
            Text("True" if scheduled else f"{condition['status']} {condition['reason']}".rstrip(), GOOD if scheduled else WARN),
        )  # fmt: skip
    return out


_TABLES: dict[str, Callable[[list[Rendered]], Table]] = {
    PLACEMENTS: _placements,
    DECISIONS: _decisions,
    BINDINGS: _bindings,
}
