"""The client against a real Prometheus, and against a loopback server that lies in every way we
could think of."""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, start_http_server
from tests.patience import PATIENCE_S, eventually

from wharfinger.domain.node import Node
from wharfinger.runtime.processes import free_port
from wharfinger.stages.annotator import PrometheusAnswer, Query, QueryFailure, Series, match
from wharfinger_annotator.prometheus import (
    Matcher,
    Prometheus,
    PrometheusConfigError,
    PrometheusSettings,
)

pytestmark = pytest.mark.integration

PROMETHEUS = shutil.which("prometheus")
OPENSSL = shutil.which("openssl")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


SHORT_S = 0.5
"""How long a server is waited for that never answers."""


@asynccontextmanager
async def server(
    handler: Handler, tls: ssl.SSLContext | None = None, timeout_s: float = PATIENCE_S
) -> AsyncIterator[PrometheusSettings]:
    """A server whose every answer is `handler`'s, and settings that ask it once and wait
    `timeout_s` for the answer."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    try:
        scheme = "https" if tls else "http"
        yield PrometheusSettings(
            f"{scheme}://127.0.0.1:{port}",
            timeout_s=timeout_s,
            connect_timeout_s=timeout_s,
            attempts=1,
        )
    finally:
        await runner.cleanup()


def vector(*samples: tuple[dict[str, str], str], **more: object) -> dict[str, object]:
    result = [{"metric": labels, "value": [1_700_000_000.123, value]} for labels, value in samples]
    return {"status": "success", "data": {"resultType": "vector", "result": result}, **more}


def says(body: object, status: int = 200) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    return handler


def says_text(text: str | bytes, status: int = 200, **headers: str) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        body = text.encode() if isinstance(text, str) else text
        return web.Response(body=body, status=status, headers=headers)

    return handler


async def ask(settings: PrometheusSettings) -> PrometheusAnswer | QueryFailure:
    async with Prometheus(settings) as prometheus:
        return await prometheus.ask(Query("oslo", "cpu_usage_avg_5m", 180, 0))


async def answered(handler: Handler) -> PrometheusAnswer:
    async with server(handler) as settings:
        answer = await ask(settings)
    assert isinstance(answer, PrometheusAnswer), answer
    return answer


async def failed(
    handler: Handler,
    attempts: int = 1,
    answer_bytes_max: int = 16_000_000,
    timeout_s: float = PATIENCE_S,
) -> QueryFailure:
    async with server(handler, timeout_s=timeout_s) as settings:
        failure = await ask(replace(settings, attempts=attempts, answer_bytes_max=answer_bytes_max))
    assert isinstance(failure, QueryFailure), failure
    assert "\n" not in failure.line
    assert len(failure.line) < 400
    return failure


# Questions.


async def test_one_post_asks_for_all_nodes_of_the_cluster() -> None:
    seen: list[tuple[str, str, str]] = []

    async def handler(request: web.Request) -> web.Response:
        form = await request.post()
        seen.append((request.method, request.path, str(form["query"])))
        return web.json_response(
            vector(({"instance": "a:9100"}, "50"), ({"instance": "b:9100"}, "60"))
        )

    async with server(handler) as settings:
        matchers = (Matcher("job", "node-exporter"), Matcher("env", 'a"b\\c\nd', "!="))
        answer = await ask(replace(settings, cluster_label="cluster", matchers=matchers))
    assert isinstance(answer, PrometheusAnswer)
    assert [s.value for s in answer.series] == [50, 60]
    query = 'cpu_usage_avg_5m{cluster="oslo",job="node-exporter",env!="a\\"b\\\\c\\nd"}'
    assert seen == [("POST", "/api/v1/query", query)]


async def test_a_path_prefix_is_kept() -> None:
    paths: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.json_response(vector())

    async with server(handler) as settings:
        await ask(replace(settings, url=settings.url + "/prom/"))
    assert paths == ["/prom/api/v1/query"]


async def test_a_name_that_is_no_metric_is_never_sent() -> None:
    async with Prometheus(PrometheusSettings("http://127.0.0.1:1")) as prometheus:
        failure = await prometheus.query("oslo", 'up{job="x"} or vector(1)')
    assert isinstance(failure, QueryFailure)
    assert failure.kind == "rejected"


# Credentials.


async def authorization(
    settings_of: Callable[[PrometheusSettings], PrometheusSettings],
) -> list[str]:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", "none"))
        return web.json_response(vector())

    async with server(handler) as settings:
        assert isinstance(await ask(settings_of(settings)), PrometheusAnswer)
    return seen


async def test_the_credentials_are_sent_as_configured() -> None:
    assert await authorization(lambda s: s) == ["none"]
    assert await authorization(lambda s: replace(s, bearer="t0ken")) == ["Bearer t0ken"]
    assert await authorization(lambda s: replace(s, username="", password="")) == ["Basic Og=="]
    assert await authorization(lambda s: replace(s, username="u", password="p")) == ["Basic dTpw"]


async def test_a_token_file_is_read_again_for_every_request(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.json_response(vector())

    token = tmp_path / "token"
    async with (
        server(handler) as settings,
        Prometheus(replace(settings, bearer_file=token)) as prometheus,
    ):
        for text in ("first\n", "second\n"):
            token.write_text(text)
            assert isinstance(await prometheus.query("oslo", "up"), PrometheusAnswer)
        for text in ("", "two words", "newline\nin it", "grün"):
            token.write_text(text)
            refused = await prometheus.query("oslo", "up")
            assert isinstance(refused, QueryFailure)
            assert refused.kind == "credentials"
        token.unlink()
        missing = await prometheus.query("oslo", "up")
    assert seen == ["Bearer first", "Bearer second"]
    assert isinstance(missing, QueryFailure)
    assert missing.kind == "credentials"
    assert str(token) in missing.line


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_named(status: int) -> None:
    failure = await failed(says_text("go away", status))
    assert failure.kind == "unauthorized"


async def test_a_redirect_is_not_followed() -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    failure = await failed(handler)
    assert failure.kind == "redirected"
    assert "/elsewhere" in failure.line
    assert asked == ["/api/v1/query"]


# Answers.


async def test_numbers_that_are_none_come_through_as_such() -> None:
    answer = await answered(
        says(
            vector(
                ({"node": "a"}, "NaN"),
                ({"node": "b"}, "+Inf"),
                ({"node": "c"}, "-Inf"),
                ({"node": "d"}, "-1"),
            )
        )
    )
    matched = match([Node(n, {}) for n in "abcd"], answer.series)
    assert matched.loads == {"d": 0}
    assert matched.not_finite == 3


async def test_duplicate_series_all_come_through() -> None:
    answer = await answered(
        says(vector(({"node": "a", "job": "x"}, "1"), ({"node": "a", "job": "y"}, "2")))
    )
    assert match([Node("a", {})], answer.series).duplicates == 1


async def test_warnings_and_infos_are_kept_with_the_answer() -> None:
    answer = await answered(
        says(vector(({"node": "a"}, "1"), warnings=["partial"], infos=["not a counter"]))
    )
    assert answer.warnings == ("partial", "not a counter")
    assert answer.series == (Series({"node": "a"}, 1.0),)


async def test_native_histograms_are_left_out_and_counted() -> None:
    body = vector(({"node": "a"}, "1"))
    histogram = {
        "metric": {"node": "b"},
        "histogram": [1, {"count": "1", "sum": "1", "buckets": []}],
    }
    body["data"] = {
        "resultType": "vector",
        "result": [{"metric": {"node": "a"}, "value": [1, "1"]}, histogram],
    }
    answer = await answered(says(body))
    assert (len(answer.series), answer.histograms) == (1, 1)


async def test_ten_thousand_series_are_read_and_one_more_is_too_many() -> None:
    samples = [
        ({"instance": f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}:9100"}, "50")
        for i in range(10_001)
    ]
    answer = await answered(says(vector(*samples[:10_000])))
    assert len(answer.series) == 10_000
    failure = await failed(says(vector(*samples)))
    assert failure.kind == "too-large"
    assert "10,001 series" in failure.line


async def test_an_endless_answer_is_cut_off_while_it_comes() -> None:
    sent = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while sent < 64 * 1024 * 1024:
                await response.write(b" " * 65536)
                sent += 65536
        return response

    failure = await failed(handler, answer_bytes_max=1024 * 1024)
    assert failure.kind == "too-large"
    assert sent < 32 * 1024 * 1024


async def test_a_packed_answer_is_measured_unpacked() -> None:
    packed = gzip.compress(b" " * 8_000_000)
    failure = await failed(
        says_text(packed, 200, **{"Content-Encoding": "gzip"}), answer_bytes_max=1_000_000
    )
    assert failure.kind == "too-large"


@pytest.mark.parametrize(
    "body",
    [
        "",
        "null",
        "<html>login</html>",
        json.dumps(vector(({"node": "a"}, "1")))[:-9],
        '{"status":"success"}',
        '{"status":"maybe"}',
        '{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}',
        '{"status":"success","data":{"resultType":"matrix","result":[]}}',
        '{"status":"success","data":{"resultType":"vector","result":{}}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"a":1},"value":[1,"1"]}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"many"]}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1]}]}}',
        "[" * 100_000,
        b"\xff\xfe",
    ],
)
async def test_what_is_not_the_api_is_called_so(body: str | bytes) -> None:
    assert (await failed(says_text(body))).kind == "malformed"


async def test_a_broken_content_encoding_is_malformed() -> None:
    failure = await failed(says_text(b"not gzip", 200, **{"Content-Encoding": "gzip"}))
    assert failure.kind == "malformed"


@pytest.mark.parametrize("status", [200, 400, 422])
async def test_the_servers_own_refusal_is_passed_on_with_its_type(status: int) -> None:
    body = {"status": "error", "errorType": "bad_data", "error": "parse\nerror " + "x" * 1000}
    failure = await failed(says(body, status))
    assert failure.kind == "rejected"
    assert "bad_data: parse error" in failure.line


async def test_an_unknown_address_of_the_server_is_rejected_with_its_status() -> None:
    failure = await failed(says_text("404 page not found", 404))
    assert failure.kind == "rejected"
    assert "HTTP 404" in failure.line


# Faults.


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    failure = await ask(PrometheusSettings(f"http://127.0.0.1:{free_port()}", attempts=2))
    assert isinstance(failure, QueryFailure)
    assert failure.kind == "unreachable"


@pytest.mark.parametrize(("status", "asked"), [(502, 3), (503, 3), (504, 3), (500, 1), (400, 1)])
async def test_only_what_may_pass_by_itself_is_asked_again(status: int, asked: int) -> None:
    times = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal times
        times += 1
        return web.Response(status=status)

    failure = await failed(handler, attempts=3)
    assert failure.kind == ("rejected" if status == 400 else "server-error")
    assert times == asked


async def test_a_connection_that_breaks_is_tried_again_and_may_recover() -> None:
    times = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal times
        times += 1
        if times < 3:
            assert request.transport is not None
            request.transport.close()
        return web.json_response(vector(({"node": "a"}, "1")))

    async with server(handler) as settings:
        answer = await ask(replace(settings, attempts=3))
    assert isinstance(answer, PrometheusAnswer)
    assert times == 3


async def test_half_an_answer_is_no_answer() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"status":"success",')
        assert request.transport is not None
        request.transport.close()
        return response

    assert (await failed(handler)).kind == "unreachable"


async def test_a_server_that_does_not_answer_times_out_and_is_not_asked_again() -> None:
    times = 0

    async def handler(request: web.Request) -> web.Response:
        nonlocal times
        times += 1
        await asyncio.sleep(PATIENCE_S)
        return web.Response()

    failure = await failed(handler, attempts=3, timeout_s=SHORT_S)
    assert failure.kind == "timeout"
    assert times == 1


async def test_a_server_that_drips_times_out_too() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(b" ")
                await asyncio.sleep(0.05)
        return response

    assert (await failed(handler, timeout_s=SHORT_S)).kind == "timeout"


# TLS.


@contextmanager
def certificate(folder: Path) -> Iterator[tuple[Path, Path]]:
    if OPENSSL is None:
        pytest.skip("needs the openssl command to make a certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = [
        OPENSSL,
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    made += [
        "-subj",
        "/CN=loopback",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(cert),
    ]
    subprocess.run(made, check=True, capture_output=True, timeout=PATIENCE_S)
    yield cert, key


async def test_a_certificate_is_checked_against_the_given_authority_and_ours_is_shown(
    tmp_path: Path,
) -> None:
    with certificate(tmp_path) as (cert, key):
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(cert))
        tls.load_cert_chain(cert, key)
        async with server(says(vector(({"node": "a"}, "1"))), tls) as settings:
            stranger = await ask(settings)
            assert isinstance(stranger, QueryFailure)
            assert stranger.kind == "unreachable"
            assert "CERTIFICATE_VERIFY_FAILED" in stranger.line
            assert isinstance(await ask(replace(settings, ca_file=cert)), PrometheusAnswer)
            assert isinstance(
                await ask(replace(settings, insecure_skip_verify=True)), PrometheusAnswer
            )
            tls.verify_mode = ssl.CERT_REQUIRED
            unknown = await ask(replace(settings, ca_file=cert))
            assert isinstance(unknown, QueryFailure)
            assert unknown.kind == "unreachable"
            known = await ask(replace(settings, ca_file=cert, cert_file=cert, key_file=key))
            assert isinstance(known, PrometheusAnswer), known


def test_settings_that_cannot_work_are_refused_in_one_line(tmp_path: Path) -> None:
    good = PrometheusSettings("http://127.0.0.1:9090")
    changes: list[dict[str, object]] = [
        {"url": "127.0.0.1:9090"},
        {"url": "ftp://127.0.0.1"},
        {"url": "http://"},
        {"url": "http://u:p@127.0.0.1"},
        {"username": "u"},
        {"bearer": "a", "bearer_file": tmp_path / "b"},
        {"key_file": tmp_path / "k"},
        {"cluster_label": "a-b"},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"attempts": 0},
    ]
    for change in changes:
        with pytest.raises(PrometheusConfigError) as refused:
            replace(good, **change)  # type: ignore[arg-type]
        assert "\n" not in str(refused.value)
    for name in ("ca_file", "cert_file"):
        with pytest.raises(PrometheusConfigError, match=name):
            Prometheus(replace(good, **{name: tmp_path / "missing.pem"}))  # type: ignore[arg-type]
    with pytest.raises(PrometheusConfigError, match="label"):
        Matcher("a b", "x")


def test_secrets_do_not_show_in_the_settings() -> None:
    settings = PrometheusSettings("http://127.0.0.1:9090", username="u", password="s3cret")
    assert "s3cret" not in repr(settings)


# The real thing.


@contextmanager
def real_prometheus(folder: Path, target: int) -> Iterator[str]:
    """A Prometheus that scrapes `target` twice a second as two clusters, stopped by its pid."""
    assert PROMETHEUS is not None
    (folder / "prometheus.yml").write_text(
        f"""
global: {{scrape_interval: 500ms, scrape_timeout: 400ms}}
scrape_configs:
  - job_name: nodes
    honor_labels: true
    static_configs:
      - {{targets: ["127.0.0.1:{target}"], labels: {{cluster: oslo}}}}
"""
    )
    port = free_port()
    command = [
        PROMETHEUS,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/tsdb",
    ]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE_S)


async def first_samples(prometheus: Prometheus, metric: str) -> PrometheusAnswer:
    """The first answer that has any: Prometheus takes some seconds to its first scrape."""
    answer: PrometheusAnswer | QueryFailure = PrometheusAnswer(())

    async def there() -> bool:
        nonlocal answer
        answer = await prometheus.query("oslo", metric)
        return isinstance(answer, PrometheusAnswer) and bool(answer.series)

    await eventually(there, seen=lambda: answer)
    assert isinstance(answer, PrometheusAnswer)
    return answer


@pytest.mark.skipif(
    PROMETHEUS is None, reason="needs the prometheus binary (Debian package prometheus)"
)
async def test_a_real_prometheus_gives_the_loads_of_the_nodes_of_a_cluster(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    load = Gauge("cpu_usage_avg_5m", "percent", ["cluster", "instance"], registry=registry)
    load.labels("oslo", "10.0.0.1:9100").set(12.3456789)
    load.labels("oslo", "[fd00::2]:9100").set(180)
    load.labels("oslo", "node-c").set(float("nan"))
    load.labels("oslo", "10.0.0.99:9100").set(1)
    load.labels("bergen", "10.0.0.1:9100").set(99)
    nodes = [
        Node("node-a", {}, addresses=("10.0.0.1",)),
        Node("node-b", {}, addresses=("fd00::2",)),
        Node("node-c", {}),
    ]
    httpd, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        with real_prometheus(tmp_path, httpd.server_port) as url:
            async with Prometheus(PrometheusSettings(url, cluster_label="cluster")) as prometheus:
                answer = await first_samples(prometheus, "cpu_usage_avg_5m")
                matched = match(nodes, answer.series)
                assert matched.loads == {"node-a": 12_346, "node-b": 180_000}
                assert (matched.unmatched, matched.not_finite) == (1, 1)
                other = await prometheus.query("bergen", "cpu_usage_avg_5m")
                assert isinstance(other, PrometheusAnswer)
                assert match(nodes, other.series).loads == {"node-a": 99_000}
                nothing = await prometheus.query("oslo", "never_seen")
                assert nothing == PrometheusAnswer(())
            bad = PrometheusSettings(url, matchers=(Matcher("instance", "(", "=~"),))
            async with Prometheus(bad) as prometheus:
                refused = await prometheus.query("oslo", "cpu_usage_avg_5m")
            assert isinstance(refused, QueryFailure)
            assert refused.kind == "rejected"
            assert "bad_data" in refused.line
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join(PATIENCE_S)


async def test_what_a_server_says_steers_no_terminal() -> None:
    body = {"status": "error", "errorType": "bad_data", "error": "\x1b[2J\x9b31m \u202e"}
    failure = await failed(says(body, 400))
    assert failure.line.endswith("bad_data: \\x1b[2J\\x9b31m \\u202e")


async def test_a_redirect_to_what_is_no_address_is_a_failure() -> None:
    failure = await failed(says_text("", 302, Location="http:elsewhere"))
    assert failure.kind == "redirected"
