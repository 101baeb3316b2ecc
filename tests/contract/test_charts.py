"""The Helm charts without Helm: their values are documented, and what they repeat of the code is
true. tests/kube/test_charts.py renders them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from infra.helm import rights
from ruamel.yaml import YAML

from wharfinger import __version__
from wharfinger.domain.actuation import MODES, VERBS
from wharfinger.runtime.settings import Settings

HELM = Path(rights.__file__).parent
CHARTS = ("wharfinger", "member")

charts = pytest.mark.parametrize("chart", CHARTS)


def schema_of(chart: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((HELM / chart / "values.schema.json").read_text())
    return found


def values_of(chart: str) -> dict[str, Any]:
    found: dict[str, Any] = _yaml(HELM / chart / "values.yaml")
    return found


def _yaml(file: Path) -> Any:
    return YAML(typ="safe", pure=True).load(file.read_text())


def undocumented(schema: dict[str, Any], values: dict[str, Any], at: str = "") -> Iterator[str]:
    """Values without a description; described values that there are not."""
    described = schema["properties"]
    for name in described.keys() - values.keys() - {"global"}:
        yield f"{at}{name}: no value"
    for name, value in values.items():
        found = described.get(name)
        if found is None or not found.get("description"):
            yield f"{at}{name}: not described"
        elif "properties" in found:
            assert found["additionalProperties"] is False
            yield from undocumented(found, value, f"{at}{name}.")


@charts
def test_every_value_is_described_and_the_defaults_are_valid(chart: str) -> None:
    import jsonschema  # seconds: it makes a parser of each format

    schema, values = schema_of(chart), values_of(chart)
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.Draft7Validator(schema).validate(values)
    assert list(undocumented(schema, values)) == []


def test_a_value_without_a_description_is_found() -> None:
    values = values_of("wharfinger")
    values["kafka"]["acks"] = "all"
    del values["image"]["tag"]
    assert sorted(undocumented(schema_of("wharfinger"), values)) == [
        "image.tag: no value",
        "kafka.acks: not described",
    ]


@charts
def test_the_version_is_the_projects(chart: str) -> None:
    described = _yaml(HELM / chart / "Chart.yaml")
    assert described["version"] == described["appVersion"] == __version__


def test_the_rights_in_the_chart_are_those_of_the_code() -> None:
    assert (HELM / "member" / "files" / "rights.yaml").read_text() == rights.text()


def test_both_charts_run_processes_alike() -> None:
    one, other = (HELM / chart / "templates" / "_process.tpl" for chart in CHARTS)
    assert one.read_text() == other.read_text()


def test_modes_and_verbs_are_those_of_the_code() -> None:
    cluster = schema_of("member")["properties"]["cluster"]["properties"]
    assert cluster["mode"]["enum"] == list(MODES)
    assert cluster["verbs"]["items"]["enum"] == list(VERBS)


@charts
def test_settings_that_a_chart_gives_itself_are_settings(chart: str) -> None:
    names = schema_of(chart)["properties"]["settings"]["propertyNames"]
    assert set(names["not"]["enum"]) <= Settings.model_fields.keys()
