"""The rights that are printed for a collector, and which of them a cluster cannot be joined
without."""

from __future__ import annotations

from typing import Any, cast

from wharfinger.domain.actuation import HUB_VERBS, VERBS
from wharfinger.runtime.kube.examination import KindRights
from wharfinger.runtime.kube.rights import (
    NOT_PROPAGATED,
    Manifest,
    actuator_rights,
    collector_rights,
    collector_rules,
)
from wharfinger.runtime.kube.watched import NODE_METRICS, WATCHED


def test_each_watched_kind_has_its_verbs_and_no_other() -> None:
    rules = cast(list[dict[str, Any]], collector_rules())
    for kind in WATCHED:
        (rule,) = [
            one
            for one in rules
            if kind.group in one.get("apiGroups", ()) and kind.resource in one["resources"]
        ]
        assert tuple(rule["verbs"]) == kind.verbs
    verbs = {verb for rule in rules for verb in rule["verbs"]}
    assert verbs == {"get", "list", "watch"}
    assert not any("secrets" in rule.get("resources", ()) for rule in rules)


def test_a_cluster_is_joined_without_the_right_to_read_its_metrics() -> None:
    assert not KindRights(NODE_METRICS, served=True, missing=("get", "list")).blocks
    others = [kind for kind in WATCHED if kind is not NODE_METRICS]
    assert all(KindRights(kind, served=True, missing=("watch",)).blocks for kind in others)


def _labels_of_namespace(manifests: list[Manifest]) -> object:
    (namespace,) = [one for one in manifests if one["kind"] == "Namespace"]
    return cast(dict[str, Any], namespace["metadata"]).get("labels", {})


def test_karmada_does_not_carry_the_namespace_of_a_hub_to_its_members() -> None:
    assert _labels_of_namespace(collector_rights(hub=True)) == NOT_PROPAGATED
    assert _labels_of_namespace(collector_rights()) == {}
    for verb in VERBS:
        expected = NOT_PROPAGATED if verb in HUB_VERBS else {}
        assert _labels_of_namespace(actuator_rights([verb])) == expected
