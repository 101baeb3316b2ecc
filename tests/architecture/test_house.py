"""The structure of the sources, held where it is: `benchmarks/house.py` measures, a figure that
falls lowers the bound here.

A bound is never raised without a reason beside it. `make house ARGS=kinds` names the files behind a
figure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from benchmarks import house
from benchmarks.house import ROOT, Source

KNOWN_BY_MAX = 3
"""Files that name a kind of decision: its own, what decides it and what folds it. Everything else
asks for a member of the kind, or for what follows from it (`effect`)."""

PUBLISHER_MODULES_MAX = 133
"""Of ours. It publishes decisions of every kind, so it loads all of them; of the events that come
from outside it loads none, since it relays their bytes. Five modules give decisions their positions
in the feed, one knows who brought an event in, and one limits the lines of its log."""

SHARED_CLASS_NAMES_MAX = 3.0
"""Per cent."""


@cache
def library() -> list[Source]:
    return house.sources()


@pytest.mark.parametrize("kind", house.kinds())
def test_a_kind_of_decision_is_known_by_few_files(kind: str) -> None:
    known = house.knowing_kind(library(), kind)
    assert len(known) <= KNOWN_BY_MAX, f"ask for a member of the kind instead: {known}"


def test_no_line_of_the_library_is_wider_than_the_formatter_makes_it() -> None:
    """In tests ruff's E501 does the same, where a comment for a tool may stand behind a line."""
    lines = [(source.path, line) for source in library() for line in source.text.splitlines()]
    assert [(path, line) for path, line in lines if len(line) > house.WIDTH] == []
    assert [(path, line) for path, line in lines if "fmt: " + "skip" in line] == []


def test_a_name_in_a_comment_or_docstring_is_not_known() -> None:
    source = Source(
        ROOT / "x.py",
        "x",
        '"""ScheduleDecided."""\nx = 1  # ScheduleDecided\ny = "about ScheduleDecided"\n',
    )
    assert house.knowing([source], "ScheduleDecided") == []
    for code in ("from a import ScheduleDecided", "a.ScheduleDecided", "y = 'ScheduleDecided'"):
        assert house.knowing([Source(ROOT / "x.py", "x", code)], "ScheduleDecided") == ["x.py"]


def test_the_kernel_knows_no_kind_of_decision_and_no_extender() -> None:
    kernel = [source for source in library() if source.module.startswith("wharfinger.kernel")]
    assert kernel
    for kind in house.kinds():
        assert house.knowing(kernel, kind) == []
    for source in kernel:
        imported = set(_imported(source.tree))
        assert not {name for name in imported if "extender" in name.lower()}, source.module
        of_decisions = {name for name in imported if name.startswith("wharfinger.events.decisions")}
        assert of_decisions <= {
            "wharfinger.events.decisions.as_decision",
            *(
                name
                for name in of_decisions
                if name.startswith("wharfinger.events.decisions.steps.")
            ),
        }, source.module


def test_decisions_are_compared_by_one_function() -> None:
    """A replay with the record, one run with another, a plan with what would come of it now."""
    comparing = (
        "wharfinger.kernel.divergence",
        "wharfinger.history.compare",
        "wharfinger.stages.plans",
    )
    for source in library():
        if source.module in comparing:
            names = set(_imported(source.tree))
            assert names & {
                f"wharfinger.events.decisions.steps.{name}"
                for name in ("difference", "differing_keys")
            }
    assert house.defined(library(), "first_difference") == 0


def test_the_publisher_loads_no_more_modules() -> None:
    assert house.loaded_by("wharfinger_publisher.app") <= PUBLISHER_MODULES_MAX


def test_the_types_of_structs_are_read_by_one_thread_at_a_time() -> None:
    """Everything that lets msgspec read them is in `domain.value`, under its lock."""
    reads = re.compile(
        r"msgspec\.(json|msgpack)\.(Decoder\(|decode\([^\n]*type=)"
        r"|msgspec\.convert\((?!.*\bUUID\))"
    )
    found = {
        path.relative_to(ROOT).as_posix(): len(reads.findall(path.read_text()))
        for top in ("shared", "services")
        for path in sorted((ROOT / top).rglob("*.py"))
    }
    assert {path: n for path, n in found.items() if n} == {
        "shared/wharfinger/domain/value.py": 2,
        "shared/wharfinger/history/export_file.py": 2,  # under the same lock
        "shared/wharfinger/runtime/sent_elsewhere.py": 1,  # under it too
    }


def test_structlog_is_imported_where_rich_is_hidden_from_it() -> None:
    """Imported elsewhere first, it would load rich in every process."""
    found = {
        source.module
        for source in library()
        for node in source.tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _imported(ast.Module([node], []))
        if name.partition(".")[0] == "structlog"
    }
    assert found == set()  # `logs` has it in a `with`


def test_classes_share_no_more_names() -> None:
    """The client is a distribution of its own, whose readers know none of the library's names."""
    ours = [source for source in library() if not source.module.startswith("wharfinger_client")]
    assert house.class_share(ours) <= SHARED_CLASS_NAMES_MAX


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case _:
                pass
