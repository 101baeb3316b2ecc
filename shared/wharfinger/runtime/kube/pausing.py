"""Whether those who run a cluster have stopped all writing to it."""

from __future__ import annotations

from wharfinger.domain.text import one_line
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.identity import AWAY
from wharfinger.runtime.kube.rights import NAMESPACE, PAUSE


async def paused(api: KubeApi) -> str:
    """Why nothing may be written by the word of those who run the cluster."""
    try:
        await api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/{PAUSE}")
    except ApiError as error:
        return "" if error.code == 404 else str(error)
    except AWAY as error:
        return one_line(error)
    return f"paused by the ConfigMap {NAMESPACE}/{PAUSE}"
