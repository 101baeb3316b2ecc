"""The kinds of objects that `objects` renders, by the names under which they are asked for."""

from __future__ import annotations

PLACEMENTS, DECISIONS, BINDINGS = "placements", "placementdecisions", "resourcebindings"
LOADS = "nodeannotations"
KINDS = (PLACEMENTS, DECISIONS, BINDINGS, LOADS)
