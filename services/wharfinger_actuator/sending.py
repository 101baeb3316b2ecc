"""What writers of member clusters and of hubs have in common: one request and its answer."""

from __future__ import annotations

from wharfinger.domain.text import one_line
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.identity import AWAY
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
