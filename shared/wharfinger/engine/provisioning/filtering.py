"""Which instance types are left for a node, once it is known what shall be on it.

A type must have the labels, room for all of it at once, and an offering in a zone and of a capacity type that are still
open. All three are looked at of every type, even where the first one settles it: which of them nobody meets, alone or
together, is what the users are told.
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
"""Who asks for a million cores has likely written `M` for `m`."""


@dataclass(frozen=True, slots=True, eq=False)
class Filtered:
    """`remaining`: bool[types]. `refusal`: why there are none, or too few for minValues; empty when all is well.
    `lowered`: label -> the minValues that can be kept instead, where that is allowed."""

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
) -> Filtered:
    """`labels`: of the node with all that is on it; `amounts`: int64[resources] of its pods together, slots among them,
    without daemons; `among`: bool[types] it may still be, all that are able by default."""
    types = template.types
    if not template.able.any():
        return Filtered(template.able, _nothing_at_all(template))
    open_to = template.able if among is None else among
    labelled = types.fitting(labels)
    roomy = np.asarray((template.room >= amounts).all(axis=1)) & template.holding(devices) & template.free_of(ports)
    offered = types.with_offering(labels)
    remaining = open_to & labelled & roomy & offered
    if not remaining.any():
        reason = no_type(labelled & open_to, roomy & open_to, offered & open_to, int(amounts[CPU]))
        return Filtered(remaining, f"no instance type satisfied {demand(types, amounts, devices, labels)} ({reason})")
    short = too_few_values(types, remaining, labels)
    if short and min_values == "Strict":
        return Filtered(np.zeros_like(remaining), _too_few(short))
    return Filtered(remaining, "", {key: have for key, have, _ in short} if short else None)


def too_few_values(types: Types, remaining: Mask, labels: LabelSet) -> tuple[tuple[str, int, int], ...]:
    """(label, values that the types at `remaining` could still have, minValues) where they are too few, in order of label."""
    counted = ((key, types.count_values(key, labels, remaining), want) for key, want in labels.min_values.items())
    return tuple((key, have, want) for key, have, want in counted if have < want)


def no_type(labelled: Mask, roomy: Mask, offered: Mask, cpu_milli: int = 0) -> str:
    """Why no type is in all three masks (bool[types]), by which of them, alone or in pairs, leave none."""
    alone = [said for mask, said in ((labelled, _LABELLED), (roomy, _ROOMY), (offered, _OFFERED)) if not mask.any()]
    if alone:
        hint = "; a million cores or more, is m meant for M?" if cpu_milli >= TYPO_MILLI and not roomy.any() else ""
        return f"no instance type {' or '.join(alone)}{hint}"
    pairs = ((labelled, _LABELLED, roomy, _ROOMY, _OFFERED), (roomy, _ROOMY, offered, _OFFERED, _LABELLED),
             (labelled, _LABELLED, offered, _OFFERED, _ROOMY))  # fmt: skip
    for one, said, other, also, third in pairs:
        if (one & other).any():
            return f"no instance type that {said} and {also} also {third}"
    return "no instance type met even two of: the requirements, the resources, an offering"


_LABELLED = "met the scheduling requirements"
_ROOMY = "had enough resources"
_OFFERED = "had a required offering"


def demand(types: Types, amounts: Column, devices: Ask, labels: LabelSet) -> str:
    """What is asked of one node, in words."""
    listed = [
        f"{name} {quantity_of(name, int(amount))}"
        for name, amount in zip(types.resources, amounts, strict=True)
        if 0 < amount < UNLIMITED
    ]
    listed += [f"{d.count}x {d.kind}" + (f" of {d.milli}m" if d.milli < 1000 else "") for d in devices]
    wanted = labels.without(HOSTNAME_LABEL).text
    return f"resources {', '.join(listed) or 'none'}" + (f" and requirements {wanted}" if wanted else "")


def slots(amounts: Column, pods: int) -> Column:
    """The same with so many pods' slots."""
    found = amounts.copy()
    found[PODS] += pods
    return found


def _nothing_at_all(template: Template) -> str:
    catalogue = template.pool.catalogue
    if not len(template.types):
        return f"no instance types are known of catalogue {catalogue}"
    return f"no instance type of catalogue {catalogue} that is offered suits the pool and holds its daemons"


def _too_few(short: Sequence[tuple[str, int, int]]) -> str:
    said = ", ".join(f'"{key}" ({have} of {want})' for key, have, want in short)
    return f"minValues requirement is not met for {said}"
