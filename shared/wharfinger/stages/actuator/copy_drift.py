"""Copies that others have changed: the template was applied as it is now, and the object in the
member cluster differs from it.

What is taken out comes back by itself, and what another manager has set stays, see `copies`. A copy
that is not there, or of an older template, is still to be written: that is no drift.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wharfinger.domain.actuation import COPIED, COPIED_FROM
from wharfinger.stages.actuator.copied_objects import USED_AS_IT_IS, DecidedCopies, named, said_by
from wharfinger.stages.actuator.copies import FieldPath, differences
from wharfinger.stages.actuator.effects import EffectObject
from wharfinger.stages.actuator.hub import HubObjects
from wharfinger.stages.actuator.requests import MANAGER

_SHOWN = ("replicas", "image")
"""Of the spec. Other fields may hold what belongs on no screen: data of ConfigMaps and Secrets,
environments, arguments."""


@dataclass(frozen=True, slots=True)
class CopyDrift:
    """`field`: such as `spec.template.spec.containers[main].image`; "": the whole object.
    `decided`, `observed`: its values, where they are shown. `managers`: who says that they have set
    it."""

    object: EffectObject
    field: str
    decided: str = ""
    observed: str = ""
    managers: tuple[str, ...] = ()


def copy_drift(decided: DecidedCopies, observed: HubObjects, hub: str) -> list[CopyDrift]:
    """By kind, name and field."""
    found: list[CopyDrift] = []
    for (kind, key), wanted in sorted(decided.wanted.items()):
        now = observed.of(kind).get(key)
        if now is None:
            continue
        if said_by(now, COPIED_FROM) != hub:
            if kind not in USED_AS_IT_IS:
                found.append(CopyDrift(named(now), ""))
        elif said_by(now, COPIED) == said_by(wanted, COPIED):
            entries = now["metadata"].get("managedFields") or []
            copied = {name: wanted[name] for name in wanted if name not in ("apiVersion", "kind")}
            for path in differences(now, copied):
                found.append(
                    CopyDrift(
                        named(now),
                        shown_path(path),
                        _shown(path, copied),
                        _shown(path, now),
                        tuple(_managers(entries, path)),
                    )
                )
    return found


def shown_path(path: FieldPath) -> str:
    return ".".join(path).replace(".[", "[")


def _shown(path: FieldPath, of: object) -> str:
    if path[0] != "spec" or path[-1] not in _SHOWN:
        return ""
    for step in path:
        of = _item(of, step)
    return "none" if of is None else str(of)


def _item(of: object, step: str) -> object:
    if isinstance(of, Mapping):
        return of.get(step)
    items: list[Any] = of if isinstance(of, list) else []
    return next((one for one in items if f"[{one.get('name')}]" == step), None)


def _managers(entries: Iterable[Mapping[str, Any]], path: FieldPath) -> Iterator[str]:
    """Those but us that own the field or a part of it."""
    for entry in entries:
        owned: Any = entry.get("fieldsV1") or {}
        for step in path:
            owned = owned.get(_owned(step)) if owned else None
        if owned is not None and entry.get("manager") != MANAGER:
            yield str(entry.get("manager", ""))


def _owned(step: str) -> str:
    """A step of a path as `managedFields` spells it."""
    if step.startswith("["):
        return "k:" + json.dumps({"name": step[1:-1]}, separators=(",", ":"))
    return f"f:{step}"
