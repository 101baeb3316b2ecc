"""How much a service imports: what only other services use costs each process its memory and its
start."""

from __future__ import annotations

import subprocess
import sys

import pytest

OURS_MAX = 110
"""Of our own modules, without those of single decision kinds. The relay, the feed (five of them),
the origin of accepted events and what runs any service, with its log and signals, need most of
them. Loggers, the form of log lines and metrics are three modules, so that the supervisor does
without the last."""

KINDS = "wharfinger.events.decisions."
"""One module a kind. The relay makes messages for clusters and fleet shards of every kind."""

RICH = {"rich", "pygments"}
"""What shows tables and tracebacks on a terminal, 3 MB."""
HTTP_CLIENT = {"httpx", "stamina", "click"}
YAML = {"ruamel"}
STAGES = {"wharfinger.stages.cluster.decider", "wharfinger.stages.fleet"}
NODES = {"wharfinger.engine.nodes"}

NEVER = {
    "wharfinger_cli.one": {*RICH, *HTTP_CLIENT, *YAML},
    "wharfinger_scheduler.__main__": {*RICH, *HTTP_CLIENT, *YAML},
    "wharfinger_estimator.__main__": {*RICH, *HTTP_CLIENT, *YAML, *STAGES},
    "wharfinger_descheduler.__main__": {*RICH, *HTTP_CLIENT, *YAML, *STAGES},
    "wharfinger_annotator.__main__": {*RICH, *HTTP_CLIENT, *YAML, *STAGES, *NODES},
    "wharfinger_actuator.__main__": {*RICH, *HTTP_CLIENT, *YAML, *STAGES, *NODES, "faust"},
    "wharfinger_collector.__main__": {*RICH, *HTTP_CLIENT, *YAML, *STAGES, *NODES, "faust"},
    "wharfinger_api.__main__": {*RICH, "cryptography.x509"},
    # what `main` of the supervisor loads when it is called, too
    "wharfinger.runtime.supervisor, wharfinger.runtime.log_setup": {
        *RICH,
        *HTTP_CLIENT,
        *YAML,
        "aiohttp",
        "asyncpg",
        "prometheus_client",
    },
}
"""Process -> what it loads only where a setting, a file or a request needs it."""


@pytest.mark.parametrize("modules", NEVER)
def test_a_process_starts_without_what_few_planes_need(modules: str) -> None:
    assert not NEVER[modules] & loaded_by(modules)


def loaded_by(modules: str) -> set[str]:
    code = f"import sys, {modules}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_without_a_joined_cluster_nothing_is_loaded_that_reads_or_writes_clusters() -> None:
    loaded = loaded_by("wharfinger_cli.one")
    assert {"wharfinger_collector.app", "wharfinger_actuator.app"} <= loaded
    assert (
        not {
            "wharfinger_collector.member",
            "wharfinger_collector.hub",
            "wharfinger_actuator.writer",
            "wharfinger_actuator.hub",
            "wharfinger_actuator.copier",
            "wharfinger.manifests.model",
        }
        & loaded
    )


def test_the_api_loads_nothing_that_only_some_requests_or_settings_need() -> None:
    """No client that is not configured, and no stages: these explain decisions and make plans."""
    loaded = loaded_by("wharfinger_api.__main__")
    assert "wharfinger_api.app" in loaded
    assert (
        not {
            "wharfinger.engine",
            "wharfinger.runtime.process",
            "wharfinger.runtime.health",
            "wharfinger.stages",
            "wharfinger_api.openid",
            "wharfinger_api.token_review",
            "aiohttp",
            "aiokafka",
            "faust",
            "httpx",
            "jwt",
            "numpy",
        }
        & loaded
    )


def test_the_publisher_loads_neither_stages_nor_engine() -> None:
    loaded = loaded_by("wharfinger_publisher.__main__")
    ours = sorted(name for name in loaded if name.partition(".")[0].startswith("wharfinger"))
    assert (
        not {
            *RICH,
            *HTTP_CLIENT,
            *YAML,
            "wharfinger.stages",
            "wharfinger.engine",
            "wharfinger.manifests",
            "wharfinger.events.registry",
            "sqlalchemy",
            "numpy",
        }
        & loaded
    )
    assert "wharfinger_publisher.relay" in ours
    assert len([name for name in ours if not name.startswith(KINDS)]) <= OURS_MAX, ours
