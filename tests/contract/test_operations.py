"""The pages for operators, and SECURITY.md, say nothing that is not there: alerts, metrics,
settings, log events, messages and commands are looked up in rules and code."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from tests.contract.test_docs import misread

from wharfinger.runtime.ledger.roles import ROLES
from wharfinger.runtime.observability import METRICS
from wharfinger.runtime.settings import ENV_PREFIX, Settings
from wharfinger_api import figures as api_figures

ROOT = Path(__file__).parents[2]
OPERATIONS = ROOT / "docs" / "operations"
PAGES = [ROOT / "SECURITY.md", *sorted(OPERATIONS.glob("*.md"))]
RULES = yaml.safe_load((ROOT / "infra" / "prometheus" / "rules.yml").read_text("utf-8"))
ALERTS = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]
WORDS_MAX = 1500
"""Of a page that is read in five minutes."""

each_page = pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)


def page(name: str) -> str:
    return (OPERATIONS / name).read_text("utf-8")


@cache
def code() -> str:
    """All sources, with the texts that are written over several lines joined."""
    files = [*(ROOT / "shared").rglob("*.py"), *(ROOT / "services").rglob("*.py")]
    return re.sub(r"\"\s*\n\s*f?\"", "", "\n".join(f.read_text("utf-8") for f in sorted(files)))


def table_below(text: str, heading: str) -> list[str]:
    """The first column of the first table below a heading, without its head."""
    rows = re.findall(r"^\|([^|]*)\|", text.split(heading, 1)[1].split("\n## ", 1)[0], re.MULTILINE)
    return [row.strip() for row in rows[2:]]


def figures() -> set[str]:
    """As Prometheus sees them, without the endings of histograms. Those of the API are registered
    with its module."""
    assert api_figures.REQUESTS
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in METRICS.registry.collect()
    }


def test_each_alert_has_its_section_and_each_section_its_alert() -> None:
    assert re.findall(r"^### (\w+)$", page("alerts.md"), re.MULTILINE) == ALERTS


@pytest.mark.parametrize("alert", ALERTS)
def test_a_section_says_how_severe_its_alert_is_and_for_how_long_it_holds(alert: str) -> None:
    (rule,) = [r for group in RULES["groups"] for r in group["rules"] if r["alert"] == alert]
    severity, held = rule["labels"]["severity"], rule.get("for", "")
    said = ", ".join(filter(None, [severity, re.sub(r"(\d+)(m|h)", _span, held)]))
    assert f"### {alert}\n\n*{said}.* " in page("alerts.md")


def _span(found: re.Match[str]) -> str:
    return f"{found[1]} {'min' if found[2] == 'm' else 'h'}"


def test_every_metric_of_the_plane_is_explained() -> None:
    explained = set(re.findall(r"`(wharfinger_\w+)`", page("monitoring.md")))
    assert figures() == {name for name in explained if not (ROOT / "services" / name).is_dir()}


@each_page
def test_metrics_that_are_named_exist(path: Path) -> None:
    named = set(re.findall(r"\b(wharfinger_[a-z_]+)", path.read_text("utf-8")))
    services = {name for name in named if (ROOT / "services" / name).is_dir()}
    roles = {role.full_name for role in ROLES}
    assert named - services - roles <= figures()


@each_page
def test_settings_that_are_named_exist(path: Path) -> None:
    named = set(re.findall(rf"\b({ENV_PREFIX}[A-Z_]+)", path.read_text("utf-8")))
    assert named <= {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}


@each_page
def test_commands_in_sentences_exist(path: Path) -> None:
    named = re.findall(r"`(wharfinger [a-z][^`]*)`", path.read_text("utf-8"))
    assert [f"{c}: {error}" for c in named if (error := misread(c))] == []


def test_log_events_that_are_named_exist() -> None:
    text = page("troubleshooting.md")
    cells = table_below(text, "## Log events")
    events = [event for cell in cells for event in re.findall(r"`([\w.]+)`", cell)]
    elsewhere = [
        event
        for path in PAGES
        for event in re.findall(r"`([a-z_]+\.[a-z_]+)`", path.read_text("utf-8"))
        if not event.endswith((".md", ".yml", ".json", ".printable"))
    ]
    assert len(events) > 15
    assert [event for event in [*events, *elsewhere] if f'"{event}"' not in code()] == []


def test_messages_that_are_named_are_those_of_the_code() -> None:
    """Words in capitals stand for what varies."""
    cells = table_below(page("troubleshooting.md"), "## A command does not work")
    said = [message for cell in cells for message in re.findall(r"`([^`]+)`", cell)]
    assert len(said) > 10
    parts = [part.strip() for message in said for part in re.split(r"\b[A-Z]+\b|\b\d+\b", message)]
    assert [part for part in parts if part.strip(": ") and part not in code()] == []


def test_the_index_names_every_page() -> None:
    assert {path.name for path in OPERATIONS.glob("*.md")} - {"README.md"} <= set(
        re.findall(r"\]\(([\w-]+\.md)\)", page("README.md"))
    )


@each_page
def test_a_page_is_read_in_five_minutes(path: Path) -> None:
    if path.name != "SECURITY.md":
        assert len(path.read_text("utf-8").split()) <= WORDS_MAX
