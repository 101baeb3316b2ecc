"""Which server answers: by the uid of the namespace kube-system. Facts of two must not be mixed,
and what was decided about one must not be done in another."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec

from wharfinger.domain.text import one_line
from wharfinger.runtime.kube.api import ApiError, KubeApi, UnreachableError
from wharfinger.runtime.kube.credentials import CredentialsError
from wharfinger.runtime.logs import get_logger

AWAY = (ApiError, UnreachableError, CredentialsError)
"""A cluster that does not answer, or not to us."""

AGAIN_S_MIN, AGAIN_S_MAX = 1.0, 30.0

log = get_logger(__name__)


class ReplacedError(Exception):
    """Another server answers where the one that is read was."""


class _UidMeta(msgspec.Struct):
    uid: str


class _UidOfNamespace(msgspec.Struct):
    metadata: _UidMeta


class Identity:
    """`uid`: of the server that was joined; "": the first one that answers is the one. `why`: why
    it is not read; "": it is. `replaced`: called each time that another one answers. `asked`: set
    after the first answer, or after the first attempt to get one."""

    def __init__(self, name: str, uid: str, replaced: Callable[[], Awaitable[None]]) -> None:
        self.uid = uid
        self.why = ""
        self.asked = asyncio.Event()
        self._name = name
        self._replaced = replaced

    async def found(self, api: KubeApi) -> None:
        """Returns when the server has said who it is, and it is the one that was joined."""
        pause = AGAIN_S_MIN
        while True:
            try:
                uid = await _uid_of(api)
                expected = self.uid or uid
                if expected == uid:
                    self.uid, self.why = uid, ""
                    self.asked.set()
                    return
                self.why = f"another cluster answers: expected the uid {expected}, got {uid}"
                await self._replaced()
            except AWAY as error:
                self.why = one_line(error)
            log.warning("cluster.not_read", cluster=self._name, why=self.why)
            self.asked.set()
            await asyncio.sleep(pause * (0.5 + random.random() / 2))
            pause = min(AGAIN_S_MAX, pause * 2)

    async def checked(self, api: KubeApi) -> None:
        """ReplacedError; what else a request raises. Without the right to ask, it is taken for the
        same: rights are taken away by those who run it."""
        try:
            uid = await _uid_of(api)
        except ApiError as error:
            if error.code == 403:
                return
            raise
        if uid != self.uid:
            raise ReplacedError(self._name)


async def _uid_of(api: KubeApi) -> str:
    return (await api.get("/api/v1/namespaces/kube-system", _UidOfNamespace)).metadata.uid
