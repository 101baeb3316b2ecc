"""crane's own way of measuring one node: up to three questions, then one patch a value.

A plane's annotator asks for all nodes of a cluster at once and publishes; this is what crane asks
and writes for one of them. The questions are answered from recorded replies."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from tests.reference.crane import BindingRecords, CraneFault

from wharfinger.engine.load.annotations import NANOS, Nanos, stamp
from wharfinger.engine.load.node_loads import HOT_VALUE
from wharfinger.manifests.crane import HotValue


@dataclass(frozen=True, slots=True)
class CraneNode:
    """`addresses`: (type, address). `annotations`: as the annotator's cache has them, None: it
    knows of none; `stored`: as they stand in the cluster."""

    name: str
    addresses: tuple[tuple[str, str], ...] = ()
    annotations: Mapping[str, str] | None = None
    stored: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer: the samples of a vector in the server's order; None: an error, a scalar, or an
    answer with warnings."""

    samples: tuple[float, ...] | None = ()


@dataclass(slots=True)
class SyncResult:
    """What one sync did. `again`: it is tried again later. `fault`: crane's program would have
    ended."""

    queries: list[str] = field(default_factory=list)
    patches: list[dict[str, str]] = field(default_factory=list)
    annotations: dict[str, str] | None = None
    failed: bool = False
    again: bool = False
    fault: str = ""


def sync(
    key: str,
    node: CraneNode | None,
    heard: Mapping[str, Heard],
    records: BindingRecords,
    windows: Collection[HotValue],
    now_ns: Nanos,
    zone: tzinfo = UTC,
) -> SyncResult:
    """`key`: node/metric. `heard`: PromQL -> answer; what is not in it was answered with
    nothing."""
    parts = key.split("/")
    done = SyncResult(
        annotations=dict(node.stored) if node is not None and node.stored is not None else None
    )
    if len(parts) != 2 or node is None or node.name != parts[0]:
        done.failed = True  # such a key will never be right: it is not tried again
        return done
    share = _measured(done, questions(parts[1], node), heard)
    if share is None or not _write(
        done, node, parts[1], f"{go_decimal(share)},{stamp(now_ns, zone)}"
    ):
        done.failed = done.again = True
        return done
    try:
        hot = records.hot_value(node.name, windows, now_ns // NANOS)
    except CraneFault as fault:
        done.fault = str(fault)
        return done
    if not _write(done, node, HOT_VALUE, f"{hot},{stamp(now_ns, zone)}"):
        done.failed = done.again = True
    return done


def questions(metric: str, node: CraneNode) -> Iterator[str]:
    """By the node's first internal address, by that with a port, by its name; each a pattern, so
    that a dot in it is any sign."""
    address = next((address for kind, address in node.addresses if kind == "InternalIP"), node.name)
    for instance in (address, f"{address}:.+", node.name):
        yield f'{metric}{{instance=~"{instance}"}} /100'


def _measured(done: SyncResult, asked: Iterable[str], heard: Mapping[str, Heard]) -> float | None:
    """The last sample of the first usable answer; what is negative or no number counts as zero."""
    for question in asked:
        done.queries.append(question)
        samples: Sequence[float] | None = heard.get(question, Heard()).samples
        if samples:
            share = samples[-1]
            return 0.0 if math.isnan(share) or share < 0 else share
    return None


def _write(done: SyncResult, node: CraneNode, key: str, value: str) -> bool:
    """Below no annotations at all nothing can be added."""
    done.patches += patches({key: value}, node.annotations or ())
    if done.annotations is None:
        return False
    done.annotations[key] = value
    return True


def go_decimal(share: float) -> str:
    """Five decimals, half to even on the binary value."""
    return "+Inf" if math.isinf(share) else f"{share:.5f}"


def patches(wanted: Mapping[str, str], has: Iterable[str]) -> tuple[dict[str, str], ...]:
    """JSON patches that put annotations on a node which has the keys `has`. (On a node without any
    annotation the API server takes none of them: nothing can be added below what is not there.)"""
    there = frozenset(has)
    return tuple(
        {
            "op": "replace" if key in there else "add",
            "path": f"/metadata/annotations/{_escaped(key)}",
            "value": value,
        }
        for key, value in wanted.items()
    )


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
