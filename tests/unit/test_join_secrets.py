"""The namespaces whose Secrets are copied: what `join` takes, and which rights it prints."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any, cast

import pytest
from ruamel.yaml import YAML

from wharfinger.domain.actuation import Verb
from wharfinger.runtime.kube.examination import Examination
from wharfinger.runtime.kube.joined import JoinedCluster
from wharfinger.runtime.kube.kubeconfig import Access
from wharfinger.runtime.kube.rights import actuator_rights
from wharfinger_cli.failures import CommandError
from wharfinger_cli.join import JoinOptions, _notes, _Result, print_rights

WRITER = "wharfinger-actuator"
COPYING: tuple[Verb, ...] = ("copy", "templates")


def printed(options: JoinOptions, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    print_rights("oslo", options)
    return list(YAML(typ="safe", pure=True).load_all(StringIO(capsys.readouterr().out)))


@pytest.mark.parametrize(
    ("options", "verbs"),
    [
        (
            JoinOptions(mode="act", verbs=("copy",), secrets=("shop",)),
            ["create", "delete", "list", "patch", "watch"],
        ),
        (
            JoinOptions(mode="fleet", hub=True, verbs=("templates",), secrets=("shop",)),
            ["list", "watch"],
        ),
    ],
    ids=["member", "hub"],
)
def test_a_role_in_each_namespace_that_is_allowed_and_nowhere_else(
    options: JoinOptions, verbs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    manifests = printed(options, capsys)
    of_secrets = [
        one
        for one in manifests
        if any("secrets" in rule.get("resources", ()) for rule in one.get("rules", ()))
    ]
    assert [(one["kind"], one["metadata"]) for one in of_secrets] == [
        ("Role", {"name": WRITER, "namespace": "shop"})
    ]
    assert of_secrets[0]["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": verbs}]
    (binding,) = [
        one
        for one in manifests
        if one["kind"] == "RoleBinding" and one["metadata"]["namespace"] == "shop"
    ]
    assert binding["roleRef"]["kind"] == "Role"
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": WRITER, "namespace": "wharfinger-system"}
    ]


def test_by_default_no_right_to_secrets_is_printed() -> None:
    assert "secrets" not in str(actuator_rights(COPYING))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (JoinOptions(mode="act", verbs=("bind",), secrets=("shop",)), "expected --verb copy"),
        (JoinOptions(mode="observe", secrets=("shop",)), "expected --verb copy"),
        (JoinOptions(mode="act", verbs=("copy",), secrets=("*",)), "got '\\*'"),
        (JoinOptions(mode="act", verbs=("copy",), secrets=("kube-system",)), "kube-system: its"),
    ],
)
def test_a_namespace_that_cannot_be_allowed_is_refused_in_one_line(
    options: JoinOptions, why: str
) -> None:
    with pytest.raises(CommandError, match=f"--secrets: .*{why}|--secrets: {why}"):
        print_rights("oslo", options)


@pytest.mark.parametrize(
    ("hub", "note"),
    [
        (
            False,
            "Secrets that were copied into shop, store stay there, and are no longer read:"
            " the annotation wharfinger.io/copied-from is on them",
        ),
        (
            True,
            "Secrets that were copied from shop, store stay in member clusters while a workload"
            " there names them",
        ),
    ],
    ids=["member", "hub"],
)
def test_what_stays_where_a_namespace_is_no_longer_allowed_is_said(hub: bool, note: str) -> None:
    cluster = JoinedCluster("oslo", Access("https://oslo.test"), "fleet", hub=hub)
    found = Examination("v1.36.3", "u", 0.0, "", (), (), {}, 0, False)
    result = _Result(cluster, found, Path("oslo.yaml"), True, False, True)
    assert list(_notes(result)) == []
    ended = _Result(cluster, found, Path("oslo.yaml"), True, False, True, (), ("shop", "store"))
    assert list(_notes(ended)) == [note]


@pytest.mark.parametrize("verb", COPYING)
def test_no_right_to_delete_claims_is_printed(verb: Verb) -> None:
    rules: list[Any] = [
        rule for one in actuator_rights([verb]) for rule in cast(Any, one.get("rules", ()))
    ]
    (of_claims,) = [rule for rule in rules if "persistentvolumeclaims" in rule.get("resources", ())]
    assert of_claims["resources"] == ["persistentvolumeclaims"]
    assert "delete" not in of_claims["verbs"]
    assert "list" in of_claims["verbs"]
