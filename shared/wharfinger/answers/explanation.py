"""Why a binding is where it is, as JSON: everything that was derived."""

from __future__ import annotations

from collections.abc import Sequence

from wharfinger.answers.decisions import Plain, as_plain
from wharfinger.domain.text import as_clock, as_time, count
from wharfinger.history.explain import Derived, Explained, Steady, Undecided
from wharfinger.rules.changes import ChangeSet, said
from wharfinger.stages.cluster.trace import NodesTrace, NodeTrace
from wharfinger.stages.fleet.request_wait import RequestWait
from wharfinger.stages.fleet.selection_trace import SelectionsTrace
from wharfinger.stages.fleet.trace import ClusterTrace, DivisionTrace, FleetTrace, SelectionTrace

NAMES_MAX = 8
"""Clusters that one sentence names."""


def account_plain(account: Explained | Undecided) -> Plain:
    found = (
        _undecided_plain(account) if isinstance(account, Undecided) else _explained_plain(account)
    )
    return {
        "binding": account.binding,
        **found,
        "waiting": None if account.waiting is None else _waiting_plain(account.waiting),
        "unacted": [
            {"of": whose, "field": field}
            for whose, fields in account.unacted.items()
            for field in fields
        ],
    }


def _explained_plain(account: Explained) -> Plain:
    return {
        "decision": _derived_plain(account.decision),
        "undecided": None,
        "steady": None if account.steady is None else _steady_plain(account.steady),
        "nodes": [as_plain(row) for row in account.on_nodes],
        "derived_nodes": [_derived_plain(derived) for derived in account.nodes],
        "history": [as_plain(row) for row in account.history],
        "total": account.total,
    }


def _undecided_plain(account: Undecided) -> Plain:
    return {
        "decision": None,
        "undecided": {
            "stream": account.stream,
            "round": account.round,
            "at": as_time(account.at) if account.at else None,
            "rule": account.rule,
        },
        "steady": None,
        "nodes": [],
        "derived_nodes": [],
        "history": [],
        "total": 0,
    }


def _waiting_plain(waiting: RequestWait) -> Plain:
    return {
        "for": waiting.awaits,
        "clusters": list(waiting.clusters),
        "since": as_time(waiting.since),
        "due": None if waiting.due is None else as_time(waiting.due),
        "until": None if waiting.until is None else as_time(waiting.until),
        "said": waits(waiting),
    }


def _derived_plain(derived: Derived) -> Plain:
    again = derived.again
    return {
        **as_plain(derived.row),
        "again": {
            "same": again.same,
            "reworded": again.reworded,
            "engine": again.engine,
            "replayed": again.replayed.decode() or None,
            "whole_state": again.whole,
            "retired": again.retired,
        },
        "derived": _trace_plain(derived.trace),
    }


def _steady_plain(steady: Steady) -> Plain:
    return {
        "stream": steady.stream,
        "round": steady.round,
        "at": as_time(steady.at),
        "rule": steady.rule,
        "trigger": "AvoidSchedule" if steady.avoided else None,
        "held": dict(steady.held),
        "fresh": None if steady.fresh is None else dict(steady.fresh),
        "fresh_refused": steady.reason or None,
        "would_move": steady.would_move,
        "derived": _trace_plain(steady.trace),
    }


def _trace_plain(trace: FleetTrace | NodesTrace | SelectionsTrace | None) -> Plain | None:
    match trace:
        case SelectionsTrace():
            return {
                "bound": list(trace.bound),
                "sets": list(trace.sets),
                "weights": dict(trace.weights),
                "trouble": trace.trouble or None,
                "candidates": [
                    {
                        "cluster": c.name,
                        "fell": c.fell or None,
                        "scores": dict(c.scores),
                        "total": c.total,
                        "place": c.place or None,
                        "held": c.held,
                    }
                    for c in trace.candidates
                ],
            }
        case None:
            return None
        case NodesTrace():
            nearest = trace.nearest
            return {
                "cluster": trace.cluster,
                "profile": trace.profile,
                "message": trace.message or None,
                "nearest": nearest.name if nearest else None,
                "nodes": [_node_plain(node) for node in trace.nodes],
            }
        case FleetTrace():
            return {
                "replicas": trace.replicas,
                "held": dict(trace.held),
                "fresh": trace.fresh,
                "without": list(trace.without),
                "ways": [_way_plain(way) for way in trace.ways],
                "terms": [
                    {
                        "affinity": term.name,
                        "reason": term.reason or None,
                        "note": term.note,
                        "clusters": [_cluster_plain(cluster) for cluster in term.clusters],
                        "selection": None
                        if term.selection is None
                        else _selection_plain(term.selection),
                        "divisions": [_division_plain(division) for division in term.divisions],
                    }
                    for term in trace.terms
                ],
            }


def _cluster_plain(c: ClusterTrace) -> Plain:
    return {
        "cluster": c.name,
        "region": c.region or None,
        "held": c.held,
        "refused": list(c.refused),
        "locality": c.locality,
        "estimate": c.estimate,
        "estimated_by": c.source or None,
        "counted_at": None if c.counted_at is None else as_time(c.counted_at),
        "deducted": c.pending,
        "selected": c.selected,
        "used": c.used,
        "replicas": c.replicas,
        "ways": [_way_plain(way) for way in c.ways],
    }


def _node_plain(n: NodeTrace) -> Plain:
    return {
        "node": n.name,
        "refused": list(n.refused),
        "said": {plugin: list(reasons) for plugin, reasons in n.said.items()},
        "score": n.score,
        "parts": {
            name: {"raw": p.raw, "normalised": p.normalised, "weighted": p.weighted}
            for name, p in n.parts.items()
        },
        "devices": [list(d) for d in n.devices],
        "free": dict(n.free),
        "short": dict(n.short),
        "replicas": n.replicas,
        "ways": [_way_plain(way) for way in n.ways],
    }


def _way_plain(way: ChangeSet) -> Plain:
    return {
        "said": said(way),
        "changes": [
            {"kind": c.kind, "what": c.what, "amount": c.amount, "said": c.text} for c in way
        ],
    }


def _selection_plain(s: SelectionTrace) -> Plain:
    return {
        "constraints": [
            {"by": c.field or c.label, "min_groups": c.min_groups, "max_groups": c.max_groups}
            for c in s.constraints
        ],
        "ranking": list(s.ranking),
        "groups": [
            {
                "by": g.by,
                "group": g.name,
                "score": g.score,
                "members": list(g.members),
                "chosen": g.chosen,
            }
            for g in s.groups
        ],
        "chosen": list(s.chosen),
        "note": s.note or None,
    }


def _division_plain(d: DivisionTrace) -> Plain:
    return {
        "how": d.how,
        "seats": d.seats,
        "total_weight": d.total,
        "shares": [
            {"cluster": s.cluster, "kept": s.kept, "weight": s.weight, "seats": s.seats}
            for s in d.shares
        ],
    }


def waits(waiting: RequestWait) -> str:
    """For what, since when, and until when at the latest."""
    clusters = any_of(waiting.clusters)
    match waiting.awaits:
        case "clusters":
            what = "waits for the first cluster"
        case "first-counts":
            what = f"waits for the first capacity count of {clusters}"
        case "counts":
            what = f"waits for the next capacity count of {clusters or 'a cluster'}"
        case "nodes":
            what = f"waits for {clusters or 'a cluster'} to place the replicas it has accepted"
        case "requests":
            what = "waits with requests that come before it, which wait for capacity counts"
        case "round":
            what = "waits for the next round, which is due at once"
        case "reading":
            what = "waits to be read by the fleet stage"
    return f"{what}, since {as_clock(waiting.since)}{_ends(waiting)}"


def _ends(waiting: RequestWait) -> str:
    if waiting.due is None or waiting.until is None:
        return ""
    if waiting.due == waiting.until:
        return f"; decided at {as_clock(waiting.until)} at the latest"
    return (
        f"; decided without it at {as_clock(waiting.due)}, or at {as_clock(waiting.until)} at the "
        "latest where other requests make it wait longer"
    )


def any_of(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMES_MAX
    if more > 0:
        return f"{', '.join(names[:NAMES_MAX])} and {count(more, 'more cluster')}"
    *first, last = names or ("",)
    return f"{', '.join(first)} or {last}" if first else last
