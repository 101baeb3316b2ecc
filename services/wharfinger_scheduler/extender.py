"""This plane as an HTTP extender of a cluster's own kube-scheduler: `/extender/<cluster>/filter`,
`prioritize`, `preempt`, `bind`.

In the configuration of the kube-scheduler, `urlPrefix: http://<host>:<port>/extender/<cluster>` and
these verbs. Served by the process that holds the cluster's stream; another one answers 404 and
names none, since any replica behind the same address may be asked again.

Only `bind` does something: it hands the binding to the cluster's API server, where one is
configured, for an extender that binds stands in the place of the scheduler's own binding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from wharfinger.engine.framework import extenders
from wharfinger.events.streams import cluster_stream
from wharfinger.runtime.health import Door, NotHereError
from wharfinger.runtime.stage_service import StageService
from wharfinger.stages.cluster import extender_server
from wharfinger.stages.cluster.state import ClusterStageState

if TYPE_CHECKING:
    from wharfinger_scheduler.binder import Binder

T = TypeVar("T")

NOT_CONFIGURED = (
    "binding for clusters is not configured here: set WHARFINGER_CLUSTER_API_URL, "
    "or leave bindVerb out"
)


class ClusterStageService(StageService[ClusterStageState]):
    """The cluster stage, which can be asked as an extender."""

    def doors(self) -> Mapping[str, Door]:
        binder = self._binder()
        return {
            "/extender/{cluster}/filter": self._answer(extender_server.filtered),
            "/extender/{cluster}/prioritize": self._answer(extender_server.prioritized),
            "/extender/{cluster}/preempt": self._answer(extender_server.preempted),
            "/extender/{cluster}/bind": self._bind(binder),
        }

    def _binder(self) -> Binder | None:
        settings = self._context.settings
        if settings.cluster_api_url is None:
            return None
        # here, because its HTTP client takes 5 MB and few planes bind for another scheduler
        from wharfinger_scheduler.binder import Binder

        return Binder(
            settings.cluster_api_url, settings.cluster_api_token_file, settings.cluster_api_ca_file
        )

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
