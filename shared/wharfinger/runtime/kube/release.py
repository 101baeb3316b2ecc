"""Giving a cluster back: what was changed there for a decision is undone, and nothing else.

Nodes that this ledger has closed are uncordoned; those that carry our annotation and that it knows
nothing of are left, and said. Pods, nodes and copied workloads stay where they are, and there are
no finalizers to remove: none are set. Each change has the precondition of the actuator's own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

from wharfinger.domain.actuation import ANNOTATION, is_ours
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.changed_objects import NodeObject, PodObject
from wharfinger.runtime.kube.pages import ObjectPage, listed
from wharfinger.stages.actuator.answers import Outcome
from wharfinger.stages.actuator.attempts import CHANGES_MAX
from wharfinger.stages.actuator.copied_objects import COPIED_PATHS, given_back, secrets_path
from wharfinger.stages.actuator.effects import Effect, EffectObject
from wharfinger.stages.actuator.plan import UNSCHEDULABLE, WAITING_FOR_NODE
from wharfinger.stages.actuator.requests import (
    MERGE_PATCH,
    ApiRequest,
    mark_request,
    node_request,
    path_of,
)


@dataclass(frozen=True, slots=True)
class GivenBack:
    """One object. `what`: what is done with it; `ok`: whether that is so now, or would be in a dry
    run. `why`: why it is left or could not be changed."""

    object: str
    what: str
    ok: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """`read`, `write`: the server with the credentials that read and write. `decided`: nodes that
    the ledger has ever closed there. `at`: now, microseconds. `annotations`: those of pods and
    copies go, too. `dry_run`: nothing is sent. `secrets`: namespaces whose Secrets were copied."""

    cluster: str
    read: KubeApi
    write: KubeApi
    decided: Collection[str]
    at: int
    annotations: bool = False
    dry_run: bool = False
    secrets: Collection[str] = ()

    async def all(self) -> AsyncIterator[GivenBack]:
        """ApiError, UnreachableError, CredentialsError: where nothing can be read or written."""
        async for node in self._nodes():
            yield node
        async for pod in self._pods():
            yield pod
        of_secrets = [("Secret", secrets_path(namespace)) for namespace in sorted(self.secrets)]
        for kind, path in (*COPIED_PATHS.items(), *of_secrets):
            async for copy in self._copies(kind, path):
                yield copy

    # --- nodes

    async def _nodes(self) -> AsyncIterator[GivenBack]:
        async for node in listed(self.read, "/api/v1/nodes", ObjectPage[NodeObject]):
            now = node.now
            if not is_ours(now.closed_by, self.cluster):
                continue
            name = node.metadata.name
            if name not in self.decided:
                why = f"{now.closed_by} is no decision of this ledger"
                yield GivenBack(f"Node {name}", "left as it is", False, why)
                continue
            yield await self._reopened(name, node)

    async def _reopened(self, name: str, node: NodeObject) -> GivenBack:
        what = "uncordoned" if node.now.unschedulable else "annotation removed"
        effect = Effect(self.cluster, "reopen-node", EffectObject("Node", "", name))
        for _ in range(CHANGES_MAX):
            request = node_request(effect, node.now)
            if isinstance(request, Outcome) or self.dry_run:
                return GivenBack(f"Node {name}", what)
            error = await self._sent(request)
            if error is None:
                return GivenBack(f"Node {name}", what)
            if error.code != 409:
                return GivenBack(f"Node {name}", what, False, str(error))
            node = await self.read.get(path_of(effect), NodeObject)
        return GivenBack(f"Node {name}", what, False, "it changes all the time: run it again")

    # --- pods

    async def _pods(self) -> AsyncIterator[GivenBack]:
        async for pod in listed(self.read, "/api/v1/pods", ObjectPage[PodObject]):
            now, meta = pod.now, pod.metadata
            object = EffectObject("Pod", meta.namespace, meta.name, meta.uid)
            if now.reason == WAITING_FOR_NODE and not now.node:
                # From now on others make nodes for it; they look for this reason.
                effect = Effect(
                    self.cluster, "mark-pod", object, reason=UNSCHEDULABLE, message=now.message
                )
                request = mark_request(effect, now, self.at)
                if isinstance(request, ApiRequest):
                    yield await self._changed(object, f"condition {UNSCHEDULABLE}", request)
            ours = [key for key in meta.annotations or () if key.startswith(ANNOTATION)]
            if self.annotations and ours:
                path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}"
                gone = {"uid": meta.uid, "annotations": dict.fromkeys(sorted(ours))}
                request = ApiRequest("PATCH", path, {"metadata": gone}, MERGE_PATCH)
                yield await self._changed(object, "annotations removed", request)

    async def _changed(self, object: EffectObject, what: str, request: ApiRequest) -> GivenBack:
        error = None if self.dry_run else await self._sent(request)
        if error is None or error.code == 404:
            return GivenBack(str(object), what)
        return GivenBack(str(object), what, False, str(error))

    async def _sent(self, request: ApiRequest) -> ApiError | None:
        try:
            await self.write.request(
                request.method,
                request.path,
                request.parameters,
                request.encoded(),
                request.content_type,
            )
        except ApiError as error:
            return error
        return None

    # --- copied workloads

    async def _copies(self, kind: str, path: str) -> AsyncIterator[GivenBack]:
        """They stay. Read by who writes: who reads the cluster may not list ConfigMaps. Without the
        right to list them there are none of ours."""
        try:
            async for copy in listed(self.write, path, ObjectPage[dict[str, Any]]):
                if (found := given_back({**copy, "kind": kind})) is None:
                    continue
                object, request = found
                if self.annotations:
                    yield await self._changed(object, "stays, annotations removed", request)
                else:
                    yield GivenBack(str(object), "stays")
        except ApiError as error:
            if error.code not in (403, 404):
                raise
