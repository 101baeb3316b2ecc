"""Extenders on a whole plane, both ways: ours are asked over HTTP and what they say is in the
ledger; a kube-scheduler asks us, and what it binds through us reaches the cluster's API server. The
other side of each is a small server of the test's own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks.plane import PlaneUnderTest, a_plane
from tests.planes import assert_whole, settled, until

pytestmark = [pytest.mark.integration, pytest.mark.long]


class Other:
    """The other side: remembers what was posted, and answers by path."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, Any], str]] = []
        other = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                other.posted.append((self.path, body, self.headers.get("Authorization", "")))
                answer = json.dumps(other.answer(self.path, body)).encode()
                self.send_response(201 if "/api/" in self.path else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        """As an extender it lets only nodes pass whose name ends in an even number; as an API
        server it takes what it gets."""
        if path.endswith("/filter"):
            left = [name for name in body["NodeNames"] if int(name[-1]) % 2 == 0]
            return {
                "NodeNames": left,
                "FailedNodes": {n: "odd" for n in body["NodeNames"] if n not in left},
            }
        return {}

    def paths(self) -> list[str]:
        return [path for path, _, _ in self.posted]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def other() -> Iterator[Other]:
    other = Other()
    yield other
    other.close()


@pytest.fixture(scope="module")
def plane(other: Other, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaneUnderTest]:
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("our-token\n")
    with a_plane() as plane, pytest.MonkeyPatch.context() as environment:
        environment.setenv("WHARFINGER_CLUSTER_API_URL", f"{other.url}/of/{{cluster}}")
        environment.setenv("WHARFINGER_CLUSTER_API_TOKEN_FILE", str(token))
        plane.up()
        yield plane


FLEET = """
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: oslo}
---
""" + "---\n".join(
    f"""apiVersion: v1
kind: Node
metadata: {{name: oslo-{n}, labels: {{wharfinger.io/cluster: oslo}}}}
status: {{allocatable: {{cpu: "4", memory: 16Gi, pods: "110"}}}}
"""
    for n in range(4)
)

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{{schedulerName: even}}]
extenders: [{{urlPrefix: "{url}", filterVerb: filter, nodeCacheCapable: true, weight: 1}}]
"""

WORKLOADS = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: shop}}
spec:
  replicas: 4
  template:
    spec:
      schedulerName: {scheduler}
      containers: [{{name: c, resources: {{requests: {{cpu: 500m}}}}}}]
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {{name: {name}, namespace: shop}}
spec:
  resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment, name: {name}}}]
  placement: {{clusterAffinity: {{clusterNames: [oslo]}}}}
"""


def apply(plane: PlaneUnderTest, text: str, name: str) -> None:
    file = Path(plane.data_dir) / f"{name}.yaml"
    file.write_text(text)
    plane.command("apply", "-f", str(file))


def us(plane: PlaneUnderTest) -> str:
    return f"http://127.0.0.1:{plane.http_port('scheduler-cluster')}"


def nodes_of(plane: PlaneUnderTest, binding: str) -> dict[str, int]:
    """Node -> replicas that were placed there."""
    found: dict[str, int] = {}
    for line in plane.command("decisions", "-o", "json").splitlines():
        decision = json.loads(line)
        if (
            decision["type"] == "io.wharfinger.replicas.placed.v1"
            and decision["subject"] == binding
        ):
            for share in decision["data"]["placed"]:
                found[share["node"]] = found.get(share["node"], 0) + len(share["ordinals"])
    return found


def test_an_extender_is_asked_about_each_replica_and_a_replay_asks_nobody(
    plane: PlaneUnderTest, other: Other
) -> None:
    apply(plane, FLEET, "fleet")
    apply(plane, CONFIGURATION.format(url=other.url), "configuration")
    apply(plane, WORKLOADS.format(name="even", scheduler="even"), "even")
    until(lambda: sum(nodes_of(plane, "shop/even-deployment").values()) == 4)
    assert set(nodes_of(plane, "shop/even-deployment")) <= {"oslo-0", "oslo-2"}
    assert other.paths().count("/filter") == 4
    asked = next(body for path, body, _ in other.posted if path == "/filter")
    assert asked["Pod"]["metadata"]["namespace"] == "shop"
    apply(plane, WORKLOADS.format(name="plain", scheduler="default-scheduler"), "plain")
    until(lambda: sum(nodes_of(plane, "shop/plain-deployment").values()) == 4)
    settled(plane)
    count = len(other.posted)
    decisions = assert_whole(plane)
    assert sum(d["type"] == "io.wharfinger.extender.asked.v1" for d in decisions) == 4
    assert len(other.posted) == count


def test_a_kube_scheduler_asks_us_and_binds_through_us(plane: PlaneUnderTest, other: Other) -> None:
    base = f"{us(plane)}/extender/oslo"
    pod = {
        "metadata": {"name": "tall", "namespace": "shop", "uid": "u-7"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
    }
    names = [f"oslo-{n}" for n in range(4)]
    passed = httpx.post(f"{base}/filter", json={"Pod": pod, "NodeNames": names}).json()
    free = {
        n: 8 - sum(nodes_of(plane, f"shop/{b}-deployment").get(n, 0) for b in ("even", "plain"))
        for n in names
    }
    assert passed["NodeNames"] == [n for n in names if free[n] >= 6], (
        "what was promised to bindings counts"
    )
    scores = httpx.post(
        f"{base}/prioritize", json={"Pod": pod, "NodeNames": passed["NodeNames"]}
    ).json()
    assert {score["Host"] for score in scores} == set(passed["NodeNames"])
    bound = httpx.post(
        f"{base}/bind",
        json={"PodName": "tall", "PodNamespace": "shop", "PodUID": "u-7", "Node": "oslo-1"},
    )
    assert bound.json() == {"Error": ""}
    (path, body, authorization) = other.posted[-1]
    assert path == "/of/oslo/api/v1/namespaces/shop/pods/tall/binding"
    assert (body["kind"], body["target"]["name"], body["metadata"]["uid"]) == (
        "Binding",
        "oslo-1",
        "u-7",
    )
    assert authorization == "Bearer our-token"


def test_what_makes_no_sense_is_answered_in_one_line(plane: PlaneUnderTest, other: Other) -> None:
    before = len(other.posted)
    nowhere = httpx.post(f"{us(plane)}/extender/nowhere/filter", json={"Pod": {}, "NodeNames": []})
    assert (nowhere.status_code, nowhere.json()) == (
        404,
        {"error": "cluster nowhere: expected one that this process schedules"},
    )
    odd = httpx.post(f"{us(plane)}/extender/oslo/filter", content=b"{")
    assert odd.status_code == 400
    assert "\n" not in odd.json()["error"]
    assert (
        httpx.post(
            f"{us(plane)}/extender/nowhere/bind", json={"PodName": "x", "Node": "y"}
        ).status_code
        == 404
    )
    assert len(other.posted) == before
