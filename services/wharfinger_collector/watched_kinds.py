"""Which kinds of a cluster are watched besides nodes and pods: all that placement reads, as far as
the server has them.

A kind that is missing (an API group that is switched off, a CRD that is not installed) is looked
for again from time to time.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wharfinger.manifests.kinds import BY_NAME, Kind
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.watched import WATCHED

LOOK_S = 300.0
"""How often what the server has is asked for."""

OTHERWISE = ("Node", "Pod", "NodeMetrics")
"""Kinds that are watched by reflectors of their own, or asked for (`metrics_api`)."""

WANTED: Mapping[str, tuple[str, ...]] = {
    version: tuple(
        one.kind for one in WATCHED if one.group_version == version and one.kind not in OTHERWISE
    )
    for version in dict.fromkeys(one.group_version for one in WATCHED if one.kind not in OTHERWISE)
}
"""Group and version -> kinds. Of a kind in two versions the first that the server has is taken."""


class _Served(msgspec.Struct):
    name: str
    kind: str
    verbs: tuple[str, ...] = ()


class _ServedList(msgspec.Struct):
    resources: list[_Served] = []


async def watched_kinds(api: KubeApi) -> dict[str, tuple[str, Kind]]:
    """Kind -> the path of its collection, and how its objects are read. ApiError,
    UnreachableError, CredentialsError."""
    found: dict[str, tuple[str, Kind]] = {}
    for version, kinds in WANTED.items():
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
