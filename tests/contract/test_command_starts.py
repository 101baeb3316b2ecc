"""How much a command imports before it does anything, counted in modules: what it costs in seconds
depends on the machine.

The ceilings are what is loaded today, and `MARGIN` is for what differs between machines. A command
that needs more finds here what is to be imported where it is used. What a command loads when it
does its work is looked at by tests/integration/test_cli.py, which has a plane."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from wharfinger_cli import node_pools, rendered
from wharfinger_cli.app import NODES_TO_BE, OBJECTS

HEAVY = {"numba", "llvmlite", "scipy", "faust", "matplotlib", "highspy"}
"""No command but `replay --with` and those that run services needs any of them."""
ENGINE = {"numpy", "wharfinger.stages", "wharfinger.manifests.kubernetes.core", "aiokafka", "httpx"}
WRITING = {"sqlalchemy", "alembic"}
"""What migrates; everything else speaks to the database without it."""
SETTINGS = {"pydantic", "pydantic_settings", "structlog"}
"""What checks all settings and logs. Commands that read the ledger know where it is without it."""
LEDGER = {"asyncpg", "msgspec"} | WRITING | SETTINGS

MARGIN = 12
"""Modules of the standard library that one machine loads and another does not."""

SHOW = """
import json, sys
from wharfinger_cli.__main__ import main
try:
    main()
except SystemExit:
    pass
sys.stderr.write("\\n" + json.dumps(sorted(sys.modules)))
"""

READS = HEAVY | ENGINE | WRITING | SETTINGS

COMMANDS = [
    ("--help", 350, HEAVY | ENGINE | LEDGER),
    ("status --help", 350, HEAVY | ENGINE | LEDGER),
    ("schema export schemas", 332, HEAVY | ENGINE | LEDGER - {"msgspec"}),
    ("status", 472, READS),
    ("get clusters", 438, READS),
    ("get bindings", 438, READS),
    ("get nodes", 438, READS),
    ("get policies", 438, READS),
    ("decisions", 436, READS),
    ("history web", 443, READS),
    ("lineage web", 445, READS),
    ("savings", 443, READS),
    ("scale web 3", 441, READS),
    ("drain oslo", 441, READS),
    ("undrain oslo", 440, READS),
    ("logs", 440, HEAVY | ENGINE | WRITING),
    # what an actuator observes needs a part of the stages; a plane with snapshots loads all of them
    ("effects", 959, HEAVY | WRITING | {"httpx", "wharfinger.manifests.kubernetes.core"}),
    ("drift", 956, HEAVY | WRITING | {"httpx", "wharfinger.manifests.kubernetes.core"}),
    ("release oslo", 1046, HEAVY | WRITING | {"wharfinger.manifests.kubernetes.core"}),
    ("dead-letters list", 502, READS - {"structlog"}),
    ("get resourcebindings", 493, READS - {"pydantic"}),
    ("get nodepools", 503, READS - {"pydantic"}),
    ("audit verify", 578, READS - {"structlog"}),
    (
        "explain web",
        805,  # the JSON that the HTTP API shares is in modules of its own
        HEAVY | WRITING | {"aiokafka", "httpx", "wharfinger.manifests.kubernetes.core"},
    ),
    ("doctor", 737, HEAVY | WRITING | ENGINE - {"aiokafka"}),
]


@pytest.mark.parametrize(("command", "most", "never"), COMMANDS, ids=[c[0] for c in COMMANDS])
def test_a_command_loads_little(command: str, most: int, never: set[str], tmp_path: Path) -> None:
    """Without a plane: what is imported to find that out."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WHARFINGER_")}
    run = subprocess.run(
        [sys.executable, "-c", SHOW, *command.split()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    loaded = set(json.loads(run.stderr.splitlines()[-1]))
    assert not never & loaded
    assert len(loaded) <= most + MARGIN


def test_the_commands_know_which_module_gets_what() -> None:
    assert set(OBJECTS) == set(rendered.KINDS)
    assert set(NODES_TO_BE) == set(node_pools.KINDS)
