"""Record the ledger of a released version of Wharfinger, so that an upgrade from it can be tested.

    cd <a checkout of that version, with its own .venv and examples/>
    .venv/bin/python <this file> <out>.tar.zst

It starts a plane of that version with the embedded servers, takes it through a history by its
commands, and writes every table of the database into one archive: `tables/<name>.csv` as COPY
writes them, and `partitions.json` with the bounds of each partition. The plane's clock is set back
by `SHIFT_S`, so that no round lies in the future of any machine that reads the archive.

At the end the services are stopped by SIGSTOP while more is applied. These facts are in the ledger
and on no topic: the new version has to take them in.
"""

# mypy: allow-untyped-calls
# (the driver ships no types)

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg
import zstandard

SHIFT_S = 200 * 86_400
CLOCK = f"""
import time
_ns, _s = time.time_ns, time.time
time.time_ns = lambda: _ns() - {SHIFT_S} * 10**9
time.time = lambda: _s() - {SHIFT_S}
"""
QUIET_S = 4.0
PARTITIONS = """
    select p.relname, c.relname, pg_get_expr(c.relpartbound, c.oid)
    from pg_inherits join pg_class p on p.oid = inhparent join pg_class c on c.oid = inhrelid
    where p.relkind = 'p' order by 2
"""

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: harbour, labels: {{app: {name}}}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
        - {{name: main, image: "harbour/{name}:1",
            resources: {{requests: {{cpu: {cpu}, memory: 256Mi}}}}}}
"""
POLICY = """
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: by-capacity, namespace: harbour}
spec:
  resourceSelectors:
    - apiVersion: apps/v1
      kind: Deployment
      labelSelector: {matchExpressions: [{key: app, operator: In, values: [%s]}]}
  placement:
    clusterAffinity: {clusterNames: [oslo, bergen, tromso, narvik]}
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference: {dynamicWeight: AvailableReplicas}
"""
LEASED = """
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: narvik, labels: {tier: prod}}
spec: {hubAcceptsClient: true, leaseDurationSeconds: 5}
status:
  conditions:
    - type: ManagedClusterConditionAvailable
      status: "True"
      reason: Available
      message: ""
      lastTransitionTime: "2026-01-01T00:00:00Z"
  allocatable: {cpu: "40", memory: 160Gi, pods: "200"}
"""
TAINTED = """
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: tromso, labels: {tier: prod}}
spec:
  syncMode: Push
  region: north
  taints:
    - {key: harbour.example/ice, effect: NoExecute}
"""
NAMES = (
    "ballast",
    "beacon",
    "buoy",
    "capstan",
    "davit",
    "fender",
    "gangway",
    "hawser",
    "jetty",
    "keel",
)


class Plane:
    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self.directory = directory
        self._environment = environment

    def run(self, *arguments: str, **more: str) -> str:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "wharfinger_cli",
                "--data-dir",
                str(self.directory / "plane"),
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**self._environment, **more},
        )
        print(
            "$ wharfinger",
            *arguments,
            "->",
            done.returncode,
            (done.stdout + done.stderr).strip()[-200:],
            flush=True,
        )
        if done.returncode not in (0, 1):
            raise SystemExit(done.stderr)
        return done.stdout

    def status(self) -> Any:
        return json.loads(self.run("status", "-o", "json"))

    def apply(self, *texts: str) -> None:
        path = self.directory / "applied.yaml"
        path.write_text("---".join(texts))
        self.run("apply", "-f", str(path))

    def settle(self) -> None:
        """Until no stream has gone on for `QUIET_S`."""
        before, since = None, time.monotonic()
        while time.monotonic() - since < QUIET_S:
            now = {name: head["hash"] for name, head in self.status()["streams"].items()}
            if now != before:
                before, since = now, time.monotonic()
            time.sleep(0.5)

    def card(self) -> Any:
        return json.loads((self.directory / "plane" / "plane.json").read_text())

    def pids(self) -> list[int]:
        """Of the supervisor and the processes that run the services."""
        card = self.card()
        others = ("api", "broker", "database")
        services = [int(pid) for name, pid in card["pids"].items() if name not in others]
        return [int(card["supervisor_pid"]), *services]


def deployments(replicas: int, cpu: str = "250m", names: tuple[str, ...] = NAMES) -> list[str]:
    return [
        DEPLOYMENT.format(name=name, replicas=replicas + number, cpu=cpu)
        for number, name in enumerate(names)
    ]


def history(plane: Plane) -> None:
    """Two lives of the plane: the first makes snapshots after few rows, the second none."""
    examples = Path("examples")
    plane.run("up", "--detach", WHARFINGER_SNAPSHOT_ROWS="60", WHARFINGER_DELTA_ROWS="20")
    plane.run(
        "apply", "-f", "examples/fleet", "-f", "examples/policies", "-f", "examples/workloads"
    )
    plane.settle()
    plane.run(
        "apply",
        *[
            word
            for folder in ("beyond", "upkeep", "ocm")
            for word in ("-f", str(examples / folder))
        ],
    )
    plane.run(
        "generate",
        "fleet",
        "--clusters",
        "4",
        "--nodes",
        "24",
        "--bindings",
        "30",
        "--seed",
        "3",
        "--apply",
    )
    plane.apply(LEASED, POLICY % ", ".join(NAMES), *deployments(3))
    plane.settle()  # narvik's lease ends meanwhile
    for replicas in (5, 2, 7):
        plane.apply(*deployments(replicas))
        plane.settle()
    plane.run("down")
    plane.run("up", "--detach")
    plane.run("apply", "-f", "examples/nodes")
    plane.apply(LEASED, *deployments(9, "500m"))
    plane.settle()
    plane.apply(TAINTED)
    plane.settle()
    # more than there is room for
    plane.apply(DEPLOYMENT.format(name="keel", replicas=4000, cpu="2"))
    plane.settle()
    last = plane.directory / "deleted.yaml"
    last.write_text("---".join(deployments(9, "500m", NAMES[:3])))
    plane.run("delete", "-f", str(last))
    plane.settle()
    for pid in plane.pids():
        os.kill(pid, signal.SIGSTOP)
    plane.apply(
        *deployments(1, "100m", NAMES[3:6]), DEPLOYMENT.format(name="keel", replicas=2, cpu="100m")
    )
    last.write_text("---".join(deployments(9, "500m", NAMES[6:7])))
    plane.run("delete", "-f", str(last))


async def dump(database_url: str) -> bytes:
    raw = await asyncpg.connect(database_url.replace("+asyncpg", ""))
    names = [
        r[0]
        for r in await raw.fetch(
            "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname = 'public' and c.relkind in ('r', 'p') and not c.relispartition "
            "order by 1"
        )
    ]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:

        def add(name: str, body: bytes) -> None:
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))

        add(
            "partitions.json",
            json.dumps([list(row) for row in await raw.fetch(PARTITIONS)], indent=1).encode(),
        )
        for name in names:
            rows = io.BytesIO()
            said = await raw.copy_from_query(
                f'select * from "{name}"', output=rows, format="csv", header=True
            )
            print(f"{name}: {said}, {rows.tell()} bytes", flush=True)
            add(f"tables/{name}.csv", rows.getvalue())
    await raw.close()
    return zstandard.ZstdCompressor(level=19).compress(packed.getvalue())


def main(out: Path) -> None:
    directory = Path(tempfile.mkdtemp(prefix="wharfinger-record-"))
    directory.chmod(0o755)  # the embedded database runs as a user of its own where we are root
    (directory / "clock").mkdir()
    (directory / "clock" / "sitecustomize.py").write_text(CLOCK)
    plane = Plane(directory, {**os.environ, "PYTHONPATH": str(directory / "clock")})
    try:
        history(plane)
        out.write_bytes(asyncio.run(dump(plane.card()["database_url"])))
        print(f"{out}: {out.stat().st_size} bytes", flush=True)
    finally:
        if (directory / "plane" / "plane.json").exists():
            for pid in plane.pids():
                os.kill(pid, signal.SIGCONT)
        plane.run("down")
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
