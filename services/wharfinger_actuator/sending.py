"""What writers of member clusters and of hubs have in common: one request, and whether those who
run the cluster have stopped us."""

from __future__ import annotations

from wharfinger.domain.text import one_line
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.identity import AWAY
from wharfinger.runtime.kube.rights import NAMESPACE, PAUSE
from wharfinger.stages.actuator.answers import NO_ANSWER, ApiAnswer
from wharfinger.stages.actuator.requests import ApiRequest

BATCH = 200
"""Requests after which it is looked again whether writing is allowed, and what is open."""


async def answered(api: KubeApi, request: ApiRequest) -> ApiAnswer:
    """Sent once. Every failure is an answer."""
    try:
        await api.request(
            request.method,
            request.path,
            request.parameters,
            request.encoded(),
            request.content_type,
        )
    except AWAY as error:
        return failed(error)
    return ApiAnswer(200)


def failed(error: Exception) -> ApiAnswer:
    if isinstance(error, ApiError):
        return ApiAnswer(error.code, error.reason, error.message, error.causes, error.retry_after_s)
    return ApiAnswer(NO_ANSWER, message=one_line(error))


async def paused(api: KubeApi) -> str:
    """Why nothing may be written by the word of those who run the cluster."""
    try:
        await api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{PAUSE}")
    except ApiError as error:
        return "" if error.code == 404 else str(error)
    except AWAY as error:
        return one_line(error)
    return f"paused by the ConfigMap {NAMESPACE}/{PAUSE}"
