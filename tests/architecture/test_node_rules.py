"""A rule that chooses nodes lives in one file: the engine knows its form and not its name, and its
property test carries its name.

A file knows a rule where it has the rule's name as a string, alone or as the kind of its arguments,
its class, or an import of its module. Reasons are named after rules and counted with them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import wharfinger
from wharfinger.domain.scheduler import Arguments
from wharfinger.domain.scheduler_plugins import BUILT_IN, KnownPlugin, NodeReason
from wharfinger.engine.framework.registry import PLUGINS, module_of
from wharfinger.engine.nodes.profile_rules import default_rules, reason_of
from wharfinger.engine.nodes.verdicts import REASONS

LIBRARY = Path(wharfinger.__file__).parent
SERVICES = LIBRARY.parents[1] / "services"
TESTS = Path(__file__).parents[1]
RULES = [plugin for plugin in BUILT_IN if plugin.chooses_nodes]

FILES_MOST = 3
"""The rule, its line in the list, and the manifest of its arguments where it has some."""

OTHER_MEANINGS = (
    "rules/clusters",
    "engine/cluster_sets",
    "stages/fleet",  # a filter of clusters, a toleration of OCM
    "domain/descheduling.py",
    "manifests/descheduler/args.py",  # a strategy of the descheduler, the end of a pod
    "stages/actuator/observed.py",  # why a kubelet did not admit a pod
    "manifests/kubernetes/pod.py",  # a part of a pod's manifest
)
"""Where the same words are names of something else."""


def names(rules: list[KnownPlugin]) -> list[str]:
    return [rule.name for rule in rules]


def knowing(rule: KnownPlugin) -> list[str]:
    mark = re.compile(
        rf'"{rule.name}(Args)?"|class {rule.name}\b|rules\.nodes\.{module_of(rule.name)}\b'
    )
    files = [*LIBRARY.rglob("*.py"), *SERVICES.rglob("*.py")]
    places = {str(p.relative_to(LIBRARY if LIBRARY in p.parents else SERVICES)): p for p in files}
    return [
        place
        for place, p in sorted(places.items())
        if not place.startswith(OTHER_MEANINGS) and mark.search(p.read_text())
    ]


def test_each_file_of_the_folder_is_one_rule_of_the_list() -> None:
    files = {path.stem for path in (LIBRARY / "rules/nodes").glob("*.py")} - {"__init__"}
    assert files == {module_of(name) for name in names(RULES)}


@pytest.mark.parametrize("rule", RULES, ids=names(RULES))
def test_few_files_know_a_rule(rule: KnownPlugin) -> None:
    found = knowing(rule)
    assert f"rules/nodes/{module_of(rule.name)}.py" in found
    assert len(found) <= FILES_MOST, found
    assert not [
        place for place in found if place.startswith(("engine", "stages", "history", "wharfinger_"))
    ]


@pytest.mark.parametrize("rule", RULES, ids=names(RULES))
def test_a_rule_knows_no_other_rule_and_has_its_property_test(rule: KnownPlugin) -> None:
    text = (LIBRARY / f"rules/nodes/{module_of(rule.name)}.py").read_text()
    assert "wharfinger.rules.nodes" not in text
    assert (TESTS / f"properties/rules/nodes/test_{module_of(rule.name)}.py").exists()


@pytest.mark.parametrize("rule", RULES, ids=names(RULES))
def test_a_rule_that_refuses_says_under_which_reason(rule: KnownPlugin) -> None:
    made = PLUGINS[rule.name](Arguments())
    reason: NodeReason = reason_of(made)
    assert (reason != "Plugin") == ("filter" in rule.points)
    assert reason in REASONS


def test_every_verdict_of_the_default_profile_is_put_into_words() -> None:
    verdicts = [verdict for verdict in default_rules().codes.by_detail if verdict is not None]
    assert all((verdict.text == "") == (verdict.words is not None) for verdict in verdicts)
