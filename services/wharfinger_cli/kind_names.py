"""The kinds that `get` lists, and by which other words each is understood: one table."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from wharfinger_cli.failures import CommandError

KIND_NAMES: Mapping[str, tuple[str, ...]] = {
    "clusters": ("cluster", "cl"),
    "nodes": ("node", "no"),
    "bindings": ("binding", "b"),
    "policies": ("policy", "pol"),
    "nodepools": ("nodepool", "np"),
    "overlays": ("overlay", "nodeoverlays", "nodeoverlay"),
    "instance-types": ("instance-type", "instancetypes", "instancetype", "it"),
    "nodeclaims": ("nodeclaim", "nc"),
    "placements": ("placement", "pl"),
    "placementdecisions": ("placementdecision", "pd"),
    "resourcebindings": ("resourcebinding", "rb"),
    "nodeannotations": ("nodeannotation", "na"),
}
"""Plural -> singular and short names. Capitals make no difference."""

_MEANT = {word: kind for kind, words in KIND_NAMES.items() for word in (kind, *words)}


def kind_meant(word: str) -> str:
    """The plural that `word` means. CommandError: none of them."""
    found = _MEANT.get(word.lower())
    if found is None:
        near = difflib.get_close_matches(word.lower(), _MEANT, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise CommandError(f"get: expected one of {', '.join(KIND_NAMES)}, got {word!r}{hint}")
    return found
