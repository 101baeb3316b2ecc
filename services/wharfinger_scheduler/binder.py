"""Writes bindings to the API servers of clusters, for a kube-scheduler that leaves `bind` to us as
its extender (`wharfinger_scheduler.extender`)."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from wharfinger.domain.text import one_line
from wharfinger.engine.framework import extenders

BIND_TIMEOUT_S = 10.0


class Binder:
    """Writes `v1 Binding` objects to the API servers of clusters. `{cluster}` in `url` stands for
    the cluster's name."""

    def __init__(self, url: str, token_file: Path | None, ca_file: Path | None) -> None:
        self._url = url
        self._token_file = token_file
        trust: Any = ssl.create_default_context(cafile=ca_file) if ca_file is not None else True
        self._client = httpx.AsyncClient(verify=trust, timeout=BIND_TIMEOUT_S, trust_env=False)

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
