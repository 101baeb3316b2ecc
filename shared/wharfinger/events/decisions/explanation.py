"""The recorded explanation of a decision: hashed and published with it, at most 2 KiB."""

from __future__ import annotations

from wharfinger.domain.ids import ClusterName, Remark, Word
from wharfinger.domain.value import Value


class ScoredCandidate(Value, frozen=True, gc=False):
    """Only in decisions of versions before 0.6. A candidate with its score (of a cluster 0..100, of
    a node the total of its profile), its estimate (how many more replicas fit), and where that
    number is from: `class` counted by the estimator, `totals` divided out of free totals, `grades`
    bounded by the sizes of nodes, too, `summary` the cluster's own, `quota` what a quota of its
    namespace leaves there, `pools` with nodes that would have to be made; empty when none was
    needed."""

    name: str
    score: int = 0
    estimate: int = 0
    estimated_by: Word = ""


class FailoverSets(Value, frozen=True):
    """The four sets of a failover, a few names of each and how many there are: targets that stay as
    they are (`reserved`), other clusters that are heard and not tainted (`available`), those of
    them that pass the filters (`candidates`), and the targets that are replaced (`failed`)."""

    reserved: tuple[ClusterName, ...] = ()
    available: tuple[ClusterName, ...] = ()
    candidates: tuple[ClusterName, ...] = ()
    failed: tuple[ClusterName, ...] = ()
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)


class Explanation(Value, frozen=True):
    """`refused`: how many candidates fell for each reason. `note`: one sentence for people.
    `failover`: where the decision replaces failed targets. `why`: what made the decision necessary,
    in a few words. `best`: the best candidate that was chosen and the best one that was not, with
    the number that they were compared by: of a cluster how many more replicas fit, of a node the
    total of its profile, of a cluster of a placement its total score.

    Everything else follows from the state before the decision, so `wharfinger explain` computes it.
    Versions before 0.6 recorded some of it, best first: `chosen`, `runners_up`, and `division`, the
    weight of each cluster."""

    candidates: int = 0
    feasible: int = 0
    refused: dict[Word, int] = {}
    chosen: tuple[ScoredCandidate, ...] = ()
    runners_up: tuple[ScoredCandidate, ...] = ()
    division: dict[str, int] = {}
    note: Remark = ""
    failover: FailoverSets | None = None
    why: Remark = ""
    best: dict[str, int] = {}


def explanation_of(data: Value) -> Explanation | None:
    """The recorded explanation of a decision; None: its kind has none, or it was read without."""
    found = getattr(data, "explanation", None)
    return found if isinstance(found, Explanation) else None
