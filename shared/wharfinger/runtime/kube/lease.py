"""A Lease of a member cluster: who of several processes may write there.

As in the leader election of Kubernetes' own clients: the holder renews it, and another process
takes it over when it has not changed for as long as it lasts, by the clock of who looks. Clocks of
two machines are never compared. It spares work, and is no guarantee: every write has a precondition
of its own.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import msgspec

from wharfinger.domain.text import one_line
from wharfinger.runtime.kube.api import ApiError, KubeApi
from wharfinger.runtime.kube.identity import AWAY, Identity
from wharfinger.runtime.logs import get_logger

LASTS_S = 15
RENEW_S = 5.0
LEFT_S_MIN = 5.0
"""Nothing is written with less than this left: a request may take as long."""

log = get_logger(__name__)


class _LeaseMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None
    acquire_time: str | None = None
    lease_transitions: int | None = None


class _LeaseObject(msgspec.Struct):
    metadata: _LeaseMeta
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class KubeLease:
    """`holder`: who we are; of two processes each has a name of its own. `identity`: which server
    it is of; it is not renewed in another one, where somebody else may need it. `why`: why we do
    not hold it; "": we do, or have not asked yet."""

    def __init__(
        self, api: KubeApi, namespace: str, name: str, holder: str, identity: Identity | None = None
    ) -> None:
        self._api = api
        self._identity = identity
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._collection}/{name}"
        self._named = {"name": name, "namespace": namespace}
        self._holder = holder
        self._held_until = 0.0
        self._seen: tuple[str, float] = ("", 0.0)
        """The version in which another holder had it, and since when we have seen that one."""
        self.why = ""

    @property
    def held(self) -> bool:
        """Whether there is enough time left to write."""
        return time.monotonic() < self._held_until - LEFT_S_MIN

    async def keep(self) -> None:
        """Take it where it is free and renew it, until cancelled. ReplacedError."""
        while True:
            try:
                await self.renew()
            except AWAY as error:
                self.why = one_line(error)
                log.info("lease.not_held", path=self._path, why=self.why)
            await asyncio.sleep(RENEW_S if self.held or self._seen[0] else RENEW_S / 5)

    async def renew(self) -> None:
        """Once. ApiError, UnreachableError, CredentialsError, ReplacedError."""
        began = time.monotonic()
        if self._identity is not None:
            await self._identity.checked(self._api)
        try:
            found = await self._api.get(self._path, _LeaseObject)
        except ApiError as error:
            if error.code != 404:
                raise
            await self._write("POST", self._collection, "", _LeaseSpec(), began)
            return
        spec, version = found.spec, found.metadata.resource_version
        if spec.holder_identity and spec.holder_identity != self._holder:
            if version != self._seen[0]:
                self._seen = version, began
            if began - self._seen[1] < LASTS_S:
                self.why = f"held by {spec.holder_identity}"
                return
        await self._write("PUT", self._path, version, spec, began)

    async def holder(self) -> str:
        """Who holds it by the clock of this machine; "": no process does. ApiError,
        UnreachableError, CredentialsError."""
        try:
            spec = (await self._api.get(self._path, _LeaseObject)).spec
        except ApiError as error:
            if error.code != 404:
                raise
            return ""
        if not spec.holder_identity or not spec.renew_time:
            return ""
        age = datetime.now(UTC) - datetime.fromisoformat(spec.renew_time)
        return spec.holder_identity if age.total_seconds() < 2 * LASTS_S else ""

    def forget(self) -> None:
        """Another server answers: there is nothing to give back there."""
        self._held_until = 0.0

    async def give_back(self) -> None:
        """So that the next one need not wait until it has run out. Errors are not worth a wait."""
        if not self.held:
            return
        self._held_until = 0.0
        try:
            found = await self._api.get(self._path, _LeaseObject)
            if found.spec.holder_identity == self._holder:
                body = self._body(found.metadata.resource_version, found.spec, "", "")
                await self._api.request("PUT", self._path, body=body)
        except AWAY as error:
            log.info("lease.not_given_back", path=self._path, why=one_line(error))

    async def _write(
        self, method: str, path: str, version: str, before: _LeaseSpec, began: float
    ) -> None:
        """A conflict says that another one was faster: it is looked at again."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        try:
            body = self._body(version, before, self._holder, now)
            await self._api.request(method, path, body=body)
        except ApiError as error:
            if error.code != 409:
                raise
            self.why = "another process took it"
            return
        self._held_until, self._seen, self.why = began + LASTS_S, ("", 0.0), ""

    def _body(self, version: str, before: _LeaseSpec, holder: str, now: str) -> bytes:
        taken = bool(holder) and before.holder_identity != holder
        transitions = (before.lease_transitions or 0) + (taken and before.acquire_time is not None)
        spec: dict[str, object] = {
            "leaseDurationSeconds": LASTS_S if holder else 1,
            "leaseTransitions": transitions,
            "holderIdentity": holder,
        }
        if acquired := now if taken else before.acquire_time:
            spec["acquireTime"] = acquired
        if renewed := now or before.renew_time:
            spec["renewTime"] = renewed
        metadata = {**self._named, **({"resourceVersion": version} if version else {})}
        return msgspec.json.encode(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": metadata,
                "spec": spec,
            }
        )
