"""docs/settings.md names every setting with its default, and nothing else; so does every other
document."""

from __future__ import annotations

import re
from pathlib import Path

from wharfinger.runtime.settings import ENV_PREFIX, Settings

ROOT = Path(__file__).parents[2]
OF_TESTS = {
    "WHARFINGER_TEST_KAFKA",
    "WHARFINGER_TEST_DATABASE",
    "WHARFINGER_TEST_PATIENCE",
    "WHARFINGER_TEST_EXAMPLES",
    "WHARFINGER_TEST_UNTIL",
    "WHARFINGER_TEST_ONLY",
    "WHARFINGER_TEST_FACTS_NODES",
    "WHARFINGER_TEST_KILLS",
    "WHARFINGER_TEST_CLAIM_KILLS",
    "WHARFINGER_TEST_SHADOW_PODS",
    "WHARFINGER_TEST_SHADOW_LIVE_PODS",
    "WHARFINGER_TEST_IMAGE_ARGS",
    "WHARFINGER_DATA",
}

ROW = re.compile(r"^\| `(WHARFINGER_\w+)` \| (?:`([^`]*)` )?\|", re.MULTILINE)


def variable(field: str) -> str:
    return ENV_PREFIX + field.upper()


def shown(default: object) -> str:
    if default is None or default == ():
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_every_setting_stands_there_with_its_default() -> None:
    rows = ROW.findall((ROOT / "docs" / "settings.md").read_text(encoding="utf-8"))
    assert rows == [
        (variable(name), shown(field.default)) for name, field in Settings.model_fields.items()
    ]


def test_variables_that_documents_name_exist() -> None:
    known = {variable(name) for name in Settings.model_fields} | OF_TESTS
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "docker-compose.yml"]:
        named = set(re.findall(r"\bWHARFINGER_[A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8")))
        assert named <= known, path
