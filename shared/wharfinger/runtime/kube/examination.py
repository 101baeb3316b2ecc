"""What a cluster says before it is joined: whether it answers, which release it is, how its clock
stands, what of it we may read, and which schedulers work in it.

Everything is asked with the credentials that will be used. Nothing is written: the reviews of our
own rights are answered by the server and stored nowhere.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from itertools import product
from typing import cast

import msgspec

from wharfinger.domain.actuation import Verb
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.rights import NAMESPACE, actuator_rules, own_rules, secret_rules
from wharfinger.runtime.kube.watched import NON_RESOURCE, WATCHED, WatchedKind

REVIEWS_AT_ONCE = 8

PODS_READ_MAX = 10_000
"""Pods whose scheduler's name is counted. More are not read: it is a remark, no fact."""

PODS_PAGE = 500

HEALTH = "Health"
"""Stands beside kinds for the answer of `/readyz`, which is a right of its own."""

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True)
class KindRights:
    """`served`: the server has the kind. `missing`: verbs that we have not, in order."""

    kind: WatchedKind
    served: bool
    missing: tuple[str, ...] = ()

    @property
    def blocks(self) -> bool:
        """Without it the cluster cannot be joined."""
        return self.kind.required and self.served and bool(self.missing)


@dataclass(frozen=True, slots=True)
class Examination:
    """`version`: as the server says it, such as v1.36.3. `uid`: of the namespace kube-system.
    `skew_s`: how far the server's clock is ahead of ours, on half a second; None: it did not say.
    `unready`: why `/readyz` was not answered with ok; "": it was. `paths_missing`: of
    `NON_RESOURCE`. `schedulers`: name -> pods that name it; `pods`: how many were counted;
    `pods_left`: there are more."""

    version: str
    uid: str
    skew_s: float | None
    unready: str
    rights: tuple[KindRights, ...]
    paths_missing: tuple[str, ...]
    schedulers: Mapping[str, int]
    pods: int
    pods_left: bool

    @property
    def blocking(self) -> tuple[KindRights, ...]:
        return tuple(right for right in self.rights if right.blocks)


async def examine(api: KubeApi, kinds: Sequence[WatchedKind] = WATCHED) -> Examination:
    """ApiError, UnreachableError, CredentialsError: it cannot be said. What is only forbidden is in
    the answer."""
    version, skew_s = await _version(api)
    unready = await _unready(api)
    served = await served_kinds(api, kinds)
    rights, paths = await _rights(api, kinds, served)
    may = {right.kind.qualified for right in rights if right.served and not right.missing}
    schedulers, pods, left = await _schedulers(api) if "pods" in may else (Counter[str](), 0, False)
    return Examination(
        version=version,
        uid=await _uid(api) if "namespaces" in may else "",
        skew_s=skew_s,
        unready=unready,
        rights=tuple(rights),
        paths_missing=paths,
        schedulers=dict(sorted(schedulers.items())),
        pods=pods,
        pods_left=left,
    )


# --- the server


class _ServerVersion(msgspec.Struct, rename="camel"):
    git_version: str


async def _version(api: KubeApi) -> tuple[str, float | None]:
    """The version, and how far the clock is ahead. The header has whole seconds, cut off."""
    before = time.time()
    async with api.answer("GET", "/version", total_s=30.0) as response:
        after = time.time()
        header, body = response.headers.get("Date", ""), await api.body_of(response)
    version = api.decoded(body, _ServerVersion, "/version").git_version
    try:
        there = parsedate_to_datetime(header).timestamp() + 0.5
    except (TypeError, ValueError):
        return version, None
    return version, round(there - (before + after) / 2, 1)


async def _unready(api: KubeApi) -> str:
    try:
        await api.request("GET", "/readyz")
    except ApiError as error:
        # Whether we may ask is said beside the other rights.
        return "" if error.code in (401, 403) else str(error)
    return ""


class _Resource(msgspec.Struct):
    name: str


class _ResourceList(msgspec.Struct):
    resources: list[_Resource] = []


async def served_kinds(api: KubeApi, kinds: Sequence[WatchedKind]) -> set[WatchedKind]:
    """Of the kinds those that the server has, each in the first version. ApiError,
    UnreachableError, CredentialsError."""
    paths = sorted({kind.group_path for kind in kinds})
    found = dict(zip(paths, await asyncio.gather(*(_names(api, p) for p in paths)), strict=True))
    first: dict[str, WatchedKind] = {}
    for kind in kinds:
        if kind.resource in found[kind.group_path]:
            first.setdefault(kind.qualified, kind)
    return set(first.values())


async def _names(api: KubeApi, path: str) -> set[str]:
    try:
        answer = await api.get(path, _ResourceList)
    except ApiError as error:
        if error.code == 404:
            return set()
        raise
    return {resource.name for resource in answer.resources}


# --- rights


class _Review(msgspec.Struct):
    class Status(msgspec.Struct):
        allowed: bool = False

    status: Status


async def _rights(
    api: KubeApi, kinds: Sequence[WatchedKind], served: set[WatchedKind]
) -> tuple[list[KindRights], tuple[str, ...]]:
    """Of all kinds, in their order; and the paths that are forbidden."""
    asked: list[dict[str, object]] = []
    for kind in kinds:
        for verb in kind.verbs if kind in served else ():
            attributes = {"group": kind.group, "resource": kind.resource, "verb": verb}
            asked.append({"resourceAttributes": attributes})
    asked += [{"nonResourceAttributes": {"path": path, "verb": "get"}} for path in NON_RESOURCE]
    limit = asyncio.Semaphore(REVIEWS_AT_ONCE)
    answers = iter(await asyncio.gather(*(_allowed(api, spec, limit) for spec in asked)))
    rights = [
        KindRights(
            kind,
            kind in served,
            tuple(v for v in kind.verbs if not next(answers)) if kind in served else (),
        )
        for kind in kinds
    ]
    return rights, tuple(path for path in NON_RESOURCE if not next(answers))


async def refused_kinds(api: KubeApi, kinds: Sequence[WatchedKind]) -> frozenset[str]:
    """Of the kinds the names of those that these credentials may not read: one review a kind, of
    the last of its verbs (watch, where it is watched). `HEALTH` among them: `/readyz` is refused.
    ApiError, UnreachableError, CredentialsError."""
    asked: list[tuple[str, dict[str, object]]] = [
        (HEALTH, {"nonResourceAttributes": {"path": "/readyz", "verb": "get"}})
    ]
    for kind in kinds:
        attributes = {"group": kind.group, "resource": kind.resource, "verb": kind.verbs[-1]}
        asked.append((kind.kind, {"resourceAttributes": attributes}))
    limit = asyncio.Semaphore(REVIEWS_AT_ONCE)
    answers = await asyncio.gather(*(_allowed(api, spec, limit) for _, spec in asked))
    return frozenset(name for (name, _), allowed in zip(asked, answers, strict=True) if not allowed)


async def missing_writes(
    api: KubeApi, verbs: Collection[Verb], secrets: Iterable[str] = ()
) -> list[str]:
    """What the verbs need and these credentials may not do, such as `create pods/binding`, in the
    order in which it is printed as rights. `secrets`: namespaces whose Secrets are copied.
    ApiError, UnreachableError, CredentialsError."""
    asked: list[tuple[str, dict[str, object]]] = []
    of_secrets = [(namespace, secret_rules(verbs)) for namespace in sorted(secrets)]
    for namespace, rules in (("", actuator_rules(verbs)), (NAMESPACE, own_rules()), *of_secrets):
        for rule in cast(list[dict[str, list[str]]], rules):
            for verb, resource in product(rule["verbs"], rule["resources"]):
                name, _, part = resource.partition("/")
                attributes: dict[str, object] = {
                    "group": rule["apiGroups"][0],
                    "resource": name,
                    "subresource": part,
                    "verb": verb,
                    "namespace": namespace,
                    "name": rule.get("resourceNames", [""])[0],
                }
                within = f" in {namespace}" if resource == "secrets" else ""
                asked.append((f"{verb} {resource}{within}", {"resourceAttributes": attributes}))
    limit = asyncio.Semaphore(REVIEWS_AT_ONCE)
    answers = await asyncio.gather(*(_allowed(api, spec, limit) for _, spec in asked))
    return [what for (what, _), allowed in zip(asked, answers, strict=True) if not allowed]


async def _allowed(api: KubeApi, spec: dict[str, object], limit: asyncio.Semaphore) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": spec,
    }
    async with limit:
        body = await api.request("POST", _REVIEWS, body=msgspec.json.encode(review))
    return api.decoded(body, _Review, _REVIEWS).status.allowed


# --- who works there


class _NamespaceMeta(msgspec.Struct):
    uid: str


class _Namespace(msgspec.Struct):
    metadata: _NamespaceMeta


async def _uid(api: KubeApi) -> str:
    found = await api.get("/api/v1/namespaces/kube-system", _Namespace)
    return found.metadata.uid


class _ScheduledSpec(msgspec.Struct, rename="camel"):
    scheduler_name: str = ""


class _ScheduledPod(msgspec.Struct):
    spec: _ScheduledSpec


class _PageMeta(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _PodPage(msgspec.Struct):
    metadata: _PageMeta
    items: list[_ScheduledPod] = []


async def _schedulers(api: KubeApi) -> tuple[Counter[str], int, bool]:
    found: Counter[str] = Counter()
    parameters = {"limit": str(PODS_PAGE)}
    while True:
        page = await api.get("/api/v1/pods", _PodPage, parameters)
        found.update(pod.spec.scheduler_name for pod in page.items)
        if not page.metadata.continue_ or found.total() >= PODS_READ_MAX:
            return found, found.total(), bool(page.metadata.continue_)
        parameters["continue"] = page.metadata.continue_
