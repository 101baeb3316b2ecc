"""All objects of one kind, read once in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Generic, TypeVar

import msgspec

from wharfinger.runtime.kube.api import KubeApi

PAGE = 500

T = TypeVar("T")


class _ObjectPageMeta(msgspec.Struct, rename="camel"):
    continue_: str = msgspec.field(name="continue", default="")


class ObjectPage(msgspec.Struct, Generic[T]):
    items: list[T]
    metadata: _ObjectPageMeta = msgspec.field(default_factory=_ObjectPageMeta)


async def listed(api: KubeApi, path: str, as_: type[ObjectPage[T]]) -> AsyncIterator[T]:
    """`path`: of the collection, such as `/api/v1/pods`. ApiError, UnreachableError,
    CredentialsError."""
    token = ""
    while True:
        parameters = {"limit": str(PAGE), **({"continue": token} if token else {})}
        page = await api.get(path, as_, parameters)
        for item in page.items:
            yield item
        token = page.metadata.continue_
        if not token:
            return
