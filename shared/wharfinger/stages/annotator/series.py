"""From the series of an answer to the load of each node.

A series finds its node by its `node` label, else by `instance`, which is the node's name or one of its addresses, with
or without a port. Names are looked up, never used as patterns: a dot is a dot, and IPv6 in brackets works. What does
not find a node, or says no number, is counted, so that an operator can see why a load is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from wharfinger.domain.node import Node
from wharfinger.engine.load.book import LOAD_MAX

HOSTNAME_LABEL = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Series:
    """One series with its value in percent, as the recording rules of crane give it."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What Prometheus said. `histograms`: series left out because they hold no single number."""

    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()
    histograms: int = 0


@dataclass(frozen=True, slots=True)
class Matched:
    """`loads`: node -> hundred-thousandths of the whole. The counts are of series: of no known node, of a text that
    names several nodes, without a finite number, and beyond the first of a node (the largest was taken)."""

    loads: dict[str, int]
    unmatched: int = 0
    ambiguous: int = 0
    not_finite: int = 0
    duplicates: int = 0


def match(nodes: Iterable[Node], series: Iterable[Series]) -> Matched:
    """The loads of `nodes` in `series`. The result does not depend on the order of either."""
    known = _index(nodes)
    loads: dict[str, int] = {}
    unmatched = ambiguous = not_finite = duplicates = 0
    for one in series:
        name = _node_of(one.labels, known)
        if name is None:
            unmatched += 1
            continue
        if name == _SEVERAL:
            ambiguous += 1
            continue
        load = load_of(one.value)
        if load is None:
            not_finite += 1
        elif name in loads:
            duplicates += 1
            loads[name] = max(loads[name], load)
        else:
            loads[name] = load
    return Matched(dict(sorted(loads.items())), unmatched, ambiguous, not_finite, duplicates)


def load_of(percent: float) -> int | None:
    """Hundred-thousandths of the whole; None for what is no finite number.

    As crane: divided by 100 as a double, 5 decimals, half to even on the binary value, nothing below zero. Unlike crane
    NaN is unknown and not zero: an unmeasured node must not look like an idle one.
    """
    share = percent / 100
    if share - share != 0:  # NaN and both infinities
        return None
    if share <= 0:
        return 0
    if share >= LOAD_MAX / 100_000:
        return LOAD_MAX
    return int(f"{share:.5f}".replace(".", ""))


_SEVERAL = ""
"""In the index: this text names more than one node. No node has an empty name."""


def _index(nodes: Iterable[Node]) -> dict[str, str]:
    """Text -> the node it means. A node's own name wins over another node's address or hostname label."""
    by_name: dict[str, str] = {}
    others: dict[str, str] = {}
    for node in nodes:
        if not node.name:
            continue
        by_name[node.name] = node.name
        for text in (*node.addresses, node.labels.get(HOSTNAME_LABEL, "")):
            if text:
                text = _plain_address(text)
                others[text] = node.name if others.get(text, node.name) == node.name else _SEVERAL
    return others | by_name


def _node_of(labels: Mapping[str, str], known: Mapping[str, str]) -> str | None:
    # `node` first: where an exporter runs beside what it measures, `instance` is the exporter's own address.
    node = labels.get("node")
    if node and (name := known.get(node)) is not None:
        return name
    instance = labels.get("instance")
    if not instance:
        return None
    name = known.get(_plain_address(instance))
    return name if name is not None else known.get(_plain_address(_without_port(instance)))


def _without_port(instance: str) -> str:
    host, colon, port = instance.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or (":" in host and not host.startswith("[")):
        return instance  # no port; a bare IPv6 address has colons of its own
    return host


def _plain_address(text: str) -> str:
    """An IPv6 address in its one canonical spelling, brackets off; any other text as it is."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if bare.count(":") < 2:  # IPv4 has one spelling only, and a name none to mend
        return text
    try:
        return str(ip_address(bare))
    except ValueError:
        return text
