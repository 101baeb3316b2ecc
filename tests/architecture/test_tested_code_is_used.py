"""What is in the library is used by a service: code that only tests call proves nothing about a
plane. What is only compared with belongs to `tests/reference`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from benchmarks import house
from benchmarks.house import ROOT, Source


@cache
def alone() -> dict[str, int]:
    return house.unused(house.sources(), house.sources([ROOT / "tests"]))


FOR_OTHERS = ("wharfinger_client",)
"""What other programs import."""


def test_no_module_is_imported_by_tests_alone() -> None:
    beside = [name for name in alone() if not name.startswith(FOR_OTHERS)]
    assert beside == [], "put it to use, or move it to tests/reference"


def test_a_module_that_only_tests_import_is_found() -> None:
    beside = Source(Path("x.py"), "wharfinger.engine.beside", "from wharfinger.domain import node")
    asks = Source(Path("t.py"), "unit.test_x", "from wharfinger.engine import beside")
    assert house.unused([beside], [asks]) == {"wharfinger.engine.beside": 1}


def test_what_a_plugin_imports_is_used() -> None:
    """Plugins are found by name, and so is what they import."""
    assert "wharfinger.engine.framework.device_allocation" not in alone()


def test_the_library_does_not_import_the_reference() -> None:
    assert [s.module for s in house.sources() if "tests.reference" in s.text] == []
