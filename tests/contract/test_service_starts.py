"""How much a service imports: what only other services use costs each process its memory and its
start."""

from __future__ import annotations

import subprocess
import sys

OURS_MAX = 108
"""Of our own modules, without those of single decision kinds. The relay, the feed (five of them),
the origin of accepted events and what runs any service, with its log and signals, need most of
them."""

KINDS = "wharfinger.events.decisions."
"""One module a kind. The relay makes messages for clusters and fleet shards of every kind."""

LIST = """
import sys
import wharfinger_publisher.__main__
print(*sys.modules)
"""


ALL = """
import sys
import wharfinger_cli.one
print(*sys.modules)
"""


def test_without_a_joined_cluster_nothing_is_loaded_that_reads_or_writes_clusters() -> None:
    run = subprocess.run([sys.executable, "-c", ALL], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
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


API = """
import sys
import wharfinger_api.__main__
print(*sys.modules)
"""


def test_the_api_loads_nothing_that_only_some_requests_or_settings_need() -> None:
    """No client that is not configured, and no stages: these explain decisions and make plans."""
    run = subprocess.run([sys.executable, "-c", API], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
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
    run = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    ours = sorted(name for name in loaded if name.partition(".")[0].startswith("wharfinger"))
    assert (
        not {
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
