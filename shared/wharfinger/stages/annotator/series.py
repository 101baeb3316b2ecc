"""Maps the series of a Prometheus result to nodes.

A series names its node in the label `node`, else in `instance`: the node's name or one of its
addresses, with or without a port. Names are compared exactly, not as patterns: a dot is a dot, and
IPv6 in brackets works. Series that match no node or have no number are counted, so that an operator
can see why a load is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from wharfinger.domain.node import Node
from wharfinger.engine.load.node_loads import LOAD_MAX

HOSTNAME_LABEL = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Series:
    """One series with its value in percent, as the recording rules of crane give it."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class PrometheusAnswer:
    """Holds the result of a Prometheus query. `histograms`: number of series left out because their
    value is a histogram and not a single number."""

    series: tuple[Series, ...]
    warnings: tuple[str, ...] = ()
    histograms: int = 0


@dataclass(frozen=True, slots=True)
class Matched:
    """Loads by node, and how many series were not used.

    `loads`: node -> load in 1/100,000 of its capacity. `unmatched`: series of no known node.
    `ambiguous`: of an address that several nodes have. `not_finite`: without a finite number.
    `duplicates`: beyond the first of a node; the largest value counts.
    """

    loads: dict[str, int]
    unmatched: int = 0
    ambiguous: int = 0
    not_finite: int = 0
    duplicates: int = 0


def match(nodes: Iterable[Node], series: Iterable[Series]) -> Matched:
    """Assigns each Prometheus series to one of `nodes` by its labels. Returns the load of each node
    found, in 1/100,000 of its capacity, and the numbers of series that were not used, by cause.

    If several series belong to one node, the largest load is used. Series without a known node,
    with an address that several nodes have, or without a finite number are not used. The order of
    `nodes` and `series` does not change the result.
    """
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
    """Converts a percentage to hundred-thousandths of the capacity. Example: 12.5 % is 12,500.
    Returns None for NaN and infinities. A result below zero becomes 0, a result above `LOAD_MAX`
    becomes `LOAD_MAX`.

    Rounds as crane does: divides by 100 as a 64-bit float and rounds to 5 decimals, exact halves to
    the even digit. NaN is unknown here, while crane takes it as zero: an unmeasured node must not
    look like an idle one.
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
    """Returns a map from the texts with which a series can name a node to the name of that node.
    The texts of a node are its name, its addresses, and its hostname label.

    If a text is the name of one node and the address or hostname label of another node, the name
    wins. If several nodes share an address or hostname label, it maps to `_SEVERAL`, which marks it
    as ambiguous. Example: node a has address 10.0.0.1, nodes a and b have 10.0.0.9: `a` and
    `10.0.0.1` map to a, `b` maps to b, `10.0.0.9` maps to `_SEVERAL`.
    """
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
    # `node` first: where an exporter runs beside what it measures, `instance` is the exporter's own
    # address.
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
    if (
        not colon
        or not (port.isascii() and port.isdigit())
        or (":" in host and not host.startswith("["))
    ):
        return instance  # no port; a bare IPv6 address has colons of its own
    return host


def _plain_address(text: str) -> str:
    """Returns an IPv6 address in its canonical spelling without brackets; any other text
    unchanged."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if bare.count(":") < 2:  # IPv4 has one spelling only, and a name none to mend
        return text
    try:
        return str(ip_address(bare))
    except ValueError:
        return text
