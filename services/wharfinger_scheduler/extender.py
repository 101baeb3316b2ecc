"""This plane as an HTTP extender of a cluster's own kube-scheduler: `/extender/<cluster>/filter`,
`prioritize`, `preempt`, `bind`.

In the configuration of the kube-scheduler, `urlPrefix: http://<host>:<port>/extender/<cluster>` and
these verbs. Served by the process that holds the cluster's stream; another one answers 404 and
names none, since any replica behind the same address may be asked again.

Only `bind` does something: it hands the binding to the cluster's API server, where one is
configured, for an extender that binds stands in the place of the scheduler's own binding."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from wharfinger.domain.text import one_line
from wharfinger.engine.framework import extenders
from wharfinger.events.streams import cluster_stream
from wharfinger.runtime.health import Door, NotHereError
from wharfinger.runtime.settings import Settings
from wharfinger.runtime.stage_service import StageService
from wharfinger.stages.cluster import extender_server
from wharfinger.stages.cluster.state import ClusterStageState

T = TypeVar("T")

BIND_TIMEOUT_S = 10.0

NOT_CONFIGURED = (
    "binding for clusters is not configured here: set WHARFINGER_CLUSTER_API_URL, "
    "or leave bindVerb out"
)


class ClusterStageService(StageService[ClusterStageState]):
    """The cluster stage, which can be asked as an extender."""

    def doors(self) -> Mapping[str, Door]:
        binder = Binder.of(self._context.settings)
        return {
            "/extender/{cluster}/filter": self._answer(extender_server.filtered),
            "/extender/{cluster}/prioritize": self._answer(extender_server.prioritized),
            "/extender/{cluster}/preempt": self._answer(extender_server.preempted),
            "/extender/{cluster}/bind": self._bind(binder),
        }

    def _answer(self, ask: Callable[[ClusterStageState, bytes], bytes]) -> Door:
        async def door(path: Mapping[str, str], body: bytes) -> bytes:
            return await self._look(path["cluster"], lambda state: ask(state, body))

        return door

    def _bind(self, binder: Binder | None) -> Door:
        async def door(path: Mapping[str, str], body: bytes) -> bytes:
            # The name is the state's own: a caller must not choose by a name where our token is
            # sent.
            cluster = await self._look(path["cluster"], lambda state: state.cluster)
            asked = extenders.asked_to_bind(body)
            return extenders.bind_reply(
                NOT_CONFIGURED if binder is None else await binder.bind(cluster, asked)
            )

        return door

    async def _look(self, cluster: str, of: Callable[[ClusterStageState], T]) -> T:
        found = await self.loop.look(cluster_stream(cluster), of)
        if found is None:
            raise NotHereError(f"cluster {cluster}: expected one that this process schedules")
        return found


class Binder:
    """Writes `v1 Binding` objects to the API servers of clusters. `{cluster}` in `url` stands for
    the cluster's name."""

    def __init__(self, url: str, token_file: Path | None, ca_file: Path | None) -> None:
        self._url = url
        self._token_file = token_file
        trust: Any = ssl.create_default_context(cafile=ca_file) if ca_file is not None else True
        self._client = httpx.AsyncClient(verify=trust, timeout=BIND_TIMEOUT_S, trust_env=False)

    @classmethod
    def of(cls, settings: Settings) -> Binder | None:
        url = settings.cluster_api_url
        return (
            None
            if url is None
            else cls(url, settings.cluster_api_token_file, settings.cluster_api_ca_file)
        )

    async def bind(self, cluster: str, asked: extenders.AskedToBind) -> str:
        """Why it was not bound, in one line; empty: it was."""
        base = self._url.replace("{cluster}", quote(cluster, safe=""))
        namespace, name = quote(asked.namespace or "default", safe=""), quote(asked.name, safe="")
        url = f"{base}/api/v1/namespaces/{namespace}/pods/{name}/binding"
        metadata = {"name": asked.name, "namespace": asked.namespace or "default", "uid": asked.uid}
        target = {"apiVersion": "v1", "kind": "Node", "name": asked.node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        try:
            headers = (
                {}
                if self._token_file is None
                else {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}
            )
            response = await self._client.post(url, json=binding, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            return f"{url}: {one_line(error)}"[:300]
        return "" if response.is_success else f"{url}: answered with status {response.status_code}"
