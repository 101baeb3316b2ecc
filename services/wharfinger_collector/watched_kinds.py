"""Which kinds of a cluster are watched besides nodes and pods: all that placement reads, as far as
the server has them.

A kind that is missing (an API group that is switched off, a CRD that is not installed) is looked
for again from time to time.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from wharfinger.manifests.kinds import BY_NAME, Kind
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.watched import WATCHED, WatchedKind

LOOK_S = 300.0
"""How often what the server has is asked for."""

OTHERWISE = ("Node", "Pod", "NodeMetrics")
"""Kinds that are watched by reflectors of their own, or asked for (`metrics_api`)."""


class _Served(msgspec.Struct):
    name: str
    kind: str
    verbs: tuple[str, ...] = ()


class _ServedList(msgspec.Struct):
    resources: list[_Served] = []


async def watched_kinds(
    api: KubeApi, wanted: Sequence[WatchedKind] = WATCHED
) -> dict[str, tuple[str, Kind]]:
    """Kind -> the path of its collection, and how its objects are read. Of a kind in two versions
    the first that the server has is taken. Kinds of `wanted` without list and watch are left out.
    ApiError, UnreachableError, CredentialsError."""
    found: dict[str, tuple[str, Kind]] = {}
    by_version: dict[str, list[str]] = {}
    for watched in wanted:
        if watched.kind not in OTHERWISE and "watch" in watched.verbs:
            by_version.setdefault(watched.group_version, []).append(watched.kind)
    for version, kinds in by_version.items():
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            served = await api.get(root, _ServedList)
        except ApiError as error:
            if error.code == 404:
                continue
            raise
        for one in served.resources:
            if one.kind in kinds and one.kind not in found and {"list", "watch"} <= {*one.verbs}:
                found[one.kind] = f"{root}/{one.name}", BY_NAME[(version, one.kind)]
    return found
