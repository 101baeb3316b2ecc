"""Topic `wharfinger.decisions`, what is decided about placements: which clusters one selects, in which groups.

Written by the stream `fleet/0` alone, since balance between placements needs one who sees all of them. Subject:
`placement/<namespace>/<name>`.

A set of clusters is one thing, and who takes half of it tears down what runs in the other half. So a set has a `generation`, and
one that is too large for a message comes in parts, all of one round, of which only the last says `complete`: a reader puts the
parts of a generation together and takes them when that one has come.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from wharfinger.domain.value import Name, Value
from wharfinger.events.decisions import Explanation

PART_SIZE = 1000
"""Clusters that one part names, and clusters that it says have left. With names of 253 characters it stays under 1 MiB."""

SATISFIED, MISCONFIGURED = "PlacementSatisfied", "PlacementMisconfigured"
"""The types of the two conditions."""

SelectionTrigger = Literal[
    "FirstSelection", "PlacementChanged", "ClustersChanged", "SetsChanged", "ScoresChanged", "TimePassed"
]
"""Why a placement was looked at: it is new, was changed, its clusters were, the sets it may use, their scores; or a toleration, a
score or a window ended."""


class DecidedGroup(Value, frozen=True):
    """A decision group, or the piece of it that is in this part. `scores`: its clusters with their totals; in order of name,
    as groups are."""

    index: int
    name: str = ""
    scores: dict[Name, int] = {}


class SelectionCondition(Value, frozen=True):
    """A condition of the placement's status, in the words of Open Cluster Management."""

    type: str
    status: str
    reason: str
    message: str = ""


class PlacementDecided(Value, frozen=True):
    """The placement selects exactly the clusters of `groups`, over all parts of the generation.

    `generation` rises with every change of clusters or groups; a decision of the same generation as the one before tells new
    conditions only. `unscheduled`: how many clusters are missing from the number asked for.
    `added`, `removed`: against the set before, each named in one part.
    """

    placement: Name
    trigger: SelectionTrigger
    generation: int
    groups: tuple[DecidedGroup, ...] = ()
    part: int = 1
    parts: int = 1
    complete: bool = True
    unscheduled: int = 0
    added: tuple[Name, ...] = ()
    removed: tuple[Name, ...] = ()
    conditions: tuple[SelectionCondition, ...] = ()
    explanation: Explanation = Explanation()


class PlacementHeld(Value, frozen=True):
    """Other clusters have come to rank higher, and the stabilisation window keeps the set as it is until `until_us` (microseconds
    of the epoch): it moves then if that has been so all the time. 0: it is no longer so, nothing will move. `better`, `worse`:
    which clusters would come and go, a few of them."""

    placement: Name
    until_us: int = 0
    better: tuple[Name, ...] = ()
    worse: tuple[Name, ...] = ()


class PlacementReleased(Value, frozen=True):
    """The placement was removed, and its set with it. `clusters`: how many it held."""

    placement: Name
    generation: int
    clusters: int = 0


def joined(pieces: Iterable[DecidedGroup]) -> tuple[DecidedGroup, ...]:
    """Groups out of their pieces, in the order in which they begin."""
    found: dict[int, DecidedGroup] = {}
    for piece in pieces:
        before = found.get(piece.index)
        scores = piece.scores if before is None else {**before.scores, **piece.scores}
        found[piece.index] = DecidedGroup(piece.index, piece.name, scores)
    return tuple(found.values())
