"""What was decided in a test is decided again by `wharfinger replay`, from the ledger alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from infra.kube import cluster
from tests.kube.member import Json, Member


def replayed_without_server(member: Member, database_url: str, directory: Path) -> int:
    """Stop the API server, replay every stream, start the server again. The number of decisions,
    each of which comes out byte for byte as recorded. On the main thread, as `Member.restart`.
    `directory`: of the test, for the command's own files."""
    decisions: list[int] = []

    def replay() -> None:
        decisions.append(replayed(database_url, directory))

    cluster.restart(member.directory, "kube-apiserver", between=replay)
    return decisions[0]


def replayed(database_url: str, directory: Path) -> int:
    """The same beside servers that run."""
    done = subprocess.run(
        [sys.executable, "-m", "wharfinger_cli", "replay", "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "WHARFINGER_DATABASE": database_url,
            "WHARFINGER_DATA_DIR": str(directory / "data"),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: Json = json.loads(done.stdout)
    assert found["divergences"] == 0
    assert found["other_engines"] == []
    decisions: int = found["decisions"]
    return decisions
