"""A rule lives in one file: no other rule imports it, only the list names it, and its property test
carries its name."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import wharfinger
from wharfinger.rules.clusters import filters
from wharfinger.rules.clusters.filters import FILTERS
from wharfinger.rules.clusters.rule import ClusterFilter

LIBRARY = Path(wharfinger.__file__).parent
TESTS = Path(__file__).parents[1]
RULES = LIBRARY / "rules/clusters"
SHARED = {"__init__", "admission", "edits", "filters", "locality", "properties", "rule"}
"""Modules of the folder that are no filters: what filters consist of and read, what asks all, and
the score."""


def file_of(rule: ClusterFilter) -> Path:
    return Path(inspect.getfile(type(rule)))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_each_file_of_the_folder_is_one_rule_of_the_list() -> None:
    files = [path.stem for path in sorted(RULES.glob("*.py")) if path.stem not in SHARED]
    assert sorted(file_of(rule).stem for rule in FILTERS) == files


def test_no_two_rules_give_the_same_reason() -> None:
    reasons = [rule.reason for rule in FILTERS]
    assert len(reasons) == len(dict.fromkeys(reasons))


@pytest.mark.parametrize("rule", FILTERS, ids=lambda rule: file_of(rule).stem)
def test_a_rule_knows_no_other_rule_and_has_its_property_test(rule: ClusterFilter) -> None:
    own = file_of(rule)
    others = {
        f"wharfinger.rules.clusters.{path.stem}"
        for path in RULES.glob("*.py")
        if path.stem not in SHARED
    }
    assert not others & set(imported(own)) - {"wharfinger.rules.clusters.rule"}
    assert (TESTS / f"properties/rules/clusters/test_{own.stem}.py").exists()


@pytest.mark.parametrize("rule", FILTERS, ids=lambda rule: file_of(rule).stem)
def test_only_the_list_makes_a_rule_and_no_other_file_writes_its_reason(
    rule: ClusterFilter,
) -> None:
    own, name = file_of(rule), type(rule).__name__
    for path in LIBRARY.rglob("*.py"):
        text = path.read_text()
        if path != own and path != Path(filters.__file__):
            assert f"{name}()" not in text, path
        if path != own and rule.reason not in ELSEWHERE:
            assert f'"{rule.reason}"' not in text, path


ELSEWHERE = {"ClusterAffinity", "Evicted", "SpreadConstraint", "TaintToleration"}
"""Words with other meanings as well: a manifest's field, a pod's end, a refusal of the choice, a
node plugin."""
