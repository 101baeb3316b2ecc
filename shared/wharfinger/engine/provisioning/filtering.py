"""Determines which instance types a new node can still be, given the pods on it.

A type must match the labels, hold all requests, and have an offering in an allowed zone and
capacity type. All three conditions are evaluated for every type, even if the first rules out all,
because the error message names the conditions that no type meets, alone or combined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from wharfinger.domain.pod_traits import HostPort
from wharfinger.domain.resources import quantity_of
from wharfinger.engine.provisioning.catalogue import CPU, PODS, UNLIMITED, Ask, Column, Mask, Types
from wharfinger.engine.provisioning.requirements import HOSTNAME_LABEL, LabelSet
from wharfinger.engine.provisioning.templates import Template

MinValues = Literal["Strict", "BestEffort"]

TYPO_MILLI = 10**9
"""A request for this much cpu, a million cores, is likely a typo: `M` written for `m`."""


@dataclass(frozen=True, slots=True, eq=False)
class TypeFilterResult:
    """The instance types that a new node can be. `remaining`: bool[types]. `refusal`: why there is
    no type, or why minValues is not met; empty otherwise. `lowered`: label -> minValues that is met
    instead, if lowering is allowed and needed."""

    remaining: Mask
    refusal: str = ""
    lowered: Mapping[str, int] | None = None


def filtered(
    template: Template,
    labels: LabelSet,
    amounts: Column,
    *,
    among: Mask | None = None,
    devices: Ask = (),
    ports: Sequence[HostPort] = (),
    min_values: MinValues = "Strict",
) -> TypeFilterResult:
    """Determines which instance types a new node of a pool can be, given all pods on it. Returns
    bool[types] or the text of a refusal, and minValues if it was lowered. A type must match the
    labels, hold the requests, and have an available offering (zone and capacity type) that the
    labels allow. There is a refusal if no type meets all three conditions, or if the types have too
    few different values for minValues of the pool.

    - `template`: the pool: its instance types, labels, taints and daemons.
    - `labels`: the labels of the node, limited by what all its pods require.
    - `amounts` int64[resources]: the sum of the requests of the pods, 1 of `pods` for each pod
      included; without daemons.
    - `devices`, `ports`: devices and host ports that the pods request.
    - `among` bool[types]: the types to choose from; None: all types that the pool allows.
    - `min_values`: `Strict`: too few values are a refusal. `BestEffort`: minValues is lowered to
      the number of values that the types have.
    """
    types = template.types
    if not template.able.any():
        return TypeFilterResult(template.able, _nothing_at_all(template))
    open_to = template.able if among is None else among
    labelled = types.fitting(labels)
    roomy = (
        np.asarray((template.room >= amounts).all(axis=1))
        & template.holding(devices)
        & template.free_of(ports)
    )
    offered = types.with_offering(labels)
    remaining = open_to & labelled & roomy & offered
    if not remaining.any():
        reason = no_type(labelled & open_to, roomy & open_to, offered & open_to, int(amounts[CPU]))
        return TypeFilterResult(
            remaining,
            f"no instance type satisfied {demand(types, amounts, devices, labels)} ({reason})",
        )
    short = too_few_values(types, remaining, labels)
    if short and min_values == "Strict":
        return TypeFilterResult(np.zeros_like(remaining), _too_few(short))
    return TypeFilterResult(remaining, "", {key: have for key, have, _ in short} if short else None)


def too_few_values(
    types: Types, remaining: Mask, labels: LabelSet
) -> tuple[tuple[str, int, int], ...]:
    """Returns the labels with minValues for which the types have too few values, in order of label,
    as (label, values that the types can have, minValues). `remaining` bool[types]: the types.
    `labels`: of the new node."""
    counted = (
        (key, types.count_values(key, labels, remaining), want)
        for key, want in labels.min_values.items()
    )
    return tuple((key, have, want) for key, have, want in counted if have < want)


def no_type(labelled: Mask, roomy: Mask, offered: Mask, cpu_milli: int = 0) -> str:
    """Explains in a sentence why no instance type meets all three conditions: the labels, the
    resources, an available offering.

    The sentence names every condition that no type meets. If each condition is met by some type, it
    names two conditions that some type meets together, and says that no type with these two meets
    the third. If no type meets even two of the conditions, it says this.

    `labelled`, `roomy`, `offered` bool[types]: which types meet the labels, the resources, and the
    offering. `cpu_milli`: the requested cpu. If no type has the resources and a million cores or
    more are requested, a hint at a typo is added (M was written where m was meant).
    """
    alone = [
        said
        for mask, said in ((labelled, _LABELLED), (roomy, _ROOMY), (offered, _OFFERED))
        if not mask.any()
    ]
    if alone:
        hint = (
            "; a million cores or more, is m meant for M?"
            if cpu_milli >= TYPO_MILLI and not roomy.any()
            else ""
        )
        return f"no instance type {' or '.join(alone)}{hint}"
    pairs = (
        (labelled, _LABELLED, roomy, _ROOMY, _OFFERED),
        (roomy, _ROOMY, offered, _OFFERED, _LABELLED),
        (labelled, _LABELLED, offered, _OFFERED, _ROOMY),
    )
    for one, said, other, also, third in pairs:
        if (one & other).any():
            return f"no instance type that {said} and {also} also {third}"
    return "no instance type met even two of: the requirements, the resources, an offering"


_LABELLED = "met the scheduling requirements"
_ROOMY = "had enough resources"
_OFFERED = "had a required offering"


def demand(types: Types, amounts: Column, devices: Ask, labels: LabelSet) -> str:
    """Describes in words what is requested of one node: resources, devices and label requirements.
    Returns a text such as `resources cpu 2, 1x gpu and requirements zone In [a]`.

    `types`: the catalogue, for the names of the resources. `amounts` int64[resources]: the
    requested amounts; those of 0 are not named. `devices`: device requests. `labels`: label
    requirements; the host name is not named.
    """
    listed = [
        f"{name} {quantity_of(name, int(amount))}"
        for name, amount in zip(types.resources, amounts, strict=True)
        if 0 < amount < UNLIMITED
    ]
    listed += [
        f"{d.count}x {d.kind}" + (f" of {d.milli}m" if d.milli < 1000 else "") for d in devices
    ]
    wanted = labels.without(HOSTNAME_LABEL).text
    return f"resources {', '.join(listed) or 'none'}" + (
        f" and requirements {wanted}" if wanted else ""
    )


def slots(amounts: Column, pods: int) -> Column:
    """Returns a copy of the amounts with this many pod slots added."""
    found = amounts.copy()
    found[PODS] += pods
    return found


def _nothing_at_all(template: Template) -> str:
    catalogue = template.pool.catalogue
    if not len(template.types):
        return f"no instance types are known of catalogue {catalogue}"
    return (
        f"no instance type of catalogue {catalogue} that is offered suits the pool and holds its "
        "daemons"
    )


def _too_few(short: Sequence[tuple[str, int, int]]) -> str:
    said = ", ".join(f'"{key}" ({have} of {want})' for key, have, want in short)
    return f"minValues requirement is not met for {said}"
