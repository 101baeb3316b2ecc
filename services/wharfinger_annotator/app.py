"""The annotator as a service: an observer that also asks.

Each turn the observer says which questions are due; each is a task of its own that asks Prometheus
and brings the answer back to the loop. Without a Prometheus only hot values are kept, and that is
said once in the log.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from wharfinger.events.streams import ASSIGNMENTS, CLUSTER_STATE, CLUSTERS, POLICIES
from wharfinger.kernel.decider import Micros
from wharfinger.runtime.current_assignments import assignments_of
from wharfinger.runtime.logs import get_logger
from wharfinger.runtime.observer_service import ObserverService, Observing
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger.runtime.settings import Settings, SettingsError
from wharfinger.runtime.tasks import end_tasks
from wharfinger.stages.annotator import AnnotatorObserver, AnnotatorState, Query, QueryFailure

if TYPE_CHECKING:
    from wharfinger_annotator.prometheus import Prometheus, PrometheusSettings

NAME = "annotator"

log = get_logger()


class AnnotatorService(ObserverService[AnnotatorState]):
    def __init__(
        self, context: ServiceContext, observer: AnnotatorObserver, prometheus: Prometheus | None
    ) -> None:
        self._prometheus = prometheus
        self._observer = observer
        self._questions: set[asyncio.Task[None]] = set()

        super().__init__(
            Observing(
                NAME,
                observer,
                partitioned=(CLUSTER_STATE, ASSIGNMENTS),
                broadcast=(CLUSTERS, POLICIES),
                load=assignments_of(context),
                turn=self._ask_due,
            ),
            context,
        )

    async def stop(self) -> None:
        await end_tasks(self._questions)
        await super().stop()
        if self._prometheus is not None:
            await self._prometheus.aclose()

    def _ask_due(self, state: AnnotatorState, at: Micros) -> None:
        for query in self._observer.due_queries(state, at):
            task = asyncio.create_task(
                self._ask(state, query), name=f"ask-{query.cluster}-{query.metric}"
            )
            self._questions.add(task)
            task.add_done_callback(self._questions.discard)

    async def _ask(self, state: AnnotatorState, query: Query) -> None:
        assert self._prometheus is not None, "an observer without Prometheus has no questions"
        answer = await self._prometheus.ask(query)
        if state is not self.loop.state:
            return  # the partitions changed meanwhile: the new state has its own timetable
        at = self._context.clock()
        if isinstance(answer, QueryFailure):
            log.warning(
                "prometheus.failed", cluster=query.cluster, metric=query.metric, why=answer.line
            )
            self._observer.fold_answer(state, query, answer, at)
        else:
            matched = self._observer.match(state, query.cluster, answer.series)
            self._observer.fold_answer(state, query, matched.loads, at)
        self.loop.nudge()


def prometheus_settings(settings: Settings) -> PrometheusSettings | None:
    if settings.prometheus_url is None:
        return None
    from wharfinger_annotator.prometheus import Matcher, PrometheusSettings

    password, bearer = settings.prometheus_password, settings.prometheus_bearer
    return PrometheusSettings(
        url=settings.prometheus_url,
        username=settings.prometheus_username,
        password=password.get_secret_value() if password else None,
        bearer=bearer.get_secret_value() if bearer else None,
        bearer_file=settings.prometheus_bearer_file,
        ca_file=settings.prometheus_ca_file,
        cert_file=settings.prometheus_cert_file,
        key_file=settings.prometheus_key_file,
        insecure_skip_verify=settings.prometheus_insecure,
        cluster_label=settings.prometheus_cluster_label,
        matchers=tuple(Matcher(m.label, m.value, m.op) for m in settings.prometheus_matchers),
        connect_timeout_s=settings.prometheus_connect_timeout_s,
        timeout_s=settings.prometheus_timeout_s,
    )


def build(context: ServiceContext) -> Service:
    prometheus = _prometheus(context.settings)
    if prometheus is None:
        log.info("annotator.no_prometheus", kept="hot values only")
    return AnnotatorService(context, AnnotatorObserver(asks=prometheus is not None), prometheus)


def _prometheus(settings: Settings) -> Prometheus | None:
    if settings.prometheus_url is None:
        return None
    # here, because its HTTP client takes 5 MB
    from wharfinger_annotator.prometheus import Prometheus, PrometheusConfigError

    try:
        wanted = prometheus_settings(settings)
        return Prometheus(wanted) if wanted is not None else None
    except PrometheusConfigError as error:
        # say a certificate that is not there: a person's to mend, not a restart's
        raise SettingsError(f"prometheus: {error}") from error


BUILDERS = {NAME: build}
