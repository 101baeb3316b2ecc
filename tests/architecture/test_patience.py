"""No test claims that something is quick: another load on the machine would make it fail.

Found in the code of the tests: calls with a bound in seconds, and readings of clocks. They wait by
`tests/patience.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"

CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
BOUNDED = {"wait_for": 1, "timeout": 0, "timeout_at": 0}  # function -> position of its bound
OWN = {"patience.py", "costs.py", "watchdog.py"}
"""They wait and measure for all others."""

ALLOWED = {
    (
        "integration/fake_service.py",
        "monotonic",
    ): "writes when it began; the test asserts pauses to be at least so long",
    ("planes.py", "monotonic"): "how long nothing has moved; a busy machine makes it wait longer",
    ("chaos/campaign.py", "monotonic"): "how long a plane takes to recover is printed only",
    (
        "chaos/endurance.py",
        "monotonic",
    ): "how long the load goes on; what grows in that time is printed",
    ("chaos/outages.py", "monotonic"): "how long a backend is away, and log lines in that time",
    ("chaos/poisoning.py", "monotonic"): "two turns of the same load are compared as a ratio",
    ("chaos/endurance.py", "timeout"): "how often it looks while the load goes on",
    ("kube/test_cut_connections.py", "monotonic"): "how long connections are cut",
    ("kube/test_facts.py", "monotonic"): "how long the first facts take is printed only",
    ("cli_plane.py", "monotonic"): "how long nothing has moved",
    ("transcripts.py", "monotonic"): "how long nothing has moved",
    ("integration/ledgers/record.py", "monotonic"): "how long nothing has moved",
    ("kube/test_kills.py", "monotonic"): "how long a kill took, which is printed",
    ("integration/test_topic_lives.py", "timeout"): "of a record that a broker may take or not",
    ("integration/test_node_load.py", "monotonic"): "the time of the made-up measurements",
    (
        "integration/test_webhooks.py",
        "timeout_s",
    ): "of the sender; the receiver answers later, and must count as silent",
}


def bounds(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of every clock read and of every call with a bound that is a number."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=name) | ast.Name(id=name), args=args, keywords=keywords
            ):
                if name in CLOCKS:
                    yield node.lineno, name
                place = BOUNDED.get(name)
                if place is not None and len(args) > place and _is_number(args[place]):
                    yield node.lineno, name
                for keyword in keywords:
                    if keyword.arg in ("timeout", "timeout_s") and _is_number(keyword.value):
                        yield node.lineno, keyword.arg
            case _:
                pass


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value > 0


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("time.monotonic()", "monotonic"),
        ("asyncio.wait_for(x, 5)", "wait_for"),
        ("asyncio.timeout(5)", "timeout"),
        ("subprocess.run([], timeout=60)", "timeout"),
        ("pytest.mark.timeout(60)", "timeout"),
    ],
)
def test_a_bound_is_found(code: str, found: str) -> None:
    assert [name for _, name in bounds(ast.parse(code))] == [found]


def test_no_test_has_a_bound_on_wall_time() -> None:
    here = {
        (path.relative_to(TESTS).as_posix(), name): f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.name not in OWN and path != Path(__file__)
        for line, name in bounds(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert [where for key, where in here.items() if key not in ALLOWED] == []
    assert ALLOWED.keys() <= here.keys()


def test_the_number_of_examples_follows_the_profile() -> None:
    """`max_examples` is given as `examples(...)` of `tests/hunting.py`, so that the long profile
    can try more."""
    fixed = [
        f"{path.relative_to(ROOT)}:{node.value.lineno}"
        for path in sorted(TESTS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.keyword) and node.arg == "max_examples" and _is_number(node.value)
    ]
    assert fixed == []
