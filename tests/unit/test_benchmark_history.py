"""The records that the benchmarks keep: each can be compared with another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.history import DIRECTORY, Figure, record

AT_S = 1_800_000_000.0


def test_a_record_has_the_figures_beside_the_raw_limits_of_the_same_run(tmp_path: Path) -> None:
    figures = [
        Figure("raw: broker produce, 400 B", 212_345.6, "/s"),
        Figure("openb: decisions", 1530.25, "/s", 8000, processor_us={"services": 250.04}),
        Figure("idle: broker", 0.5, "%", 2, higher=False),
    ]
    path = record(figures, "2 cores", "0123abcde", tmp_path, AT_S)
    assert path.name == "202701150800-0123abcde.json"
    found = json.loads(path.read_text())
    assert found["at"] == "2027-01-15T08:00:00Z"
    assert found["machine"] == "2 cores"
    assert found["raw"] == {"broker produce, 400 B": 212_346}
    assert found["figures"] == [
        {
            "name": "openb: decisions",
            "value": 1530.25,
            "unit": "/s",
            "at_least": 8000,
            "processor_us": {"services": 250.0},
        },
        {"name": "idle: broker", "value": 0.5, "unit": "%", "at_most": 2},
    ]


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.json")), ids=lambda path: path.name)
def test_a_kept_record_says_when_where_and_of_which_commit(path: Path) -> None:
    found = json.loads(path.read_text())
    assert found["at"].endswith("Z")
    assert found["machine"]
    assert found["commit"]
    assert found["figures"]
    assert all({"name", "value"} <= figure.keys() for figure in found["figures"])
