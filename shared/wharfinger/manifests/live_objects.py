"""Objects of an API server by the models of manifests: for kinds of which there are few."""

from __future__ import annotations

from typing import Any, cast

import msgspec
from pydantic import ValidationError

from wharfinger.domain.cluster_objects import ClusterObject, DaemonPods
from wharfinger.domain.quota import Quota
from wharfinger.manifests.cluster_fact import ClusterFact
from wharfinger.manifests.kinds import Kind
from wharfinger.manifests.kubernetes.core import DaemonSet, ResourceQuota
from wharfinger.manifests.kubernetes.levels import Levels
from wharfinger.manifests.kubernetes.live import UnreadableError, error_line
from wharfinger.manifests.model import LIVE, ExpectedError

_SYSTEM_LEVELS = Levels(())
"""Pods of a DaemonSet mostly have the priority classes that every cluster has."""


def read_object(kind: Kind, document: object) -> ClusterObject | Quota:
    """Fields of newer releases are skipped. UnreadableError."""
    found = cast("dict[str, Any]", document)
    try:
        model = kind.model.model_validate(
            {**found, "apiVersion": kind.api_version, "kind": kind.kind}, context=LIVE
        )
        if isinstance(model, ResourceQuota):
            return model.to_domain()
        assert isinstance(model, ClusterFact), "only these are watched"
        value = model.to_domain()
        if isinstance(value, DaemonPods) and isinstance(model, DaemonSet):
            priority = _SYSTEM_LEVELS.value_of(model.spec.template.spec)
            return msgspec.structs.replace(value, priority=priority)
        return value
    except (ValidationError, ExpectedError) as error:
        raise UnreadableError(found["metadata"]["name"], error_line(error)) from None
