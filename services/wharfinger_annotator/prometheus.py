"""Prometheus' HTTP API, as far as the annotator needs it: one instant query a metric and cluster.

`Prometheus.ask` returns the series or a `QueryFailure` and never raises: a server that is down,
sends wrong answers or sends them slowly is common, and the timetable in
`wharfinger.stages.annotator` deals with it. A transient failure that is safe to repeat (no
connection, a broken one, a gateway's 502 to 504) is retried at once, a few times. All others wait
for the timetable. Redirects are not followed and proxies of the environment are not used: the
credentials are sent to the configured host only.
"""

from __future__ import annotations

import asyncio
import errno
import math
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import httpx
import msgspec
import stamina

from wharfinger.domain.text import printable
from wharfinger.domain.value import json_decoder
from wharfinger.runtime.http_bodies import ACCEPT_ENCODING, BodyTooLargeError, body_within
from wharfinger.stages.annotator import FailureKind, PrometheusAnswer, Query, QueryFailure, Series

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_TRANSIENT_STATUS = frozenset({502, 503, 504})
_LINE_MAX = 300
"""How much of a server's own words goes into our line."""


class PrometheusConfigError(ValueError):
    """A setting that cannot work, in one line."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """One label matcher of every query, say `job="node-exporter"`."""

    label: str
    value: str
    op: Literal["=", "!=", "=~", "!~"] = "="

    def __post_init__(self) -> None:
        if not _LABEL.fullmatch(self.label):
            raise PrometheusConfigError(
                f"matcher: expected the name of a label, got {self.label!r}"
            )
        if self.op not in ("=", "!=", "=~", "!~"):
            raise PrometheusConfigError(
                f"matcher of {self.label}: expected =, !=, =~ or !~, got {self.op!r}"
            )

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.label}{self.op}"{escaped}"'


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """`url`: the server, with a path prefix where it has one. At most one of user name, bearer and
    bearer file; the file is read again for every request, because tokens rotate.

    `cluster_label`: the label that holds the cluster's name where one Prometheus watches several;
    empty: the server knows only this cluster. `matchers`: added to every query. `timeout_s`: for
    one attempt as a whole, connecting, waiting and reading. `attempts`: how often a transient
    failure is met, first included.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    bearer: str | None = field(default=None, repr=False)
    bearer_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_verify: bool = False
    cluster_label: str = ""
    matchers: tuple[Matcher, ...] = ()
    connect_timeout_s: float = 3.0
    timeout_s: float = 10.0
    attempts: int = 3
    connections_max: int = 8
    series_max: int = 10_000
    answer_bytes_max: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        url = _parsed(self.url)
        if url is None or url.scheme not in ("http", "https") or not url.host:
            raise PrometheusConfigError(
                f"url: expected http://host:port or https://host:port, got {self.url!r}"
            )
        if url.userinfo or url.query or url.fragment:
            raise PrometheusConfigError("url: expected no credentials, query or fragment in it")
        if (self.username is None) != (self.password is None):
            raise PrometheusConfigError("username, password: expected both or neither")
        if sum(way is not None for way in (self.username, self.bearer, self.bearer_file)) > 1:
            raise PrometheusConfigError("expected one of username, bearer and bearer_file")
        if self.key_file is not None and self.cert_file is None:
            raise PrometheusConfigError("key_file: expected a cert_file with it")
        if self.cluster_label and not _LABEL.fullmatch(self.cluster_label):
            raise PrometheusConfigError(
                f"cluster_label: expected the name of a label, got {self.cluster_label!r}"
            )
        for name in (
            "connect_timeout_s",
            "timeout_s",
            "attempts",
            "connections_max",
            "series_max",
            "answer_bytes_max",
        ):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise PrometheusConfigError(f"{name}: expected a number above zero, got {value}")

    def promql(self, cluster: str, metric: str) -> str:
        """The query for all nodes of `cluster`. Names are quoted, never pasted, so none of them can
        be PromQL."""
        if not _METRIC.fullmatch(metric):
            raise ValueError(f"{metric!r} is not the name of a metric")
        own = (Matcher(self.cluster_label, cluster),) if self.cluster_label else ()
        return f"{metric}{{{','.join(str(m) for m in (*own, *self.matchers))}}}"


class _TransientError(Exception):
    """Carries the failure of an attempt that is worth another one."""

    def __init__(self, failure: QueryFailure) -> None:
        super().__init__(failure.line)
        self.failure = failure


class _Sample(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct, rename={"result_type": "resultType"}):
    result_type: str
    result: msgspec.Raw


class _Reply(msgspec.Struct, rename={"error_type": "errorType"}):
    """The frame of every answer of the API. `infos` are remarks of newer servers, kept with the
    warnings."""

    status: Literal["success", "error"]
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: list[str] = []
    infos: list[str] = []


_reply_decoder = json_decoder(_Reply)
_vector_decoder = json_decoder(list[_Sample])


class Prometheus:
    """A client of one server. Open it with `async with`, share it between tasks."""

    def __init__(self, settings: PrometheusSettings) -> None:
        """Raises PrometheusConfigError when a certificate cannot be loaded."""
        self._settings = settings
        self._url = settings.url.rstrip("/") + "/api/v1/query"
        auth: httpx.BasicAuth | None = None
        if settings.username is not None and settings.password is not None:
            auth = httpx.BasicAuth(settings.username, settings.password)
        self._client = httpx.AsyncClient(
            auth=auth,
            verify=_tls(settings),
            trust_env=False,
            follow_redirects=False,
            limits=httpx.Limits(max_connections=settings.connections_max),
            # The whole attempt is bounded by `timeout_s` in `_attempt`; httpx alone would let a
            # server drip forever.
            timeout=httpx.Timeout(
                settings.timeout_s, connect=settings.connect_timeout_s, pool=None
            ),
            headers={
                "Accept": "application/json",
                "User-Agent": "wharfinger-annotator",
                **ACCEPT_ENCODING,
            },
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._client.aclose()

    async def ask(self, query: Query) -> PrometheusAnswer | QueryFailure:
        return await self.query(query.cluster, query.metric)

    async def query(self, cluster: str, metric: str) -> PrometheusAnswer | QueryFailure:
        """The latest samples of `metric` for all nodes of `cluster`."""
        try:
            promql = self._settings.promql(cluster, metric)
        except ValueError as error:
            return self._failure("rejected", str(error))
        form = {"query": promql, "timeout": f"{math.ceil(self._settings.timeout_s)}s"}
        try:
            async for attempt in stamina.retry_context(
                on=_TransientError,
                attempts=self._settings.attempts,
                timeout=None,
                wait_initial=0.1,
                wait_max=1.0,
                wait_jitter=0.1,
            ):
                with attempt:
                    return await self._attempt(form)
        except _TransientError as error:
            return error.failure
        raise AssertionError("a retried attempt neither answered nor failed")

    async def _attempt(self, form: Mapping[str, str]) -> PrometheusAnswer | QueryFailure:
        try:
            headers = self._authorization()
        except OSError as error:
            return self._failure(
                "credentials", f"{self._settings.bearer_file}: {error.strerror or error}"
            )
        try:
            async with (
                asyncio.timeout(self._settings.timeout_s),
                self._client.stream("POST", self._url, data=form, headers=headers) as response,
            ):
                body = await self._body(response)
        except httpx.ConnectTimeout:
            return self._failure(
                "timeout", f"no connection within {self._settings.connect_timeout_s:g} s"
            )
        except (TimeoutError, httpx.TimeoutException):
            return self._failure(
                "timeout", f"no whole answer within {self._settings.timeout_s:g} s"
            )
        except httpx.DecodingError as error:
            return self._failure("malformed", f"the answer's content encoding is broken: {error}")
        except (
            httpx.InvalidURL
        ) as error:  # httpx reads where a redirect leads, though none is followed
            return self._failure("redirected", f"to what is no address: {error}")
        except httpx.TransportError as error:
            raise _TransientError(
                self._failure("unreachable", str(error) or type(error).__name__)
            ) from None
        if isinstance(body, QueryFailure):
            return body
        return self._judged(response, body)

    def _authorization(self) -> dict[str, str]:
        settings = self._settings
        token = settings.bearer
        if settings.bearer_file is not None:
            try:
                token = settings.bearer_file.read_text(encoding="ascii").strip()
            except UnicodeDecodeError:
                token = ""
            if not token or any(c.isspace() or not c.isprintable() for c in token):
                raise OSError(errno.EINVAL, "expected one token in ASCII and nothing else")
        return {"Authorization": f"Bearer {token}"} if token is not None else {}

    async def _body(self, response: httpx.Response) -> bytes | QueryFailure:
        """The answer's bytes, unpacked, or a failure as soon as they are too many."""
        try:
            return await body_within(response, self._settings.answer_bytes_max)
        except BodyTooLargeError as error:
            return self._failure("too-large", str(error))

    def _judged(self, response: httpx.Response, body: bytes) -> PrometheusAnswer | QueryFailure:
        """What an answer with this status and body means."""
        status = response.status_code
        if status in (401, 403):
            return self._failure(
                "unauthorized", f"HTTP {status}: the credentials were not accepted"
            )
        if 300 <= status < 400:
            target = response.headers.get("location", "nowhere")
            return self._failure(
                "redirected", f"HTTP {status} to {target}; redirects are not followed"
            )
        if status in _TRANSIENT_STATUS:
            raise _TransientError(self._failure("server-error", _said(status, body)))
        if status >= 500:
            return self._failure("server-error", _said(status, body))
        if status != 200:
            return self._failure("rejected", _said(status, body))
        try:
            reply = _reply_decoder.decode(body)
            if reply.status == "error":
                return self._failure("rejected", f"{reply.error_type or 'error'}: {reply.error}")
            if reply.data is None or reply.data.result_type != "vector":
                got = reply.data.result_type if reply.data is not None else "nothing"
                return self._failure("malformed", f"expected a vector, got {got}")
            samples = _vector_decoder.decode(reply.data.result)
            series = tuple(
                [Series(s.metric, float(s.value[1])) for s in samples if s.value is not None]
            )
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            return self._failure("malformed", f"not an answer of the Prometheus API: {error}")
        if len(samples) > self._settings.series_max:
            return self._failure(
                "too-large",
                f"{len(samples):,} series, {self._settings.series_max:,} are allowed; "
                "narrow the query by matchers",
            )
        return PrometheusAnswer(series, (*reply.warnings, *reply.infos), len(samples) - len(series))

    def _failure(self, kind: FailureKind, what: str) -> QueryFailure:
        """The failure as one line of what can be printed, for any text of the server."""
        said = printable(" ".join(what.split())[:_LINE_MAX])
        return QueryFailure(kind, f"{self._url}: {said[:_LINE_MAX]}")


def _said(status: int, body: bytes) -> str:
    """The status, with the API's own error type and text where the body has them."""
    try:
        reply = _reply_decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return f"HTTP {status}"
    return f"HTTP {status}: {reply.error_type or 'error'}: {reply.error}"


def _parsed(url: str) -> httpx.URL | None:
    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        return None


def _tls(settings: PrometheusSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
    except OSError as error:  # ssl.SSLError is one
        raise PrometheusConfigError(
            f"ca_file {settings.ca_file}: {error.strerror or error}"
        ) from None
    if settings.cert_file is not None:
        try:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        except OSError as error:
            raise PrometheusConfigError(
                f"cert_file {settings.cert_file}: {error.strerror or error}"
            ) from None
    if settings.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
