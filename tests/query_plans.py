"""What PostgreSQL does for a statement."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any


def plan_nodes(explained: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """All nodes of a plan, from the rows of `explain (format json)`."""
    text = explained[0][0]
    yield from _nodes((json.loads(text) if isinstance(text, str) else text)[0]["Plan"])


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from _nodes(part)
