"""No module imports itself by way of others: neither at its top, nor within a function, nor for its
types only.

`.importlinter` keeps the layers in order; this looks inside them. An import within a function hides
a circle from Python, and `TYPE_CHECKING` hides it at run time; the two modules are still one
subject that nobody can read by halves.
"""

from __future__ import annotations

import ast

from benchmarks.house import circles, imports, imports_of, sources


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = imports(sources())
    assert sum(map(len, graph.values())) > len(graph), "the imports were not read"
    assert circles(graph) == []


def test_a_circle_is_found_wherever_its_imports_are_written() -> None:
    texts = {
        "wharfinger.a": "import wharfinger.b",
        "wharfinger.b": "def late() -> None:\n    from wharfinger import c",
        "wharfinger.c": (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from wharfinger.a import A"
        ),
        "wharfinger.d": "from wharfinger.a import A\nfrom wharfinger import c",
    }
    graph = {name: imports_of(ast.parse(text), texts) for name, text in texts.items()}
    assert circles(graph) == [["wharfinger.a", "wharfinger.b", "wharfinger.c"]]
