"""`get nodepools`, `overlays`, `instance-types` and `nodeclaims`: which nodes may be created, from
which instance types, and which have been requested.

With -o yaml or json, pools, overlays and claims are printed as Karpenter's objects: a List, or the
one that is named. So the provider that creates nodes can take the claims as they are: the open
ones, and those that have become a node. A claim that failed is shown in the table only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
from rich.table import Table
from rich.text import Text

from wharfinger.domain.instance_types import Catalogue, InstanceType
from wharfinger.domain.node import Node
from wharfinger.domain.node_pool import (
    POOL_LABEL,
    NodeBudget,
    NodeOverlay,
    NodePoolPolicy,
    PoolRequirement,
)
from wharfinger.domain.policy import Policy
from wharfinger.domain.resources import quantity_of
from wharfinger.domain.text import dollars, some
from wharfinger.events.node_rendering import node_claim, node_overlay, node_pool
from wharfinger.events.rendering import Rendered
from wharfinger.events.streams import POLICIES
from wharfinger.history.node_claims import OPEN, REGISTERED, RequestedClaim, requested_claims
from wharfinger.history.objects import as_list
from wharfinger.history.points import HistoryPoint, moment_of, point_of
from wharfinger.runtime.ledger import Ledger, wall_clock
from wharfinger_cli.connection import opened_ledger, reached, run
from wharfinger_cli.facts import amount, cores, devices, known_facts, plain
from wharfinger_cli.failures import NotFoundError
from wharfinger_cli.output import (
    BAD,
    DARK,
    GOOD,
    WARN,
    Format,
    count,
    messages,
    new_table,
    show,
    show_list,
)
from wharfinger_cli.request import Request

POOLS, OVERLAYS, TYPES, CLAIMS = "nodepools", "overlays", "instance-types", "nodeclaims"
KINDS = (POOLS, OVERLAYS, TYPES, CLAIMS)


def get(request: Request, what: str, name: str | None, at: str = "") -> None:
    """`name`: only this one; a pool of one cluster may be named as `cluster/name`, of instance
    types a catalogue for all in it."""
    point = point_of(at, wall_clock()) if at else None
    run(_GETTERS[what](request, name or "", point))


# --- pools


@dataclass(frozen=True, slots=True)
class _PoolNodes:
    """`own`: the cluster it was read from. `types`: of its catalogue; None: that is not known.
    `nodes`: that are of it."""

    policy: Policy
    pool: NodePoolPolicy
    types: int | None
    nodes: int

    @property
    def own(self) -> str:
        return self.policy.namespace

    @property
    def name(self) -> str:
        return f"{self.own}/{self.pool.name}".removeprefix("/")


async def _get_pools(request: Request, name: str, point: HistoryPoint | None) -> None:
    async with opened_ledger(reached(request)) as ledger:
        policies = await _policies(ledger, point)
        nodes = await _nodes(ledger, point)
    sizes = {of: len(types) for of, types in catalogues(policies).items()}
    found = [
        _PoolNodes(
            policy,
            policy.node_pool,
            sizes.get(policy.node_pool.catalogue),
            _made(policy, policies, nodes),
        )
        for policy in policies
        if policy.node_pool is not None
        and name in ("", policy.name, f"{policy.namespace}/{policy.name}")
    ]
    objects = [_as_written(pool.policy) or node_pool(pool.pool, pool.own) for pool in found]
    _show(
        request,
        "node pool",
        name,
        point,
        objects,
        [pool.name for pool in found],
        lambda: _pool_table(found),
    )


def _made(policy: Policy, policies: Sequence[Policy], nodes: dict[str, list[Node]]) -> int:
    """A cluster that has a pool of this name of its own has no nodes of another."""
    assert policy.node_pool is not None, "asked of pools"
    own = {
        p.namespace
        for p in policies
        if p.node_pool is not None and p.name == policy.name and p.namespace
    }
    mine = {policy.namespace} if policy.namespace else nodes.keys() - own
    return sum(
        node.labels.get(POOL_LABEL) == policy.name
        for cluster in mine
        if policy.node_pool.is_of(cluster)
        for node in nodes.get(cluster, ())
    )


def _pool_table(found: Sequence[_PoolNodes]) -> Table:
    out = new_table(
        "pool",
        "clusters",
        "catalogue",
        "weight",
        "nodes",
        "limits",
        "consolidation",
        "budgets",
        "expires",
        right=("weight", "nodes"),
    )
    for shown in found:
        pool = shown.pool
        types = (
            Text("not known", BAD)
            if shown.types is None
            else Text(count(shown.types, "type"), DARK)
        )
        fixed = f" of {pool.replicas}" if pool.replicas is not None else ""
        out.add_row(
            shown.name,
            some(pool.clusters) or "all",
            Text(f"{pool.catalogue}: ").append_text(types),
            str(pool.weight or ""),
            f"{shown.nodes}{fixed}",
            _limits(pool),
            _consolidation(pool),
            "; ".join(_budget(b) for b in pool.budgets) or "none",
            _span(pool.expire_after_s) or "never",
        )
    return out


def _limits(pool: NodePoolPolicy) -> str:
    return ", ".join(
        f"{name} {quantity_of(name, limit)}" for name, limit in sorted(pool.limits.items())
    )


def _consolidation(pool: NodePoolPolicy) -> str:
    if pool.replicas is not None:
        return "static"
    after = "never" if pool.empty_after_s is None else f"after {_span(pool.empty_after_s)}"
    return f"{pool.consolidation} {after}"


def _budget(budget: NodeBudget) -> str:
    when = f" from '{budget.schedule}' for {_span(budget.duration_s)}" if budget.schedule else ""
    return f"{budget.nodes}{f' if {some(budget.reasons)}' if budget.reasons else ''}{when}"


def _span(seconds: int | None) -> str:
    """`720h`, `90m`, `30s`."""
    if seconds is None:
        return ""
    unit, size = next(
        (u, s)
        for u, s in (("h", 3600), ("m", 60), ("s", 1))
        if seconds % s == 0 and (seconds or s == 1)
    )
    return f"{seconds // size}{unit}"


# --- overlays


async def _get_overlays(request: Request, name: str, point: HistoryPoint | None) -> None:
    async with opened_ledger(reached(request)) as ledger:
        policies = await _policies(ledger, point)
    found = [
        (policy, policy.overlay)
        for policy in policies
        if policy.overlay is not None and name in ("", policy.name)
    ]
    objects = [_as_written(policy) or node_overlay(overlay) for policy, overlay in found]
    overlays = [overlay for _, overlay in found]
    _show(
        request,
        "overlay",
        name,
        point,
        objects,
        [o.name for o in overlays],
        lambda: _overlay_table(overlays),
    )


def _overlay_table(found: Sequence[NodeOverlay]) -> Table:
    out = new_table("overlay", "weight", "price", "capacity", "of types with", right=("weight",))
    for overlay in found:
        capacity = ", ".join(
            f"{name} {quantity_of(name, held)}" for name, held in sorted(overlay.capacity.items())
        )
        price = overlay.price_adjustment or (f"{overlay.price} $/h" if overlay.price else "")
        out.add_row(
            overlay.name, str(overlay.weight or ""), price, capacity, _asked(overlay.requirements)
        )
    return out


def _asked(requirements: Iterable[PoolRequirement]) -> str:
    return "; ".join(
        f"{r.key} {r.operator} {some(r.values)}".rstrip()
        + (f" (at least {r.min_values})" if r.min_values else "")
        for r in requirements
    )


# --- instance types


async def _get_types(request: Request, name: str, point: HistoryPoint | None) -> None:
    async with opened_ledger(reached(request)) as ledger:
        policies = await _policies(ledger, point)
    found = [
        (catalogue, kind)
        for catalogue, types in sorted(catalogues(policies).items())
        for kind in types
        if name in ("", catalogue, kind.name)
    ]
    if name and not found:
        raise NotFoundError(f"no instance type and no catalogue is named {name}{_then(point)}")
    for catalogue, (known, parts) in sorted(unfinished(policies).items()):
        messages().print(
            f"catalogue {catalogue}: {known} of {count(parts, 'part')} known; "
            "not used before all are",
            style=WARN,
        )
    items = [{"catalogue": catalogue, **plain(kind)} for catalogue, kind in found]
    show_list(
        request.format,
        items,
        [kind.name for _, kind in found],
        lambda: _type_table(found),
        f"no instance types{_then(point)}",
    )


def catalogues(policies: Iterable[Policy]) -> dict[str, list[InstanceType]]:
    """The whole ones by name, their types in order."""
    found = _parts(policies)
    return {
        name: [t for part in parts for t in part.types]
        for name, parts in found.items()
        if _whole(parts)
    }


def unfinished(policies: Iterable[Policy]) -> dict[str, tuple[int, int]]:
    """Of catalogues that are not whole: how many parts are known, and how many there are."""
    return {
        name: (len(parts), parts[-1].parts)
        for name, parts in _parts(policies).items()
        if not _whole(parts)
    }


def _parts(policies: Iterable[Policy]) -> dict[str, list[Catalogue]]:
    found: dict[str, list[Catalogue]] = {}
    for part in sorted(
        (p.catalogue for p in policies if p.catalogue is not None), key=lambda c: (c.name, c.part)
    ):
        found.setdefault(part.name, []).append(part)
    return found


def _whole(parts: Sequence[Catalogue]) -> bool:
    return [part.part for part in parts] == list(range(parts[-1].parts)) and len(
        {p.parts for p in parts}
    ) == 1


def _type_table(found: Sequence[tuple[str, InstanceType]]) -> Table:
    out = new_table(
        "instance type",
        "catalogue",
        "arch",
        "cpu",
        "memory",
        "gpus",
        "zones",
        "on-demand",
        "spot",
        right=("cpu", "memory", "on-demand", "spot"),
    )
    for catalogue, kind in found:
        room = kind.allocatable
        out.add_row(
            kind.name,
            catalogue,
            some(kind.labels.get("kubernetes.io/arch", ())),
            cores(room.get("cpu", 0)),
            amount(room.get("memory", 0)),
            devices(kind.devices),
            str(len({o.zone for o in kind.offerings})),
            _cheapest(kind, "on-demand"),
            _cheapest(kind, "spot"),
        )
    return out


def _cheapest(kind: InstanceType, way: str) -> str:
    prices = [
        offering.price
        for offering in kind.offerings
        if offering.capacity_type == way and offering.available
    ]
    return dollars(min(prices)) if prices else ""


# --- claims


async def _get_claims(request: Request, name: str, point: HistoryPoint | None) -> None:
    async with opened_ledger(reached(request)) as ledger:
        until = None if point is None else await moment_of(ledger, point)
        every = await requested_claims(ledger, until=until)
    found = [shown for shown in every if name in ("", shown.claim.claim)]
    if request.format is not Format.TABLE:
        found = [shown for shown in found if shown.state in (OPEN, REGISTERED)]
    objects = [node_claim(shown.claim, shown.ended) for shown in found]
    names = [shown.claim.claim for shown in found]
    _show(request, "node claim", name, point, objects, names, lambda: _claim_table(found))


def _claim_table(found: Sequence[RequestedClaim]) -> Table:
    out = new_table(
        "claim",
        "cluster",
        "pool",
        "replicas",
        "state",
        "node",
        "instance type",
        "zone",
        "bought as",
        "price",
        right=("replicas", "price"),
    )
    for shown in found:
        claim, ended = shown.claim, shown.ended
        came = ended if ended is not None and ended.outcome == REGISTERED else None
        types = claim.instance_types
        asked = f"{types[0]} or {len(types) - 1} more" if len(types) > 1 else some(types)
        style = WARN if ended is None else GOOD if came else BAD
        state = Text(shown.state, style)
        if ended is not None and not came and ended.reason:
            state.append(f": {ended.reason}", DARK)
        out.add_row(
            claim.claim,
            claim.cluster,
            claim.pool,
            str(sum(claim.replicas.values()) or ""),
            state,
            came.node if came else "",
            came.instance_type if came else Text(asked, DARK),
            came.zone if came else "",
            came.capacity_type if came else "",
            dollars(came.price if came and came.price else claim.price),
        )
    return out


# --- what they share


async def _policies(ledger: Ledger, point: HistoryPoint | None) -> list[Policy]:
    if point is None:
        return (await known_facts(ledger, POLICIES.name)).policies
    # the past needs the stages, the present does not
    from wharfinger.history.plane_at import policies_at

    return list((await policies_at(ledger, point)).values())


async def _nodes(ledger: Ledger, point: HistoryPoint | None) -> dict[str, list[Node]]:
    """By cluster."""
    if point is None:
        return (await known_facts(ledger)).nodes
    # the past needs the stages, the present does not
    from wharfinger.history.plane_at import plane_at

    clusters = (await plane_at(ledger, point)).clusters
    return {name: [shown.node for shown in cluster.nodes] for name, cluster in clusters.items()}


def _as_written(policy: Policy) -> Rendered | None:
    """The user's own object; None: it came without one."""
    return msgspec.json.decode(policy.manifest) if policy.manifest else None


def _show(
    request: Request,
    kind: str,
    name: str,
    point: HistoryPoint | None,
    objects: list[Rendered],
    names: Sequence[str],
    table: Callable[[], Table],
) -> None:
    if name and not objects:
        raise NotFoundError(f"no {kind} is named {name}{_then(point)}")
    if not objects and request.format is Format.TABLE:
        messages().print(f"no {kind}s{_then(point)}")
        return
    whole = objects[0] if name and len(objects) == 1 else as_list(objects)
    show(request.format, whole, names, lambda: [table()])


def _then(point: HistoryPoint | None) -> str:
    return "" if point is None else f" at {point.text}"


_GETTERS = {POOLS: _get_pools, OVERLAYS: _get_overlays, TYPES: _get_types, CLAIMS: _get_claims}
