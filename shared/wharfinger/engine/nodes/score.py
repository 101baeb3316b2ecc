"""How good a feasible node is: 0..100, integers, truncating division, as kube-scheduler's NodeResourcesFit counts.

The score is the mean, over cpu, memory and each device kind the replica asks for, of the share that is free
(`least-allocated`) or used (`most-allocated`) once the replica is there. A resource the node has none of is left out of
the mean. Scalar and vector twin stand side by side and must agree.

Departure: kube-scheduler counts 100m and 200 MiB for absent requests in this score; here an absent request is zero.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from wharfinger.engine.nodes.classes import PodClass
from wharfinger.engine.nodes.columns import CPU, MEMORY, Column, NodeRow, NodeTable

Strategy = Literal["least-allocated", "most-allocated"]


def score_row(row: NodeRow, cls: PodClass, strategy: Strategy) -> int:
    least = strategy == "least-allocated"
    total = shares = 0
    for code, amount in cls.scored:
        whole = row.allocatable[code]
        if whole > 0:
            left = row.free[code] - amount
            left = left if left > 0 else 0
            total += (left if least else whole - left) * 100 // whole
            shares += 1
    for kind, milli in cls.kinds:
        whole = row.kind_allocatable.get(kind, 0)
        if whole > 0:
            left = row.kind_free[kind] - milli
            left = left if left > 0 else 0
            total += (left if least else whole - left) * 100 // whole
            shares += 1
    return total // shares if shares else 0


def score_rows(
    table: NodeTable, cls: PodClass, strategy: Strategy, rows: Column, cpu_left: Column, memory_left: Column
) -> Column:
    """Scores of the slots `rows`. `cpu_left`, `memory_left`: what is free there once the replica is placed (changed here)."""
    least = strategy == "least-allocated"
    complete = table.complete
    cpu, memory = table.allocatable[CPU].take(rows), table.allocatable[MEMORY].take(rows)
    divisor = None if complete else np.add(cpu > 0, memory > 0, dtype=np.int64)
    total = _share(cpu_left, cpu, least, complete)
    total += _share(memory_left, memory, least, complete)
    for kind, milli in cls.kinds:
        left = table.kind_free[kind].take(rows) - milli
        whole = table.kind_allocatable[kind].take(rows)
        # A node without the kind is infeasible, and its score is never read: only a mixed divisor must be exact.
        if divisor is not None:
            divisor += whole > 0
        total += _share(left, whole, least, False)
    total //= 2 + len(cls.kinds) if divisor is None else np.maximum(divisor, 1)
    return total


def _share(left: Column, whole: Column, least: bool, everywhere: bool) -> Column:
    """Hundredths of `whole`; 0 where a node has none of it, unless it is said to be `everywhere`."""
    np.maximum(left, 0, out=left)
    if not least:
        np.subtract(whole, left, out=left)
    left *= 100
    left //= whole if everywhere else np.maximum(whole, 1)
    return left


def score_parts(row: NodeRow, cls: PodClass, strategy: Strategy, kinds: list[str]) -> dict[str, int]:
    """What `score_row` is the mean of, by resource and device kind (`kinds`: the table's names of them)."""
    shares = [("cpu" if at == 0 else "memory", row.allocatable[code], row.free[code] - amount)
              for at, (code, amount) in enumerate(cls.scored)]  # fmt: skip
    shares += [(kinds[k], row.kind_allocatable.get(k, 0), row.kind_free.get(k, 0) - milli) for k, milli in cls.kinds]
    parts: dict[str, int] = {}
    for name, whole, left in shares:
        if whole > 0:
            left = max(0, left)
            parts[name] = (left if strategy == "least-allocated" else whole - left) * 100 // whole
    return parts
