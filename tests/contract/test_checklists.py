"""Each checklist names every file that has to change: it is followed on a copy of the sources, and
the checks are run there.

A recipe may touch only files that its checklist names, in backticks, with `<placeholders>`. The
checks then say whether anything else had to change: they run the parts of the house that know such
things by a list.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests import hunting

ROOT = Path(__file__).parents[2]
PARTS = ("shared", "services", "tests", "docs", "examples", "infra", "migrations")
FILES = (
    ".importlinter",
    "pyproject.toml",
    "docker-compose.yml",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "CHANGELOG.md",
    "Makefile",
)

Edit = Callable[[str], str]


def new(text: str) -> Edit:
    def make(old: str) -> str:
        assert not old, "a new file"
        return text

    return make


def after(anchor: str, line: str) -> Edit:
    """`line` below the line that begins with `anchor`, as deep as it."""

    def insert(old: str) -> str:
        found = re.search(rf"^([ ]*){re.escape(anchor)}.*\n", old, re.MULTILINE)
        assert found, f"no line begins with {anchor}"
        added = "".join(f"{found[1]}{one}\n" if one else "\n" for one in line.split("\n"))
        return old[: found.end()] + added + old[found.end() :]

    return insert


def both(*edits: Edit) -> Edit:
    def make(old: str) -> str:
        for edit in edits:
            old = edit(old)
        return old

    return make


def end(text: str) -> Edit:
    return lambda old: old + text


def replaced(old_text: str, new_text: str) -> Edit:
    def replace(old: str) -> str:
        assert old_text in old
        return old.replace(old_text, new_text)

    return replace


@dataclass(frozen=True)
class Recipe:
    """`section`: of the checklist, where it has several. `edits`: file -> change. `checks`: what
    pytest runs on the copy."""

    checklist: str
    edits: dict[str, Edit]
    checks: tuple[str, ...]
    section: str = ""
    generated: tuple[str, ...] = field(default=())


RULE = '''"""A harbour that has closed takes nothing new."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from wharfinger.domain.cluster import Cluster
from wharfinger.domain.reasons import FleetReason
from wharfinger.rules.changes import Change
from wharfinger.rules.clusters.properties import on_label
from wharfinger.rules.clusters.rule import ClusterQuery, Condition, Undone

CLOSED = "example.com/closed"


class HarbourClosedFilter:
    reason = FleetReason("HarbourClosed")

    def passes(self, query: ClusterQuery, cluster: Cluster, existing: bool) -> bool:
        return existing or CLOSED not in cluster.labels

    def conditions(self, query: ClusterQuery) -> tuple[Condition, ...] | None:
        return (on_label(CLOSED, lambda value: value is None),)

    def sentence(self, query: ClusterQuery, cluster: Cluster) -> str:
        return "cluster(s) had a closed harbour"

    def undo(self, query: ClusterQuery, cluster: Cluster) -> Iterator[Undone]:
        labels = {key: value for key, value in cluster.labels.items() if key != CLOSED}
        opened = msgspec.structs.replace(cluster, labels=labels)
        yield Change("label", cluster.name, f"without {CLOSED}"), query, opened
'''
RULE_TEST = '''"""A closed harbour refuses newcomers, in words, and says what would open it."""

from random import Random

from tests.cluster_queries import NAMES, a_cluster, a_query, pass_once_undone, prepared_alike

import msgspec
from wharfinger.rules.clusters.filters import all_refusals, sentences
from wharfinger.rules.clusters.harbour_closed import CLOSED, HarbourClosedFilter


def test_a_closed_harbour_refuses_newcomers() -> None:
    random, rule = Random(1), HarbourClosedFilter()
    query = a_query(random)
    clusters = [
        msgspec.structs.replace(a_cluster(random, name), labels={CLOSED: ""}) for name in NAMES
    ]
    prepared_alike(rule, query, clusters)
    for cluster in clusters:
        assert "HarbourClosed" in all_refusals(query, cluster)
        assert "HarbourClosed" not in all_refusals(query, cluster, existing=True)
        assert "cluster(s) had a closed harbour" in [text for _, text in sentences(query, cluster)]
        assert pass_once_undone(rule, query, cluster)
'''

DECISION = '''"""A harbour closes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar
from uuid import UUID

from wharfinger.domain.ids import ClusterName
from wharfinger.domain.value import Value
from wharfinger.events.decisions.kind import (
    About,
    Writer,
    meaning_of_about,
    names_replaceable,
    no_assignment_items,
    no_effect,
    no_outcome_item,
    no_proposal,
    no_refusal,
)
from wharfinger.events.decisions.steps import StepResult, trigger


class HarbourClosed(Value, frozen=True):
    TYPE: ClassVar[str] = "harbour.closed"
    VERSION: ClassVar[int] = 1
    ABOUT: ClassVar[About] = "cluster"
    OUTCOMES: ClassVar[tuple[str, ...]] = ("closed",)
    WRITERS: ClassVar[tuple[Writer, ...]] = ("fleet",)

    cluster: ClusterName

    def step_results(self, cause: UUID | None) -> Iterator[StepResult]:
        yield trigger(cause)
        yield StepResult("selection", {"outcome": "closed", "cluster": self.cluster})

    def sentence(self) -> str:
        return f"the harbour of {self.cluster} is closed"

    answered_proposal = no_proposal
    refusal = no_refusal
    assignment_items = no_assignment_items
    outcome_item = no_outcome_item
    effect = no_effect
    subject_meaning = meaning_of_about
    why_not_renamed = names_replaceable
'''
DECISION_FOLD = """

@FOLDS.of(HarbourClosed)
def harbour_closed(state: FleetState, data: HarbourClosed, decision: Decision, at: Micros) -> None:
    state.waiting.retry_due = True
"""

EVENT = '''

class TideObserved(Value, frozen=True):
    """`level_mm`: above chart datum."""

    cluster: Bounded[ClusterName]
    level_mm: int
'''


def sample(name: str, data: dict[str, object], template: str = "workload.observed.v1.json") -> str:
    """A message like a frozen one, with other data."""
    message = json.loads((ROOT / "tests/contract/samples" / template).read_text(encoding="utf-8"))
    for key in ("type", "dataschema"):
        message[key] = message[key].replace(template.removesuffix(".json"), f"{name}.v1")
    return json.dumps(message | {"data": data}, indent=2) + "\n"


def frozen(name: str, text: str) -> Edit:
    return end(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}.v1.json\n")


CLOSED_SAMPLE = sample("harbour.closed", {"cluster": "oslo"}, "cluster.recovered.v1.json")
TIDE_SAMPLE = sample("tide.observed", {"cluster": "oslo", "level_mm": 1800})
SAMPLES = "tests/contract/samples"
TEXTS = (
    "tests/properties/test_redaction.py"
    "::test_every_text_of_every_event_and_state_says_what_it_means"
)

COMMAND = '''"""`tide`: how high the water is."""

from __future__ import annotations

from wharfinger_cli.output import write
from wharfinger_cli.request import Request


def tide(request: Request) -> None:
    write("high water")
'''
COMMAND_LINE = '''

@app.command(rich_help_panel=ANSWERS)
def tide(context: typer.Context, data_dir: Dir = None) -> None:
    """How high the water is."""
    from wharfinger_cli import tide as module

    module.tide(_request(context, data_dir))
'''

SERVICE = "wharfinger_lighthouse"
APP = '''"""The lighthouse as a service: an observer that folds clusters and tells nothing yet."""

from __future__ import annotations

from collections.abc import Iterable

from wharfinger.events.streams import CLUSTERS
from wharfinger.runtime.service import Service, ServiceContext
from wharfinger.runtime.settings import Settings

NAME = "lighthouse"
READ = (CLUSTERS,)


def lighthouse(context: ServiceContext, settings: Settings) -> Service:
    raise NotImplementedError


BUILDERS = {NAME: lighthouse}
'''
MAIN = '''"""`python -m wharfinger_lighthouse`: the lighthouse as a process of its own."""

import sys

from wharfinger.runtime.process import run_process
from wharfinger_lighthouse.app import BUILDERS, NAME

if __name__ == "__main__":
    sys.exit(run_process(NAME, BUILDERS))
'''
SERVICE_TEST = '''"""Every list of services has the new one."""

from pathlib import Path

import wharfinger_cli.one as one
import wharfinger_publisher.reaccept as taking_back
from wharfinger.runtime.children import EACH

ROOT = Path(__file__).parents[2]


def test_the_lighthouse_is_in_every_list() -> None:
    assert "lighthouse" in EACH
    for file in ("__init__.py", "__main__.py"):
        assert (ROOT / "services/wharfinger_lighthouse" / file).exists()
    assert "lighthouse" in one.BUILDERS
    assert "/wharfinger/lighthouse" in taking_back.OUR_OWN
    for path in ("pyproject.toml", ".importlinter"):
        services = ("wharfinger_annotator", "wharfinger_lighthouse")
        named = {text: (ROOT / path).read_text().count(text) for text in services}
        assert len(set(named.values())) == 1, (path, named)
'''

RECIPES = {
    "add-rule": Recipe(
        "add-rule",
        {
            "shared/wharfinger/rules/clusters/harbour_closed.py": new(RULE),
            "shared/wharfinger/rules/clusters/filters.py": both(
                after(
                    "from wharfinger.rules.clusters.evicted import",
                    "from wharfinger.rules.clusters.harbour_closed import HarbourClosedFilter",
                ),
                after(
                    "SilentFilter(),",
                    "HarbourClosedFilter(),  # what is closed for everybody, "
                    "before what one workload asks",
                ),
            ),
            "tests/properties/rules/clusters/test_harbour_closed.py": new(RULE_TEST),
        },
        ("tests/architecture/test_rules.py", "tests/properties/rules/clusters"),
        section="## A rule that refuses clusters",
    ),
    "add-decision": Recipe(
        "add-decision",
        {
            "shared/wharfinger/events/decisions/harbour_closed.py": new(DECISION),
            "shared/wharfinger/events/decisions/__init__.py": both(
                after(
                    "from wharfinger.events.decisions.failover_resumed import",
                    "from wharfinger.events.decisions.harbour_closed import HarbourClosed",
                ),
                after("FailoverResumed,", "HarbourClosed,  # nothing new goes there"),
                replaced("__all__ = [\n", '__all__ = [\n    "HarbourClosed",\n'),
            ),
            "shared/wharfinger/stages/fleet/fold_clusters.py": both(
                replaced("    FailoverResumed,\n", "    FailoverResumed,\n    HarbourClosed,\n"),
                end(DECISION_FOLD),
            ),
            f"{SAMPLES}/harbour.closed.v1.json": new(CLOSED_SAMPLE),
            f"{SAMPLES}/FROZEN": frozen("harbour.closed", CLOSED_SAMPLE),
            "tests/unit/test_divergence.py": both(
                replaced(
                    "from wharfinger.events.decisions import (",
                    "from wharfinger.events.decisions import (\n    HarbourClosed,",
                ),
                after(
                    "PAIRS: ", '    (HarbourClosed("oslo"), HarbourClosed("bergen"), "selection"),'
                ),
            ),
        },
        (
            "tests/unit/test_decision_kinds.py",
            "tests/unit/test_divergence.py",
            "tests/unit/test_folds.py",
            "tests/contract/test_events.py",
            TEXTS,
        ),
        generated=("docs/topics.md",),
    ),
    "add-event": Recipe(
        "add-event",
        {
            "shared/wharfinger/events/cluster_state.py": end(EVENT),
            "shared/wharfinger/events/registry.py": after(
                'EventType("workload.observed"',
                'EventType("tide.observed", 1, cluster_state.TideObserved, streams.CLUSTER_STATE),',
            ),
            "shared/wharfinger/events/accepted.py": both(
                replaced("    WorkloadObserved,\n", "    TideObserved,\n    WorkloadObserved,\n"),
                after("| WorkloadObserved", "| TideObserved"),
                replaced(
                    "        case PolicyApplied(policy=policy):\n",
                    "        case TideObserved(cluster=name):\n"
                    '            return Accepted(data, name, f"{name}/tide", name)\n'
                    "        case PolicyApplied(policy=policy):\n",
                ),
            ),
            "shared/wharfinger/events/versions.py": both(
                replaced("    WorkloadObserved,\n", "    TideObserved,\n    WorkloadObserved,\n"),
                replaced(
                    "        case CapacityEstimated(cluster=name):\n",
                    "        case TideObserved(cluster=name):\n"
                    '            return FactKey("tide", name)\n'
                    "        case CapacityEstimated(cluster=name):\n",
                ),
            ),
            # In the imports and in the list of what comes from outside.
            "shared/wharfinger/history/whatif.py": replaced(
                "    WorkloadObserved,\n", "    TideObserved,\n    WorkloadObserved,\n"
            ),
            "shared/wharfinger/answers/event_text.py": both(
                replaced("    WorkloadObserved,\n", "    TideObserved,\n    WorkloadObserved,\n"),
                replaced(
                    "        case CapacityEstimated(cluster=cluster):\n",
                    "        case TideObserved(cluster=cluster):\n"
                    '            return f"tide at {cluster}"\n'
                    "        case CapacityEstimated(cluster=cluster):\n",
                ),
            ),
            f"{SAMPLES}/tide.observed.v1.json": new(TIDE_SAMPLE),
            f"{SAMPLES}/FROZEN": frozen("tide.observed", TIDE_SAMPLE),
        },
        ("tests/contract/test_events.py", TEXTS, "tests/unit/test_facts.py"),
        generated=("docs/topics.md",),
    ),
    "add-command": Recipe(
        "add-command",
        {
            "services/wharfinger_cli/tide.py": new(COMMAND),
            "services/wharfinger_cli/app.py": end(COMMAND_LINE),
            "tests/contract/test_command_starts.py": after(
                '("status", ', '("tide", 450, HEAVY | ENGINE | LEDGER),'
            ),
            "README.md": end("\n```\n$ wharfinger tide\nhigh water\n```\n"),
        },
        (
            "tests/contract/test_command_starts.py::test_a_command_loads_little[tide]",
            "tests/contract/test_docs.py::test_commands_that_are_listed_exist[README.md]",
        ),
    ),
    "add-service": Recipe(
        "add-service",
        {
            f"services/{SERVICE}/__init__.py": new(
                '"""A service for the test of its checklist."""\n'
            ),
            f"services/{SERVICE}/__main__.py": new(MAIN),
            f"services/{SERVICE}/app.py": new(APP),
            f"services/{SERVICE}/py.typed": new("\n"),
            "pyproject.toml": after('"services/wharfinger_annotator",', f'"services/{SERVICE}",'),
            ".importlinter": both(
                replaced(
                    "    wharfinger_annotator\n", f"    wharfinger_annotator\n    {SERVICE}\n"
                ),
                replaced("    wharfinger_annotator |", f"    wharfinger_annotator | {SERVICE} |"),
                replaced(
                    "    wharfinger_annotator.app -> faust\n",
                    f"    wharfinger_annotator.app -> faust\n    {SERVICE}.app -> faust\n",
                ),
            ),
            "shared/wharfinger/runtime/children.py": after(
                '"annotator": ', f'"lighthouse": "{SERVICE}",'
            ),
            "services/wharfinger_cli/controllers.py": both(
                after(
                    "from wharfinger_estimator.app",
                    f"from {SERVICE}.app import BUILDERS as LIGHTHOUSE",
                ),
                replaced("**COLLECTOR,", "**COLLECTOR,\n    **LIGHTHOUSE,"),
            ),
            "services/wharfinger_publisher/reaccept.py": replaced(
                '"/wharfinger/annotator"}', '"/wharfinger/annotator", "/wharfinger/lighthouse"}'
            ),
            "docker-compose.yml": replaced(
                "\nvolumes:\n  clusters:\n",
                f'\n  lighthouse:\n    <<: *service\n    command: ["python", "-m", "{SERVICE}"]\n'
                "\nvolumes:\n  clusters:\n",
            ),
            "infra/prometheus/prometheus.yml": after("- annotator:8080", "- lighthouse:8080"),
        },
        (
            "tests/architecture/test_import_contracts.py",
            "tests/contract/test_compose.py::test_prometheus_scrapes_every_service",
            "tests/contract/test_compose.py::test_each_service_has_a_container_that_runs_its_package",
            "tests/unit/test_lighthouse.py",
        ),
    ),
}

PROBES = {
    "add-event": (
        "tests/unit/test_facts.py",
        '''"""A fact is accepted under its key, versioned by it, replayed and described."""

from wharfinger.events.accepted import accepted
from wharfinger.events.cluster_state import TideObserved
from wharfinger.events.versions import fact_key
from wharfinger.history.whatif import EXOGENOUS
from wharfinger.answers.event_text import said


def test_a_fact_is_known_everywhere() -> None:
    fact = TideObserved("oslo", 1800)
    assert accepted(fact).key == "oslo/tide"
    assert fact_key(fact) is not None
    assert TideObserved in EXOGENOUS
    assert said(fact) == "tide at oslo"
''',
    ),
    "add-service": ("tests/unit/test_lighthouse.py", SERVICE_TEST),
}
"""Tests of the copy that no checklist asks for: they hold what a recipe is for."""


def named(recipe: Recipe) -> list[re.Pattern[str]]:
    """The files that the checklist names; a `<placeholder>` stands for any name."""
    text = (ROOT / f"docs/checklists/{recipe.checklist}.md").read_text(encoding="utf-8")
    if recipe.section:
        text = text[text.index(recipe.section) :].split("\n## ")[0]
    found = re.findall(r"`((?:[\w.<>-]+/)*[\w.<>-]+)`", text)
    return [
        re.compile(
            re.sub(
                r"<[\w-]+>", r"[\\w.-]+", re.escape(name).replace(r"\<", "<").replace(r"\>", ">")
            )
        )
        for name in found
    ]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One copy for all recipes: what the first one compiles to byte code, the others read."""
    directory = tmp_path_factory.mktemp("sources")
    ignored = shutil.ignore_patterns("__pycache__", "*.so", ".hypothesis")
    for part in PARTS:
        shutil.copytree(ROOT / part, directory / part, ignore=ignored)
    for name in FILES:
        shutil.copy2(ROOT / name, directory / name)
    return directory


@pytest.fixture
def copied(sources: Path) -> Iterator[Path]:
    """The copy. What a recipe writes is undone: its files get their text and their time back, by
    which byte code is recognized."""
    yield sources
    touched = {path for recipe in RECIPES.values() for path in (*recipe.edits, *recipe.generated)}
    for path in sorted(touched | {path for path, _ in PROBES.values()}):
        if (ROOT / path).exists():
            shutil.copy2(ROOT / path, sources / path)
        else:
            (sources / path).unlink(missing_ok=True)
            if not (ROOT / path).parent.exists():
                shutil.rmtree((sources / path).parent, ignore_errors=True)


def run(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    paths = [str(directory / part) for part in ("shared", "services")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), *paths])}
    xdist = ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_CURRENT_TEST")
    # A check needs no more examples than the quick profile.
    for name in (*xdist, hunting.PROFILE, "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    return subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def follow(directory: Path, recipe: Recipe, without: str = "") -> None:
    for path, edit in recipe.edits.items():
        if path != without:
            file = directory / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(
                edit(file.read_text(encoding="utf-8") if file.exists() else ""), encoding="utf-8"
            )
    if recipe.generated:
        made = run(
            directory,
            "-c",
            "from wharfinger.events.schema import topics_markdown; print(topics_markdown(), "
            "end='')",
        )
        assert made.returncode == 0, made.stderr
        (directory / "docs/topics.md").write_text(made.stdout, encoding="utf-8")


def checked(directory: Path, name: str, recipe: Recipe) -> subprocess.CompletedProcess[str]:
    if name in PROBES:
        path, text = PROBES[name]
        (directory / path).write_text(text, encoding="utf-8")
    without = ("-p", "no:cacheprovider", "-p", "no:schemathesis")  # importing it takes a second
    return run(directory, "-m", "pytest", "-q", "-x", *without, *recipe.checks)


each = pytest.mark.parametrize("name", list(RECIPES))


@each
def test_a_checklist_names_every_file_that_it_takes(name: str) -> None:
    names = named(RECIPES[name])
    paths = [*RECIPES[name].edits, *RECIPES[name].generated]
    assert [path for path in paths if not any(one.fullmatch(path) for one in names)] == []


@pytest.mark.long
@each
def test_following_a_checklist_is_enough(name: str, copied: Path) -> None:
    follow(copied, RECIPES[name])
    done = checked(copied, name, RECIPES[name])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "path"),
    [
        (n, p)
        for n, r in RECIPES.items()
        for p in r.edits
        if p.endswith((".py", ".toml", ".yml", "FROZEN"))
    ],
)
def test_every_file_of_a_checklist_is_needed(name: str, path: str, copied: Path) -> None:
    """Without it the checks fail, so a file that a checklist does not name would be missed in the
    same way."""
    try:
        follow(copied, RECIPES[name], without=path)
    except AssertionError:
        return  # what is generated from the sources cannot even be made
    assert checked(copied, name, RECIPES[name]).returncode != 0
