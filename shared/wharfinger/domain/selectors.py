"""Label and field selectors, as Kubernetes writes them.

`Requirement` is one `matchExpressions` entry. Operators: In, NotIn, Exists, DoesNotExist, and, for
node terms, Gt and Lt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from wharfinger.domain.ids import LabelKey, LabelText
from wharfinger.domain.value import Value

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


class Requirement(Value, frozen=True):
    """One condition on one label. For Gt and Lt `values` holds a single integer, compared as an
    integer."""

    key: LabelKey
    operator: Operator
    values: tuple[LabelText, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":  # as in Kubernetes: an absent label satisfies NotIn
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                bound, actual = (
                    _integer(self.values[0] if len(self.values) == 1 else None),
                    _integer(value),
                )
                if bound is None or actual is None:
                    return False
                return actual > bound if self.operator == "Gt" else actual < bound


class LabelSelector(Value, frozen=True):
    """All of `match_labels` and all of `match_expressions`. An empty selector matches
    everything."""

    match_labels: dict[LabelKey, LabelText] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(k) == v for k, v in self.match_labels.items()) and all(
            r.holds(labels) for r in self.match_expressions
        )


class NodeTerm(Value, frozen=True):
    """One nodeSelectorTerm: all expressions and all fields hold. A term with neither matches no
    node."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        if not self.expressions and not self.fields:
            return False
        return all(r.holds(labels) for r in self.expressions) and all(
            r.holds({"metadata.name": name}) for r in self.fields
        )


def _integer(text: str | None) -> int | None:
    if text is None:
        return None
    body = text[1:] if text[:1] in "+-" else text
    return int(text) if body.isascii() and body.isdigit() else None
