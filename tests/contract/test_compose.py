"""docker-compose.yml and the monitoring beside it say nothing that the code does not know.

Read as YAML always; asked of the Docker client where it has compose. The image: test_image.py.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from wharfinger.runtime.children import EACH
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.settings import ENV_PREFIX, Settings

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
OURS = EACH
THEIRS = ("kafka", "postgres", "prometheus")
DOCKERFILE = (ROOT / "infra" / "Dockerfile").read_text(encoding="utf-8")
KNOWN_VARIABLES = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}


@pytest.mark.parametrize("name", OURS)
def test_each_service_has_a_container_that_runs_its_package(name: str) -> None:
    assert SERVICES[name]["command"] == ["python", "-m", f"wharfinger_{name}"]
    assert (ROOT / "services" / f"wharfinger_{name}").is_dir()


@pytest.mark.parametrize("name", OURS)
def test_a_service_waits_for_broker_database_and_their_tables(name: str) -> None:
    conditions = {other: wait["condition"] for other, wait in SERVICES[name]["depends_on"].items()}
    assert conditions == {
        "kafka": "service_healthy",
        "postgres": "service_healthy",
        "migrate": "service_completed_successfully",
    }


@pytest.mark.parametrize("name", [*OURS, *THEIRS, "grafana"])
def test_every_lasting_container_says_how_it_is(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]


@pytest.mark.parametrize("name", OURS)
def test_a_service_is_healthy_when_it_is_ready(name: str) -> None:
    assert "/readyz" in " ".join(SERVICES[name]["healthcheck"]["test"])


@pytest.mark.parametrize("name", [*THEIRS, "grafana"])
def test_foreign_images_are_pinned_to_a_release(name: str) -> None:
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+(\.\d+)?", SERVICES[name]["image"])


def test_compose_and_the_local_broker_are_the_same_kafka() -> None:
    pom = ElementTree.parse(ROOT / "infra" / "kafka" / "pom.xml")
    version = pom.findtext(".//{*}kafka.version")
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{version}"


@pytest.mark.parametrize("name", [*OURS, "migrate"])
def test_every_variable_given_is_a_setting(name: str) -> None:
    given = set(SERVICES[name]["environment"])
    assert {"WHARFINGER_KAFKA", "WHARFINGER_DATABASE"} <= given
    assert given <= KNOWN_VARIABLES
    baked = set(re.findall(rf"({ENV_PREFIX}\w+)=", DOCKERFILE))
    assert baked
    assert baked <= KNOWN_VARIABLES


@pytest.mark.parametrize("name", [*OURS, "migrate"])
def test_a_container_of_ours_has_no_more_rights_than_the_chart_gives(name: str) -> None:
    container = SERVICES[name]
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert container["security_opt"] == ["no-new-privileges:true"]
    written = {mount.partition(":")[0] for mount in container["tmpfs"]}
    assert written == {"/var/lib/wharfinger", "/tmp"}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_ports_are_open_on_loopback_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


def test_named_volumes_are_declared_and_used() -> None:
    mounts = {
        mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", [])
    }
    assert {mount for mount in mounts if not mount.startswith("./")} == set(COMPOSE["volumes"])
    assert all((ROOT / mount).is_dir() for mount in mounts if mount.startswith("./"))


def metrics_told() -> set[str]:
    """Names of all time series a process of ours shows."""
    histograms = ("_bucket", "_count", "_sum")
    told: set[str] = set()
    for family in METRICS.registry.collect():
        match family.type:
            case "counter":
                told.add(f"{family.name}_total")
            case "histogram":
                told |= {f"{family.name}{suffix}" for suffix in histograms}
            case _:
                told.add(family.name)
    return told


@pytest.mark.parametrize("path", ["prometheus/rules.yml", "grafana/dashboards/plane.json"])
def test_alerts_and_dashboards_ask_for_metrics_that_exist(path: str) -> None:
    asked = set(
        re.findall(r"\bwharfinger_[a-z_]+", (ROOT / "infra" / path).read_text(encoding="utf-8"))
    )
    assert asked
    assert asked <= metrics_told()


def test_the_dashboard_reads_from_the_provisioned_source() -> None:
    source = yaml.safe_load(
        (ROOT / "infra/grafana/provisioning/datasources/prometheus.yml").read_text()
    )["datasources"][0]
    dashboard = json.loads((ROOT / "infra/grafana/dashboards/plane.json").read_text())
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {source["uid"]}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_prometheus_scrapes_every_service() -> None:
    config = yaml.safe_load((ROOT / "infra/prometheus/prometheus.yml").read_text())
    targets = {
        target
        for job in config["scrape_configs"]
        for s in job["static_configs"]
        for target in s["targets"]
    }
    assert targets == {f"{name}:8080" for name in OURS}


def test_prometheus_accepts_its_configuration_and_the_alerts_fire_as_meant() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    for arguments in (
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "rules_test.yml"],
        ["test", "rules", "node-load_test.yml"],
    ):
        run = subprocess.run(
            [promtool, *arguments],
            cwd=ROOT / "infra" / "prometheus",
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr


def docker(*arguments: str, seconds: float = 20) -> subprocess.CompletedProcess[str]:
    client = shutil.which("docker")
    if client is None:
        pytest.skip("no Docker client")
    return subprocess.run(
        [client, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
    )


def test_docker_compose_accepts_the_file() -> None:
    if docker("compose", "version").returncode != 0:
        pytest.skip("the Docker client has no compose")
    run = docker("compose", "--profile", "dashboards", "config", "--quiet")
    assert run.returncode == 0, run.stderr
