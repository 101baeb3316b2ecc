"""Names for the completion of a shell: of what the plane knows, quickly, and silent where it cannot
be asked."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from wharfinger.events.streams import BINDINGS, CLUSTER_STATE, CLUSTERS, POLICIES, Topic
from wharfinger_cli.failures import CommandError
from wharfinger_cli.kind_names import kind_meant
from wharfinger_cli.output import Format
from wharfinger_cli.request import Request

if TYPE_CHECKING:  # loaded where names are asked for
    from wharfinger.runtime.ledger import Ledger
    from wharfinger_cli.remote import Remote

Kind = Literal["bindings", "clusters", "policies", "nodes"]

TOPICS: Mapping[Kind, Topic] = {
    "bindings": BINDINGS,
    "clusters": CLUSTERS,
    "policies": POLICIES,
    "nodes": CLUSTER_STATE,
}
SHOWN_MAX = 500
PAGE = 1000
BUCKETS_MAX = 500
"""Of nodes that are read for one completion, some tens of nodes each."""
WITHIN_S = 2.0
"""A person waits for it between two keys; later there are no names."""


def names(context: typer.Context, incomplete: str, *kinds: Kind) -> list[str]:
    """Those that begin with what was typed, at most `SHOWN_MAX`; none where the plane does not
    answer."""
    logging.disable()  # the shell would show it in the middle of the line
    with suppress(Exception):  # the command itself says what is wrong
        request = _request(context)
        find = _over_server if request.server else _in_ledger
        return sorted({name for kind in kinds for name in find(request, kind, incomplete)})
    return []


def names_of_kind(context: typer.Context, incomplete: str, word: str) -> list[str]:
    """Of a kind as `get` understands it; none of kinds whose names are not kept as keys."""
    with suppress(CommandError):
        kind = next((one for one in TOPICS if one == kind_meant(word)), None)
        if kind is not None:
            return names(context, incomplete, kind)
    return []


def _request(context: typer.Context) -> Request:
    """As the options before and behind the command say, as far as they are typed."""
    before: dict[str, Any] = context.find_root().params
    data_dir = context.params.get("data_dir") or before.get("data_dir")
    token_file = before.get("token_file")
    return Request(
        Path(data_dir) if data_dir else None,
        Format.NAME,
        before.get("server") or "",
        Path(token_file) if token_file else None,
    )


def _in_ledger(request: Request, kind: Kind, incomplete: str) -> list[str]:
    return asyncio.run(_known(request, kind, incomplete))


async def _known(request: Request, kind: Kind, incomplete: str) -> list[str]:
    from wharfinger.runtime.deadlines import Deadlines
    from wharfinger.runtime.ledger import causality
    from wharfinger_cli.connection import opened_ledger, reached

    at = replace(reached(request), timeouts=Deadlines(WITHIN_S, WITHIN_S))
    async with asyncio.timeout(WITHIN_S), opened_ledger(at) as ledger:
        if kind == "nodes":
            return await _known_nodes(ledger, incomplete)
        start = "(^|/)" if kind == "policies" else "^"
        keys = await causality.told_like(
            ledger.database, start + re.escape(incomplete), TOPICS[kind].name, SHOWN_MAX
        )
    return [_shown(kind, key) for key in keys]


async def _known_nodes(ledger: Ledger, incomplete: str) -> list[str]:
    """Those of one cluster where `cluster/` is typed, as `cluster/node`; else of all. The buckets
    are read that the cluster is divided into now."""
    from wharfinger.events.cluster_state import NodesObserved
    from wharfinger.runtime.ledger import causality, facts
    from wharfinger.runtime.ledger.fact_events import event_of

    cluster, slash, _ = incomplete.partition("/")
    keys = await causality.told_like(
        ledger.database,
        f"^{re.escape(cluster) if slash else '[^/]+'}/nodes/",
        CLUSTER_STATE.name,
        BUCKETS_MAX,
    )
    places = [(CLUSTER_STATE.name, key) for key in keys]
    parts = [event_of(fact).data for fact in await facts.latest(ledger.database, places)]
    told = [part for part in parts if isinstance(part, NodesObserved)]
    buckets = {part.cluster: part.buckets for part in told}  # the last one counts
    found = [
        _node_shown(part.cluster, node.name, incomplete)
        for part in told
        if part.buckets == buckets[part.cluster]
        for node in part.nodes
    ]
    return _first(found, incomplete)


def _node_shown(cluster: str, node: str, incomplete: str) -> str:
    return f"{cluster}/{node}" if "/" in incomplete else node


def _first(found: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in found if name.startswith(incomplete)})[:SHOWN_MAX]


def _nodes_over_server(remote: Remote, incomplete: str) -> list[str]:
    cluster, slash, _ = incomplete.partition("/")
    asked = {"cluster": cluster} if slash else {}
    page = remote.get("/v1/nodes", fields=["name", "cluster"], limit=PAGE, **asked)
    found = [_node_shown(item["cluster"], item["name"], incomplete) for item in page["items"]]
    return _first(found, incomplete)


def _over_server(request: Request, kind: Kind, incomplete: str) -> Sequence[str]:
    from wharfinger_cli.remote import Remote

    remote = Remote(request.server, request.token_file, WITHIN_S)
    if kind == "nodes":
        return _nodes_over_server(remote, incomplete)
    field = "key" if kind == "policies" else "name"
    page = remote.get(f"/v1/{kind}", fields=field, limit=SHOWN_MAX)
    found = [_shown(kind, str(item[field])) for item in page["items"]]
    return [name for name in found if name.startswith(incomplete)]


def _shown(kind: Kind, key: str) -> str:
    """A policy by its name, as `get` and `rollback` understand it."""
    return key.rpartition("/")[2] if kind == "policies" else key
