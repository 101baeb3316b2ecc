"""Requirements compiled against one cluster's table: resource names become column numbers, device
requests become views.

A *requirement class* is compiled once and used for every replica with equal requirements. `facts`
evaluates node facts for it, `fit` and `place` free amounts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from wharfinger.domain.pod_traits import PodTraits
from wharfinger.domain.resources import DEVICE_MILLI, DeviceRequest, is_of_nodes
from wharfinger.domain.value import canonical
from wharfinger.domain.workload import Requirements
from wharfinger.engine.framework.snapshot import scored
from wharfinger.engine.nodes.columns import PODS, DeviceView, NodeTable, clamped
from wharfinger.engine.nodes.tallies import TopologyTally


@dataclass(frozen=True, slots=True)
class DeviceNeed:
    """A request for `count` different devices of a view, each with at least `milli` free
    thousandths (1000: the whole device)."""

    view: DeviceView
    count: int
    milli: int


@dataclass(slots=True, eq=False)
class PodClass:
    """A compiled requirement class.

    - `key`: key of the requirement class, used for estimates; `pod_key`: key of everything that
      other pods can see of such a pod.
    - `amounts`: (resource column, requested amount > 0), always including one of `pods`.
    - `scored`: cpu (milli) and memory (bytes) as scores count them.
    - `wholes`: (device kind, number of whole devices).
    - `needs`: the device requests in the order of allocation.
    - `kinds`: (device kind, requested thousandths in total).
    - `simple`: the device fit is one comparison per node. A class with several device requests, or
      one for shares of several devices, is checked node by node instead.
    - `seed`: tie-break value.
    - `claims`: node selectors, tolerations and node preferences as bytes; classes with equal claims
      get equal fact verdicts.
    - `terminating`: the pods are being deleted.
    - `tallies`, `looked`: see `tallies.Counted`.
    """

    key: str
    pod_key: str
    requirements: Requirements
    traits: PodTraits
    amounts: tuple[tuple[int, int], ...]
    scored: tuple[int, int]
    wholes: tuple[tuple[int, int], ...]
    needs: tuple[DeviceNeed, ...]
    kinds: tuple[tuple[int, int], ...]
    simple: bool
    seed: int
    claims: bytes
    terminating: bool = False
    tallies: list[tuple[TopologyTally, int]] = field(default_factory=list)
    looked: tuple[int, int] = (-1, 0)


def compile_class(
    table: NodeTable,
    requirements: Requirements,
    key: str,
    pod_key: str = "",
    terminating: bool = False,
) -> PodClass:
    """Compiles the requirements of a pod for one node table, so that the requirements can be
    compared with many nodes at once. Returns a class: resource names are replaced by column numbers
    of the table, and device requests by views (for each node, the free devices that the request may
    use).

    Left out are amounts of 0 or less, resources that nodes do not provide, and device requests for
    0 devices or 0 thousandths of a device. If the amount of the resource `pods` is missing, it is
    1.

    - `key`: identifies equal requirements; stored in the class.
    - `pod_key`: identifies all that other pods can see of the pod, such as labels; stored in the
      class. Empty: equal to `key`.
    - `terminating`: the pods are being deleted; stored in the class.
    """
    amounts = {
        table.resource(name): clamped(amount)
        for name, amount in requirements.requests.items()
        if amount > 0 and is_of_nodes(name)
    }
    amounts.setdefault(PODS, 1)
    needs = _needs(table, requirements.devices)
    wholes: dict[int, int] = {}
    for request in requirements.devices:
        if request.milli >= DEVICE_MILLI and request.count > 0:
            kind = table.kind(request.kind)
            wholes[kind] = wholes.get(kind, 0) + min(request.count, 2**20)
    kinds: dict[int, int] = {}
    for need in needs:
        kinds[need.view.kind] = kinds.get(need.view.kind, 0) + need.count * need.milli
    cpu, memory = scored(requirements)
    traits = requirements.traits
    return PodClass(
        key=key,
        pod_key=pod_key or key,
        requirements=requirements,
        traits=traits,
        amounts=tuple(sorted(amounts.items())),
        scored=(clamped(cpu), clamped(memory)),
        wholes=tuple(sorted(wholes.items())),
        needs=needs,
        kinds=tuple(sorted(kinds.items())),
        simple=not needs
        or (len(needs) == 1 and (needs[0].count == 1 or needs[0].milli >= DEVICE_MILLI)),
        seed=table.seed(key),
        claims=_claims(requirements, traits),
        terminating=terminating,
    )


def _claims(requirements: Requirements, traits: PodTraits) -> bytes:
    said = (
        requirements.node_selector,
        requirements.node_terms,
        requirements.tolerations,
        traits.node_name,
        traits.preferences,
    )
    return canonical(said) if any(said) else b""


def _needs(table: NodeTable, requests: tuple[DeviceRequest, ...]) -> tuple[DeviceNeed, ...]:
    """Compiles device requests for a node table and sorts them into the order in which devices are
    allocated. Returns one entry per request: the devices that the request may use, their number,
    and the thousandths of each device.

    What is harder to satisfy is allocated first. Requests for whole devices come before requests
    for a part of a device. Within each of the two, requests that name device models come before
    requests that allow any model. Requests for 0 devices or 0 thousandths are left out.

    Example: half of any GPU, a whole GPU of any model, and a whole A100. The order is: whole A100,
    whole GPU, half GPU.
    """
    asked = [r for r in requests if r.count > 0 and r.milli > 0]
    asked.sort(key=lambda r: (r.milli < DEVICE_MILLI, not r.models))
    return tuple(
        DeviceNeed(
            table.view(table.kind(r.kind), r.models),
            min(r.count, 2**20),
            min(r.milli, DEVICE_MILLI + 1),
        )
        for r in asked
    )
