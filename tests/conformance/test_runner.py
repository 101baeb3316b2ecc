"""The runner itself: what it finds, and how it says that there is nothing to ask."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.conformance import runner
from tests.conformance.__main__ import main

CASE: dict[str, Any] = {
    "name": "two-clusters",
    "input": {
        "clusters": [{"metadata": {"name": "oslo"}}, {"metadata": {"name": "bergen"}}],
        "binding": {
            "metadata": {"name": "web", "namespace": "prod"},
            "spec": {
                "resource": {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": "web",
                    "namespace": "prod",
                },
                "replicas": 2,
                "placement": {"replicaScheduling": {"replicaSchedulingType": "Duplicated"}},
            },
        },
    },
    "expect": {"clusters": [{"name": "bergen", "replicas": 2}, {"name": "oslo", "replicas": 2}]},
}


def written(directory: Path, name: str, document: object) -> Path:
    file = directory / name
    body = json.dumps(document).encode()
    file.write_bytes(gzip.compress(body) if name.endswith(".gz") else body)
    return file


@pytest.mark.parametrize("name", ["division.json", "division.json.gz"])
@pytest.mark.parametrize(("cases", "key"), [("cases", "name"), ("vectors", "id")])
def test_a_folder_of_cases_in_the_same_format_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, cases: str, key: str
) -> None:
    case = {key if k == "name" else k: v for k, v in CASE.items()}
    written(tmp_path, name, {"suite": "division", cases: [case]})
    assert main(["karmada", "--vectors", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == ["division 1/1", "karmada 1/1"]


def test_a_case_that_differs_is_named_and_the_exit_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {**CASE, "expect": {"clusters": [{"name": "oslo", "replicas": 2}]}}
    written(
        tmp_path,
        "division.json",
        {"suite": "division", "cases": [CASE, {**wrong, "name": "other"}]},
    )
    assert main(["karmada", "--vectors", str(tmp_path)]) == 1
    assert "division/other" in capsys.readouterr().out
    assert main(["karmada", "--vectors", str(tmp_path), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["division"] == {"passed": 1, "deviating": 0, "total": 2, "failed": ["other"]}
    assert report["karmada"]["failed"] == ["division/other"]


def test_one_case_is_shown_with_what_was_expected_and_what_came(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(
        tmp_path, "division.json", {"suite": "division", "cases": [CASE, {**CASE, "name": "other"}]}
    )
    assert main(["karmada", "--vectors", str(tmp_path), "--case", "two-clusters"]) == 0
    out = capsys.readouterr().out
    assert '"expected"' in out
    assert '"actual"' in out
    assert out.splitlines()[-1] == "karmada 1/1"


@pytest.mark.parametrize(
    "broken", [{}, {"spec": 1}, None, {"metadata": {"name": "web"}, "spec": {"replicas": "many"}}]
)
def test_an_object_that_cannot_be_read_fails_its_case_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: object
) -> None:
    other = {**CASE, "name": "broken", "input": {**CASE["input"], "binding": broken}}
    written(tmp_path, "division.json", {"suite": "division", "cases": [CASE, other]})
    assert main(["karmada", "--vectors", str(tmp_path), "--case", "broken"]) == 1
    assert "unanswerable" in capsys.readouterr().out
    assert main(["karmada", "--vectors", str(tmp_path)]) == 1
    assert "division 1/2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "no vectors there"),
        ({"a.json": "{"}, "no JSON"),
        ({"a.json.gz": "not compressed"}, "cannot be read"),
        ({"a.json": "[]"}, "expected an object with a suite"),
        ({"a.json": '{"suite": "cooking", "cases": []}'}, "is no suite of karmada"),
        ({"a.json": '{"suite": "division"}'}, "expected a list of cases"),
        ({"a.json": '{"suite": "division", "cases": [{"name": "x"}]}'}, "case 0"),
    ],
)
def test_nothing_to_ask_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: dict[str, str], said: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert main(["karmada", "--vectors", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["cooking"],
        ["karmada", "--suite", "cooking"],
        ["karmada", "--case", "nobody"],
        ["karmada", "--vectors", "/none"],
    ],
)
def test_what_is_not_there_is_said(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_deviation_is_counted_apart_and_only_with_the_answer_it_names() -> None:
    wrong = {**CASE, "expect": {"clusters": []}}
    ours = {"clusters": CASE["expect"]["clusters"]}
    system = runner.system_named("karmada")
    covering = runner.Deviation("division", "binding.spec.replicas", "is", 2, "why", ours)
    assert runner.run_suite(system, "division", [wrong], [covering]).deviating == 1
    other = runner.Deviation("division", "binding.spec.replicas", "is", 2, "why", {"clusters": 1})
    assert runner.run_suite(system, "division", [wrong], [other]).failed == ["two-clusters"]
    elsewhere = runner.Deviation("division", "binding.spec.replicas", "is", 3, "why", ours)
    assert runner.run_suite(system, "division", [wrong], [elsewhere]).failed == ["two-clusters"]
